"""Network namespaces joined by virtual Ethernet, with a rate and with loss.

    with Lab(hosts=2, rate_bps=10**9, loss=Loss(ratio=0.01)) as lab:
        process = lab.start(0, ["iperf3", "-s"])

Two hosts are joined directly, and each shapes what it sends. More hang on a bridge in a namespace of its
own, the switch, whose ports are shaped too: a port's queue is where an incast meets. Host i is 10.77.0.(i + 1)
on `eth-lab`. At a switch single links may be slower or lose more than the others (Link).

Loss is random, per packet, on arrival. Segmentation is switched off on every interface, so that what is lost
is one packet and never a 64 KB super-packet of TCP's or UDP_SEGMENT's. The algorithm of TCP is a property of
the route, as the sysctl is refused in namespaces; without it a host that defaults to BBR would measure BBR.

Invariant: leaving the context ends the processes that `start` began and removes the namespaces, whatever
happened; what a killed run left is removed by the next one. Needs root, iproute2, ethtool and clang with
libbpf's headers: `missing()` says what is not there. Only a delay needs netem, which not every kernel has.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dlcp.lab import losses, namespaces, state
from dlcp.lab.losses import NO_LOSS, Arrivals, Loss
from dlcp.lab.namespaces import INTERFACE, LabError, Nodes, batch, prefix_of, run
from dlcp.lab.network import SEGMENT_NOTHING, shape

SWITCH = "l0"
_serial = itertools.count()

# 8 ms of queue at 1 Gbit/s, as in a switch with a deep port buffer.
QUEUE_BYTES = 1_000_000
# A bucket that is full loses the link's time. TCP leaves about a millisecond of data to the queue, so the bucket has to
# last until its threads come again: at 1 Gbit/s on two busy cores one stream of CUBIC filled 82 % of the link with
# 64 KB, and 99.9 % with 128, 250 and 500; at 50 to 250 Mbit/s 99.8 % and more with 64 KB.
BURST_BYTES_MIN, BURST_S = 64 * 1024, 0.002
# Delayed at once: 10 Gbit/s of full frames for 100 ms. netem's own default, 1000, would drop most of them.
DELAYED_PACKETS_MAX = 100_000


@dataclass(frozen=True)
class Link:
    """One host's cable to the switch, where it differs from the others; None: as the lab's."""

    rate_bps: int | None = None
    """Of each direction."""
    loss: Loss | None = None
    """Of each direction: a bad cable loses what goes and what comes. The lab's own loss is on arrival at hosts."""

    def __post_init__(self) -> None:
        if self.rate_bps is not None and self.rate_bps < 1:
            raise ValueError(f"rate_bps is {self.rate_bps}; accepted: 1 or more")


def missing() -> str | None:
    """Why no lab can be made here, or None."""
    return namespaces.missing("the network lab") or losses.missing()


class Lab(Nodes):
    """A network of `hosts` hosts, from `with` to its end.

    rate_bps: what each interface carries; None: as fast as the processor. delay_s: of what a host sends; needs
    netem. loss: on arrival at every host. links: by host, those that differ from the rest; 3 hosts or more. mtu in
    bytes. congestion: TCP's. offload: leave segmentation on (only without loss). merge: packets travel one by one, and
    receiving hosts merge them, as the drivers of network cards do (GRO).
    Raises LabError if a step fails, FabricError if others may write where labs are kept (state.py), and ValueError for
    settings that contradict each other.
    """

    def __init__(
        self,
        *,
        hosts: int = 2,
        rate_bps: int | None = None,
        queue_bytes: int = QUEUE_BYTES,
        delay_s: float = 0.0,
        loss: Loss = NO_LOSS,
        links: Mapping[int, Link] | None = None,
        mtu: int = 1500,
        congestion: str = "cubic",
        offload: bool = False,
        merge: bool = False,
    ) -> None:
        if not 2 <= hosts <= 64:
            raise ValueError(f"hosts is {hosts}; accepted: 2 to 64")
        if not 0 <= delay_s <= 10:
            raise ValueError(f"delay_s is {delay_s}; accepted: 0 to 10")
        links = dict(links or {})
        if links and hosts == 2:
            raise ValueError(
                "hosts is 2: they share one link; links of their own hang on a switch, with 3 hosts or more"
            )
        for host in links:
            if not 0 <= host < hosts:
                raise ValueError(f"links has host {host}; accepted: 0 to {hosts - 1}")
        if offload and (loss or any(link.loss for link in links.values())):
            raise ValueError("with offload one drop would be a super-packet; take loss or offload")
        super().__init__(prefix_of(f"n{next(_serial)}"))
        self.hosts = hosts
        self.rate_bps = rate_bps
        self.queue_bytes = queue_bytes
        self.delay_s = delay_s
        self.mtu = mtu
        self.congestion = congestion
        self.offload = offload
        self.merge = merge
        self.addresses = [f"10.77.0.{i + 1}" for i in range(hosts)]
        self._loss = loss
        self._links = links

    def __enter__(self) -> Lab:
        state.remove_orphans()
        self._scratch = tempfile.TemporaryDirectory(prefix="dlcp-lab-")
        try:
            self._build()
            self.set_loss(self._loss)
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._tear_down()

    # What is wrong with it.

    def set_link(self, host: int, *, up: bool) -> None:
        """Pulls a host's cable out of the switch, or plugs it in again. Raises ValueError: there is no switch."""
        if self.hosts == 2:
            raise ValueError("hosts is 2: a cable can be pulled at a switch, with 3 hosts or more")
        # At the switch's end: the host keeps its address and routes, as it does when a switch fails.
        run("ip", "-n", self.namespace(SWITCH), "link", "set", f"port{host}", "up" if up else "down")

    def set_loss(self, loss: Loss) -> None:
        """Changes the loss of every host whose link has none of its own, and counts arrivals from zero everywhere."""
        self._loss = loss
        for host in range(self.hosts):
            own = self._link(host).loss
            for place in self._loss_places(host):
                losses.set_loss(*place, Path(self._scratch.name, "fault.o"), loss if own is None else own)

    def arrivals(self, host: int) -> Arrivals:
        """What the loss programs of that host's link saw; zeros without loss."""
        seen = [losses.count_arrivals(*place) for place in self._loss_places(host)]
        return Arrivals(sum(one.packets for one in seen), sum(one.dropped for one in seen))

    def queue_drops(self) -> int:
        """Packets that overflowed a shaped queue anywhere in the network."""
        shown = (
            json.loads(run("tc", "-n", namespace, "-s", "-j", "qdisc", "show", "dev", port) or "[]")
            for namespace, port, _ in self._ports()
        )
        return sum(queue["drops"] for queues in shown for queue in queues if queue["kind"] == "tbf")

    # How it is made.

    def _link(self, host: int) -> Link:
        return self._links.get(host, Link())

    def _ports(self) -> Iterator[tuple[str, str, int]]:
        """Namespace and name of every end of a cable, and the host whose link it is."""
        for host in range(self.hosts):
            yield self.namespace(host), INTERFACE, host
            if self.hosts > 2:
                yield self.namespace(SWITCH), f"port{host}", host

    def _loss_places(self, host: int) -> list[tuple[str, str]]:
        """Namespaces and interfaces where packets of that host's link are lost, on arrival."""
        switch = [(self.namespace(SWITCH), f"port{host}")] if self._link(host).loss is not None else []
        return [(self.namespace(host), INTERFACE), *switch]

    def _build(self) -> None:
        has_switch = self.hosts > 2
        nodes = [*range(self.hosts), *[SWITCH] * has_switch]
        batch("ip", None, [f"netns add {self.namespace(node)}" for node in nodes])
        ends = [f"name {port} mtu {self.mtu} netns {namespace}" for namespace, port, _ in self._ports()]
        cables = zip(ends[::2], ends[1::2], strict=True)
        batch("ip", None, [f"link add {one} type veth peer {other}" for one, other in cables])
        if has_switch:
            lines = ["link add switch type bridge", f"link set switch mtu {self.mtu} addrgenmode none up"]
            lines += [f"link set port{host} addrgenmode none master switch up" for host in range(self.hosts)]
            batch("ip", self.namespace(SWITCH), lines)
        for host, address in enumerate(self.addresses):
            # No IPv6: its announcements would be packets that nobody in the measurement sent.
            lines = [
                "link set lo up",
                f"link set {INTERFACE} addrgenmode none up",
                f"addr add {address}/24 dev {INTERFACE}",
                f"route replace 10.77.0.0/24 dev {INTERFACE} src {address} congctl {self.congestion}",
            ]
            batch("ip", self.namespace(host), lines)
        for namespace, port, host in self._ports():
            self._finish_interface(namespace, port, self._link(host).rate_bps or self.rate_bps)

    def _finish_interface(self, namespace: str, interface: str, rate_bps: int | None) -> None:
        if not self.offload:
            script = "\n".join(["set -e", f"i={interface}", *SEGMENT_NOTHING])
            run("ip", "netns", "exec", namespace, "sh", "-c", script)
        if self.merge and interface == INTERFACE:
            run("ip", "netns", "exec", namespace, "ethtool", "-K", interface, "gro", "on")
        is_delayed = bool(self.delay_s) and interface == INTERFACE
        if is_delayed:
            self._add_delay(namespace)
        if rate_bps is not None:
            # Behind the delay, as tc-netem(8) has it.
            place = ["parent", "1:1", "handle", "2:"] if is_delayed else ["root"]
            burst_bytes = max(BURST_BYTES_MIN, round(rate_bps / 8 * BURST_S))
            shape(namespace, interface, rate_bps, burst_bytes, self.queue_bytes, place)

    def _add_delay(self, namespace: str) -> None:
        """Delays what leaves a host."""
        delay = ["netem", "delay", f"{round(self.delay_s * 1e6)}us", "limit", DELAYED_PACKETS_MAX]
        try:
            run("tc", "-n", namespace, "qdisc", "add", "dev", INTERFACE, "root", "handle", "1:", *delay)
        except LabError as error:
            if "kind is unknown" not in str(error):
                raise
            raise LabError(f"{error} This kernel has no netem (sch_netem): leave the delay out") from error

    def _tear_down(self) -> None:
        self.end()
        namespaces.remove(self.prefix)
        self._scratch.cleanup()
