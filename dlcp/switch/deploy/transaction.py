"""A policy onto many switches as one step: every switch takes it, or every switch holds what it held before.

    compare    connect to all, ask who is primary, read pipelines and entries: nothing is written yet
    take       become primary everywhere, never from a live controller without --take-over
    write      each switch its updates, in the order of update.py, several switches at once
    verify     read back and compare; a switch that does not hold what was written has failed
    or undo    the first failure stops all; every touched switch is read again and brought back to what it held

An undo compares what a switch holds now with what it held before, over a new connection if the old one broke; it does
not rely on which writes were acknowledged. Interrupts and signals undo as failures do. A killed process cannot undo;
the next deployment finds and writes the difference. Every wait is bounded by the sessions' time-out.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from dlcp.signals import handled
from dlcp.switch.deploy.codec import canonical
from dlcp.switch.deploy.errors import (
    DeployError,
    OtherPipelineError,
    OtherPrimaryError,
    ProgramError,
    RollbackError,
    VerifyError,
    other_primary,
    several,
)
from dlcp.switch.deploy.groups import renumbered
from dlcp.switch.deploy.pipeline import Pipeline
from dlcp.switch.deploy.session import BATCH_UPDATES, Session
from dlcp.switch.deploy.update import Update, described, difference
from dlcp.switch.entries import DefaultAction, Entry, MulticastGroup, TableEntry
from dlcp.switch.programs import MAX_PORTS
from dlcp.switch.topology import SwitchTarget

PARALLEL_SWITCHES = 16
UNDO_PAUSE_S, MAX_UNDO_PAUSE_S = 0.1, 2.0  # between connections that an undo opens: twice as long each time

OpenSession = Callable[[SwitchTarget], Session]


@dataclass(frozen=True)
class DesiredState:
    """The program and the entries that one switch is to have."""

    target: SwitchTarget
    pipeline: Pipeline
    entries: tuple[Entry, ...]
    """As the switch would read them back."""

    @classmethod
    def of(cls, target: SwitchTarget, pipeline: Pipeline, entries: Sequence[Entry]) -> DesiredState:
        """ProgramError: the program has not what an entry names, or not enough room."""
        counts: dict[str, int] = {}
        for entry in entries:
            if isinstance(entry, TableEntry):
                counts[entry.table] = counts.get(entry.table, 0) + 1
        for table, count in counts.items():
            if count > (size := pipeline.schema.table(table).info.size):
                raise ProgramError(
                    f"{target.name}: table {table!r} has room for {size} entries, not for {count}"
                )
        return cls(target, pipeline, tuple(canonical(entry, pipeline.schema) for entry in entries))


class Pipelines(Enum):
    """What a switch runs, compared with the program that it should run."""

    same = "it runs the program"
    none = "it runs nothing yet"
    other = "it runs another program"


@dataclass
class Comparison:
    """What a switch holds beside what it should hold, and the updates that make the difference."""

    desired: DesiredState
    holds: Pipelines
    title: str
    """Of the pipeline that it runs."""
    primary: int | None
    """Election id of another controller that is connected and primary."""
    held: tuple[Entry, ...]
    """Under the wanted pipeline; empty if it has to be set first."""
    wanted: list[Entry]
    """The desired entries, with numbers of path groups that suit this switch."""
    updates: list[Update]

    @property
    def changes(self) -> bool:
        return self.holds is not Pipelines.same or bool(self.updates)


@dataclass(frozen=True)
class Settings:
    """How far a deployment may go."""

    take_over: bool = False
    replace_pipeline: bool = False
    undo_s: float = 30.0
    """How long a switch that does not answer is tried again when it has to be brought back."""


def compare(desired_states: Sequence[DesiredState], open_session: OpenSession) -> list[Comparison]:
    """What is on each switch. Writes nothing, and takes nothing from another controller."""
    with _sessions(desired_states, open_session) as sessions:
        return _compare_all(desired_states, sessions)


def refusals(comparisons: Sequence[Comparison], settings: Settings) -> list[DeployError]:
    """Why a deployment to these switches would be refused."""
    found: list[DeployError] = []
    for seen in comparisons:
        where = seen.desired.target.where
        if seen.holds is Pipelines.other and not settings.replace_pipeline:
            found.append(
                OtherPipelineError(
                    f"{where} runs another pipeline ({seen.title}); it is left alone. Say --replace-pipeline, and its "
                    "entries, counters and registers are gone, and nothing is forwarded until the new ones are in"
                )
            )
        if seen.changes and seen.primary is not None and not settings.take_over:
            found.append(other_primary(where, seen.primary))
    return found


def deploy(
    desired_states: Sequence[DesiredState],
    open_session: OpenSession,
    settings: Settings,
    show: Callable[[list[Comparison]], None] = lambda _: None,
) -> list[Comparison]:
    """Brings every switch to its desired state; returns what was found and written. `show` precedes the first write.

    Raises DeployError: nothing has changed anywhere. RollbackError: the switches that it names need a person.
    """
    done: list[Comparison] = []
    try:
        with _sessions(desired_states, open_session) as sessions:
            seen = _compare_all(desired_states, sessions)
            if refused := refusals(seen, settings):
                raise several(refused)
            works = [
                _SwitchChange(s, session, open_session, settings)
                for s, session in zip(seen, sessions, strict=True)
                if s.changes
            ]
            _on_each(_SwitchChange.take, works)
            seen = [next((w.seen for w in works if w.desired is s.desired), s) for s in seen]
            if refused := refusals(seen, settings):
                raise several(refused)
            show(seen)
            try:
                _carry_out(works)
                done = seen
            finally:
                for work in works:  # an undo may have opened new ones
                    work.session.close()
    except KeyboardInterrupt:
        if not done:
            raise  # else it came too late: all switches hold the new policy, and it would be wrong to say they do not
    return done


def _compare_all(desired_states: Sequence[DesiredState], sessions: Sequence[Session]) -> list[Comparison]:
    pairs = list(zip(desired_states, sessions, strict=True))
    return _on_each(lambda pair: _compare(*pair, pair[1].primary()), pairs)


def _compare(desired: DesiredState, session: Session, primary: int | None) -> Comparison:
    now = session.pipeline()
    held: tuple[Entry, ...] = ()
    if now is None:
        holds = Pipelines.none
    elif now.is_same(desired.pipeline):
        holds = Pipelines.same
        held = tuple(session.read(desired.pipeline.schema))
    else:
        holds = Pipelines.other
    wanted = renumbered(held, desired.entries)
    updates = difference(_managed(held), wanted)
    return Comparison(desired, holds, now.title() if now else "", primary, held, wanted, updates)


def _managed(entries: Sequence[Entry]) -> list[Entry]:
    """The entries without multicast groups of numbers that no dlcp program uses: another program may need those."""
    return [e for e in entries if not isinstance(e, MulticastGroup) or e.group_id <= MAX_MULTICAST_GROUP]


# One per port of arrival; and of the aggregation program, one per job behind those.
MAX_MULTICAST_GROUP = MAX_PORTS + 63


# ---- writing, and undoing it ----


@dataclass
class _SwitchChange:
    """One switch that is to change, and what is needed to change it back."""

    seen: Comparison
    session: Session
    open_session: OpenSession
    settings: Settings
    election_id: int = 0
    before: Pipeline | None = None
    before_entities: tuple[bytes, ...] = ()
    touched: bool = False
    reconnected: bool = False

    @property
    def desired(self) -> DesiredState:
        return self.seen.desired

    @property
    def where(self) -> str:
        return self.desired.target.where

    def take(self) -> None:
        """Becomes primary, and compares again: until now another controller may have written."""
        self.election_id = self.session.become_primary(self.settings.take_over)
        self.seen = _compare(self.desired, self.session, None)

    def remember(self) -> None:
        """Keeps everything that can be read of a pipeline that is to be replaced."""
        if self.seen.holds is Pipelines.other:
            self.before = self.session.pipeline()
            self.before_entities = tuple(self.session.read_all())

    def write(self, stop: threading.Event) -> None:
        schema = self.desired.pipeline.schema
        if stop.is_set():
            return
        updates = self.seen.updates
        self.touched = True
        if self.seen.holds is not Pipelines.same:
            self.session.set_pipeline(self.desired.pipeline)
            # What a fresh pipeline holds by itself, its default actions, is known only now.
            updates = difference(_managed(self.session.read(schema)), self.seen.wanted)
        for start in range(0, len(updates), BATCH_UPDATES):
            if stop.is_set():
                return
            self.session.write(updates[start : start + BATCH_UPDATES], schema)

    def verify(self) -> None:
        now = self.session.pipeline()
        if now is None or not now.is_same(self.desired.pipeline):
            raise VerifyError(f"{self.where} does not run the pipeline that it took")
        left = difference(_managed(self.session.read(self.desired.pipeline.schema)), self.seen.wanted)
        if left:
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            raise VerifyError(f"{self.where} does not hold what was written: it lacks {left[0]}{more}")

    def undo(self) -> None:
        """Back to what it held. Tries the session that there is, then new ones: the switch may only be restarting."""
        if not self.touched:
            return
        end_s, pause_s = time.monotonic() + self.settings.undo_s, UNDO_PAUSE_S
        while True:
            try:
                self._bring_back()
                return
            except OtherPrimaryError as error:
                if self.reconnected:
                    raise
                latest: DeployError = error
            except DeployError as error:
                latest = error
            # Not primary any more may mean that the connection broke and the switch knows us no longer.
            if time.monotonic() + pause_s > end_s:
                raise latest
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_UNDO_PAUSE_S)
            self._reconnect()

    def _reconnect(self) -> None:
        self.session.close()
        self.session = self.open_session(self.desired.target)
        self.reconnected = True

    def _bring_back(self) -> None:
        if self.reconnected:
            self.election_id = self.session.become_primary(own=self.election_id)
        schema = self.desired.pipeline.schema
        if self.seen.holds is Pipelines.same:
            if self.session.pipeline() is None:  # it has restarted, and forgotten everything
                self.session.set_pipeline(self.desired.pipeline)
            now = _managed(self.session.read(schema))
            if self.reconnected:
                self._leave_to_others(now)
            self.session.write(difference(now, _managed(self.seen.held)), schema)
            left = difference(_managed(self.session.read(schema)), _managed(self.seen.held))
            if left:
                raise VerifyError(f"{self.where} still lacks {left[0]}")
        elif self.before is not None:
            self.session.set_pipeline(self.before)
            self.session.restore(self.before_entities, self.session.read_all())
            if set(self.session.read_all()) != set(self.before_entities):
                raise VerifyError(f"{self.where} runs its old pipeline, but without all of its entries")
        else:
            self._empty()

    def _leave_to_others(self, now: Sequence[Entry]) -> None:
        """OtherPrimaryError if another controller wrote while we were not connected: its entries are left as they are.

        Such entries are neither as before nor as desired. Default actions do not count, and a switch without entries
        has restarted.
        """
        entries = {entry.identity: entry for entry in now if not isinstance(entry, DefaultAction)}
        before = {entry.identity: entry for entry in _managed(self.seen.held)}
        after = {entry.identity: entry for entry in self.seen.wanted}
        strange = [e for i, e in entries.items() if e not in (before.get(i), after.get(i))]
        strange += [
            entry
            for identity, entry in before.items()
            if entries and identity in after and identity not in entries
            if not isinstance(entry, DefaultAction)
        ]
        if strange:
            raise OtherPrimaryError(
                f"{self.where}: another controller has written meanwhile (see {described(strange[0])}), and it is "
                "left as it is"
            )

    def _empty(self) -> None:
        """Leaves the new pipeline without entries, which forwards nothing: P4Runtime cannot remove a pipeline."""
        if self.session.pipeline() is None:
            return
        self.session.set_pipeline(self.desired.pipeline)
        left = _managed(self.session.read(self.desired.pipeline.schema))
        if any(not isinstance(entry, DefaultAction) for entry in left):
            raise VerifyError(f"{self.where} still holds entries")


def _carry_out(works: Sequence[_SwitchChange]) -> None:
    """Writes to all, verifies all; undoes all if one fails."""
    stop = threading.Event()

    def step(work: _SwitchChange) -> None:
        try:
            work.write(stop)
        except BaseException:
            stop.set()
            raise

    _on_each(_SwitchChange.remember, works)
    try:
        _on_each(step, works, stop)
        _on_each(_SwitchChange.verify, works, stop)
    except BaseException as cause:
        stop.set()
        with _signals_ignored():
            _undo(works, cause)
        raise


def _signals_ignored() -> contextlib.AbstractContextManager[None]:
    """SIGINT, SIGTERM and SIGHUP do nothing meanwhile: an undo is under way, is bounded, and must end."""
    return handled(lambda *_: None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _undo(works: Sequence[_SwitchChange], cause: BaseException) -> None:
    """Brings every touched switch back. RollbackError names those that it could not."""
    touched = [work for work in works if work.touched]
    failed = []
    with ThreadPoolExecutor(PARALLEL_SWITCHES) as pool:
        for work, future in [(work, pool.submit(work.undo)) for work in touched]:
            error = future.exception()
            if error is not None:
                failed.append(f"{work.where}: {error}")
    if failed:
        why = str(cause) or type(cause).__name__
        raise RollbackError(
            f"NOT BROUGHT BACK, and half deployed: {'; '.join(failed)}. Deploy again once they answer: that writes "
            f"what is missing. The deployment had failed since: {why}"
        ) from cause


# ---- many switches at once ----


@contextlib.contextmanager
def _sessions(desired_states: Sequence[DesiredState], open_session: OpenSession) -> Iterator[list[Session]]:
    sessions: list[Session] = []
    try:
        sessions += [open_session(desired.target) for desired in desired_states]
        yield sessions
    finally:
        for session in sessions:
            session.close()


Item = TypeVar("Item")
Result = TypeVar("Result")


def _on_each(
    work: Callable[[Item], Result], items: Sequence[Item], stop: threading.Event | None = None
) -> list[Result]:
    """`work` on each item, in parallel. If some fail, all are waited for, and one error names each."""
    with ThreadPoolExecutor(PARALLEL_SWITCHES) as pool:
        futures: list[Future[Result]] = []
        try:
            for item in items:
                futures.append(pool.submit(work, item))
            wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException:  # Ctrl-C
            if stop is not None:
                stop.set()
            for future in futures:
                future.cancel()  # those that have not begun
            # A second Ctrl-C must not let an undo begin beside a write that is still under way.
            with _signals_ignored():
                wait(futures)
            raise
        wait(futures)
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in errors:
        if not isinstance(error, DeployError):
            raise error
    if errors:
        raise several([error for error in errors if isinstance(error, DeployError)])
    return [future.result() for future in futures]
