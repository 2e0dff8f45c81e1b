"""UDP sockets: the buffers that the kernel grants, the options that dlcp uses, and what was dropped since the boot.

Asks as the driver does (native/io/udp_socket.cpp): first past the limit, which takes CAP_NET_ADMIN, then within it. The
kernel says nothing when it grants less, so the grant is read back.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping

from dlcp.doctor.files import lines
from dlcp.doctor.finding import Finding, Topic, listed
from dlcp.transport import Settings

BUFFERS, KERNEL, SOCKETS, DROPS = map(Topic, ("buffers", "kernel", "sockets", "drops"))
# What the driver asks for when nothing is set (native/io/udp_driver.cpp).
_BUFFER_BYTES_DEFAULT = 8 * 1024 * 1024
# linux/udp.h, asm-generic/socket.h; Python has no names for them.
_UDP_SEGMENT, _UDP_GRO = 103, 104
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 32, 33, 35
_IP_RECVTOS, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 13, 10, 3
# Level, option, value; its name, and what its lack costs.
_OPTIONS = (
    (socket.IPPROTO_UDP, _UDP_SEGMENT, 0, "UDP_SEGMENT (Linux 4.18)", "sending costs ten times more CPU"),
    (socket.IPPROTO_UDP, _UDP_GRO, 1, "UDP_GRO (Linux 5.0)", "receiving costs several times more CPU"),
    (socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS", "delays include this host's own"),
    (socket.IPPROTO_IP, _IP_RECVTOS, 1, "IP_RECVTOS", "congestion marks of switches are not seen"),
    (socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE, "IP_PMTUDISC_PROBE", "large packets may break"),
)
# Beyond this share of datagrams a full buffer is no accident of the past.
_DROPPED_RATIO_MAX = 1e-4


@listed
def look_at_sockets(settings: Settings) -> Iterator[Finding]:
    """Findings about UDP sockets."""
    wanted = settings.socket_buffer_bytes or _BUFFER_BYTES_DEFAULT
    try:
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    except OSError as error:
        yield SOCKETS.fail(f"no UDP socket can be made: {error.strerror}", "ulimit -n 65536")
        return
    with probe:
        yield _look_at_buffer(
            probe, "receive", socket.SO_RCVBUF, _SO_RCVBUFFORCE, "net.core.rmem_max", wanted
        )
        yield _look_at_buffer(probe, "send", socket.SO_SNDBUF, _SO_SNDBUFFORCE, "net.core.wmem_max", wanted)
        yield from _look_at_options(probe)
    yield from look_at_counters(_udp_counters(), _backlog_drops())
    yield from _look_at_descriptors()


def _look_at_buffer(
    probe: socket.socket, what: str, ordinary: int, forced: int, sysctl: str, wanted: int
) -> Finding:
    try:
        probe.setsockopt(socket.SOL_SOCKET, forced, wanted)
        how = "past the limit, as this user may"
    except OSError:
        probe.setsockopt(socket.SOL_SOCKET, ordinary, wanted)
        how = f"within {sysctl}"
    # The kernel reports twice what it took the request for.
    granted = probe.getsockopt(socket.SOL_SOCKET, ordinary) // 2
    if granted >= wanted:
        return BUFFERS.ok(f"the {what} buffer may have the {_mebibytes(wanted)} that dlcp asks for, {how}")
    return BUFFERS.warn(
        f"the {what} buffer gets {_mebibytes(granted)} of the {_mebibytes(wanted)} that dlcp asks for: bursts may be"
        " lost on this host",
        f"sysctl -w {sysctl}={wanted}",
    )


def _look_at_options(probe: socket.socket) -> Iterator[Finding]:
    has_all = True
    for level, option, value, name, cost in _OPTIONS:
        try:
            probe.setsockopt(level, option, value)
        except OSError:
            has_all = False
            yield KERNEL.warn(f"this kernel has no {name}: {cost}", "boot a newer kernel")
    if has_all:
        options = "segmentation offload, GRO, arrival times, congestion marks and path MTU probes"
        yield KERNEL.ok(f"Linux {os.uname().release}: {options} are all there for UDP")


@listed
def look_at_counters(udp: Mapping[str, int], backlog_drops: int) -> Iterator[Finding]:
    """Findings about datagrams that this kernel dropped since the boot. `udp`: /proc/net/snmp by name."""
    full = udp.get("RcvbufErrors", 0)
    datagrams = udp.get("InDatagrams", 0) + full
    is_full = full > _DROPPED_RATIO_MAX * datagrams
    if is_full:
        yield DROPS.warn(
            f"since the boot {full} of {datagrams} UDP datagrams were dropped because a socket was full, some"
            " program's: if it was dlcp's, see `dlcp doctor --verbose` on buffers",
            "nstat -az UdpRcvbufErrors (does it grow while training?)",
        )
    if backlog_drops > 0:
        yield DROPS.warn(
            f"since the boot {backlog_drops} packets of any kind were dropped before a processor took them",
            "sysctl -w net.core.netdev_max_backlog=10000",
        )
    if not is_full and not backlog_drops:
        yield DROPS.ok(
            f"{full} of {datagrams} UDP datagrams met a full socket since the boot, none the backlog"
        )


def _udp_counters() -> dict[str, int]:
    """The line `Udp` of /proc/net/snmp; empty if there is none."""
    pairs = [words[1:] for words in lines("/proc/thread-self/net/snmp") if words[:1] == ["Udp:"]]
    return dict(zip(pairs[0], map(int, pairs[1]), strict=True)) if len(pairs) == 2 else {}


def _backlog_drops() -> int:
    """The second column of /proc/net/softnet_stat, over all processors."""
    return sum(int(words[1], 16) for words in lines("/proc/net/softnet_stat"))


def _look_at_descriptors() -> Iterator[Finding]:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # One socket per path, and as many again for shared memory and everything else that a training program opens.
    if limit != resource.RLIM_INFINITY and limit < 1024:
        text = f"a process may open {limit} files; a rank with data loaders needs more"
        yield SOCKETS.warn(text, "ulimit -n 65536")


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.3g} MiB"
