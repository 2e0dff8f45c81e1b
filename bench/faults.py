"""Ranks that are killed, frozen or cut off in the middle of an all-reduce: what the others raise, and when.

A world of 4 runs all-reduces one after the other. Every rank notes in shared memory when it enters one and leaves it,
so that after the blow it is known whether it fell in the middle; one that did not is dealt again. Then every other rank
has to raise an error, within the group's timeout and a second, and to end by itself afterwards. The error has to name
the operation and its number, the rank that was struck, that rank's address and an interface, and what to look at. A
rank that was cut off is alive, and has to raise too, of whichever rank it missed.

Worlds run several at once: nearly all of the time they wait. The moment of the blow is drawn from a seed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import re
import signal
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.collectives.compare import MIB
from bench.collectives.world import DLCP, DLCP_SHM, Backend, Broken, Place, Rank, Ranks, WorldError
from bench.report import Figure, Report, percentile, progress
from dlcp.lab import Lab, missing

SUMMARY = "ranks killed, frozen, cut off in an all-reduce of 4: what the others raise, and when"
NEEDS_LAB = False
NEEDS_PROGRAMS = False
WORLD = 4
COUNT, COUNT_QUICK = 50, 4
AT_ONCE = 4
TIMEOUT_S = 3.0
LATE_AT_MOST_S = 1.0
# A rank that has not answered so long after its time hangs.
_HANG_S = 20.0
_END_S = 15.0
_START_S = 60.0
# One rank's line in the shared notes: all-reduces begun and ended.
_NOTE = struct.Struct("=qq")
# A rank has to have come this far before the blow: connections stand, nothing is new.
_WARM = 3


@dataclass(frozen=True)
class Fault:
    """One kind of blow."""

    name: str
    kind: str
    """killed, frozen or cut."""
    backend: Backend
    nbytes: int = 8 * MIB


@dataclass(frozen=True)
class Raised:
    """What a rank says of its end."""

    kind: str
    text: str
    operation: str | None
    sequence: int | None
    culprit: int | None
    late_s: float
    """Raised so long after the timeout of the operation had passed; negative: before it."""


@dataclass
class Trial:
    """One blow and what came of it."""

    fault: str
    victim: int
    in_the_middle: bool
    raised: dict[int, Raised] = field(default_factory=dict)
    """By rank; the victim is among them only if it was cut off."""
    complaints: list[str] = field(default_factory=list)
    """What is not as it should be, in words; empty: all is well."""
    words: dict[str, str] = field(default_factory=dict)
    """Of some complaints: the error that they are about."""


def run(*, quick: bool, count: int | None = None) -> Report:
    count = count or (COUNT_QUICK if quick else COUNT)
    trials: dict[str, list[Trial]] = {}
    with Ranks() as ranks:
        place = Place.loopback(WORLD)
        for fault in (
            Fault("killed, shared memory", "killed", DLCP_SHM),
            Fault("frozen, shared memory", "frozen", DLCP_SHM),
            Fault("killed, loopback", "killed", DLCP),
            Fault("frozen, loopback", "frozen", DLCP),
        ):
            trials[fault.name] = campaign(ranks, place, fault, count)
        if (why_not := missing()) is None:
            with Lab(hosts=WORLD) as lab:
                place = Place.of_lab(lab, WORLD)
                for fault in (
                    Fault("killed, link", "killed", DLCP),
                    Fault("frozen, link", "frozen", DLCP),
                    Fault("cut off, link", "cut", DLCP),
                ):
                    trials[fault.name] = campaign(ranks, place, fault, count, lab)
    report = _judge(trials, {"world": WORLD, "each": count, "timeout": f"{TIMEOUT_S:g} s"})
    if why_not is not None:
        report.notes.append(f"nobody was cut off: {why_not}")
    return report


def campaign(
    ranks: Ranks, place: Place, fault: Fault, count: int, lab: Lab | None = None, *, seed: int = 1
) -> list[Trial]:
    """`count` blows of one kind that fell in the middle of an all-reduce. Raises WorldError: ranks do not start."""
    draw = random.Random(f"{seed} {fault.name}")
    trials: list[Trial] = []
    missed = 0
    while len(trials) < count:
        progress(f"{fault.name}: {len(trials)}/{count}")
        # A cable that is pulled hits every world at once, so all of a batch have the same victim.
        victim = draw.randrange(place.world)
        batch = [
            victim if fault.kind == "cut" else draw.randrange(place.world)
            for _ in range(min(AT_ONCE, count - len(trials)))
        ]
        dealt = list(_deal(ranks, place, fault, batch, draw, lab))
        trials += [trial for trial in dealt if trial.in_the_middle]
        missed += sum(not trial.in_the_middle for trial in dealt)
        if missed > 4 * count + 20:
            raise WorldError(f"{fault.name}: {missed} blows missed the all-reduce, {len(trials)} hit")
    progress("")
    return trials


def _judge(trials: dict[str, list[Trial]], settings: dict[str, object]) -> Report:
    columns = ["", "blows", "errors", "p50 s", "p99 s", "latest s", "no hang", "named in full", "kinds"]
    report = Report("faults", settings)
    table = report.table("how long after its timeout an error was raised (before it: negative)", columns)
    for name, of_kind in trials.items():
        raised = [one for trial in of_kind for one in trial.raised.values()]
        late_s = [one.late_s for one in raised]
        hangs = sum("hang" in one for trial in of_kind for one in trial.complaints)
        good = sum(not trial.complaints for trial in of_kind)
        kinds = Counter(one.kind for one in raised)
        table.add(
            name,
            str(len(of_kind)),
            str(len(raised)),
            *(f"{percentile(late_s, percent):.2f}" for percent in (50, 99, 100)),
            f"{len(of_kind) - hangs} of {len(of_kind)}",
            f"{good} of {len(of_kind)}",
            ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()),
        )
        latest_s = Figure.of([max(late_s, default=float("inf"))])
        report.at_most(LATE_AT_MOST_S, f"{name}: latest error, s after the timeout", latest_s)
        well = Figure.of([good / len(of_kind)])
        report.at_least(1.0, f"{name}: blows after which all is well", well)
        found = Counter(complaint for trial in of_kind for complaint in trial.complaints)
        for complaint, count in found.most_common(6):
            said = next((f"\n    {t.words[complaint]}" for t in of_kind if complaint in t.words), "")
            report.notes.append(f"{name}: {count} × {complaint}{said}")
    return report


# --- one batch ------------------------------------------------------------------------------------------------


class Notes:
    """Where the ranks of one world are, in memory that all of them and the judge share."""

    def __init__(self, path: Path, world: int) -> None:
        with path.open("r+b") as file:
            file.truncate(_NOTE.size * world)
            self._memory = mmap.mmap(file.fileno(), _NOTE.size * world)

    def begin(self, rank: int, count: int) -> None:
        self._memory[_NOTE.size * rank : _NOTE.size * rank + 8] = struct.pack("=q", count)

    def end(self, rank: int, count: int) -> None:
        self._memory[_NOTE.size * rank + 8 : _NOTE.size * rank + 16] = struct.pack("=q", count)

    def of(self, rank: int) -> tuple[int, int]:
        """All-reduces begun and ended."""
        begun, ended = _NOTE.unpack_from(self._memory, _NOTE.size * rank)
        return begun, ended


@dataclass
class _World:
    ranks: list[Rank]
    notes: Notes
    victim: int
    blow_s: float = 0.0
    in_the_middle: bool = False


def _deal(
    ranks: Ranks, place: Place, fault: Fault, victims: list[int], draw: random.Random, lab: Lab | None
) -> Iterator[Trial]:
    """One world per victim, all struck, all waited for."""
    with contextlib.ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="dlcp-faults-")))
        worlds = []
        for number, victim in enumerate(victims):
            path = folder / str(number)
            path.touch()
            notes = Notes(path, place.world)
            # What the flight recorder writes on every error goes with the folder.
            environment = {**fault.backend.environment, "DLCP_FLIGHT_RECORDER_DIR": str(folder)}
            backend = replace(fault.backend, environment=environment)
            arguments = (str(path), fault.nbytes, TIMEOUT_S)
            started = open_.enter_context(
                ranks.world(reduce_until_it_fails, place, backend, *arguments, group_timeout_s=TIMEOUT_S)
            )
            worlds.append(_World(started, notes, victim))
        for world in worlds:
            _wait_until_warm(world)
        if fault.kind == "cut":
            assert lab is not None
            victim = worlds[0].victim
            time.sleep(draw.uniform(0, 0.1))
            lab.set_link(victim, up=False)
            open_.callback(lab.set_link, victim, up=True)
            for world in worlds:
                _note_blow(world, time.monotonic())
        else:
            for world in worlds:
                time.sleep(draw.uniform(0, 0.1))
                sign = signal.SIGKILL if fault.kind == "killed" else signal.SIGSTOP
                os.kill(world.ranks[world.victim].pid, sign)
                _note_blow(world, time.monotonic())
        for world in worlds:
            yield _hear(world, fault)


def _wait_until_warm(world: _World) -> None:
    end_s = time.monotonic() + _START_S
    while min(world.notes.of(rank)[1] for rank in range(len(world.ranks))) < _WARM:
        if time.monotonic() > end_s:
            states = [world.notes.of(rank) for rank in range(len(world.ranks))]
            raise WorldError(f"ranks do not come to work; all-reduces begun and ended: {states}")
        time.sleep(0.005)


def _note_blow(world: _World, now_s: float) -> None:
    world.blow_s = now_s
    begun, ended = world.notes.of(world.victim)
    world.in_the_middle = begun > ended


def _hear(world: _World, fault: Fault) -> Trial:
    """What every rank that is left says, and whether it ends."""
    trial = Trial(fault.name, world.victim, world.in_the_middle)
    end_s = world.blow_s + TIMEOUT_S + _HANG_S
    for number, rank in enumerate(world.ranks):
        if number == world.victim and fault.kind != "cut":
            continue
        try:
            said: Raised = rank.result(end_s - time.monotonic()).what
        except WorldError as error:
            hangs = "not back" in str(error)
            last = str(error).strip().splitlines()[-1]
            trial.complaints.append("a rank hangs in its all-reduce" if hangs else f"a rank: {last}")
            continue
        trial.raised[number] = said
        for complaint in faults_of(said, number, world.victim):
            trial.complaints.append(complaint)
            heard = f"rank {number}, after rank {world.victim} was struck: {said.kind}: {said.text}"
            trial.words.setdefault(complaint, heard)
        if not rank.end(_END_S):
            trial.complaints.append("a rank hangs at its end")
    return trial


def faults_of(said: Raised, rank: int, victim: int) -> Iterator[str]:
    """What an error should say and does not."""
    if said.late_s > LATE_AT_MOST_S:
        yield f"raised more than {LATE_AT_MOST_S:g} s after the timeout"
    if said.operation != "all_reduce" or "all_reduce(" not in said.text:
        yield "the error does not name the operation"
    if said.sequence is None or f"operation {said.sequence}" not in said.text:
        yield "the error does not name the sequence number"
    whom = said.culprit
    if whom is None or whom == rank or (rank != victim and whom != victim):
        yield "the error does not name the rank that was struck"
    elif not re.search(rf"[Rr]ank {whom} at \d+\.\d+\.\d+\.\d+:\d+", said.text):
        yield "the error does not name the address of the rank that was struck"
    if not re.search(r"\b(lo|eth-lab)\b", said.text):
        yield "the error names no interface"
    if not re.search(r"dlcp doctor|dmesg|py-spy|Look at|See whether|see where", said.text):
        yield "the error does not say what to look at"


# --- on every rank --------------------------------------------------------------------------------------------


def reduce_until_it_fails(notes_path: str, nbytes: int, timeout_s: float) -> Broken:
    """All-reduces without end; what the one that failed raised."""
    import torch
    import torch.distributed as dist

    notes = Notes(Path(notes_path), dist.get_world_size())
    rank = dist.get_rank()
    buffer = torch.ones(nbytes // 4)
    count = 0
    while True:
        count += 1
        buffer.fill_(1)
        notes.begin(rank, count)
        start_s = time.monotonic()
        try:
            dist.all_reduce(buffer)
        except RuntimeError as error:
            late_s = time.monotonic() - start_s - timeout_s
            return Broken(
                Raised(
                    type(error).__name__,
                    str(error),
                    getattr(error, "operation", None),
                    getattr(error, "sequence", None),
                    getattr(error, "culprit", None),
                    late_s,
                )
            )
        notes.end(rank, count)
