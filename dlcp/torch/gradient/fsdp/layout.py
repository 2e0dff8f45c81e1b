"""Where the parameters of an FSDP module lie in what FSDP reduces.

FSDP cuts each parameter of a module along its first dimension into one piece per rank, pads pieces to one size, and
sends piece i of all of them to rank i. A parameter that is sharded along another dimension is counted in the order in
which FSDP sends it, which is another one with another number of ranks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from torch.distributed.fsdp import FSDPModule

from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.torch.gradient.state import GradientState

logger = logging.getLogger("dlcp")


def parameter_groups(module: FSDPModule) -> list[Any]:
    """FSDP's groups of a module's own parameters. Under torch 2.11 there is one, or none."""
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [state._fsdp_param_group] if state._fsdp_param_group is not None else []


class ModuleLayouts:
    """The layouts of one FSDP module. `state`: of the whole model."""

    def __init__(self, state: GradientState, module: FSDPModule) -> None:
        self._state = state
        self._module = module
        self._layouts: dict[Hashable, Layout | None] = {}

    def whole(self, numel: int, ranks: int) -> Layout | None:
        """Of a reduce-scatter's input of so many elements, among so many ranks; None: a parameter is not in it."""
        # With the parameters: some may have been frozen, and others thawed, since.
        parameters = tuple(self._parameters())
        key = (numel, ranks, parameters)
        if key not in self._layouts:
            layout = chunked(parameters, ranks)
            if layout.numel != numel:
                logger.warning(
                    "%s has gradients of %d elements, its parameters with padding %d: some have none, so this "
                    "reduction is exact",
                    type(self._module).__name__,
                    numel,
                    layout.numel,
                )
            self._layouts[key] = layout if layout.numel == numel else None
        return self._layouts[key]

    def shard(self, numel: int, ranks: int, rank: int) -> Layout | None:
        """As whole, of one rank's output of so many elements."""
        key = (numel, ranks, rank, whole := self.whole(numel * ranks, ranks))
        if key not in self._layouts:
            self._layouts[key] = whole and whole.part(rank * numel, (rank + 1) * numel)
        return self._layouts[key]

    def _parameters(self) -> Iterable[tuple[str, tuple[int, ...], int]]:
        """Names, whole sizes and sharded dimensions of what the module reduces, in FSDP's order."""
        for group in parameter_groups(self._module):
            for parameter in group.fsdp_params:
                if parameter.sharded_param.requires_grad:
                    info = parameter._module_info
                    name = self._state.names.owned_by(info.module, info.param_name)
                    yield name, tuple(parameter._orig_size), parameter.fsdp_placement.dim


def chunked(parameters: Iterable[tuple[str, Sequence[int], int]], ranks: int) -> Layout:
    """The layout of FSDP's reduce-scatter input: for each rank its piece of each parameter, padded to one size."""
    pieces = []
    for name, size, dim in parameters:
        numel = math.prod(size)
        # Another dimension is divided evenly, or FSDP refuses it.
        rows = (size[0] if size else 1) if dim == 0 else ranks
        width = numel // rows if rows else 0
        pieces.append((name, -(-rows // ranks) * width, numel))
    per_rank = sum(padded for _, padded, _ in pieces)
    segments, at = [], 0
    for rank in range(ranks):
        for name, padded, numel in pieces:
            offset = rank * padded
            count = max(0, min(padded, numel - offset))
            if count:
                segments.append(Segment(name, offset, at, count))
            at += padded
    return Layout(tuple(segments), per_rank * ranks)
