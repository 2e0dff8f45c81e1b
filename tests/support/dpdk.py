"""Beds for the DPDK driver without a network card: its virtual devices, between processes or over the kernel's cables.

- memif: two devices joined by shared memory, of one process or of two; no root, no kernel on the way.
- af_packet: DPDK on one end of a cable (veth) of a host in a namespace, hosts joined by a bridge of the kernel that
  loses and marks what it is told to. A host whose rank uses the kernel's own sockets sits on the same bridge.

What is here says how to start a rank, as settings of an endpoint; ranks run in stations, one process for each EAL.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import huge_pages as pages
from dlcp.transport import plugins
from tests.support import namespaces, station_ranks
from tests.support.namespaces import Namespace
from tests.support.stations import PATIENCE_S, Station

PLUGIN = plugins.path("dpdk")
"""Where a wheel puts it."""
# Memory of the process in place of huge pages, for a few pools of packet buffers.
NO_HUGE = "--no-huge -m 128 --no-pci"
HUGE_PAGES = 32
_TABLE = "dlcp_test"


@functools.cache
def missing() -> str | None:
    """Why the driver cannot be tested here, or None."""
    lack = plugins.why_not("dpdk")
    return None if lack is None else str(lack)


@functools.cache
def missing_bed() -> str | None:
    """Why there can be no hosts on a bridge here, or None."""
    for program, package in (("ethtool", "ethtool"), ("nft", "nftables")):
        if shutil.which(program) is None:
            return f"the bed needs {program} (Debian: {package})"
    return missing() or namespaces.missing()


# --- memif --------------------------------------------------------------------------------------------------


def memif(socket: Path, number: int, *, server: bool, words: str = "") -> str:
    """The device net_memif<number> at one end of `socket`, as an EAL argument. The server opens it first."""
    role = "server" if server else "client"
    return f"--vdev=net_memif{number},role={role},id=0,socket={socket},socket-abstract=no{words}"


def memif_of_one_process(directory: Path) -> list[dict[str, Any]]:
    """Settings of two endpoints of one process, joined by shared memory of DPDK."""
    ends = [memif(directory / "memif.sock", number, server=number == 0) for number in range(2)]
    return [
        {
            "driver": "dpdk",
            "driver_options": f"port=net_memif{number}",
            "bind_host": f"10.77.0.{number + 1}/24",
            "eal_arguments": " ".join([NO_HUGE, *ends]),
        }
        for number in range(2)
    ]


def memif_of_two_processes(
    socket: Path, number: int, *, memory: str = NO_HUGE, words: str = "", **more: Any
) -> dict[str, Any]:
    """Settings of the rank at one end of `socket`, each in a process of its own; 0 opens first."""
    return {
        "driver": "dpdk",
        "driver_options": f"port=net_memif0 {words}".rstrip(),
        "bind_host": f"10.77.0.{number + 1}/24",
        "eal_arguments": f"{memory} {memif(socket, 0, server=number == 0)}",
    } | more


# --- hosts on a bridge --------------------------------------------------------------------------------------


class Host:
    """One host: a namespace, its interface eth0, and addresses that the kernel or a rank over DPDK may have."""

    def __init__(self, number: int, namespace: Namespace, mtu_bytes: int) -> None:
        self.number = number
        self.namespace = namespace
        self.mtu_bytes = mtu_bytes
        self.ipv4 = f"10.78.0.{number + 1}"
        self.ipv6 = f"fd00:78::{number + 1}"

    def udp(self, *, ipv6: bool = False, **more: Any) -> dict[str, Any]:
        """Settings of a rank on the kernel's sockets. give_addresses() comes first."""
        return {"bind_host": self.ipv6 if ipv6 else self.ipv4} | more

    def dpdk(
        self, *, ipv6: bool = False, memory: str = NO_HUGE, words: str = "", **more: Any
    ) -> dict[str, Any]:
        """Settings of a rank on DPDK; `words`: of driver_options, besides its port."""
        # A slot of the kernel's ring holds a frame and its own header, and a block of the ring whole slots.
        slots = ",blocksz=65536,framesz=16384,framecnt=512" if self.mtu_bytes > 1900 else ""
        return {
            "driver": "dpdk",
            "driver_options": f"port=net_af_packet0 {words}".rstrip(),
            "bind_host": f"{self.ipv6}/64" if ipv6 else f"{self.ipv4}/24",
            "eal_arguments": f"{memory} --vdev=net_af_packet0,iface=eth0{slots}",
        } | more

    def give_addresses(self) -> None:
        """Its addresses to the kernel, for a rank on sockets."""
        self.namespace.ip(f"addr replace {self.ipv4}/24 dev eth0")
        self.namespace.ip(f"addr replace {self.ipv6}/64 dev eth0 nodad")
        self.namespace.ip(f"addr replace fe80::{self.number + 1}/64 dev eth0 nodad")

    def mac(self) -> str:
        """Of eth0, whoever uses it."""
        shown = self.namespace.command("cat", "/sys/class/net/eth0/address")
        return subprocess.run(shown, capture_output=True, text=True, check=True).stdout.strip()

    def ping(self, address: str, *more: str) -> subprocess.CompletedProcess[str]:
        """One ping of the kernel's from here, awaited for long: an answer may be late, and is not lost then."""
        words = ("ping", "-n", "-c", 1, "-W", f"{PATIENCE_S:g}", *more, address)
        return subprocess.run(self.namespace.command(*words), capture_output=True, text=True)

    def neighbours(self) -> dict[str, dict[str, Any]]:
        """What the kernel knows of whom, by address."""
        words = ["ip", "-n", self.namespace.name, "-j", "neigh", "show"]
        shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return {entry["dst"]: entry for entry in json.loads(shown or "[]")}


class Bridge:
    """The bridge in the middle: it may lose and mark datagrams."""

    def __init__(self, namespace: Namespace, hosts: int) -> None:
        self.namespace = namespace
        self.hosts = hosts

    def treat(self, *, loss_ratio: float = 0.0, mark_ratio: float = 0.0, data_max: int | None = None) -> None:
        """From now on: each UDP datagram lost so often, and of those that may be marked, so many marked.

        `data_max`: of each host and family, the data packets are lost after so many of them: ranks hear each other, and
        no message gets on. Counts start from zero. Nothing else is lost, so neighbours are found.
        """
        rules = _rules(loss_ratio, mark_ratio, data_max, self.hosts)
        self._nft(f"add table bridge {_TABLE}\ndelete table bridge {_TABLE}\n{rules}")

    def counted(self, what: str) -> int:
        """Datagrams `lost` or `marked` since treat()."""
        words = self.namespace.command("nft", "-j", "list", "counters")
        shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)[
            "nftables"
        ]
        return sum(
            entry["counter"]["packets"] for entry in shown if entry.get("counter", {}).get("name") == what
        )

    @contextlib.contextmanager
    def cut(self, number: int) -> Iterator[None]:
        """The cable to a host is cut until the end of `with`: the host sees no carrier."""
        self.namespace.ip(f"link set eth{number} down")
        try:
            yield
        finally:
            self.namespace.ip(f"link set eth{number} up")

    def frames(self) -> int:
        """Frames that came from all hosts so far."""
        words = ["ip", "-n", self.namespace.name, "-j", "-s", "link", "show", "master", "br0"]
        shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        return sum(port["stats64"]["rx"]["packets"] for port in shown)

    def _nft(self, rules: str) -> None:
        done = subprocess.run(
            self.namespace.command("nft", "-f", "-"), input=rules, capture_output=True, text=True
        )
        assert done.returncode == 0, f"nft -f - <<EOF\n{rules}\nEOF\n{done.stderr}"


def _rules(loss_ratio: float, mark_ratio: float, data_max: int | None, hosts: int) -> str:
    lose = f"numgen random mod 10000 < {round(loss_ratio * 10000)} counter name lost drop"
    # Byte 1 of a packet, behind the 8 of UDP, is its type: 1 and 4 are data, with the long and the short header.
    stop = f"@th,72,8 {{ 1, 4 }} numgen inc mod {2**31} >= {data_max} counter name lost drop"
    mark = f"numgen random mod 10000 < {round(mark_ratio * 10000)} counter name marked"
    chain = []
    if loss_ratio:
        chain += [f"ip protocol udp {lose}", f"ip6 nexthdr udp {lose}"]
    if data_max is not None:
        for number in range(hosts):
            chain += [f"iifname eth{number} {family} udp {stop}" for family in ("ip protocol", "ip6 nexthdr")]
    if mark_ratio:
        chain += [
            f"ip protocol udp ip ecn ect0 {mark} ip ecn set ce",
            f"ip6 nexthdr udp ip6 ecn ect0 {mark} ip6 ecn set ce",
        ]
    return "\n".join(
        [
            f"table bridge {_TABLE} {{",
            "counter lost {}",
            "counter marked {}",
            "chain forward {",
            "type filter hook forward priority 0;",
            *chain,
            "}",
            "}",
        ]
    )


@dataclass(frozen=True)
class Bed:
    """Hosts on a bridge; host n has station n."""

    bridge: Bridge
    hosts: list[Host]
    stations: list[Station]

    @contextlib.contextmanager
    def checksums_left_to_cards(self) -> Iterator[None]:
        """Until the end of `with`, as such cables are at first: the kernel writes no checksums, nor does anybody."""
        ends = [(host.namespace, "eth0") for host in self.hosts]
        ends += [(self.bridge.namespace, f"eth{host.number}") for host in self.hosts]
        for namespace, interface in ends:
            _set_features(namespace, interface, ["tx"], "on")
        try:
            yield
        finally:
            for namespace, interface in ends:
                _as_on_a_wire(namespace, interface)

    def open_jobs(self, directory: Path, ranks: int, **settings: Any) -> None:
        """A job of the first so many stations, rank n on station n: 0 on sockets, the others on DPDK."""
        places = [host.dpdk() if host.number else host.udp() for host in self.hosts[:ranks]]
        calls = [
            station.start(
                station_ranks.open_job, str(directory), number, ranks, shm=False, **place, **settings
            )
            for number, (station, place) in enumerate(zip(self.stations, places, strict=False))
        ]
        for call in calls:
            call.result()


@contextlib.contextmanager
def bed(hosts: int, mtu_bytes: int = 1500) -> Iterator[Bed]:
    """A bridge, and hosts with a cable to it. Host 0 has its addresses in the kernel, for a rank on sockets.

    The others have none: they are for ranks on DPDK, which have them.
    """
    with contextlib.ExitStack() as stack:
        middle = stack.enter_context(Namespace())
        silent = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        middle.run(lambda: silent.write_text("1"))
        # No snooping: neighbour discovery's groups reach whoever listens without having said so.
        middle.ip(f"link add br0 mtu {mtu_bytes} type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
        middle.ip("link set br0 up")
        found = []
        for number in range(hosts):
            namespace = stack.enter_context(Namespace())
            namespace.join(middle, "eth0", f"eth{number}")
            for end, name in ((namespace, "eth0"), (middle, f"eth{number}")):
                end.ip(f"link set {name} mtu {mtu_bytes}")
                _as_on_a_wire(end, name)
            middle.ip(f"link set eth{number} master br0")
            middle.ip(f"link set eth{number} up")
            namespace.ip("link set eth0 up")
            found.append(Host(number, namespace, mtu_bytes))
        found[0].give_addresses()
        stations = [
            stack.enter_context(
                Station(f"{host.number}, {'DPDK' if host.number else 'sockets'}", host.namespace)
            )
            for host in found
        ]
        yield Bed(Bridge(middle, hosts), found, stations)


def _as_on_a_wire(namespace: Namespace, interface: str) -> None:
    """Frames with checksums, none longer than the MTU: on a cable of the kernel's, what a card would do is left out."""
    _set_features(namespace, interface, ["tx", "tso", "gso", "gro", "tx-udp-segmentation"], "off")


def _set_features(namespace: Namespace, interface: str, features: Sequence[str], to: str) -> None:
    words = namespace.command("ethtool", "-K", interface, *(word for name in features for word in (name, to)))
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


# --- huge pages ---------------------------------------------------------------------------------------------


def huge_pages(count: int = HUGE_PAGES) -> contextlib.AbstractContextManager[str | None]:
    """At least `count` free pages of 2 MB, those that were made for it given back at the end; or why there are none."""
    return pages.reserve(count)


def free_huge_pages() -> int:
    """Pages of 2 MB that nobody uses."""
    return pages.free()
