"""A policy to begin with, from the rate of a fabric's links: thresholds by one stated rule, in a file that says why.

The rule is DCTCP's for critical packets: marked above K, which is more than a seventh of the bandwidth-delay product
(RFC 8257, 4.1), and lets bursts pass that hosts send back to back, 65 packets from 10 Gb/s on and 20 below (Alizadeh et
al., SIGCOMM 2010, 3.4), but no more than half of the buffer. Droppable packets go from half of K on, least important
first, and all of them above K. So when a queue grows, first the least important gradients make room, then senders slow
down; an eighth of the buffer is left to control.
"""

from __future__ import annotations

from dlcp.errors import SettingsError
from dlcp.switch.policy import DROPPABLE_LEVELS, MAX_BYTES, Policy, Thresholds, TrafficClass

CONTROL_CLASS = 7
DATA_CLASSES = range(7)
FOREIGN_CLASS = 0
CLASS_SELECTOR = 8
"""DSCP of class n is n times this, the transport's default (CS0 … CS7: RFC 2474, 4.2.2)."""

HEADER_BYTES = 126
"""What is left of a trimmed packet: Ethernet, IPv6, UDP and dlcp header. Less, and the receiver cannot read it."""

BUFFER_BYTES_PER_BPS = 16e6 / (32 * 100e9)
"""A commodity switch's buffer, evenly: 16 MB for 32 ports of 100 Gb/s (Broadcom Tomahawk)."""
LEAST_BUFFER_BYTES = 128_000
"""Slower ports have had no less: 9 MB for 64 of 10 Gb/s (Trident+)."""
FAST_BPS, FAST_BURST_PACKETS, SLOW_BURST_PACKETS = 10 * 10**9, 65, 20


def starting_policy(
    rate_bps: int,
    rtt_s: float = 30e-6,
    packet_bytes: int = 1500,
    trim: bool = False,
    separate: bool = False,
    name: str = "start",
) -> Policy:
    """The policy for links of this rate. SettingsError: something is out of range.

    `rtt_s`: of the fabric without queues. `separate`: queue 0 is left to traffic that is not dlcp's; jobs then keep out
    of it by `separate_dscp`. Otherwise both share it, as jobs are set without being told.
    """
    for what, value, least, most in (
        ("rate_bps", rate_bps, 10**6, 10**13),
        ("rtt_s", rtt_s, 1e-7, 1.0),
        ("packet_bytes", packet_bytes, 256, 65535),
    ):
        if not least <= value <= most:
            raise SettingsError(f"{what} is {value!r}; accepted: {least} to {most}")
    buffer = min(max(round(BUFFER_BYTES_PER_BPS * rate_bps), LEAST_BUFFER_BYTES, 8 * packet_bytes), MAX_BYTES)
    bursts = FAST_BURST_PACKETS if rate_bps >= FAST_BPS else SLOW_BURST_PACKETS
    mark = min(max(round(rate_bps * rtt_s / 8 / 7), bursts * packet_bytes), buffer // 2)
    fate = "trim_above_bytes" if trim else "drop_above_bytes"
    step = mark / 2 / (DROPPABLE_LEVELS - 1)
    droppable = tuple(Thresholds(**{fate: round(mark / 2 + step * i)}) for i in range(DROPPABLE_LEVELS))
    critical = Thresholds(mark, drop_above_bytes=buffer * 7 // 8)
    data = tuple(
        TrafficClass(n, f"data {n}", (CLASS_SELECTOR * n,), critical, droppable)
        for n in DATA_CLASSES
        if not (separate and n == FOREIGN_CLASS)
    )
    control = TrafficClass(CONTROL_CLASS, "control", (CLASS_SELECTOR * CONTROL_CLASS,))
    return Policy(
        name,
        (*data, control),
        foreign_class=FOREIGN_CLASS,
        port_bytes=buffer,
        trimmed_bytes=HEADER_BYTES if trim else Policy.trimmed_bytes,
        trimmed_class=CONTROL_CLASS,
    )


def separate_dscp() -> str:
    """What jobs set as DLCP_DSCP under a separate policy: their class 0 rides with class 1."""
    return ",".join(str(CLASS_SELECTOR * max(n, 1)) for n in range(CONTROL_CLASS + 1))


def starting_text(policy: Policy, rate: str) -> str:
    """The policy's file, with what a reader should know. `rate` as it was asked for."""
    first = policy.classes[0]
    critical, least = first.critical, first.droppable[0]
    fate, start = "dropped", least.drop_above_bytes
    if least.trim_above_bytes is not None:
        fate, start = "cut to their headers", least.trim_above_bytes
    mark, room = critical.mark_from_bytes, critical.drop_above_bytes
    if first.number == FOREIGN_CLASS:
        others = f"""\
# DSCP values are those that jobs have unless told otherwise (CS0 to CS7). Class 0 has DSCP 0, which is also everybody
# else's: its queue is shared, and other traffic in it is marked and dropped like dlcp's, that without ECN last of all
# droppable packets. To leave queue {policy.foreign_class} to others: `dlcp switch policy --separate`."""
    else:
        others = f"""\
# Whatever is not dlcp's, DSCP 0 too, is foreign: it has queue {policy.foreign_class} to itself and is left as it is.
# Jobs keep out of it with
#   DLCP_DSCP={separate_dscp()}"""
    return f"""\
# The policy of a fabric of {rate}bit/s links, to begin with. `dlcp switch show` checks it and shows it as a table.
#
# Class 7 is control and leaves first; those below it are data. In the queue of a data class
#   above {start} bytes, droppable packets are {fate}, the least important first; above {mark} bytes all of them;
#   above {mark} bytes, critical packets are marked (ECN); above {room} bytes they are dropped.
{others}
#
# To add, once the ports have names: groups of equal ways, as
#   [path_groups]
#   uplinks = ["up1", "up2"]
# and ports that are slower, or want thresholds of their own, as
#   [[port]]
#   name = "up1"
#   rate_bps = 25000000000

{policy.to_toml()}"""
