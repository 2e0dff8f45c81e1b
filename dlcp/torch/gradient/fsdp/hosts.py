"""Gradients of FSDP2 inside each host, reduced between hosts by the state's recipe.

    reduce-scatter inside a host (FSDP's own, exact) -> the recipe between hosts, on a shard, in FSDP's all-reduce hook

FSDP is over the ranks of one host, so the all-reduce between hosts is the hook's alone. Over a mesh with replicas torch
calls the hook after an exact all-reduce of its own, too late to send less: such modules are refused. Ranks of one place
on all hosts end with the same bits. What waits is of a host's mean, on the rank that has the shard. With MSTopK this is
the hierarchy of HiTopKComm (Shi et al., MLSys 2021, arXiv 2010.10458).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.buffer.pending_buffer import GradientWork
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.fsdp.layout import ModuleLayouts, parameter_groups
from dlcp.torch.gradient.state import GradientState
from dlcp.torch.tensors import FLOATING_DTYPES


def check_mesh(mesh: object, state: GradientState) -> None:
    """Raises TypeError or ValueError: it is no mesh of hosts and their ranks, or dlcp does not join the hosts."""
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh is a {type(mesh).__name__}; accepted: a DeviceMesh, or None")
    if mesh.ndim != 2:
        raise ValueError(
            f"mesh has {mesh.ndim} dimension{'s' * (mesh.ndim != 1)}; accepted: 2, hosts and ranks of one host"
        )
    exchange_of(state, mesh.get_group(0))


def check_module(module: FSDPModule, mesh: DeviceMesh) -> None:
    """Raises ValueError: the module is not sharded over the ranks of one host of the mesh, and these alone."""
    own = dist.get_process_group_ranks(mesh.get_group(1))
    for group in parameter_groups(module):
        # With replicas it is 2-D, or of replicas alone.
        over = group.mesh_info.mesh
        if hasattr(group.mesh_info, "replicate_process_group") or over.mesh.flatten().tolist() != own:
            raise ValueError(
                f"a {type(module).__name__} is sharded over ranks {over.mesh.tolist()}; accepted: {own}, those of "
                "one host, as in fully_shard(module, mesh=mesh[name of the second dimension])"
            )


class HostsHook:
    """What FSDPModule.set_all_reduce_hook takes, for one FSDP module. `state`: of the whole model."""

    def __init__(self, state: GradientState, module: FSDPModule, mesh: DeviceMesh) -> None:
        self._state = state
        self._module = module
        self._layouts = ModuleLayouts(state, module)
        self._hosts: dist.ProcessGroup = mesh.get_group(0)
        self._ranks, self._rank = mesh.size(1), mesh.get_local_rank(1)
        # The sum of shards that hosts have not exchanged yet (set_requires_all_reduce(False)).
        self._waiting: torch.Tensor | None = None

    def __call__(self, shard: torch.Tensor) -> None:
        """Puts the result of all hosts in place of this one's. `shard`: 1-D, FSDP's reduce-scatter output.

        Blocks. Raises the collective's errors, ValueError, TypeError. Where some of the module's parameters have no
        gradient in this step the reduction is exact, as in BoundedReduceScatter.
        """
        if shard.is_cuda:
            # FSDP made it on another stream and keeps no reference once it has cast it to the parameters' type.
            shard.record_stream(torch.cuda.current_stream(shard.device))
        group = self._group()
        if not group.all_reduce_grads:
            # FSDP adds the shard to the gradients in any case: with replicas of its own it would wait there.
            self._waiting = shard.clone() if self._waiting is None else self._waiting.add_(shard)
            shard.zero_()
            return
        if self._waiting is not None:
            shard += self._waiting
            self._waiting = None
        # FSDP divides by the ranks of the host; with a divisor of the caller's, by that alone.
        average = group.gradient_divide_factor is None
        layout = self._layouts.shard(shard.numel(), self._ranks, self._rank)
        if layout is None or shard.dtype not in FLOATING_DTYPES:
            op = dist.ReduceOp.AVG if average else dist.ReduceOp.SUM
            dist.all_reduce(shard, op=op, group=self._hosts)
            return
        exchange = exchange_of(self._state, self._hosts)
        pending = exchange.start_all_reduce(shard, layout, BufferCall(average=average))
        GradientWork([pending], [pending.result]).wait()
        if pending.result is not shard:
            shard.copy_(pending.result)

    def _group(self) -> Any:
        """FSDP's record of the module's parameters; a hook is for modules with one."""
        (group,) = parameter_groups(self._module)
        return group
