"""A policy onto many switches as one step: every switch takes it, or every switch holds what it held before.

    look       connect to all, ask who is primary, read pipelines and entries, compare: nothing is written yet
    take       become primary everywhere, never from a live controller unless told to
    write      each switch its updates, in the order of update.py, several switches at once
    verify     read back and compare; a switch that does not hold what was written has failed
    or undo    the first failure stops all; whoever was touched is read again, and written back to what it held

An undo does not trust what it was told: it compares what a switch really holds with what it held, over a new connection
if the old one broke. Interrupts and signals undo as failures do; only a killed process cannot, and the next deployment
then finds and writes the difference. Every wait is bounded by the sessions' time-out.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from dlcp.switch.deploy.codec import canonical
from dlcp.switch.deploy.errors import (
    DeployError,
    OtherPipelineError,
    OtherPrimaryError,
    ProgramError,
    RollbackError,
    VerifyError,
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
class Order:
    """What one switch is to run and hold."""

    target: SwitchTarget
    pipeline: Pipeline
    entries: tuple[Entry, ...]
    """As the switch would read them back."""

    @classmethod
    def of(cls, target: SwitchTarget, pipeline: Pipeline, entries: Sequence[Entry]) -> Order:
        """ProgramError: the program has not what an entry names, or not enough room."""
        counts: dict[str, int] = {}
        for entry in entries:
            if isinstance(entry, TableEntry):
                counts[entry.table] = counts.get(entry.table, 0) + 1
        for table, count in counts.items():
            if count > (size := pipeline.schema.table(table).size):
                raise ProgramError(
                    f"{target.name}: table {table!r} has room for {size} entries, not for {count}"
                )
        return cls(target, pipeline, tuple(canonical(entry, pipeline.schema) for entry in entries))


class Pipelines(Enum):
    """What a switch runs, seen from a program that it should run."""

    same = "it runs the program"
    none = "it runs nothing yet"
    other = "it runs another program"


@dataclass
class Look:
    """What was found on a switch, and what is to be written."""

    order: Order
    holds: Pipelines
    title: str
    """Of the pipeline that it runs."""
    primary: int | None
    """Election id of another controller that is connected and primary."""
    held: tuple[Entry, ...]
    """Under the wanted pipeline; empty if it has to be set first."""
    wanted: list[Entry] = field(default_factory=list)
    """What the order says, with numbers of path groups that suit this switch."""
    updates: list[Update] = field(default_factory=list)

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


def look(orders: Sequence[Order], open_session: OpenSession) -> list[Look]:
    """What is on each switch. Writes nothing, and takes nothing from another controller."""
    with _sessions(orders, open_session) as sessions:
        return _on_each(lambda i: _look(orders[i], sessions[i], sessions[i].primary()), len(orders))


def refusals(looks: Sequence[Look], settings: Settings) -> list[DeployError]:
    """Why a deployment to these switches would be refused."""
    found: list[DeployError] = []
    for seen in looks:
        where = f"{seen.order.target.name} ({seen.order.target.address})"
        if seen.holds is Pipelines.other and not settings.replace_pipeline:
            found.append(
                OtherPipelineError(
                    f"{where} runs another pipeline ({seen.title}); it is left alone. Say --replace-pipeline, and its "
                    "entries, counters and registers are gone, and nothing is forwarded until the new ones are in"
                )
            )
        if seen.changes and seen.primary is not None and not settings.take_over:
            found.append(
                OtherPrimaryError(
                    f"{where}: another controller is connected and primary, with election id {seen.primary}; nothing "
                    "is taken from it. Disconnect it, or say --take-over"
                )
            )
    return found


def deploy(
    orders: Sequence[Order],
    open_session: OpenSession,
    settings: Settings,
    show: Callable[[list[Look]], None] = lambda _: None,
) -> list[Look]:
    """Brings every switch to its order; returns what was found and written. `show` is called before the first write.

    Raises DeployError: nothing has changed anywhere. RollbackError: the switches that it names need a person.
    """
    done: list[Look] = []
    try:
        with _sessions(orders, open_session) as sessions:
            seen = _on_each(lambda i: _look(orders[i], sessions[i], sessions[i].primary()), len(orders))
            if refused := refusals(seen, settings):
                raise several(refused)
            works = [
                _Work(s, session, open_session, settings)
                for s, session in zip(seen, sessions, strict=True)
                if s.changes
            ]
            _on_each(lambda i: works[i].take(), len(works))
            seen = [next((w.seen for w in works if w.order is s.order), s) for s in seen]
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


def _look(order: Order, session: Session, primary: int | None) -> Look:
    now = session.pipeline()
    if now is None:
        seen = Look(order, Pipelines.none, "", primary, ())
    elif now.is_same(order.pipeline):
        seen = Look(order, Pipelines.same, now.title(), primary, tuple(session.read(order.pipeline.schema)))
    else:
        seen = Look(order, Pipelines.other, now.title(), primary, ())
    seen.wanted = renumbered(seen.held, order.entries)
    seen.updates = difference(_ours(seen.held), seen.wanted)
    return seen


def _ours(entries: Sequence[Entry]) -> list[Entry]:
    """Without multicast groups that no program of ours makes: they are the switch's, whatever it uses them for."""
    return [e for e in entries if not isinstance(e, MulticastGroup) or e.group_id <= MAX_MULTICAST_GROUP]


# One per port of arrival; and of the aggregation program, one per job behind those.
MAX_MULTICAST_GROUP = MAX_PORTS + 63


# ---- writing, and undoing it ----


@dataclass
class _Work:
    """One switch that is to change, and all that is needed to change it back."""

    seen: Look
    session: Session
    open_session: OpenSession
    settings: Settings
    election_id: int = 0
    before: Pipeline | None = None
    before_entities: tuple[bytes, ...] = ()
    touched: bool = False
    reconnected: bool = False

    @property
    def order(self) -> Order:
        return self.seen.order

    @property
    def where(self) -> str:
        return f"{self.order.target.name} ({self.order.target.address})"

    def take(self) -> None:
        """Becomes primary, and looks once more: until now somebody else may have written."""
        self.election_id = self.session.become_primary(self.settings.take_over)
        self.seen = _look(self.order, self.session, None)

    def remember(self) -> None:
        """Of a pipeline that is to be replaced, everything that can be read."""
        if self.seen.holds is Pipelines.other:
            self.before = self.session.pipeline()
            self.before_entities = tuple(self.session.read_all())

    def write(self, stop: threading.Event) -> None:
        schema = self.order.pipeline.schema
        if stop.is_set():
            return
        updates = self.seen.updates
        self.touched = True
        if self.seen.holds is not Pipelines.same:
            self.session.set_pipeline(self.order.pipeline)
            # What a fresh pipeline holds by itself, its default actions, is known only now.
            updates = difference(_ours(self.session.read(schema)), self.seen.wanted)
        for start in range(0, len(updates), BATCH_UPDATES):
            if stop.is_set():
                return
            self.session.write(updates[start : start + BATCH_UPDATES], schema)

    def verify(self) -> None:
        now = self.session.pipeline()
        if now is None or not now.is_same(self.order.pipeline):
            raise VerifyError(f"{self.where} does not run the pipeline that it took")
        left = difference(_ours(self.session.read(self.order.pipeline.schema)), self.seen.wanted)
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
                self._undo()
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
        self.session = self.open_session(self.order.target)
        self.reconnected = True

    def _undo(self) -> None:
        if self.reconnected:
            self.election_id = self.session.become_primary(own=self.election_id)
        schema = self.order.pipeline.schema
        if self.seen.holds is Pipelines.same:
            if self.session.pipeline() is None:  # it has restarted, and forgotten everything
                self.session.set_pipeline(self.order.pipeline)
            now = _ours(self.session.read(schema))
            if self.reconnected:
                self._leave_to_others(now)
            self.session.write(difference(now, _ours(self.seen.held)), schema)
            left = difference(_ours(self.session.read(schema)), _ours(self.seen.held))
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
        """While we were not connected somebody else may have been primary, and be done: that is not ours to undo.

        It shows in what is neither as before nor as wanted. Default actions do not count, and a switch without entries
        has lost them.
        """
        entries = {entry.identity: entry for entry in now if not isinstance(entry, DefaultAction)}
        before = {entry.identity: entry for entry in _ours(self.seen.held)}
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
                "left as that wanted it"
            )

    def _empty(self) -> None:
        """P4Runtime takes no pipeline away: what comes nearest is the new one without entries. It forwards nothing."""
        if self.session.pipeline() is None:
            return
        self.session.set_pipeline(self.order.pipeline)
        left = _ours(self.session.read(self.order.pipeline.schema))
        if any(not isinstance(entry, DefaultAction) for entry in left):
            raise VerifyError(f"{self.where} still holds entries")


def _carry_out(works: Sequence[_Work]) -> None:
    """Writes to all, verifies all; undoes all if one fails."""
    stop = threading.Event()

    def step(work: _Work) -> None:
        try:
            work.write(stop)
        except BaseException:
            stop.set()
            raise

    _on_each(lambda i: works[i].remember(), len(works))
    try:
        _on_each(lambda i: step(works[i]), len(works), stop)
        _on_each(lambda i: works[i].verify(), len(works), stop)
    except BaseException as cause:
        stop.set()
        with _deaf():
            _undo(works, cause)
        raise


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Signals that ask the process to end have been heard: what follows is bounded, and better done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.signal(n, lambda *_: None) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _undo(works: Sequence[_Work], cause: BaseException) -> None:
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
def _sessions(orders: Sequence[Order], open_session: OpenSession) -> Iterator[list[Session]]:
    sessions: list[Session] = []
    try:
        sessions += [open_session(order.target) for order in orders]
        yield sessions
    finally:
        for session in sessions:
            session.close()


Result = TypeVar("Result")


def _on_each(work: Callable[[int], Result], count: int, stop: threading.Event | None = None) -> list[Result]:
    """`work(i)` for each i below `count`, in parallel. If some fail, all are waited for, and one error names each."""
    with ThreadPoolExecutor(PARALLEL_SWITCHES) as pool:
        futures: list[Future[Result]] = []
        try:
            for i in range(count):
                futures.append(pool.submit(work, i))
            wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException:  # Ctrl-C
            if stop is not None:
                stop.set()
            for future in futures:
                future.cancel()  # those that nobody has begun
            # A second Ctrl-C must not let an undo begin beside a write that is still under way.
            with _deaf():
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
