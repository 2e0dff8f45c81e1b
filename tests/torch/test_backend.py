"""dlcp beside another backend in one group of torch's, which takes a Backend in Python from torch 2.14 on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

import dlcp.torch
from dlcp.errors import MismatchError, WaitTimeoutError
from tests.torch import ranks

pytestmark = pytest.mark.skipif(
    torch.__version__ < "2.14", reason="before torch 2.14 there is no such Backend"
)
CPU = torch.device("cpu")


def serves_its_devices() -> None:
    group: Any = dist.group.WORLD
    assert type(group) is dist.ProcessGroup
    assert type(group._get_backend(torch.device("cuda"))) is c10d.ProcessGroupGloo
    backend = group._get_backend(CPU)
    assert isinstance(backend, dlcp.torch.Backend)
    assert (backend.name(), backend.rank(), backend.size()) == ("dlcp", dist.get_rank(), 2)
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(4))
    assert {"c10d::allreduce_", "dlcp:all_reduce"} <= {event.key for event in profile.key_averages()}
    # What takes a group of dlcp takes this one.
    dlcp.torch.monitored_barrier()
    dlcp.torch.all_reduce(torch.ones(4), precision="int8")
    sub: Any = dist.new_group([0, 1], backend="dlcp")
    assert sub.communicator.job is backend.group.communicator.job
    with pytest.raises(MismatchError):
        dist.all_reduce(torch.ones(3 + dist.get_rank()))


def test_a_backend_serves_the_devices_that_are_named() -> None:
    ranks.run(serves_its_devices, backend="cpu:dlcp,cuda:gloo")


def leaves_others_alone() -> None:
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(4))
    keys = {event.key for event in profile.key_averages()}
    assert "gloo:all_reduce" in keys
    assert not [key for key in keys if key.startswith("dlcp")]


def test_other_devices_keep_their_backend() -> None:
    ranks.run(leaves_others_alone, backend="cpu:gloo,cuda:dlcp")


def every_collective() -> None:
    rank, mine = dist.get_rank(), torch.full((4,), dist.get_rank() + 1.0)
    pair = [torch.empty(4), torch.empty(4)]
    dist.all_reduce(total := mine.clone())
    dist.reduce(mine.clone(), 0)
    dist.broadcast(first := mine.clone(), 0)
    dist.all_gather(pair, mine)
    assert [float(each[0]) for each in (total, first, *pair)] == [3, 1, 1, 2]
    dist.gather(mine, pair if rank == 0 else None)
    dist.scatter(part := torch.empty(4), pair if rank == 0 else None)
    dist.reduce_scatter(summed := torch.empty(4), pair)
    dist.all_to_all(pair, [mine, mine])
    dist.all_to_all_single(swapped := torch.empty(4), mine)
    assert [float(each[-1]) for each in (part, summed, *pair, swapped)] == [rank + 1, 2 * rank + 2, 1, 2, 2]
    if rank:
        dist.send(mine, 0)
    else:
        dist.recv(mine, 1)
    assert float(mine[0]) == 2
    dist.barrier()


def test_every_collective() -> None:
    ranks.run(every_collective, backend="cpu:dlcp,cuda:gloo")


def every_other_call() -> None:
    """What `every_collective` does not reach, by the methods of torch's group."""
    group: Any = dist.group.WORLD
    rank, mine = dist.get_rank(), torch.full((4,), dist.get_rank() + 1.0)
    pair = [torch.empty(4), torch.empty(4)]
    group.allreduce_coalesced([total := mine.clone(), other := mine.clone()]).wait()
    group.allgather_coalesced([[each] for each in pair], [mine]).wait()
    assert [float(each[0]) for each in (total, other, *pair)] == [3, 3, 1, 2]
    group.all_gather_single(whole := torch.empty(8), mine).wait()
    assert whole.tolist() == [1.0] * 4 + [2.0] * 4
    group.all_gather_single_coalesced([whole := torch.empty(8)], [mine]).wait()
    assert whole.tolist() == [1.0] * 4 + [2.0] * 4
    group.reduce_scatter_single(half := torch.empty(4), whole, dist.ReduceScatterOptions()).wait()
    assert half.tolist() == [2.0 * rank + 2] * 4
    group.reduce_scatter_single_coalesced([half := torch.empty(4)], [whole]).wait()
    assert half.tolist() == [2.0 * rank + 2] * 4
    if rank:
        group.send([mine], 0, 7).wait()
    else:
        group.recv_anysource([mine], 7).wait()
    assert float(mine[0]) == 2
    group.set_timeout(timedelta(seconds=20))
    assert dlcp.torch.ProcessGroup.within(group).communicator.timeout_s == 20  # type: ignore[union-attr]
    assert group._get_backend(CPU)._get_sequence_number_for_group() > 0
    dist.barrier()


def test_every_other_call() -> None:
    ranks.run(every_other_call, backend="cpu:dlcp,cuda:gloo")


def trains(hook: str | None) -> list[float]:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    if hook == "low_bit":
        state = dlcp.torch.GradientState(recipe="low_bit", small_numel=0)
        model.register_comm_hook(state, dlcp.torch.gradient_hook)
    elif hook is not None:
        model._register_builtin_comm_hook(getattr(c10d.BuiltinCommHookType, hook))
    model(torch.full((4, 8), float(dist.get_rank()))).square().sum().backward()
    return [float(value) for value in model.module.weight.grad.flatten()]


@pytest.mark.parametrize("hook", ["ALLREDUCE", "FP16_COMPRESS", "low_bit"])
def test_ddp(hook: str) -> None:
    plain = ranks.run(trains, backend="gloo", hook=None)[0]
    first, second = ranks.run(trains, backend="cpu:dlcp,cuda:gloo", hook=hook)
    assert first == second == pytest.approx(plain, rel=1e-1)


def test_a_group_made_by_hand_takes_one() -> None:
    inner = dlcp.torch.create(dist.HashStore(), 0, 1)
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    group._register_backend(CPU, dist.ProcessGroup.BackendType.CUSTOM, dlcp.torch.Backend(inner))
    tensor = torch.ones(3)
    assert group.allreduce([tensor]).wait()
    assert float(tensor.sum()) == 3
    work = group.recv([tensor], 0, 0)
    with pytest.raises(WaitTimeoutError):
        work.wait(timedelta(milliseconds=10))
    group.shutdown()
    with pytest.raises(RuntimeError):
        inner.allreduce([tensor]).wait()
