"""The recipe "redsync": the largest values of each parameter, of one sign at a time, as one value.

Fang et al., "RedSync: Reducing Synchronization Bandwidth for Distributed Deep Learning Training System", Journal of
Parallel and Distributed Computing 2019, arXiv 1808.04357: its selectors by size, momentum correction and factor
masking, local clipping, same-sign codes, densities of a warm-up, and a cost model (network_costs.py). The step's number
says whether positive or negative values are chosen. Otherwise than published: what the mean leaves of a value is kept,
not lost; the mean is rounded to bfloat16's precision, so that mean and rest add up to the value again; and the output
layer's values travel by themselves, as do all with codec="fp32".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dlcp import checks
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.options import SPARSE_CODECS
from dlcp.torch.gradient.residual.saved import Rename
from dlcp.torch.gradient.sparse.density import Density
from dlcp.torch.gradient.sparse.frame import Choice, Section
from dlcp.torch.gradient.sparse.network_costs import NetworkCosts
from dlcp.torch.gradient.sparse.pipeline import SparsePipeline, SparsePlan, reshard_sparse
from dlcp.torch.selectors import SELECTORS, SampledThreshold, Selector

if TYPE_CHECKING:
    from dlcp.torch.gradient.residual.report import ResidualReport

DENSITY = 0.001
"""If the options give none."""
TRIMMED_MAX_NUMEL = 2**20
"""Up to 4 MiB a parameter is trimmed; above, a threshold is searched and used for some steps."""
_Key = tuple[tuple[str, int, int], int]
"""A section's place, and the sign."""


class LayerChooser:
    """Chooses from each parameter by itself."""

    fixed_length = False

    def __init__(self, account: Account) -> None:
        options = account.options
        codec = checks.choice("codec", options.codec or "same_sign", SPARSE_CODECS)
        self.shares = codec == "same_sign"
        self._account = account
        self._name = options.selector
        # Those of which a selection depends on earlier ones are made for one section each.
        self._selectors: dict[_Key, Selector] = {}
        self._before: dict[_Key, tuple[float, int]] = {}

    def sections(self, stream: Layout, begin: int, end: int) -> Sequence[Section]:
        # As this rank's forward used it; ranks whose forwards differ may see another.
        single = self._account.rules.output_layer()
        return [
            Section(
                piece.begin,
                piece.end,
                self.shares and piece.segment.name not in single,
                (piece.segment.name, piece.offset, piece.end - piece.begin),
            )
            for piece in stream.pieces(begin, end)
        ]

    def choose(self, values: Tensor, section: Section, count: int, step: int) -> Choice:
        sign = (1 if step % 2 == 0 else -1) if section.shared else 0
        selector = self._selector((section.place, sign), section.numel)
        if not section.shared:
            indices = selector.select(values, count)
            return Choice(indices, values[indices])
        # What is not finite has to be seen by all, whatever its sign.
        candidates = torch.where(values.isfinite(), (sign * values).clamp_(min=0.0), math.inf)
        indices = selector.select(candidates, count)
        indices = indices[candidates[indices] > 0.0]
        if not len(indices):
            return Choice(indices, values.new_zeros(1))
        mean = values[indices].mean(dtype=torch.float64)
        return Choice(indices, mean.to(torch.bfloat16).float().view(1))

    def begin_step(self) -> None:
        """Remembers thresholds, in case that the step is skipped."""
        self._before = self._thresholds()

    def end_step(self, *, applied: bool) -> None:
        """A skipped step never was."""
        if not applied:
            self._restore(self._before)

    def state_dict(self) -> list[tuple[str, int, int, int, float, int]]:
        """Each threshold: parameter, offset, elements; sign; threshold, selections left."""
        return [(*place, sign, *state) for (place, sign), state in self._thresholds().items()]

    def load_state_dict(self, saved: Sequence[Any]) -> None:
        """Goes on with what state_dict() returned."""
        self._restore(
            {((name, offset, numel), sign): (value, left) for name, offset, numel, sign, value, left in saved}
        )

    def _selector(self, key: _Key, numel: int) -> Selector:
        if key not in self._selectors:
            usual = "trimmed" if numel <= TRIMMED_MAX_NUMEL else "sampled_threshold"
            self._selectors[key] = SELECTORS[self._name or usual]()
        return self._selectors[key]

    def _thresholds(self) -> dict[_Key, tuple[float, int]]:
        return {
            key: selector.state
            for key, selector in self._selectors.items()
            if isinstance(selector, SampledThreshold)
        }

    def _restore(self, thresholds: Mapping[_Key, tuple[float, int]]) -> None:
        self._selectors = {}
        for key, state in thresholds.items():
            selector = self._selector(key, key[0][2])
            if isinstance(selector, SampledThreshold):
                selector.state = state


class RedSyncPipeline(SparsePipeline):
    """Buffers of one state; see buffer/pipeline.py."""

    def __init__(self, account: Account) -> None:
        options = account.options
        self._layers = LayerChooser(account)
        super().__init__(
            account,
            self._layers,
            Density(options, DENSITY),
            options.momentum,
            NetworkCosts() if options.dense_if_cheaper else None,
        )

    def begin_step(self, loss_scale: float) -> None:
        super().begin_step(loss_scale)
        self._layers.begin_step()

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        self._layers.end_step(applied=applied)
        return super().end_step(applied=applied, gradient_norm=gradient_norm)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"thresholds": self._layers.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        thresholds = state["thresholds"]
        super().load_state_dict(state)
        self._layers.load_state_dict(thresholds)

    def _clip(self, buffer: GradientBuffer, plan: SparsePlan, gradient: Tensor) -> None:
        clip = self._account.options.clip
        if clip is None:
            return
        most = clip * self.residual.scale / math.sqrt(buffer.group.size())
        for sections in plan.sections:
            for section in sections:
                part = gradient[section.begin : section.end]
                norm = float(torch.linalg.vector_norm(part, dtype=torch.float64))
                if most < norm < math.inf:
                    part.mul_(most / norm)


def reshard_redsync(
    states: Sequence[Mapping[str, Any]], size: int, average: bool, rename: Rename
) -> list[dict[str, Any]]:
    """As of every sparse recipe, and thresholds under their parameters' new names."""

    def thresholds(state: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        named = [(rename(name), *rest) for name, *rest in state["thresholds"]]
        return [each for each in named if each[0] is not None]

    made = reshard_sparse(states, size, average, rename)
    return [state | {"thresholds": thresholds(state)} for state in made]
