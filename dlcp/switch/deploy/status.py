"""`dlcp switch status`: what switches run, who controls them, and what they count, once or live.

Reads only, and is primary of nothing: it asks who is with an election id that outranks nobody. A switch that does not
answer is a line, not the end: the others are still shown. Exit status: 0 all switches answered and run their program; 1
not all do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlcp.arguments import add_json
from dlcp.switch import programs
from dlcp.switch.deploy.command import add_target
from dlcp.switch.deploy.packages import require
from dlcp.switch.entries import level_name
from dlcp.switch.programs import Arrival, Decision
from dlcp.switch.topology import SwitchTarget, Topology
from dlcp.units import aligned, grouped

if TYPE_CHECKING:
    from dlcp.switch.deploy.pipeline import Pipeline
    from dlcp.switch.deploy.session import Session

Counts = Mapping[int, tuple[int, int]]
"""Index → packets, bytes."""

MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 3600.0
ASK_PORTS = 32  # of 64: beyond that asking for all counters is shorter


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "status",
        description="Shows which pipeline each switch runs, whether a controller is primary, and what it has counted, "
        "per port, class and importance. Reads only. Exit status 1: not all switches answer and run their program.",
    )
    add_target(parser)
    parser.add_argument(
        "--watch",
        metavar="S",
        nargs="?",
        type=_interval,
        const=1.0,
        help="again and again, as rates since the time before (every second, by default)",
    )
    add_json(parser, ", an object per reading, on a line")


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not MIN_INTERVAL_S <= value <= MAX_INTERVAL_S:
        accepted = f"a number from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g}"
        raise argparse.ArgumentTypeError(f"{text!r}: accepted: {accepted}")
    return value


@dataclass(frozen=True)
class Reading:
    """One switch's answer at one moment."""

    target: SwitchTarget
    time_s: float = 0.0
    error: str = ""
    """Why nothing else is known; empty if it answered."""
    runs_program: bool = False
    title: str = ""
    """Of the pipeline; empty if there is none."""
    cookie: int = 0
    primary: int | None = None
    """Election id of the primary controller; None: there is none."""
    arrivals: Counts = field(default_factory=dict)
    decisions: Counts = field(default_factory=dict)


class Monitor:
    """Sessions with some switches, kept over readings. Not thread-safe; `close` ends them."""

    def __init__(self, targets: Sequence[SwitchTarget], timeout_s: float) -> None:
        from dlcp.switch.deploy.pipeline import Pipeline

        self.targets = tuple(targets)
        self._timeout_s = timeout_s
        self._sessions: dict[str, Session] = {}
        self._pipelines: dict[str, Pipeline] = {
            name: Pipeline.of(programs.load(name)) for name in {t.program for t in targets}
        }

    def read(self) -> list[Reading]:
        """One reading of each switch. Raises nothing for a switch: its reading says the error."""
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(self._read, self.targets))

    def _read(self, target: SwitchTarget) -> Reading:
        from dlcp.switch.deploy.errors import DeployError
        from dlcp.switch.deploy.grpc_session import GrpcSession

        session = self._sessions.get(target.name)
        if session is None:
            session = self._sessions[target.name] = GrpcSession(target, self._timeout_s)
        try:
            return self._ask(target, session, self._pipelines[target.program])
        except DeployError as error:
            session.close()  # the next reading connects anew
            del self._sessions[target.name]
            return Reading(target, time.monotonic(), error=str(error))

    def _ask(self, target: SwitchTarget, session: Session, wanted: Pipeline) -> Reading:
        primary = session.primary()
        pipeline = session.pipeline()
        now = time.monotonic()
        if pipeline is None:
            return Reading(target, now, primary=primary)
        runs = pipeline.is_same(wanted)
        arrivals = session.counters(wanted.schema, "arrivals") if runs else {}
        decisions = session.counters(wanted.schema, "decisions", _places(target)) if runs else {}
        return Reading(target, now, "", runs, pipeline.title(), pipeline.cookie, primary, arrivals, decisions)

    def close(self) -> None:
        """Ends all sessions."""
        for session in self._sessions.values():
            session.close()


def _places(target: SwitchTarget) -> list[int] | None:
    """Where `decisions` counts for the ports that the switch has; None: so many that all are asked for at once."""
    if len(target.ports) > ASK_PORTS:
        return None
    return [
        programs.decisions_index(port, number, level, decision)
        for port in target.ports.values()
        for number in range(programs.CLASSES)
        for level in range(programs.LEVELS)
        for decision in Decision
    ]


def run(options: argparse.Namespace) -> int:
    topology = Topology.load(options.target).only(options.only)
    require()
    monitor = Monitor(topology.switches, options.timeout)
    try:
        readings = monitor.read()
        _show(readings, None, options.json)
        while options.watch is not None:
            sys.stdout.flush()
            before = readings
            time.sleep(options.watch)
            readings = monitor.read()
            _show(readings, before, options.json)
    except KeyboardInterrupt:
        if options.watch is None:
            raise
    finally:
        monitor.close()
    return 0 if all(reading.runs_program for reading in readings) else 1


def _show(readings: Sequence[Reading], before: Sequence[Reading] | None, as_json: bool) -> None:
    since = {reading.target.name: reading for reading in before or ()}
    pairs = [(reading, since.get(reading.target.name)) for reading in readings]
    if as_json:
        print(json.dumps({"switches": [document(*pair) for pair in pairs]}))
    else:
        if before is not None:
            print()
        print("\n".join(line for pair in pairs for line in lines(*pair)))


# ---- for people ----


def lines(reading: Reading, before: Reading | None = None) -> Iterator[str]:
    """One switch: how it is, then a row per port and class of what has counted anything. With `before`, as rates."""
    where = reading.target.where
    if reading.error:
        yield f"NO ANSWER: {reading.error}"
        return
    controller = "no controller" if reading.primary is None else f"controller {reading.primary} is primary"
    if not reading.runs_program:
        runs = f"runs another pipeline ({reading.title})" if reading.title else "runs nothing yet"
        yield f"{where}: {runs}, cookie {reading.cookie:#018x}; {controller}"
        return
    yield f"{where}: {reading.target.program}, cookie {reading.cookie:#018x}; {controller}"
    span_s = _span_s(reading, before)
    rows = _rows(reading, before)
    if not rows:
        yield "  nothing was counted" + ("" if before is None else f" in {span_s:.1f} s")
        return
    heads = ("port", "class", "level", *(decision.name.lower() for decision in Decision))
    table = [heads] + [
        (port, number, level, *(_number(counts.get(d, (0, 0))[0], span_s) for d in Decision))
        for (port, number, level), counts in rows.items()
    ]
    yield from (f"  {line}" for line in aligned(table, left=3))
    lost = ", ".join(
        f"{arrival.name.lower()} {_number(packets, span_s)}"
        for arrival, packets in _lost(reading, before).items()
    )
    if lost:
        yield f"  not to an output queue: {lost}"


def _span_s(reading: Reading, before: Reading | None) -> float | None:
    return None if before is None else reading.time_s - before.time_s


def _number(packets: int, span_s: float | None) -> str:
    """Packets, or packets per second."""
    if not packets:
        return "–"
    return grouped(packets) if span_s is None else f"{grouped(packets / span_s)}/s"


Row = tuple[str, str, str]
"""Port, class, level."""


def _rows(reading: Reading, before: Reading | None) -> dict[Row, dict[Decision, tuple[int, int]]]:
    """What was counted at output queues, ports by number, classes and levels from the top."""
    found: dict[tuple[int, int, int], dict[Decision, tuple[int, int]]] = {}
    for index, counts in _since(reading.decisions, {} if before is None else before.decisions).items():
        port, number, level, decision = index >> 10, index >> 7 & 7, index >> 3 & 15, index & 7
        if decision >= len(Decision):
            continue  # the program counts nothing there
        found.setdefault((port, -number, -level), {})[Decision(decision)] = counts
    names = {number: name for name, number in reading.target.ports.items()}
    return {
        (names.get(port, str(port)), str(-number), level_name(-level)): found[port, number, level]
        for port, number, level in sorted(found)
    }


def _lost(reading: Reading, before: Reading | None) -> dict[Arrival, int]:
    """Packets that came and went to no single output queue."""
    found: dict[Arrival, int] = {}
    for index, (packets, _) in _since(reading.arrivals, {} if before is None else before.arrivals).items():
        if index & 7 >= len(Arrival):
            continue
        arrival = Arrival(index & 7)
        if arrival is not Arrival.FORWARDED:
            found[arrival] = found.get(arrival, 0) + packets
    return dict(sorted(found.items()))


def _since(counts: Counts, before: Counts) -> Counts:
    """What has been added. Counters that went back (a pipeline was pushed) count from zero."""
    grown = {}
    for index, (packets, size) in counts.items():
        old_packets, old_size = before.get(index, (0, 0))
        fresh = packets < old_packets
        added = (packets, size) if fresh else (packets - old_packets, size - old_size)
        if any(added):
            grown[index] = added
    return grown


# ---- for programs ----


def document(reading: Reading, before: Reading | None = None) -> dict[str, Any]:
    """One switch as plain data; counts since the beginning, and per second if there is a reading before."""
    span_s = _span_s(reading, before)
    target = reading.target
    answer: dict[str, Any] = {"name": target.name, "address": target.address, "error": reading.error or None}
    if reading.error:
        return answer
    answer |= {
        "program": target.program,
        "runs_program": reading.runs_program,
        "pipeline": reading.title or None,
        "cookie": reading.cookie,
        "primary": reading.primary,
        "decisions": _decisions(reading, None, None),
        "arrivals": _arrivals(reading),
    }
    if before is not None and span_s:
        answer["interval_s"] = span_s
        answer["decisions_per_s"] = _decisions(reading, before, span_s)
    return answer


def _decisions(reading: Reading, before: Reading | None, span_s: float | None) -> list[dict[str, Any]]:
    per = span_s or 1
    return [
        {
            "port": port,
            "class": int(number),
            "level": level,
            **{
                decision.name.lower(): {
                    "packets": packets if span_s is None else packets / per,
                    "bytes": size if span_s is None else size / per,
                }
                for decision, (packets, size) in counts.items()
            },
        }
        for (port, number, level), counts in _rows(reading, before).items()
    ]


def _arrivals(reading: Reading) -> list[dict[str, Any]]:
    names = {number: name for name, number in reading.target.ports.items()}
    return [
        {
            "port": names.get(index >> 3, str(index >> 3)),
            "what": Arrival(index & 7).name.lower(),
            "packets": packets,
            "bytes": size,
        }
        for index, (packets, size) in sorted(reading.arrivals.items())
        if index & 7 < len(Arrival)
    ]
