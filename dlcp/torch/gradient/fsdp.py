"""Gradients of FSDP2: its reduce-scatter, within a loss budget.

    fully_shard(block) for block in model.layers; fully_shard(model)
    state = dlcp.torch.GradientState(model)
    dlcp.torch.shard_gradients(model, state)

FSDP cuts each parameter of a module along its first dimension into one piece per rank, pads pieces to one size, and
sends piece i of all of them to rank i. Residuals are kept by parameter and by offset in the whole parameter, so they do
not depend on which rank owns which piece. A parameter that is sharded along another dimension is counted in the order
in which FSDP sends it, which is another one with another number of ranks.

A step ends when a module's gradients come again, or with end_step(). What FSDP does not reduce
(set_requires_gradient_sync(False)) never comes here. The all-reduce of HSDP, between replicas of a shard, stays exact.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

from dlcp.torch.gradient.exchange import DTYPES, exchange_of
from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.torch.gradient.pending_buffer import GradientWork
from dlcp.torch.gradient.pipeline import BufferCall
from dlcp.torch.gradient.state import GradientState
from dlcp.torch.tensors import reduction
from dlcp.transport.communicator import Reduction

logger = logging.getLogger("dlcp")


def shard_gradients(model: nn.Module, state: GradientState) -> None:
    """Has every FSDP module in `model` reduce its gradients within the state's budget. After fully_shard.

    `state`: made for the same model. Raises ValueError: there is no FSDP module, or the state knows another model.
    """
    # Those from before fully_shard are not to be kept alive.
    state.names.read()
    found = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not found:
        raise ValueError(f"a {type(model).__name__} holds no FSDP module; accepted: after fully_shard")
    for module in found:
        module.set_custom_reduce_scatter(BoundedReduceScatter(state, module))


class BoundedReduceScatter(ReduceScatter):
    """What FSDPModule.set_custom_reduce_scatter takes, for one FSDP module. `state`: of the whole model."""

    def __init__(self, state: GradientState, module: FSDPModule) -> None:
        self._state = state
        self._module = module
        self._layouts: dict[Hashable, Layout | None] = {}

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Memory for one call."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Reduces what all ranks have for this one. The input is FSDP's own, and changed.

        Blocks unless `async_op`. Raises the collective's errors, ValueError, TypeError. Where some of the module's
        parameters have no gradient in this step, FSDP does not say which, and the reduction is an exact one;
        set_reduce_scatter_unused_params(True) of torch makes the others' zeros travel along.
        """
        kind, factor = reduction(op, "gradients")
        layout = self._layout(input_tensor.numel(), group.size())
        if layout is None or input_tensor.dtype not in DTYPES or kind not in (Reduction.SUM, Reduction.AVG):
            work: dist.Work | None = dist.reduce_scatter_tensor(
                output_tensor, input_tensor, op=op, group=group, async_op=async_op
            )
            return work
        call = BufferCall(average=kind is Reduction.AVG, factor=factor, into=output_tensor)
        pending = exchange_of(self._state, group).start_reduce_scatter(input_tensor.view(-1), layout, call)
        gradient_work = GradientWork([pending], [output_tensor])
        if async_op:
            gradient_work.get_future()
            return gradient_work
        gradient_work.wait()
        return None

    def _layout(self, numel: int, ranks: int) -> Layout | None:
        """Where parameters lie in an input of so many elements; None: not all of them are in it."""
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

    def _parameters(self) -> Iterable[tuple[str, tuple[int, ...], int]]:
        """Names, whole sizes and sharded dimensions of what the module reduces, in FSDP's order."""
        for group in self._module._get_fsdp_state()._fsdp_param_groups:
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
