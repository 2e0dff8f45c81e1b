"""What each block of a buffer of gradients is worth: importance bytes for a bounded collective.

A block's score is the mean of x² over the running mean square of the parameter that x belongs to, so that parameters of
all scales compare. That is the square of its RMS over the running RMS, so the order is the same. Its code has four
steps to a factor of two, 128 at the average. Codes of one step are counted; the threshold above which a block is
critical in the next is the quantile that leaves `critical_share` of the droppable bytes above it. One read pass, or a
sampled one, does it all (native/collective/importance.hpp); buffers on other devices are read there, by torch
operations.

Invariant: what outlives a step is kept by parameter name, never by buffer. Blocks with a value that is not finite are
critical, as far as values are read, and count in no statistic. Each rank judges its own gradients: importance may
differ between ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dlcp.torch.gradient.importance.plan import ImportancePlan
from dlcp.torch.gradient.importance.scan import (
    AVERAGE,
    CODES,
    ScanFunction,
    code_of,
    histogram_of,
    scan_by_processor,
    scan_by_torch,
    threshold_of,
)
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.tensors import FLOATING_DTYPES
from dlcp.transport.bounded import CRITICAL

SMOOTHING = 0.9
"""Of the running mean squares: the weight of what was, per step. A memory of ten steps: more than a batch's noise, less
than a phase of training."""
# A parameter whose gradient was always 0: any value other than 0 in it is worth more than all else.
_MEAN_SQUARE_MIN = 1e-60
# Layouts seen lately: a model's buffers, and those before torch rebuilt its buckets.
_PLANS_MAX = 256

ImportanceFunction = Callable[
    [Tensor, Layout, Sequence[tuple[int, int]], Sequence[int]], Sequence["NDArray[Any] | Tensor"]
]
"""GradientOptions.importance as a function: of the buffer, its layout, the element ranges by owner (this rank's own
left out), and the elements of a block of each. It answers an array per range, with a score of 0 or more per block: 1 is
the average, and a factor of two makes four codes. What is not finite is critical. Rules about parameters, and
`critical_share`, hold beside it. It must not change the buffer."""


class Marker:
    """Marks what is critical, and codes the rest.

    `scale`: AMP's loss scale of the gradients that come next; statistics are kept without it. Not for several threads.
    """

    def __init__(self, options: GradientOptions) -> None:
        self.scale = 1.0
        self._options = options
        self._plans: dict[object, ImportancePlan] = {}
        self._threshold = CODES
        self._histogram = np.zeros(CODES, np.uint64)
        # By number of parameter, which is given once and for good.
        self._numbers: dict[str, int] = {}
        self._mean_squares = np.zeros(0)  # NaN: not known
        self._settled = np.zeros(0, np.bool_)  # a step has ended since it is known
        self._step_sums = np.zeros(0)
        self._step_counts = np.zeros(0)

    def mark(
        self,
        buffer: Tensor,
        layout: Layout,
        critical: Collection[str],
        parts: Sequence[tuple[int, int]],
        block_bytes: Sequence[int],
        skip: int | None,
    ) -> list[NDArray[np.uint8] | None]:
        """Importance by owner: uint8, one per block; 255: critical. None for the owner `skip`: its part is not read.

        `buffer`: contiguous, one dimension, float16, bfloat16, float32 or float64; on another device than the CPU, what
        was queued there is waited for. `critical`: parameters every block of which is critical. `parts`: element ranges
        by owner, ascending and apart; `block_bytes`: of the owner's blocks, whole elements. Critical are also blocks
        with a value that is not finite, and those whose code is at the threshold that the step before set, or above; in
        the first step there is none. A new parameter is compared with its own mean square.
        """
        scan = scan_by_processor if buffer.device.type == "cpu" else scan_by_torch
        return self._mark(scan, buffer.detach(), layout, critical, parts, block_bytes, skip)

    def end_step(self) -> None:
        """Ends the step: updates the threshold and the running mean squares from its statistics."""
        if self._histogram.any():
            self._threshold = threshold_of(self._histogram, self._options.critical_share)
            self._histogram[:] = 0
        with np.errstate(invalid="ignore"):
            means = self._step_sums / self._step_counts
        seen = np.isfinite(means)  # 0 / 0: not in this step
        smooth = SMOOTHING * self._mean_squares + (1 - SMOOTHING) * means
        self._mean_squares = np.where(seen, np.where(self._settled, smooth, means), self._mean_squares)
        self._settled |= seen
        self._step_sums[:] = 0
        self._step_counts[:] = 0

    def state_dict(self) -> dict[str, Any]:
        """What outlives a step, as plain numbers. Between steps: what a step has counted so far is not in it."""
        known = {
            name: float(self._mean_squares[number])
            for name, number in self._numbers.items()
            if self._settled[number]
        }
        return {"mean_squares": known, "threshold": self._threshold}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what state_dict() returned; earlier statistics are forgotten."""
        threshold = int(state["threshold"])
        if not 0 <= threshold <= CODES:
            raise ValueError(f"threshold is {threshold}; accepted: 0 to {CODES}")
        known = {str(name): float(value) for name, value in state["mean_squares"].items()}
        if wrong := {name: value for name, value in known.items() if not 0 <= value < float("inf")}:
            raise ValueError(f"mean_squares has {wrong}; accepted: 0 or more, finite")
        numbers = self._numbers_of(known)
        self._threshold = threshold
        self._mean_squares[:] = np.nan
        self._mean_squares[numbers] = list(known.values())
        self._settled[:] = False
        self._settled[numbers] = True
        for counted in (self._histogram, self._step_sums, self._step_counts):
            counted[:] = 0

    # --- a buffer ---------------------------------------------------------------------------------------------

    def _mark(
        self,
        scan: ScanFunction,
        buffer: Tensor,
        layout: Layout,
        critical: Collection[str],
        parts: Sequence[tuple[int, int]],
        block_bytes: Sequence[int],
        skip: int | None,
    ) -> list[NDArray[np.uint8] | None]:
        plan = self._plan(buffer, layout, critical, parts, block_bytes, skip)
        if self._options.importance in ("rms", "sampled"):
            sampled = self._options.importance == "sampled"
            found = scan(buffer, plan, self._inverse_of(plan, buffer, scan), self._threshold, sampled)
            importance = found.importance
            self._histogram += found.histogram
        else:
            found = scan(buffer, plan, np.zeros(len(plan.segments)), CODES, False)
            if callable(self._options.importance):
                importance = self._by_function(self._options.importance, buffer, plan, found.importance)
            else:
                importance = np.where(found.importance == CRITICAL, CRITICAL, AVERAGE).astype(np.uint8)
        np.add.at(self._step_sums, plan.numbers, found.square_sums / self.scale**2)
        np.add.at(self._step_counts, plan.numbers, plan.counts)
        by_owner: list[NDArray[np.uint8] | None] = [
            importance[first : first + blocks]
            for first, blocks in zip(plan.first_blocks.tolist(), plan.blocks_of_parts, strict=True)
        ]
        if skip is not None:
            by_owner.insert(skip, None)
        return by_owner

    def _inverse_of(self, plan: ImportancePlan, buffer: Tensor, scan: ScanFunction) -> NDArray[np.float64]:
        """By segment, 1 / the mean square that its values are compared with; 0 where none is known."""
        means = self._mean_squares[plan.numbers]
        # What lies in this rank's own part alone is never read, and needs no mean.
        if (np.isnan(means) & (plan.counts > 0)).any():
            found = scan(buffer, plan, np.zeros(len(plan.segments)), CODES, False)
            sums = np.bincount(plan.numbers, found.square_sums, len(self._mean_squares))
            counts = np.bincount(plan.numbers, plan.counts, len(self._mean_squares))
            with np.errstate(invalid="ignore", divide="ignore"):
                own = sums / counts / self.scale**2
            new = np.isnan(self._mean_squares) & np.isfinite(own)
            self._mean_squares[new] = own[new]
            means = self._mean_squares[plan.numbers]
        return np.where(np.isnan(means), 0.0, 1 / (np.fmax(means, _MEAN_SQUARE_MIN) * self.scale**2))

    def _by_function(
        self, function: ImportanceFunction, buffer: Tensor, plan: ImportancePlan, marks: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        answer = function(buffer, plan.layout, plan.parts, plan.block_elements)
        scores = [
            np.asarray(each.detach().cpu() if isinstance(each, Tensor) else each, np.float32).reshape(-1)
            for each in answer
        ]
        blocks = plan.blocks_of_parts
        if [len(each) for each in scores] != blocks:
            raise ValueError(
                f"the importance function gave {[len(each) for each in scores]} scores; accepted: {blocks}, "
                "one per block"
            )
        score = np.concatenate([*scores, np.zeros(0, np.float32)])
        if (score < 0).any():
            raise ValueError(f"the importance function gave {score.min()}; accepted: 0 or more")
        code = code_of(score)
        droppable = (marks != CRITICAL) & np.isfinite(score)
        self._histogram += histogram_of(code[droppable], plan.block_numels[droppable] * buffer.element_size())
        return np.where(droppable & (code < self._threshold), code, CRITICAL).astype(np.uint8)

    def _plan(
        self,
        buffer: Tensor,
        layout: Layout,
        critical: Collection[str],
        parts: Sequence[tuple[int, int]],
        block_bytes: Sequence[int],
        skip: int | None,
    ) -> ImportancePlan:
        if buffer.dtype not in FLOATING_DTYPES or buffer.dim() != 1 or not buffer.is_contiguous():
            raise ValueError(
                f"the buffer is {buffer.dtype} of shape {tuple(buffer.shape)}; accepted: "
                f"{', '.join(map(str, FLOATING_DTYPES))}, one dimension, contiguous"
            )
        if layout.numel != buffer.numel():
            raise ValueError(
                f"the layout is of {layout.numel} elements; accepted: {buffer.numel()}, the buffer's"
            )
        item_bytes = buffer.element_size()
        key = (layout, frozenset(critical), tuple(parts), tuple(block_bytes), skip, item_bytes)
        plan = self._plans.pop(key, None)
        if plan is None:
            numbers = self._numbers_of(segment.name for segment in layout.segments)
            plan = ImportancePlan(layout, numbers, key[1], key[2], key[3], skip, item_bytes)
            if len(self._plans) == _PLANS_MAX:
                del self._plans[next(iter(self._plans))]
        self._plans[key] = plan  # the one used last is the last
        return plan

    def _numbers_of(self, names: Iterable[str]) -> NDArray[np.int64]:
        """The numbers of parameters; a new name gets the next."""
        numbers = np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names], np.int64)
        more = len(self._numbers) - len(self._mean_squares)
        self._mean_squares = np.append(self._mean_squares, np.full(more, np.nan))
        self._settled = np.append(self._settled, np.zeros(more, np.bool_))
        self._step_sums = np.append(self._step_sums, np.zeros(more))
        self._step_counts = np.append(self._step_counts, np.zeros(more))
        return numbers
