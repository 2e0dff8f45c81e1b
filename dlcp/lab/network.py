"""A fabric's namespaces and cables, without what forwards in them: one namespace per host and switch, veth between.

Segmentation is switched off on every interface, so that what a switch sees, drops or marks is one packet, and a host's
checksums are complete where a program reads its packets. Neighbours are entered by hand: address resolution would wait
a second for each lost answer. Every host's interface is shaped to its link's rate, since a network card cannot send
faster than its cable either; without that the switch's input would see bursts that no cable carries. TCP's algorithm is
a property of the route, as the sysctl is refused in namespaces.

Invariant: everything here is found again from the fabric and the prefix, so that another process can change it. Lines
that set up a node can be run again, which mends what the kernel forgets of an interface that was down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from dlcp.lab import namespaces
from dlcp.lab.fabric import Fabric, Link
from dlcp.lab.namespaces import INTERFACE, batch, run
from dlcp.lab.next_hops import next_hops

CONGESTION = "cubic"
# What a host may have waiting for its own cable: more than a socket's buffer, so that the host itself loses nothing.
HOST_QUEUE_BYTES = 4_000_000
_SUBNETS = ("10.78.0.0/24", "fd78::/64")
# For interface $i of a shell. Not every kernel lets the last be changed; where it does not, `gso off` covers it.
SEGMENT_NOTHING = (
    "ethtool -K $i tso off gso off gro off || exit 1",
    "ethtool -K $i tx-udp-segmentation off 2>/dev/null || true",
)


class Network(namespaces.Nodes):
    """Namespaces and cables of a fabric. `routed`: its switches are routers, so hosts send to them and not through.

    around: the cut links that routing knows of (next_hops.py).
    """

    def __init__(self, fabric: Fabric, prefix: str, *, routed: bool, around: Collection[str] = ()) -> None:
        super().__init__(prefix)
        self.fabric = fabric
        self.routed = routed
        self.around = frozenset(around)

    # ---- names ----

    def interface(self, node: str, peer: str) -> str:
        """What the node calls its end of the cable to `peer`."""
        return INTERFACE if node.startswith("h") else peer

    # ---- making it ----

    def build(self) -> None:
        """Makes all of it. LabError: a command failed; what was made until then is `remove`'s."""
        nodes = [*self.fabric.host_names, *self.fabric.switch_names]
        lines = [f"netns add {self.namespace(node)}" for node in nodes]
        for link in self.fabric.each_link():
            low, high = (
                f"name {self.interface(node, peer)} address {self.fabric.mac(node, peer)} mtu {self.fabric.mtu} "
                f"netns {self.namespace(node)}"
                for node, peer in link.ends
            )
            lines.append(f"link add {low} type veth peer {high}")
        batch("ip", None, lines)
        each_of(nodes, self._set_up)
        for link in self.fabric.each_link():
            if link.lower.startswith("h"):
                self.set_host_rate(link.lower, link.rate_bps)

    def remove(self) -> None:
        """Ends what runs in it, and removes it."""
        namespaces.remove(self.prefix)

    def _set_up(self, node: str) -> None:
        interfaces = [self.interface(node, peer) for peer in self._peers(node)]
        script = [
            f"for i in {' '.join(interfaces)}; do",
            *SEGMENT_NOTHING,
            "ethtool -K $i rxvlan off txvlan off 2>/dev/null || true",
            *["ethtool -K $i tx off || exit 1"] * (not self.routed),
            "done",
        ]
        # IPv6 announces itself on what has it; ports of a switch that bridges have no addresses at all.
        off = int(not node.startswith("h") and not self.routed)
        script += [
            f"echo {off} > /proc/sys/net/ipv6/conf/{name}/disable_ipv6" for name in ("all", *interfaces)
        ]
        if self.routed and not node.startswith("h"):
            script += [
                "cd /proc/sys/net",
                "echo 1 > ipv4/ip_forward",
                "echo 1 > ipv6/conf/all/forwarding",
                "echo 0 > ipv4/conf/all/rp_filter",
                # No route over a cable that is cut, as with any routing protocol.
                "echo 1 > ipv4/conf/all/ignore_routes_with_linkdown",
                "echo 1 > ipv6/conf/all/ignore_routes_with_linkdown",
                *(f"echo 0 > ipv4/conf/{name}/rp_filter" for name in interfaces),
                # By addresses, ports and protocol, so that a sender's path, a source port, chooses the next hop.
                "echo 1 > ipv4/fib_multipath_hash_policy",
                "echo 1 > ipv6/fib_multipath_hash_policy",
            ]
        run("ip", "netns", "exec", self.namespace(node), "sh", "-c", "\n".join(["set -e", *script]))
        batch("ip", self.namespace(node), self._lines(node))

    def _peers(self, node: str) -> list[str]:
        return [peer for link in self.fabric.each_link() for own, peer in link.ends if own == node]

    def _lines(self, node: str) -> list[str]:
        """The lines of `ip -batch` in that node's namespace; may be run again."""
        lines = ["link set lo up"]
        for peer in self._peers(node):
            lines += [f"link set {self.interface(node, peer)} addrgenmode none up"]
        if node.startswith("h"):
            return lines + self._host_lines(int(node[1:]))
        return lines + (self._router_lines(node) if self.routed else [])

    def _host_lines(self, host: int) -> list[str]:
        fabric = self.fabric
        lines = []
        addresses = (fabric.address(host), fabric.address_v6(host))
        for address, subnet in zip(addresses, _SUBNETS, strict=True):
            nodad = " nodad" if ":" in address else ""
            lines += [
                f"addr replace {address}/{subnet.rpartition('/')[2]} dev {INTERFACE}{nodad}",
                f"route replace {subnet} dev {INTERFACE} src {address} congctl {CONGESTION}",
            ]
        leaf = fabric.leaf_of(host)
        for other in range(fabric.hosts):
            if other != host:
                mac = fabric.mac(leaf, f"h{host}") if self.routed else host_mac(fabric, other)
                lines += [
                    f"neigh replace {address} lladdr {mac} nud permanent dev {INTERFACE}"
                    for address in (fabric.address(other), fabric.address_v6(other))
                ]
        return lines

    def _router_lines(self, switch: str) -> list[str]:
        """Routes to every host: by the cable, or by all equal next hops."""
        fabric = self.fabric
        lines = []
        peers = self._peers(switch)
        for peer in peers:
            if not peer.startswith("h"):
                for gateway in _gateways(peer):
                    mac = fabric.mac(peer, switch)
                    lines.append(f"neigh replace {gateway} lladdr {mac} nud permanent dev {peer}")
        for host in range(fabric.hosts):
            name, leaf = f"h{host}", fabric.leaf_of(host)
            for version, address in enumerate((fabric.address(host), fabric.address_v6(host))):
                whole = (32, 128)[version]
                if name in peers:
                    lines += [
                        f"neigh replace {address} lladdr {host_mac(fabric, host)} nud permanent dev {name}",
                        f"route replace {address}/{whole} dev {name}",
                    ]
                    continue
                by = (leaf,) if switch.startswith("s") else next_hops(fabric, switch, [leaf], self.around)
                hops = " ".join(f"nexthop via {_gateways(hop)[version]} dev {hop} onlink" for hop in by)
                lines.append(f"route replace {address}/{whole} {hops}")
        return lines

    # ---- changing it ----

    def set_host_rate(self, host: str, rate_bps: int) -> None:
        """What that host's interface sends."""
        self.shape(host, INTERFACE, rate_bps, HOST_QUEUE_BYTES)

    def shape(self, node: str, interface: str, rate_bps: int, queue_bytes: int) -> None:
        """One queue, first in first out, at a rate."""
        # A millisecond's worth, or a few frames. One TCP stream filled 98.3 % and more of such links from 50 to 200
        # Mbit/s through any kind of switch, on two busy cores. At 1 Gbit/s it was 99.9 % without a policy; through
        # switches with one 57 to 99, as processors were free. That is not the bucket's: one twice as large changed
        # nothing at the software switch, and at the kernel's the policy dropped the longer bursts.
        burst_bytes = max(4 * (self.fabric.mtu + 14), rate_bps // 8000)
        shape(self.namespace(node), interface, rate_bps, burst_bytes, queue_bytes)

    def set_down(self, link: Link, down: bool) -> None:
        """Pulls the link's cable, or plugs it in again. Both ends see no carrier; hosts keep what they have set up."""
        port = self.interface(link.upper, link.lower)
        run("ip", "-n", self.namespace(link.upper), "link", "set", port, "down" if down else "up")
        if not down:
            for node in (link.lower, link.upper):
                batch("ip", self.namespace(node), self._lines(node))

    def go_around(self, links: Collection[str]) -> None:
        """Routing knows that these links are cut, and of no others: where switches route, leaves choose anew."""
        self.around = frozenset(links)
        if self.routed:
            for leaf in self.fabric.leaf_names:
                batch("ip", self.namespace(leaf), self._router_lines(leaf))


def host_mac(fabric: Fabric, host: int) -> str:
    """Of this host's only interface."""
    return fabric.mac(f"h{host}", fabric.leaf_of(host))


def host_places(fabric: Fabric, switch: str) -> dict[str, str]:
    """Where every host lies, by its MAC address: behind a port, or a group of ports. So nothing need be learned."""
    ports, groups = fabric.ports(switch), fabric.path_groups(switch)
    found = {}
    for host in range(fabric.hosts):
        hops = (f"h{host}", fabric.leaf_of(host), *groups, "s0")
        found[host_mac(fabric, host)] = next(hop for hop in hops if hop in ports or hop in groups)
    return found


def shape(
    namespace: str,
    interface: str,
    rate_bps: int,
    burst_bytes: int,
    queue_bytes: int,
    place: Sequence[str] = ("root", "handle", "1:"),
) -> None:
    """One queue, first in first out, at a rate. `place`: where in the tree of tc's queues."""
    limits = ["rate", f"{rate_bps}bit", "burst", burst_bytes, "limit", queue_bytes]
    run("tc", "-n", namespace, "qdisc", "replace", "dev", interface, *place, "tbf", *limits)


def each_of(nodes: Sequence[str], function: Callable[[str], object]) -> None:
    """Calls the function for every node, many at a time; raises what the first one that failed raised."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(function, nodes))


def _gateways(switch: str) -> tuple[str, str]:
    """Addresses that stand for a switch as next hop; they are entered as neighbours, and nobody has them."""
    kind, number = (1 if switch.startswith("l") else 2), int(switch[1:])
    return f"169.254.{kind}.{number + 1}", f"fe80::{kind}:{number + 1:x}"
