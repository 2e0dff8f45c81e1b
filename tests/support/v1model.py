"""The compiled v1model program in the interpreter, under a policy: what the tests of p4/v1model.p4 start from.

Entries are the product's own (dlcp.switch.entries). Depths, random words and single fields of a packet are set here, so
that a golden vector meets the compiled program as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from dlcp.switch import programs
from dlcp.switch.entries import DefaultAction, Exact, MulticastGroup, Prefix, Range, Ternary, desired_entries
from dlcp.switch.policy import TRAFFIC_CLASSES, Policy
from dlcp.switch.programs import Arrival, Decision
from dlcp.switch.topology import SwitchTarget
from tests.support.bmv2 import Program
from tests.support.bmv2.packet import Packet

PORTS = {f"port{n}": n for n in range(programs.MAX_PORTS)}
TARGET = SwitchTarget("switch", "127.0.0.1:9559", PORTS, salt=0)
_JSON = json.loads(programs.load("v1model").json)


def load() -> Program:
    """The program without entries."""
    return Program(_JSON)


def with_dscp(policy: Policy) -> Policy:
    """The policy with DSCP values for all classes; thresholds as they are."""
    taken = policy.class_of_dscp()
    free = iter(value for value in range(1, 64) if value not in taken and value % 8)
    classes = []
    for number in range(TRAFFIC_CLASSES):
        traffic_class = policy.traffic_class(number)
        classes.append(traffic_class if traffic_class.dscp else replace(traffic_class, dscp=(next(free),)))
    return replace(policy, classes=tuple(classes))


def install(program: Program, policy: Policy, target: SwitchTarget = TARGET) -> None:
    """Writes what the target is to hold under the policy."""
    for entry in desired_entries(policy, target).entries:
        match entry:
            case DefaultAction():
                program.set_default(entry.table, entry.action, dict(entry.params))
            case MulticastGroup():
                program.set_group(entry.group_id, entry.ports)
            case _:
                keys = {name: _match(key) for name, key in entry.match}
                program.insert(entry.table, keys, entry.action, dict(entry.params), entry.priority)


def _match(key: Exact | Ternary | Prefix | Range) -> int | tuple[int, int]:
    match key:
        case Exact(value):
            return value
        case Ternary(value, mask):
            return value, mask
        case Prefix(value, length):
            return value, length
        case Range(low, high):
            return low, high


@contextmanager
def before_table(program: Program, name: str, hook: Callable[[Packet], None]) -> Iterator[None]:
    """Calls `hook` with each packet that comes to a table, before the table is applied."""
    table = program.table(name)
    apply = table.apply

    def hooked(packet: Packet) -> str | None:
        hook(packet)
        return apply(packet)

    table.apply = hooked  # type: ignore[method-assign]
    try:
        yield
    finally:
        del table.apply


# ---- what was counted ----


def arrivals(program: Program) -> dict[tuple[int, Arrival], int]:
    """(port, what became of it) → packets."""
    counted = program.counter("arrivals").counted().items()
    return {(i >> 3, Arrival(i & 7)): c.packets for i, c in counted}


def decisions(program: Program) -> dict[tuple[int, int, int, Decision], int]:
    """(port, class, level, what became of it) → packets."""
    counted = program.counter("decisions").counted().items()
    return {(i >> 10, i >> 7 & 7, i >> 3 & 15, Decision(i & 7)): c.packets for i, c in counted}


def set_depths(
    program: Program, port: int, queue_bytes: dict[int, int], port_bytes: int, shared_used: int = 0
) -> None:
    """What waits at one port, per class; nothing elsewhere."""
    queues = program.register("queue_bytes")
    queues[:] = [0] * len(queues)
    for traffic_class, waiting in queue_bytes.items():
        queues[port * TRAFFIC_CLASSES + traffic_class] = waiting
    program.register("port_bytes")[port] = port_bytes
    program.register("shared_used")[0] = shared_used
