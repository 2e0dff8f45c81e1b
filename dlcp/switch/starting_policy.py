"""A policy to begin with, from the rate of a fabric's links: thresholds by one stated rule, in a file that says why.

All ports share the switch's buffer, with dynamic thresholds: a queue may take half of what is free. With n full queues,
1 / (1 + n/2) of the buffer stays free (Choudhury and Hahne, IEEE/ACM ToN 1998). The class that is served first
therefore finds room, whatever fills the other queues. A limit per port would give no such room, since it knows no
priority: the classes served last would use it up.

Critical packets are marked above K. K is the larger of a seventh of the bandwidth-delay product (RFC 8257, 4.1) and a
burst that hosts send back to back. The burst is 65 packets from 10 Gb/s on and 20 below (Alizadeh et al., SIGCOMM 2010,
3.4). K is at most half of a port's even share of the buffer. Above that share critical packets are cut to their
headers, which go ahead of all data, so that the sender repeats them a round trip later instead of a timeout. A queue
can reach the share of one of N ports as long as at most N - 2 queues are full at once. Droppable packets are cut from
three quarters of that share on, least important first, and all of them above seven eighths, so that critical ones find
room: when a queue grows, senders slow down before the least important gradients make room. Made to go earlier, they
would have to be sent again beyond the budget, and leave links idle (docs/studies/simulator/honest.md). Where a switch
can mark or drop only, droppable packets without ECN are dropped above nine eighths of the share (a switch that trims
never gets there).

Switches choose a path for each packet where they can (`path_choice = "adaptive"`): then hosts may send long runs over
few paths, which costs them least, and the network no more.

Without trimming, critical packets are dropped above the share, and droppable ones from half of it on, all of them above
three quarters, so that critical ones find room.
"""

from __future__ import annotations

from dlcp.errors import SettingsError
from dlcp.switch.policy import MAX_BYTES, Policy, Thresholds, TrafficClass, importance_levels

CONTROL_CLASS = 7
DATA_CLASSES = range(7)
FOREIGN_CLASS = 0
CLASS_SELECTOR = 8
"""The DSCP value of class n is n times this, as the transport's default is (CS0 … CS7: RFC 2474, 4.2.2)."""
LOCAL_USE = 3
"""Added to it in a separate policy: values xxxx11 are for experimental or local use (RFC 2474, 6)."""
ROUTING_DSCP = (48, 56)
"""CS6 and CS7, which routing protocols use. They must not starve (RFC 2474, 4.2.2.2; RFC 4594, 3.2)."""

HEADER_BYTES = 126
"""What is left of a trimmed packet: Ethernet, IPv6, UDP and dlcp header. A receiver could not read fewer bytes."""

BUFFER_BYTES_PER_BPS = 16e6 / (32 * 100e9)
"""An even share of a commodity switch's buffer: 16 MB for 32 ports of 100 Gb/s (Broadcom Tomahawk)."""
LEAST_BUFFER_BYTES = 128_000
"""The share of slower ports is no smaller: 9 MB for 64 of 10 Gb/s (Trident+)."""
SHARED_ALPHA_LOG2 = -1
PORTS, LEAST_PORTS = 32, 8
"""Of a switch. With fewer, one queue's part of the buffer would end below its thresholds."""
MAX_PORTS = 4096
FAST_BPS, FAST_BURST_PACKETS, SLOW_BURST_PACKETS = 10 * 10**9, 65, 20


def share_bytes(rate_bps: int, packet_bytes: int = 1500) -> int:
    """A port's even share of a switch's buffer, for links of this rate."""
    share = max(round(BUFFER_BYTES_PER_BPS * rate_bps), LEAST_BUFFER_BYTES, 8 * packet_bytes)
    return min(share, MAX_BYTES // LEAST_PORTS)


def starting_policy(
    rate_bps: int,
    rtt_s: float = 30e-6,
    packet_bytes: int = 1500,
    trim: bool = True,
    separate: bool = False,
    name: str = "start",
    ports: int = PORTS,
    path_choice: str = "adaptive",
) -> Policy:
    """The policy for links of this rate. SettingsError: something is out of range.

    `rtt_s`: of the fabric without queues. `ports`: of a switch, all of which share its buffer. `separate`: queue 0 is
    left to traffic that is not dlcp's, and jobs keep out of it by `separate_dscp`. Otherwise both share queue 0, which
    is where jobs with default settings send.
    """
    for what, value, least, most in (
        ("rate_bps", rate_bps, 10**6, 10**13),
        ("rtt_s", rtt_s, 1e-7, 1.0),
        ("packet_bytes", packet_bytes, 256, 65535),
        ("ports", ports, 1, MAX_PORTS),
    ):
        if not least <= value <= most:
            raise SettingsError(f"{what} is {value!r}; accepted: {least} to {most}")
    share = share_bytes(rate_bps, packet_bytes)
    bursts = FAST_BURST_PACKETS if rate_bps >= FAST_BPS else SLOW_BURST_PACKETS
    mark = min(max(round(rate_bps * rtt_s / 8 / 7), bursts * packet_bytes), share // 2)
    if trim:
        critical = Thresholds(mark, trim_above_bytes=share)
        droppable = importance_levels(
            "trim_above_bytes", share * 3 // 4, share * 7 // 8, drop_above_bytes=share * 9 // 8
        )
    else:
        critical = Thresholds(mark, drop_above_bytes=share)
        droppable = importance_levels("drop_above_bytes", share // 2, share * 3 // 4)
    data = tuple(
        TrafficClass(n, f"data {n}", (_dscp(n, separate),), critical, droppable)
        for n in DATA_CLASSES
        if not (separate and n == FOREIGN_CLASS)
    )
    # The first is what trimmed packets get.
    values = (_dscp(CONTROL_CLASS, separate), *(ROUTING_DSCP if separate else ()))
    return Policy(
        name,
        (*data, TrafficClass(CONTROL_CLASS, "control", values)),
        path_choice,
        foreign_class=FOREIGN_CLASS,
        shared_bytes=min(share * max(ports, LEAST_PORTS), MAX_BYTES),
        shared_alpha_log2=SHARED_ALPHA_LOG2,
        trimmed_bytes=HEADER_BYTES if trim else Policy.trimmed_bytes,
        trimmed_class=CONTROL_CLASS,
    )


def _dscp(number: int, separate: bool) -> int:
    return CLASS_SELECTOR * number + (LOCAL_USE if separate else 0)


def separate_dscp() -> str:
    """What jobs set as DLCP_DSCP under a separate policy: their class 0 rides with class 1."""
    return ",".join(str(_dscp(max(n, 1), separate=True)) for n in range(CONTROL_CLASS + 1))


def starting_text(policy: Policy, rate_bps: int) -> str:
    """The policy's file, with what a reader should know. It is that of links of this rate."""
    first = policy.classes[0]
    critical, least, most = first.critical, first.droppable[0], first.droppable[-1]
    mark = critical.mark_from_bytes
    fate, start, end, share = (
        "dropped",
        least.drop_above_bytes,
        most.drop_above_bytes,
        critical.drop_above_bytes,
    )
    if least.trim_above_bytes is not None:
        fate = "cut to headers"
        start, end, share = least.trim_above_bytes, most.trim_above_bytes, critical.trim_above_bytes
    if first.number == FOREIGN_CLASS:
        others = f"""\
# DSCP values are those that jobs have unless told otherwise (CS0 to CS7). Class 0 has DSCP 0, which is also everybody
# else's: its queue is shared, and other traffic in it is marked and dropped like dlcp's, that without ECN last of all
# droppable packets. CS6 and CS7 are also those of routing protocols. To leave queue {policy.foreign_class} to others, \
and have DSCP values
# that nobody else has: `dlcp switch policy --separate`."""
    else:
        others = f"""\
# Whatever is not dlcp's, DSCP 0 too, is foreign: it has queue {policy.foreign_class} to itself and is left as it is; \
it is served last.
# DSCP values of dlcp are those for local use (xxxx11: RFC 2474, 6). Jobs set
#   DLCP_DSCP={separate_dscp()}
# DSCP 48 and 56 (CS6, CS7) have routing protocols, which join control, so that they do not starve."""
    caution = ""
    if least.trim_above_bytes is not None:
        caution = """
# A cut packet keeps its header, goes ahead in class 7 and is sent again a round trip later. For switches that cannot
# cut (`dlcp switch render` says so): `dlcp switch policy --no-trim`."""
    alike = ""
    if rate_bps >= FAST_BPS and (mark, share) == (LEAST_BUFFER_BYTES // 2, LEAST_BUFFER_BYTES):
        alike = f"""
# {LEAST_BUFFER_BYTES} bytes are a port's share of the buffer from 10 Gbit/s to \
{LEAST_BUFFER_BYTES / BUFFER_BYTES_PER_BPS / 1e9:g} Gbit/s: these rates have one policy."""
    return f"""\
# The policy of a fabric of {rate_bps / 1e9:g} Gbit/s links, to begin with. `dlcp switch show` checks it.
#
# Class 7 is control and leaves first; those below it are data. In the queue of a data class
#   above {mark} bytes, critical packets are marked (ECN);
#   above {start} bytes, droppable packets are {fate}, the least important first, above {end} bytes all of them;
#   above {share} bytes, a port's share, critical packets are {fate}.{caution}
# All ports share the buffer, and a queue may take half of what is free: however many are full, there is room for
# others, and for the class that is served first. The buffer's size is shared_bytes: set it to your switch's, or say
# how many ports it has (`--ports`).{alike}
#
{others}
#
# To add, once the ports have names: groups of equal next hops, as
#   [path_groups]
#   uplinks = ["up1", "up2"]
# and ports that are slower, or want thresholds of their own, as
#   [[port]]
#   name = "up1"
#   rate_bps = 25000000000

{policy.to_toml()}"""
