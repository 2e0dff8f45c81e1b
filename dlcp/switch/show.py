"""`dlcp switch show`: checks a policy, and shows it as a table. With a topology, also what the switches make of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dlcp.switch.policy import DROPPABLE_LEVELS, Policy, Thresholds, TrafficClass
from dlcp.switch.policy_file import PolicyFile
from dlcp.switch.topology import Topology


def add_parser(subparsers: Any) -> None:
    """The words of `dlcp switch show`."""
    parser = subparsers.add_parser(
        "show",
        help="check a policy, and show it as a table",
        description="Checks a policy and shows it as a table: who is in which class, and above how many waiting bytes "
        "packets are marked, trimmed and dropped. With --target also whether its ports and groups are there.",
    )
    parser.add_argument("policy", type=Path, help="the policy, a TOML file")
    parser.add_argument("--target", metavar="TOPOLOGY", type=Path, help="the switches, a TOML file")


def run(options: argparse.Namespace) -> int:
    """`dlcp switch show`."""
    policy = PolicyFile.load(options.policy).policy
    topology = None
    if options.target is not None:
        topology = Topology.load(options.target)
        topology.check_policy(policy)
    print("\n".join([*_lines(policy), *(() if topology is None else _switches(policy, topology))]))
    return 0


def _lines(policy: Policy) -> Iterator[str]:
    yield f"policy {policy.name or '(without a name)'}"
    yield ""
    rows: list[tuple[str, ...]] = [
        ("class", "name", "DSCP", "level", "marked from", "all marked", "trimmed above", "dropped above")
    ]
    for number in sorted({c.number for c in policy.classes}, reverse=True):
        rows += _class_rows(policy.traffic_class(number))
    yield from _table(rows)
    yield ""
    yield f"others       queue {policy.foreign_class}, neither marked nor trimmed"
    yield f"buffer       {_buffer(policy)}"
    yield f"path choice  {policy.path_choice}"
    for name, ports in policy.path_groups.items():
        yield f"path group   {name}: {', '.join(ports)}"
    if any(
        level.trim_above_bytes is not None for c in policy.classes for level in (c.critical, *c.droppable)
    ):
        yield f"trimmed      {policy.trimmed_bytes} bytes are left, and go on in class {policy.trimmed_class}"
    if policy.pause_above_bytes is not None:
        limits = f"above {policy.pause_above_bytes} bytes, until {policy.resume_below_bytes}"
        yield f"paused       an input's class, {limits}"
    if policy.ports:
        yield ""
        yield "ports"
        for port in policy.ports:
            own = f", thresholds of its own in class {', '.join(str(c.number) for c in port.classes)}"
            yield f"  {port.name}: {port.rate_bps / 1e9:g} Gb/s{own if port.classes else ''}"
        for port in policy.ports:
            for traffic_class in port.classes:
                yield ""
                yield f"class {traffic_class.number} at {port.name}"
                yield from _table([rows[0], *_class_rows(traffic_class)])


def _class_rows(traffic_class: TrafficClass) -> Iterator[tuple[str, ...]]:
    dscp = ", ".join(map(str, traffic_class.dscp)) or "–"
    shown = (str(traffic_class.number), traffic_class.name, dscp)
    for words, level in _levels(traffic_class):
        limits = (level.mark_from_bytes, level.mark_full, level.trim_above_bytes, level.drop_above_bytes)
        yield (*shown, words, *("–" if limit is None else str(limit) for limit in limits))
        shown = ("", "", "")


def _levels(traffic_class: TrafficClass) -> Iterator[tuple[str, Thresholds]]:
    """Critical first, then droppable ones from the most important down, equal ones together."""
    yield "critical", traffic_class.critical
    if len(traffic_class.droppable) == 1:
        yield "droppable", traffic_class.droppable[0]
        return
    for index in reversed(range(DROPPABLE_LEVELS)):
        yield f"importance {32 * index}–{32 * index + 31 - (index == 7)}", traffic_class.droppable[index]


def _buffer(policy: Policy) -> str:
    if policy.shared_bytes is not None:
        factor = 2.0**policy.shared_alpha_log2
        return f"{policy.shared_bytes} bytes shared; a queue may take {factor:g} times what is free"
    return "without end" if policy.port_bytes is None else f"{policy.port_bytes} bytes per port"


def _switches(policy: Policy, topology: Topology) -> Iterator[str]:
    yield ""
    rows = [("switch", "address", "ports", "path groups")]
    for target in topology.switches:
        groups = "; ".join(f"{n}: {', '.join(p)}" for n, p in target.groups_under(policy).items())
        rows.append((target.name, target.address, ", ".join(target.ports), groups or "–"))
    yield from _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
