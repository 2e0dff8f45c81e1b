"""`dlcp switch show`: checks a policy, and shows it as a table. With a topology, also what the switches make of it."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlcp.switch.number_ranges import number_ranges
from dlcp.switch.policy import DROPPABLE_LEVELS, MAX_DSCP, Policy, Thresholds, TrafficClass
from dlcp.switch.policy_file import PolicyFile
from dlcp.switch.policy_notes import policy_notes
from dlcp.switch.topology import Topology


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "show",
        description="Checks a policy and shows it as a table: who is in which class, and above how many waiting bytes "
        "packets are marked, trimmed and dropped. With --target also whether its ports and groups are there.",
    )
    parser.add_argument("policy", type=Path, help="the policy, a TOML file")
    parser.add_argument("--target", metavar="TOPOLOGY", type=Path, help="the switches, a TOML file")


def run(options: argparse.Namespace) -> int:
    policy = PolicyFile.load(options.policy).policy
    topology = None
    if options.target is not None:
        topology = Topology.load(options.target)
        topology.check_policy(policy)
    lines = [*_lines(policy), *(() if topology is None else _switches(policy, topology))]
    print("\n".join([*lines, "", *(f"note: {note}" for note in policy_notes(policy))]).rstrip())
    return 0


def _lines(policy: Policy) -> Iterator[str]:
    yield f"policy {policy.name or '(without a name)'}"
    yield ""
    classes = sorted(policy.classes, key=lambda c: -c.number)
    if classes:
        rows = [("class", "name", "DSCP")]
        rows += [(str(c.number), c.name or "–", number_ranges(c.dscp) or "–") for c in classes]
        yield from _table(rows)
        yield ""
        yield from _thresholds(_alike((c, f"{c.number}") for c in classes))
        yield ""
    yield f"foreign      {_foreign_queue(policy)}"
    yield from textwrap.wrap(_foreign(policy), 110, initial_indent=" " * 13, subsequent_indent=" " * 13)
    yield f"buffer       {_buffer(policy)}"
    yield f"path choice  {policy.path_choice}"
    for name, ports in policy.path_groups.items():
        yield f"path group   {name}: {', '.join(ports)}"
    if any(level.trim_above_bytes is not None for c in policy.classes for level in c.levels):
        values = policy.traffic_class(policy.trimmed_class).dscp
        written = f", with DSCP {values[0]}" if values else ""
        yield (
            f"trimmed      {policy.trimmed_bytes} bytes are left, and go on in class {policy.trimmed_class}{written}"
        )
    if policy.pause_above_bytes is not None:
        limits = f"above {policy.pause_above_bytes} bytes, until {policy.resume_below_bytes}"
        yield f"paused       an input's class, {limits}"
    if policy.ports:
        yield ""
        yield from _table([("port", "rate"), *((p.name, f"{p.rate_bps / 1e9:g} Gb/s") for p in policy.ports)])
    own = _alike((c, f"{c.number} at {p.name}") for p in policy.ports for c in p.classes)
    if own:
        yield ""
        yield "at these ports, in place of all thresholds of the class:"
        yield from _thresholds(own)


_Both = tuple[Thresholds, tuple[Thresholds, ...]]


def _alike(classes: Iterable[tuple[TrafficClass, str]]) -> dict[_Both, list[str]]:
    """Thresholds and their packets. Only ECN-capable packets are marked: droppable ones are shown without."""
    found: dict[_Both, list[str]] = {}
    for traffic_class, who in classes:
        droppable = tuple(
            replace(at, mark_from_bytes=None, mark_full_bytes=None, mark_ratio=1.0)
            for at in traffic_class.droppable
        )
        found.setdefault((traffic_class.critical, droppable), []).append(who)
    return found


_COLUMNS: tuple[tuple[str, Callable[[Thresholds], object]], ...] = (
    ("marked from", lambda at: at.mark_from_bytes),
    ("all marked", lambda at: at.mark_full),
    ("mark ratio", lambda at: f"{at.mark_ratio:g}" if at.mark_from_bytes is not None else None),
    ("trimmed above", lambda at: at.trim_above_bytes),
    ("dropped above", lambda at: at.drop_above_bytes),
)


def _thresholds(alike: dict[_Both, list[str]]) -> Iterator[str]:
    """A table of each set of thresholds, said once; columns in which nobody has anything are left out."""
    every = [at for critical, droppable in alike for at in (critical, *droppable)]
    needless = {
        "all marked": all(at.mark_full == at.mark_from_bytes for at in every),
        "mark ratio": all(at.mark_ratio == 1 for at in every),
    }
    columns = [
        (title, value_of)
        for title, value_of in _COLUMNS
        if not needless.get(title) and any(value_of(at) is not None for at in every)
    ]
    rows: list[tuple[str, ...]] = []
    for (critical, droppable), who in alike.items():
        if rows:
            rows.append(("",))
        names = _numbers(who)
        if not any(value_of(at) is not None for at in (critical, *droppable) for _, value_of in columns):
            rows.append((f"{names}: never marked or trimmed, dropped only where the buffer ends",))
            continue
        rows.append((names, *(title for title, _ in columns)))
        for words, at in _levels(critical, droppable):
            cells = ("–" if (value := value_of(at)) is None else str(value) for _, value_of in columns)
            rows.append((f"  {words}", *cells))
    yield from _table(rows)


def _numbers(who: Sequence[str]) -> str:
    if len(who) == 1:
        return f"class {who[0]}"
    return f"classes {number_ranges(map(int, who)) if all(w.isdigit() for w in who) else ', '.join(who)}"


def _levels(critical: Thresholds, droppable: Sequence[Thresholds]) -> Iterator[tuple[str, Thresholds]]:
    """Critical first, then droppable ones from the most important down, equal ones together."""
    yield "critical", critical
    levels = [droppable[min(index, len(droppable) - 1)] for index in range(DROPPABLE_LEVELS)]
    high = DROPPABLE_LEVELS - 1
    for index in reversed(range(DROPPABLE_LEVELS)):
        if index and levels[index - 1] == levels[index]:
            continue
        if index == 0 and high == DROPPABLE_LEVELS - 1:
            yield "droppable", levels[0]
        else:
            yield f"importance {32 * index}–{min(32 * high + 31, 254)}", levels[index]
        high = index - 1


def _foreign(policy: Policy) -> str:
    """The traffic that is of no class."""
    values = number_ranges(set(range(MAX_DSCP + 1)) - policy.class_of_dscp().keys())
    return f"{f'DSCP {values}; ' if values else ''}VLAN, IPv4 options, what is not IP"


def _foreign_queue(policy: Policy) -> str:
    shared = policy.foreign_class in {c.number for c in policy.classes}
    beside = f" with class {policy.foreign_class}" if shared else ""
    return f"in queue {policy.foreign_class}{beside}; never marked or trimmed:"


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
    """Columns side by side; a row of one cell is a line of its own."""
    columns = max((len(row) for row in rows), default=0)
    widths = [max(len(row[column]) for row in rows if len(row) == columns) for column in range(columns)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
