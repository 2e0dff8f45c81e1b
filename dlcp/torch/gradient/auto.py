"""The recipe "auto": exact, or 8 bits for every value, as is quicker here; the steps themselves are measured.

In its first steps the state tries both: exact, and "low_bit" with codec int8, between hosts alone where hosts have
several ranks each. Times of steps are taken from one to the next, with all that a training does in them, so what is not
waited for saves nothing. Few bits are taken where they save 5 % of the step on the slowest rank. Ranks gather what
they measured (agreement.py) and decide alike; the log and `GradientState.recipe` say what it is. Then nothing is
measured any more: a choice holds for the run, and a saved state carries it.

8 bits with what they leave sent a step later end where dense training does, of each kind that was tried; 4 bits do not
everywhere, so they are for those who ask for "low_bit" (docs/gradients.md). What 8 bits left of the last trial is
written off where exact is chosen: the rounding of one step.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dlcp.errors import ArgumentError
from dlcp.torch.gradient.agreement import Agreements, Figures
from dlcp.torch.gradient.by_hosts import ByHosts
from dlcp.torch.gradient.coded import CodedPipeline
from dlcp.torch.gradient.exact import ExactPipeline
from dlcp.torch.gradient.pipeline import GradientBuffer, Pipeline

if TYPE_CHECKING:
    from dlcp.torch.gradient.feedback import FeedbackMemory
    from dlcp.torch.gradient.pending_buffer import PendingBuffer
    from dlcp.torch.gradient.residual import ResidualMemory
    from dlcp.torch.gradient.residual_report import ResidualReport
    from dlcp.torch.gradient.state import GradientState
    from dlcp.torch.process_group import ProcessGroup
    from dlcp.transport.communicator import Communicator

logger = logging.getLogger("dlcp")

EXACT, LOW_BIT = "exact", "low_bit"
CODEC = "int8"
SAVING = 0.05
"""Of the step: what few bits must save."""
_ROUND = 6
"""Steps of one kind in a row; the first is not counted, as buffers, plans and peers may be new to it."""
TRIAL = (*[EXACT] * _ROUND, *[LOW_BIT] * _ROUND) * 2
"""Step by step, what the first ones do: each kind twice, since a machine's speed may drift."""
DECIDED = len(TRIAL) + 2
"""The step that first has a choice: agreements take two steps."""


class AutoPipeline:
    """Buffers of one state, by the quicker of two pipelines; see pipeline.Pipeline."""

    wants_norm = False

    def __init__(self, state: GradientState, clock_s: Callable[[], float] = time.perf_counter) -> None:
        self._exact = ExactPipeline(state)
        self._low: Pipeline = ByHosts(state, CodedPipeline(state, CODEC), expects_hosts=False)
        self.sequences = max(self._exact.sequences, self._low.sequences)
        self._clock_s = clock_s
        # Of this process: a loaded state begins another trial, unless it says what was chosen.
        self._step = -1
        self._began_s = 0.0
        self._steps_s: dict[str, list[float]] = {EXACT: [], LOW_BIT: []}
        self._agreements = Agreements[str]("recipe", self._measured, _quicker)
        # All ranks of a group choose alike; those of two groups need not.
        self._chosen: dict[ProcessGroup, str] = {}
        self._loaded: str | None = None

    @property
    def chosen(self) -> str | None:
        """What all groups have chosen; None: still measuring, or several things."""
        if self._loaded is not None:
            return self._loaded
        found = set(self._chosen.values())
        return found.pop() if len(found) == 1 else None

    @property
    def residual(self) -> ResidualMemory | FeedbackMemory | None:
        return self._low.residual

    def begin_step(self, loss_scale: float) -> None:
        now_s = self._clock_s()
        if 0 <= self._step < len(TRIAL) and self._step % _ROUND:
            self._steps_s[TRIAL[self._step]].append(now_s - self._began_s)
        self._step += 1
        self._began_s = now_s
        if self._step == DECIDED + 1 and self.chosen == EXACT and self.residual is not None:
            self.residual.reset(None)
        self._low.begin_step(loss_scale)

    def _way(self, buffer: GradientBuffer) -> str:
        """The same on all ranks of the buffer's group. May block, and raise: see Agreements.of_step."""
        if self._loaded is not None:
            return self._loaded
        if self._step < len(TRIAL):
            if self._step == len(TRIAL) - 1:
                self._agreements.of_step(buffer)
            return TRIAL[self._step]
        chosen = self._chosen.get(buffer.group)
        if chosen is None and (chosen := self._agreements.of_step(buffer)) is not None:
            self._chosen[buffer.group] = chosen
            exact, low = (f"{1000 * statistics.median(taken):.3g} ms" for taken in self._steps_s.values())
            logger.info("gradients: a step takes %s exact, %s in %s: %s", exact, low, CODEC, chosen)
        return chosen or EXACT

    def start(self, buffer: GradientBuffer) -> PendingBuffer:
        return (self._exact if self._way(buffer) == EXACT else self._low).start(buffer)

    def cancel(self, key: Hashable) -> None:
        self._low.cancel(key)

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        return self._low.end_step(applied=applied, gradient_norm=gradient_norm)

    def _measured(self, _: Communicator) -> list[float]:
        """Seconds of a step of each kind on this rank; 0: it has seen none, and has no say."""
        return [statistics.median(taken) if taken else 0.0 for taken in self._steps_s.values()]

    def reset(self, names: Iterable[str] | None) -> None:
        self._low.reset(names)

    def state_dict(self) -> dict[str, Any]:
        return {"chosen": self.chosen} | self._low.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["chosen"] not in (EXACT, LOW_BIT, None):
            raise ArgumentError(
                f"the state has chosen {state['chosen']!r}; accepted: {EXACT!r}, {LOW_BIT!r}, None"
            )
        self._low.load_state_dict(state)
        self._loaded = state["chosen"]

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        return self._low.names_in(state)


def _quicker(_: str | None, figures: Figures) -> str:
    exact_s, low_s = map(max, zip(*figures, strict=True))
    return LOW_BIT if 0 < low_s < (1 - SAVING) * exact_s else EXACT
