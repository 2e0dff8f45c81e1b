"""The recipe "auto": exact, or 8 bits for every value, as is quicker here; the steps themselves are measured.

In its first steps the state tries both: exact, and "low_bit" with codec int8, between hosts alone where hosts have
several ranks each. Times of steps are taken from one to the next, with all that a training does in them, so what is not
waited for saves nothing. Few bits are taken where they save 5 % of the step on the slowest rank, in both rounds of the
trial: where they save nothing, chance in one of them decides nothing. The ranks of a group gather what they measured
(agreement.py) and decide alike; the log says what was found, `GradientState.recipe` what was taken. Then nothing is
measured any more: a choice holds for the run, and a saved state carries it, by the group's ranks. A state that has
none begins the trial anew.

8 bits with what they leave sent a step later end where dense training does, but for chance. 4 bits do not everywhere,
so they are for those who ask for "low_bit" (docs/gradients.md). What 8 bits left of the last trial is
written off where exact is chosen, with its memory: the rounding of one step.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlcp.errors import ArgumentError
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.agreement import Agreements, Figures
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.pipeline import Pipeline
from dlcp.torch.gradient.recipes.by_hosts import ByHosts
from dlcp.torch.gradient.recipes.exact import ExactPipeline
from dlcp.torch.gradient.recipes.low_bit import CodedPipeline, reshard_coded
from dlcp.torch.gradient.residual.saved import Rename

if TYPE_CHECKING:
    from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer
    from dlcp.torch.gradient.residual.feedback import FeedbackMemory
    from dlcp.torch.gradient.residual.memory import ResidualMemory
    from dlcp.torch.gradient.residual.report import ResidualReport
    from dlcp.transport.communicator import Communicator

logger = logging.getLogger("dlcp")

Members = tuple[int, ...]
"""A group, by the global ranks in it: in a saved state too."""
EXACT, LOW_BIT = "exact", "low_bit"
CODEC = "int8"
SAVING = 0.05
"""Of the step: what few bits must save."""
_TURN = 6
"""Steps of one kind in a row; the first is not counted, as buffers, plans and peers may be new to it."""
TRIAL = (*[EXACT] * _TURN, *[LOW_BIT] * _TURN) * 2
"""Step by step, what the first ones do: two rounds of each kind, since a machine's speed may drift."""
DECIDED = len(TRIAL) + 1
"""The step that first has a choice: what is gathered in one step is known in the next."""


class AutoPipeline:
    """Buffers of one state, by the quicker of two pipelines; see buffer/pipeline.py."""

    wants_norm = False

    def __init__(self, account: Account, clock_s: Callable[[], float] = time.perf_counter) -> None:
        self._account = account
        self._clock_s = clock_s
        self._exact = ExactPipeline(account)
        self._low = self._few_bits()
        self.sequences = max(self._exact.sequences, self._low.sequences)
        # Whether few bits have had any memory.
        self._wrote = False
        self._chosen: dict[Members, str] = {}
        self._begin_trial()

    def _few_bits(self) -> Pipeline:
        return ByHosts.of_coded(self._account, CodedPipeline(self._account, CODEC))

    def _begin_trial(self) -> None:
        # Of this process, not of the training: all ranks make a state, or load one, at the same step.
        self._step = -1
        self._began_s = 0.0
        self._steps_s: list[list[float]] = [[] for _ in range(len(TRIAL) // _TURN)]
        self._seen: set[Members] = set()
        self._agreements = Agreements[str]("recipe", self._measured, _quicker)

    @property
    def chosen(self) -> str | None:
        """What every group of this rank's has chosen; None: one is still measuring, or they differ."""
        found = {self._chosen.get(members) for members in self._seen or self._chosen}
        return found.pop() if len(found) == 1 else None

    @property
    def residual(self) -> ResidualMemory | FeedbackMemory | None:
        return self._low.residual

    def begin_step(self, loss_scale: float) -> None:
        now_s = self._clock_s()
        if 0 <= self._step < len(TRIAL) and self._step % _TURN:
            self._steps_s[self._step // _TURN].append(now_s - self._began_s)
        self._step += 1
        self._began_s = now_s
        if self._step >= DECIDED and self.chosen == EXACT and self._wrote:
            self._low.reset(None)  # lets a hub know, on all ranks at the same step
            self._low, self._wrote = self._few_bits(), False
        self._low.begin_step(loss_scale)

    def _way(self, buffer: GradientBuffer) -> str:
        """The same on all ranks of the buffer's group. May block, and raise: see Agreements.of_step."""
        members = buffer.group.communicator.members
        self._seen.add(members)
        if (chosen := self._chosen.get(members)) is not None:
            return chosen
        if self._step >= len(TRIAL) - 1 and (found := self._agreements.of_step(buffer)) is not None:
            self._chosen[members] = found
            return found
        return TRIAL[self._step] if self._step < len(TRIAL) else EXACT

    def start(self, buffer: GradientBuffer) -> PendingBuffer:
        if self._way(buffer) == EXACT:
            return self._exact.start(buffer)
        self._wrote = True
        return self._low.start(buffer)

    def cancel(self, key: Hashable) -> None:
        self._low.cancel(key)

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        return self._low.end_step(applied=applied, gradient_norm=gradient_norm)

    def _measured(self, _: Communicator) -> list[float]:
        """Seconds of a step on this rank: exact, in few bits, and again."""
        return [statistics.median(taken) for taken in self._steps_s]

    def reset(self, names: Iterable[str] | None) -> None:
        self._low.reset(names)

    def state_dict(self) -> dict[str, Any]:
        chosen = {",".join(map(str, members)): kind for members, kind in self._chosen.items()}
        return {"chosen": chosen} | self._low.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        chosen = state["chosen"]
        if not isinstance(chosen, Mapping) or not {EXACT, LOW_BIT}.issuperset(chosen.values()):
            raise ArgumentError(
                f"the state has chosen {chosen!r}; accepted: {EXACT!r} or {LOW_BIT!r} by each group's ranks"
            )
        chosen = {tuple(map(int, members.split(","))): kind for members, kind in chosen.items()}
        low = self._few_bits()
        low.load_state_dict(state)
        self._low, self._wrote, self._chosen = low, True, chosen
        if chosen:
            logger.info("gradients: as a saved state has chosen: %s", ", ".join(sorted(set(chosen.values()))))
        self._begin_trial()

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        state["chosen"]
        return self._low.names_in(state)


def _quicker(_: str | None, figures: Figures) -> str:
    slowest_s = list(map(max, zip(*figures, strict=True)))
    rounds = zip(slowest_s[::2], slowest_s[1::2], strict=True)
    exact_s, low_s = max(rounds, key=lambda taken_s: taken_s[1] / taken_s[0])
    chosen = LOW_BIT if low_s < (1 - SAVING) * exact_s else EXACT
    logger.info(
        "gradients: in the round that favours few bits less, on the slowest of %d ranks a step takes %.3g ms exact,"
        " %.3g ms in %s: %s",
        len(figures),
        1000 * exact_s,
        1000 * low_s,
        CODEC,
        chosen,
    )
    return chosen


def reshard_auto(
    states: Sequence[Mapping[str, Any]], size: int, average: bool, rename: Rename
) -> list[dict[str, Any]]:
    """As of "low_bit". What fewer or more ranks take is measured anew."""
    made = reshard_coded(states, size, average, rename)
    return made if size == len(states) else [state | {"chosen": {}} for state in made]
