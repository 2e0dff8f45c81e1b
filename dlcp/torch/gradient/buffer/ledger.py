"""The account of bytes that gradients sent and lost, per step of one rank.

    ledger.enter("bucket 0", outcome, critical_bytes=…, budget_bytes=…, block_bytes=…)   # each buffer that is over
    ledger.end_step(memory.report(), applied=True)
    ledger.report()

It counts every byte that was abandoned. Invariant: a step's figures are the sums over its buffers, and the totals are
the sums over all steps, including skipped ones, since their bytes travelled as well. Bytes are payload of this rank
unless the name says otherwise. Any thread may call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dlcp.torch.gradient.residual.report import ResidualReport
from dlcp.transport.bounded import CollectiveOutcome
from dlcp.transport.logger import RankLogger
from dlcp.transport.metrics import PACKET_OVERHEAD_BYTES


@dataclass(slots=True)
class Traffic:
    """What one buffer, one step, or all steps cost and lost."""

    value_bytes: int = 0
    """Gradients sent, each once: contributions, and sums on their way back; with the indices of those that were chosen,
    and what ranks tell each other to choose."""
    contributed_bytes: int = 0
    """Of value_bytes, contributions: what could be lost at all, and what ratios are of."""
    header_bytes: int = 0
    """Of the packets that carried them, repairs included: dlcp's headers and tags, without UDP's and IP's. Worked out
    from sizes as if all headers were long: at most so many."""
    retransmitted_bytes: int = 0
    """Sent again."""
    received_bytes: int = 0
    critical_bytes: int = 0
    """The critical part of contributed_bytes."""
    budget_bytes: int = 0
    """The part of contributed_bytes that might have been abandoned."""
    abandoned_bytes: int = 0
    """The part of contributed_bytes that was abandoned; at most budget_bytes, except for messages that a deadline
    ended."""
    missing_bytes: int = 0
    """Contributions to this rank's sums that other ranks abandoned."""

    def __iadd__(self, other: Traffic) -> Traffic:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


@dataclass(slots=True)
class StepLedger:
    """One step of one rank."""

    step: int
    """Counted from 0."""
    applied: bool = True
    """False: the optimizer skipped it."""
    total: Traffic = field(default_factory=Traffic)
    buffers: dict[str, Traffic] = field(default_factory=dict)
    """By name, in the order in which they were over."""
    residual: ResidualReport | None = None
    """Values kept for the next step and values written off; None: this fill keeps nothing."""

    def describe(self) -> dict[str, Any]:
        """Plain numbers, JSON-able."""
        return asdict(self)


class Ledger:
    """The account of one rank.

    `rank`: the job's, and `group`, for log lines. `history`: how many steps are kept. `log_interval_steps`: a line to
    the logger `dlcp`, level info, each so many steps; None: no lines. Raises ValueError.
    """

    def __init__(
        self,
        rank: int = 0,
        group: str | None = None,
        *,
        history: int = 100,
        log_interval_steps: int | None = 100,
    ) -> None:
        if history < 1:
            raise ValueError(f"history is {history}; accepted: 1 or more steps")
        if log_interval_steps is not None and log_interval_steps < 1:
            raise ValueError(f"log_interval_steps is {log_interval_steps}; accepted: 1 or more, or None")
        self._lock = threading.Lock()
        self._logger = RankLogger(rank, group)
        self._interval = log_interval_steps
        self._step = StepLedger(0)
        self._history: deque[StepLedger] = deque(maxlen=history)
        self._total = Traffic()
        self._skipped = 0
        # What was said last, for the next line.
        self._logged = Traffic()

    # --- entries --------------------------------------------------------------------------------------------

    def enter(
        self,
        buffer: str,
        outcome: CollectiveOutcome,
        *,
        critical_bytes: int,
        budget_bytes: int,
        block_bytes: int,
        contributed_bytes: int | None = None,
        late_bytes: int = 0,
    ) -> None:
        """A buffer of the step under way is over; one of a name that was there already adds up with it.

        `block_bytes`: of messages to the others, the least if they differ. `contributed_bytes`: None: all that was
        sent. `late_bytes`: of it, what came when the sum had been made, and was abandoned beside what the outcome says.
        """
        packets = sum(
            -(-nbytes // max(1, block_bytes)) for nbytes in (outcome.sent_bytes, outcome.retransmitted_bytes)
        )
        entry = Traffic(
            value_bytes=outcome.sent_bytes,
            contributed_bytes=outcome.sent_bytes if contributed_bytes is None else contributed_bytes,
            header_bytes=packets * PACKET_OVERHEAD_BYTES,
            retransmitted_bytes=outcome.retransmitted_bytes,
            received_bytes=outcome.received_bytes,
            critical_bytes=critical_bytes,
            budget_bytes=budget_bytes,
            abandoned_bytes=outcome.abandoned_bytes + late_bytes,
            missing_bytes=sum(each.nbytes for each in outcome.missing),
        )
        with self._lock:
            self._step.total += entry
            of_buffer = self._step.buffers.setdefault(buffer, Traffic())
            of_buffer += entry

    def end_step(self, residual: ResidualReport | None = None, *, applied: bool = True) -> StepLedger:
        """Ends the step under way. `residual`: what the memory reports after it ended the step; None: no memory."""
        with self._lock:
            ended = self._step
            ended.applied, ended.residual = applied, residual
            self._history.append(ended)
            self._total += ended.total
            self._skipped += not applied
            self._step = StepLedger(ended.step + 1)
            line = None
            if self._interval is not None and self._step.step % self._interval == 0:
                line = self._line(ended)
                self._logged = Traffic()
                self._logged += self._total
        if line is not None:
            self._logger.info("%s", line)
        return ended

    # --- what it says ---------------------------------------------------------------------------------------

    @property
    def history(self) -> Sequence[StepLedger]:
        """The last steps that ended, oldest first."""
        with self._lock:
            return tuple(self._history)

    def report(self) -> dict[str, Any]:
        """All of it, JSON-able.

        `steps`: how many ended, `skipped`: of these. `total`: Traffic over all steps, and the ratios of it:
        `abandoned_ratio` of contributed bytes, `budget_ratio` likewise. `last`: the last step, with its buffers; None:
        none ended. `residual`: that step's; None: nothing is kept.
        """
        with self._lock:
            return self._snapshot() | {"last": self._history[-1].describe() if self._history else None}

    def snapshot(self) -> dict[str, Any]:
        """As report(), without single steps; for metrics."""
        with self._lock:
            return self._snapshot()

    def _snapshot(self) -> dict[str, Any]:
        residual = self._history[-1].residual if self._history else None
        values = max(1, self._total.contributed_bytes)
        return {
            "steps": self._step.step,
            "skipped": self._skipped,
            "total": asdict(self._total)
            | {
                "abandoned_ratio": self._total.abandoned_bytes / values,
                "budget_ratio": self._total.budget_bytes / values,
            },
            "residual": None if residual is None else asdict(residual),
        }

    def _line(self, ended: StepLedger) -> str:
        values = self._total.contributed_bytes - self._logged.contributed_bytes
        gone = self._total.abandoned_bytes - self._logged.abandoned_bytes
        allowed = self._total.budget_bytes - self._logged.budget_bytes
        again = self._total.retransmitted_bytes - self._logged.retransmitted_bytes
        line = (
            f"gradients, {ended.step + 1} steps: of the last {_mib(values)} were abandoned {_share(gone, values)} "
            f"(allowed {_share(allowed, values)}), sent again {_share(again, values)}"
        )
        if ended.residual is not None:
            line += (
                f"; kept {_mib(ended.residual.nbytes)}{_norm(ended.residual.norm)}, "
                f"up to {ended.residual.age} steps old; written off {_mib(ended.residual.total.nbytes)}, "
                f"norm {ended.residual.total.norm:.3g}"
            )
        return line + (f"; {self._skipped} steps skipped" if self._skipped else "")


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"


def _norm(norm: float | None) -> str:
    return "" if norm is None else f", norm {norm:.3g}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole if whole else 0.0:.2%}"
