"""Linux tc: one strict-priority band per class, filters by DSCP, early detection with ECN in each band.

    (htb at the port's rate) > prio, 8 bands > red that marks (ecn nodrop) > red that drops (ecn) > bfifo

Two stages of RED in a row let marks begin below drops: the outer one looks at the backlog of the inner one and leaves
what is not ECN-capable alone. Where the policy drops before it marks, the dropping stage is alone and marks as well.
So `nodrop` stands only where nothing is to be dropped, and `harddrop` nowhere: it would drop critical packets.
Invariant: every number is a pure function of policy and port. Applying it is apply.py's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlcp.switch.policy import TRAFFIC_CLASSES, Policy, Port
from dlcp.switch.render.caveat import Caveat, differs
from dlcp.switch.render.queue import Curve, Queue, queues_of
from dlcp.switch.render.system import System

SYSTEM = System(
    name="tc",
    title="Linux tc",
    comment="#",
    suffix="sh",
    # No character with a meaning to a shell or tc. The kernel accepts more, but no interface is named so in practice.
    port_pattern=r"[A-Za-z0-9_@.+][-A-Za-z0-9_@.+]{0,14}",
    port_example="eth0 (up to 15 characters)",
    needs_ports=True,
    marks_below_drops=True,
    marks_without_drops=True,
    any_ratio=True,
    limits_queue=True,
    limits_port=True,
    shapes=True,
    # red_check_params() in the kernel's include/net/red.h: fls(threshold) + Wlog < 32, and Wlog is 1 here.
    threshold_bytes=range(1, 2**30 - 1),
    hashing=(
        "Linux hashes UDP ports after `sysctl net.ipv4.fib_multipath_hash_policy=1` (and net.ipv6.…), over the "
        "nexthops of `ip route`."
    ),
    spraying="Linux has no choice packet by packet.",
    pausing="It is the network card's: `dcb pfc`.",
    install=("sh FILE", "or: dlcp switch apply POLICY --dev IFACE"),
    look=(
        "tc -s -d qdisc show dev IFACE    # `marked` and `early` of each red, ewma 1",
        "tc filter show dev IFACE parent dc01:",
        "ethtool -K IFACE tso off gso off gro off    # or thresholds meet packets of 64 KB",
    ),
    sources=(
        "kernel net/sched/sch_red.c, include/net/red.h and iproute2 tc/q_red.c, tc/tc_red.c: read;",
        "loaded and measured in Linux 6.1 (Debian, in an emulator); hardware offload (mlxsw) not tried",
    ),
    notes=(
        "thresholds are met by an average over about two packets, the least that iproute2 can set (W = 1/2)",
        "a marked packet no longer tells ECT(0) from ECT(1)",
    ),
)

ROOT, PRIO = "dc00", "dc01"
"""Handles of ours, by which apply.py knows what it may replace."""
_MARK, _DROP, _FIFO = "dc1", "dc2", "dc3"  # of a band, followed by its digit

DEFAULT_LIMIT_BYTES = 2**26
"""End of a queue for which the policy knows no end: 64 MiB, far above any threshold that makes sense."""
_PACKET_BYTES = 1500
_BURST_MOST = 50
"""So that what rounding avpkt up takes off min/avpkt stays far below 1."""
_PROBABILITY_MOST = 0.99999
"""iproute2 multiplies by 2^32 and stores 32 bits: 1 overflows, and Linux 6.1 then shows 0.5."""
_RATE_BPS_MOST = 10_000_000_000
"""`bandwidth` is 32 bits of bytes/s in iproute2; it only ages the average while the queue is empty."""


def body(policy: Policy, ports: Sequence[str], shape: bool) -> list[str]:
    """The script: for each port what was there is removed, then ours is built."""
    lines = ["set -e"]
    for name in ports:
        lines += ["", f"tc qdisc del dev {name} root 2>/dev/null || true"]
        lines += [f"tc {command}" for command in commands(policy, name, shape)]
    return lines


def commands(policy: Policy, name: str, shape: bool) -> list[str]:
    """The commands of tc for one port, without the word tc, in an order in which every parent comes first."""
    port = policy.port(name)
    rate_bps = rate_of(port) if port is not None else _RATE_BPS_MOST
    lines = []
    parent = "root"
    if shape and port is not None:
        lines += _shaper(port)
        parent = f"parent {ROOT}:1"
    # What no filter takes is foreign traffic, whatever priority its socket asked for.
    priomap = " ".join([str(band_of(policy.foreign_class))] * 16)
    lines.append(
        f"qdisc add dev {name} {parent} handle {PRIO}: prio bands {TRAFFIC_CLASSES} priomap {priomap}"
    )
    for queue in reversed(queues_of(policy, name)):
        lines += _band(policy, name, queue, rate_bps)
    lines += filters(policy, name, PRIO, {number: band_of(number) + 1 for number in range(TRAFFIC_CLASSES)})
    return lines


def band_of(number: int) -> int:
    """Band of a class, from 0: prio serves band 0 first, the policy class 7."""
    return TRAFFIC_CLASSES - 1 - number


def rate_of(port: Port) -> int:
    """A port's rate as tc can hold it: in whole bytes per second, of which there has to be one."""
    return max(port.rate_bps, 8)


def _shaper(port: Port) -> list[str]:
    # A millisecond at once, and no less than two packets: timers are not finer.
    rate_bps = rate_of(port)
    burst = max(rate_bps // 8000, 2 * _PACKET_BYTES)
    return [
        f"qdisc add dev {port.name} root handle {ROOT}: htb default 1",
        f"class add dev {port.name} parent {ROOT}: classid {ROOT}:1 htb rate {rate_bps}bit "
        f"ceil {rate_bps}bit burst {burst} cburst {burst} quantum {2 * _PACKET_BYTES}",
    ]


def limit_of(policy: Policy, queue: Queue) -> int:
    """Where a queue ends."""
    ends = [end for end in (queue.tail_bytes, policy.queue_end_bytes) if end is not None]
    limit = min(ends, default=None)
    deepest = max(queue.drop_bytes or 0, queue.mark[1] if queue.mark else 0)
    return max(DEFAULT_LIMIT_BYTES, 2 * deepest) if limit is None else max(limit, 1)


def curves_of(queue: Queue, limit: int) -> list[Curve]:
    """Stages of early detection, outermost first, those that the queue's end forestalls left out."""
    curves = []
    drop = queue.drop_bytes
    if queue.mark is not None and (drop is None or queue.mark[1] <= drop):
        curves.append(Curve(*queue.mark, drops=False))
    if drop is not None and (not curves or curves[0] != Curve(drop, drop, 1.0, drops=False)):
        curves.append(Curve(drop, drop, 1.0, drops=True))
    elif drop is not None:
        curves = [Curve(drop, drop, 1.0, drops=True)]  # both at one depth: one stage does both
    return [curve for curve in curves if _edges(curve)[1] < limit]


def _band(policy: Policy, name: str, queue: Queue, rate_bps: int) -> list[str]:
    band = band_of(queue.number)
    limit = limit_of(policy, queue)
    parent = f"{PRIO}:{band + 1}"
    lines = []
    for curve in curves_of(queue, limit):
        handle = f"{_DROP if curve.drops else _MARK}{band}"
        mode = "ecn" if curve.drops else "ecn nodrop"
        lines.append(
            f"qdisc add dev {name} parent {parent} handle {handle}: {red(curve, limit, rate_bps)} {mode}"
        )
        parent = f"{handle}:1"
    # A RED with a limit brings its own bfifo; a band without one needs it said.
    return lines or [f"qdisc add dev {name} parent {parent} handle {_FIFO}{band}: bfifo limit {limit}"]


def _edges(curve: Curve) -> tuple[int, int]:
    """What RED calls min and max, min being less. It acts from max on, the policy above its threshold."""
    begin = max(curve.min_bytes, 1)  # 0 would mean: choose one
    return begin, max(curve.max_bytes, begin + 1)


def red(curve: Curve, limit: int, rate_bps: int) -> str:
    """Parameters of sch_red that make its average follow the depth as closely as it can.

    iproute2 derives the weight W = 2^-Wlog from min, burst and avpkt: the least Wlog with burst + 1 - min/avpkt <=
    (1 - (1 - W)^burst) / W (tc_red_eval_ewma). With min as `burst` packets of `avpkt` bytes, no more, the left side is
    1 and Wlog is 1, the least that the kernel's tool sets.
    """
    begin, full = _edges(curve)
    burst = max(1, min(begin // _PACKET_BYTES, _BURST_MOST))
    avpkt = -(-begin // burst)
    # The table of idle times counts in units of avpkt's transmission; below a microsecond it would count in zeros.
    bandwidth = min(rate_bps, _RATE_BPS_MOST, 8_000_000 * avpkt)
    probability = min(max(curve.ratio, least_ratio(begin, full)), _PROBABILITY_MOST)
    return (
        f"red limit {limit} min {begin} max {full} avpkt {avpkt} burst {burst} "
        f"probability {probability:.9f} bandwidth {bandwidth}bit"
    )


def least_ratio(begin: int, full: int) -> float:
    """iproute2 gives up (tc_red_eval_P) when less than 2^-31 of a probability falls on each byte of the ramp."""
    return min((full - begin) * 2.0**-30, _PROBABILITY_MOST)


def own_caveats(policy: Policy, ports: Sequence[str]) -> Iterator[Caveat]:
    """Ramps of marks that are too flat for iproute2."""
    for name in ports:
        for queue in queues_of(policy, name):
            for curve in curves_of(queue, limit_of(policy, queue)):
                least = least_ratio(*_edges(curve))
                if curve.ratio < least:
                    asked = (
                        f"class {queue.number} marks {curve.ratio:g} of packets at {curve.max_bytes} bytes"
                    )
                    yield differs("class", asked, f"{least:g} is the least on a ramp so long")


def filters(policy: Policy, name: str, parent: str, minor_of: dict[int, int]) -> list[str]:
    """Packets of a class, by DSCP, to its band. IPv4 with options, VLAN and other protocols stay foreign traffic."""
    lines = []
    for value, number in sorted(policy.class_of_dscp().items()):
        target = f"flowid {parent}:{minor_of[number]:x}"
        tos = f"0x{value << 2:02x} 0xfc"
        start = f"filter add dev {name} parent {parent}:"
        lines.append(
            f"{start} protocol ip prio 1 u32 match u8 0x45 0xff at 0 match ip dsfield {tos} {target}"
        )
        lines.append(f"{start} protocol ipv6 prio 2 u32 match ip6 priority {tos} {target}")
    return lines
