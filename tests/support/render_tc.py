"""Reads tc lines back as a tree of queues, and says what kernel or iproute2 would refuse of them.

Written from net/sched/sch_red.c, include/net/red.h, net/sched/sch_prio.c and iproute2's tc/q_red.c and tc/tc_red.c. The
weight of RED's average, Wlog, is worked out as iproute2 does, since it says how fast thresholds are met.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class Queue:
    """A qdisc or a class as tc would build it."""

    kind: str
    parent: str
    options: dict[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()

    def number(self, name: str) -> int:
        """An option that is an integer; its unit is cut off."""
        return int(re.sub(r"[a-z]+$", "", self.options[name]))


@dataclass(frozen=True)
class Filter:
    """A packet filter: of one protocol, on the class byte under a mask, to a band."""

    protocol: str
    byte: int
    target: str


FLAGS = {"ecn", "nodrop", "harddrop", "adaptive"}


def parse(lines: Sequence[str]) -> tuple[dict[str, Queue], list[Filter]]:
    """Queues by handle (or class id) and filters of one interface. ValueError for a line that is not understood."""
    queues: dict[str, Queue] = {}
    filters: list[Filter] = []
    for line in lines:
        words = line.removeprefix("tc ").split()
        match words:
            case ["qdisc", "add", "dev", _, "root", "handle", handle, kind, *rest]:
                queues[handle] = _queue(kind, "root", rest)
            case ["qdisc", "add", "dev", _, "parent", parent, "handle", handle, kind, *rest]:
                queues[handle] = _queue(kind, parent, rest)
            case ["class", "add", "dev", _, "parent", parent, "classid", handle, kind, *rest]:
                queues[handle] = _queue(kind, parent, rest)
            case ["filter", "add", "dev", _, "parent", _, "protocol", "ip", "prio", "1", "u32", *rest]:
                begin = ["match", "u8", "0x45", "0xff", "at", "0", "match", "ip", "dsfield"]
                if rest[:9] != begin or rest[10] != "0xfc" or rest[11] != "flowid":
                    raise ValueError(line)
                filters.append(Filter("ip", int(rest[9], 16), rest[12]))
            case ["filter", "add", "dev", _, "parent", _, "protocol", "ipv6", "prio", "2", "u32", *rest]:
                if rest[:3] != ["match", "ip6", "priority"] or rest[4] != "0xfc" or rest[5] != "flowid":
                    raise ValueError(line)
                filters.append(Filter("ipv6", int(rest[3], 16), rest[6]))
            case _:
                raise ValueError(line)
    return queues, filters


def _queue(kind: str, parent: str, words: list[str]) -> Queue:
    queue = Queue(kind, parent, flags=frozenset(word for word in words if word in FLAGS))
    rest = [word for word in words if word not in FLAGS]
    if kind == "prio":
        at = rest.index("priomap")
        queue.options["priomap"] = " ".join(rest[at + 1 :])
        rest = rest[:at]
    queue.options |= dict(zip(rest[::2], rest[1::2], strict=True))
    return queue


def wlog(low: int, burst: int, avpkt: int) -> int | None:
    """The logarithm of the average's weight that iproute2 finds (tc_red_eval_ewma); None if it finds none."""
    left = burst + 1 - low / avpkt
    if left < 1:
        return None
    return next((n for n in range(1, 32) if left <= (1 - (1 - 0.5**n) ** burst) * 2**n), None)


def faults(queues: dict[str, Queue], filters: list[Filter]) -> Iterator[str]:
    """What would be refused, or would not do what is meant."""
    for handle, queue in queues.items():
        if queue.parent != "root" and not _exists(queue.parent, queues):
            yield f"{handle}: no parent {queue.parent}"
        if queue.kind == "red":
            yield from _red_faults(handle, queue)
        if queue.kind == "prio":
            bands = queue.number("bands")
            priomap = [int(word) for word in queue.options["priomap"].split()]
            if not 2 <= bands <= 16 or len(priomap) != 16 or not all(0 <= band < bands for band in priomap):
                yield f"{handle}: bands {bands}, priomap {priomap}"
        if queue.kind == "bfifo" and not 0 < queue.number("limit") < 2**32:
            yield f"{handle}: limit {queue.options['limit']}"
    for entry in filters:
        if not _exists(entry.target, queues):
            yield f"a filter to {entry.target}, which is not there"


def _exists(name: str, queues: dict[str, Queue]) -> bool:
    """A class that was added, or one that its qdisc has by itself: a band of prio, the one class of red."""
    major, minor = name.split(":")
    if name in queues:
        return True
    owner = queues.get(f"{major}:")
    if owner is None:
        return False
    if owner.kind == "prio":
        return 1 <= int(minor, 16) <= owner.number("bands")
    return minor == "" or (owner.kind == "red" and minor == "1")


def _red_faults(handle: str, red: Queue) -> Iterator[str]:
    limit, low, high, avpkt, burst = (red.number(name) for name in ("limit", "min", "max", "avpkt", "burst"))
    weight = wlog(low, burst, avpkt)
    if not limit > high > low > 0:
        yield f"{handle}: limit {limit} > max {high} > min {low} > 0"
    if weight is None:
        yield f"{handle}: iproute2 finds no weight for min {low}, burst {burst}, avpkt {avpkt}"
    else:
        if weight != 1:
            yield f"{handle}: an average over 2^{weight} packets"
        for edge in (low, high):  # red_check_params()
            if edge.bit_length() + weight >= 32:
                yield f"{handle}: {edge} does not fit"
    if not (high - low) * 2**-31 < float(red.options["probability"]) < 1:  # tc_red_eval_P()
        yield f"{handle}: probability {red.options['probability']}"
    if not 0 < red.number("bandwidth") // 8 < 2**32:
        yield f"{handle}: bandwidth {red.options['bandwidth']}"
    # xmit_time in iproute2 is in units of a microsecond: 0 would divide by it.
    if avpkt * 8_000_000 < red.number("bandwidth"):
        yield f"{handle}: {avpkt} bytes take no time at {red.options['bandwidth']}"
    if "ecn" not in red.flags or red.flags & {"harddrop", "adaptive"}:
        yield f"{handle}: flags {sorted(red.flags)}"
