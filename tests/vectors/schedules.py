"""Schedules as golden vectors: what the native executor's tests run, written from `dlcp.transport.schedule`.

One source of truth: the C++ tests (tests/support/native/schedule_vectors.hpp) read what Python wrote, so an executor
that passes them runs what ships. A change of an algorithm shows as a diff of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlcp.transport.schedule import (
    ALGORITHMS,
    PLACED,
    ROOTED,
    Chunk,
    Combine,
    Hosts,
    Operation,
    RankSchedule,
    Receive,
    Send,
    build,
)
from dlcp.transport.schedule.layout import Role, layout
from tests.support.vectors import Record

WORLD_SIZES = range(1, 9)
# Hosts of the ranks, for the algorithms that ask: alike, of different size, and with ranks that are not consecutive.
HOSTS: tuple[Hosts, ...] = ((0, 0, 1, 1), (0, 0, 0, 0, 1, 1), (0, 1, 1, 0, 1, 2, 2, 0))


def records() -> list[Record]:
    """One record per collective, algorithm, world size and root (the first and the last)."""
    out: list[Record] = []
    for collective, serving in ALGORITHMS.items():
        for algorithm in serving:
            for world_size in WORLD_SIZES:
                for root in sorted({0, world_size - 1}) if collective in ROOTED else [0]:
                    out.append(_record(collective, algorithm, world_size, root))
            if algorithm in PLACED:
                out.extend(_record(collective, algorithm, len(hosts), 0, hosts) for hosts in HOSTS)
    return out


def _record(
    collective: str, algorithm: str, world_size: int, root: int, hosts: Hosts | None = None
) -> Record:
    schedules = [build(collective, algorithm, world_size, rank, root, hosts) for rank in range(world_size)]
    rooted = f" from {root}" if collective in ROOTED else ""
    placed = "" if hosts is None else " on " + "".join(map(str, hosts))
    return [
        ("name", f"{collective} {algorithm} {world_size}{rooted}{placed}"),
        ("collective", collective),
        ("algorithm", algorithm),
        ("world_size", str(world_size)),
        ("root", str(root)),
        *(
            ("rank", _rank(schedule, collective, world_size, rank, root))
            for rank, schedule in enumerate(schedules)
        ),
    ]


def _rank(schedule: RankSchedule, collective: str, world_size: int, rank: int, root: int) -> str:
    given = layout(collective, world_size, rank, root, schedule.output_chunks)
    assert (len(given.inputs), len(given.outputs)) == (schedule.input_chunks, schedule.output_chunks)
    in_place = _joined(",", (f"{read}={written}" for read, written in given.in_place))
    return " ".join(
        [
            _parts(given.inputs),
            _parts(given.outputs),
            in_place,
            _joined(",", map(_chunk, schedule.scratch)),
            _joined(";", map(_operation, schedule.operations)),
        ]
    )


def _parts(roles: Sequence[Role]) -> str:
    return _joined(",", (str(role.part) for role in roles))


def _chunk(chunk: Chunk) -> str:
    return "iox"[chunk.space] + str(chunk.index)


def _operation(operation: Operation) -> str:
    match operation:
        case Send(peer, message, source, lossy):
            return f"s{peer}.{message}={_chunk(source)}{'?' * lossy}"
        case Receive(peer, message, target, operand, final, lossy):
            taken = "" if operand is None else f"+{_chunk(operand)}"
            return f"r{peer}.{message}={_chunk(target)}{taken}{_mark(final)}{'?' * lossy}"
        case Combine(target, operands, final):
            return f"c{_chunk(target)}={'+'.join(map(_chunk, operands))}{_mark(final)}"


def _mark(final: bool) -> str:
    return "!" if final else ""


def _joined(separator: str, words: Iterable[str]) -> str:
    return separator.join(words) or "-"
