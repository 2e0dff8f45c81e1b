"""Gradients of FSDP2: its reduce-scatter, by a recipe.

    fully_shard(block) for block in model.layers; fully_shard(model)
    state = dlcp.torch.GradientState(model)
    dlcp.torch.shard_gradients(model, state)

Residuals are kept by parameter and by offset in the whole parameter, so they do not depend on which rank owns which
piece (layout.py). With a mesh of hosts the reduce-scatter stays exact, and the recipe is for what hosts exchange
(hosts.py).

A step ends when a module's gradients come again, or with end_step(). What FSDP does not reduce
(set_requires_gradient_sync(False)) never comes here. The all-reduce of torch's own HSDP, between replicas of a shard,
stays exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.buffer.pending_buffer import GradientWork
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.fsdp.hosts import HostsHook, check_mesh, check_module
from dlcp.torch.gradient.fsdp.layout import ModuleLayouts
from dlcp.torch.gradient.state import GradientState
from dlcp.torch.tensors import FLOATING_DTYPES, reduction
from dlcp.transport.communicator import Reduction


def shard_gradients(model: nn.Module, state: GradientState, *, mesh: DeviceMesh | None = None) -> None:
    """Has every FSDP module in `model` reduce its gradients by the state's recipe. After fully_shard.

    `state`: made for the same model. `mesh`: hosts by ranks of one host, where the modules are sharded over its second
    dimension: inside a host the reduction is then exact, and the recipe is for what hosts exchange. None: it is for the
    reduce-scatter. Raises ValueError: there is no FSDP module, the state knows another model, the mesh has not 2
    dimensions, or a module is sharded over other ranks; TypeError: dlcp is not the backend between hosts.
    """
    # Those from before fully_shard are not to be kept alive.
    state.names.read()
    found = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not found:
        raise ValueError(f"a {type(model).__name__} holds no FSDP module; accepted: after fully_shard")
    if mesh is None:
        for module in found:
            module.set_custom_reduce_scatter(BoundedReduceScatter(state, module))
        return
    check_mesh(mesh, state)
    for module in found:
        check_module(module, mesh)
    for module in found:
        module.set_all_reduce_hook(HostsHook(state, module, mesh))


class BoundedReduceScatter(ReduceScatter):
    """What FSDPModule.set_custom_reduce_scatter takes, for one FSDP module. `state`: of the whole model."""

    def __init__(self, state: GradientState, module: FSDPModule) -> None:
        self._state = state
        self._layouts = ModuleLayouts(state, module)

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
        layout = self._layouts.whole(input_tensor.numel(), group.size())
        if (
            layout is None
            or input_tensor.dtype not in FLOATING_DTYPES
            or kind not in (Reduction.SUM, Reduction.AVG)
        ):
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
