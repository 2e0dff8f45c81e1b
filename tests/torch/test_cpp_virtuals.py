"""What torch's C++ may ask of a group and of a work: every virtual of ProcessGroup and Work, called from C++.

A method of torch's class, called on one of dlcp's objects, is the call that C++ makes. The tables say of each virtual
whether it reaches dlcp; where torch has no way to, it must end in torch's own error, and neither hang nor crash.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._C import _distributed_c10d as c10d
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from dlcp.errors import CollectiveTimeoutError
from tests.torch import ranks

PG, Work = dist.ProcessGroup, dist.Work
CPU = torch.device("cpu")


def one() -> torch.Tensor:
    return torch.ones(3)


# Virtuals that a group in Python may override, and what they answer in a world of one; a work: its result.
REACHED: dict[str, Callable[[Any], Any]] = {
    "allreduce": lambda group: PG.allreduce(group, [one()]),
    "allreduce_coalesced": lambda group: PG.allreduce_coalesced(group, [one()]),
    "allgather": lambda group: PG.allgather(group, [[one()]], [one()]),
    "all_gather_single_coalesced": lambda group: PG.all_gather_single_coalesced(group, [one()], [one()]),
    "allgather_into_tensor_coalesced": lambda group: PG.allgather_into_tensor_coalesced(
        group, [one()], [one()]
    ),
    "reduce_scatter": lambda group: PG.reduce_scatter(group, [one()], [[one()]]),
    "reduce_scatter_single_coalesced": lambda group: PG.reduce_scatter_single_coalesced(
        group, [one()], [one()]
    ),
    "reduce_scatter_tensor_coalesced": lambda group: PG.reduce_scatter_tensor_coalesced(
        group, [one()], [one()]
    ),
    "all_to_all_single": lambda group: PG.all_to_all_single(group, one(), one(), [], []),
    "alltoall_base": lambda group: PG.alltoall_base(group, one(), one(), [], []),
    "barrier": lambda group: PG.barrier(group),
    "broadcast": lambda group: PG.broadcast(group, [one()]),
    "send": lambda group: PG.send(group, [one()], 0, 0),
    "recv": lambda group: PG.recv(group, [one()], 0, 0),
    "name": lambda group: PG.name(group) == "dlcp",
    "_get_backend_name": lambda group: PG._get_backend_name(group) == "dlcp",
    "rank": lambda group: PG.rank(group) == 0,
    "size": lambda group: PG.size(group) == 1,
    "group_name": lambda group: PG.group_name.__get__(group) == group.group_name,
    "group_desc": lambda group: PG.group_desc.__get__(group) == "default_pg",
    "_set_group_name": lambda group: PG._set_group_name(group, "other") or group.getGroupName() == "other",
    "_set_group_desc": lambda group: PG._set_group_desc(group, "words") or group.getGroupDesc() == "words",
    "split_group": lambda group: PG.split_group(group, [0]).size() == 1,
}
# Those that torch does not let a group in Python override, or that need a Backend of C++: its error.
NO_BACKEND = r"No backend type associated|[Cc]ould not find .*backend|does not yet support sequence numbers"
REFUSED: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda group: PG.reduce(group, [one()]),
    "allgather_coalesced": lambda group: PG.allgather_coalesced(group, [[one()]], [one()]),
    "all_gather_single": lambda group: PG.all_gather_single(group, one(), one()),
    "_allgather_base": lambda group: PG._allgather_base(group, one(), one()),
    "gather": lambda group: PG.gather(group, [[one()]], [one()]),
    "scatter": lambda group: PG.scatter(group, [one()], [[one()]]),
    "reduce_scatter_single": lambda group: PG.reduce_scatter_single(group, one(), one()),
    "_reduce_scatter_base": lambda group: PG._reduce_scatter_base(group, one(), one()),
    "alltoall": lambda group: PG.alltoall(group, [one()], [one()]),
    "monitored_barrier": lambda group: PG.monitored_barrier(group, timedelta(seconds=5), False),
    "recv_anysource": lambda group: PG.recv_anysource(group, [one()], 0),
    "_set_sequence_number_for_group": lambda group: PG._set_sequence_number_for_group(group),
    "_get_sequence_number_for_group": lambda group: PG._get_sequence_number_for_group(group),
    "_start_coalescing": lambda group: PG._start_coalescing(group, CPU),
    "_end_coalescing": lambda group: PG._end_coalescing(group, CPU),
    "_get_backend": lambda group: PG._get_backend(group, CPU),
    "_backend_id": lambda group: PG._backend_id(group, PG.BackendType.CUSTOM),
    "_wait_for_pending_works": lambda group: PG._wait_for_pending_works(group),
    "_register_on_completion_hook": lambda group: PG._register_on_completion_hook(group, print),
}
# Without a virtual behind them, or (the last six) with one that by default asks all of its Backends, here none.
PLAIN = {
    *(
        "BackendType",
        "CUSTOM",
        "GLOO",
        "MPI",
        "NCCL",
        "UCC",
        "UNDEFINED",
        "XCCL",
        "_device_types",
        "_id",
        "_register_backend",
    ),
    *(
        "_set_default_backend",
        "bound_device_id",
        "boxed",
        "get_group_store",
        "unbox",
        "use_pg_for_symm_mem_rendezvous",
    ),
    *("_has_hooks", "_enable_collectives_timing", "set_timeout", "shutdown", "abort", "merge_remote_group"),
}
# Functions of torch that keep a work which Python gives them; in patches.py or work_in_cpp.py each gets a whole one.
KEEPERS = {"Reducer._set_forward_pass_work_handle", "_register_work"}


@pytest.fixture
def group() -> Iterator[Any]:
    dist.init_process_group("dlcp", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("virtual", REACHED)
def test_virtual_of_a_group_reaches_dlcp(group: Any, virtual: str) -> None:
    if virtual == "recv":
        group.send([one()], 0, 0)
    answer = REACHED[virtual](group)
    if isinstance(answer, Work):
        future = answer.get_future()
        assert answer.wait()
        # torch's reducer takes the tensors from the future, as soon as it has waited.
        assert future.done()
        assert all(bool((tensor == 1).all()) for tensor in future.value())
    else:
        assert answer


@pytest.mark.parametrize("virtual", REFUSED)
def test_virtual_of_a_group_ends_in_an_error_of_torch(group: Any, virtual: str) -> None:
    with pytest.raises(RuntimeError, match=NO_BACKEND):
        REFUSED[virtual](group)


def test_tables_have_every_method_of_a_group() -> None:
    methods = {name for name in dir(PG) if not name.startswith(("__", "_pybind11"))}
    assert methods == set(REACHED) | set(REFUSED) | PLAIN


def test_nothing_else_in_torch_keeps_a_work() -> None:
    takers = set()
    kinds = {f"{name}.": vars(kind) for name, kind in vars(c10d).items() if isinstance(kind, type)}
    for place, things in ({"": vars(c10d)} | kinds).items():
        for name, thing in things.items():
            words = (getattr(thing, "__doc__", None) or "") if callable(thing) else ""
            arguments = re.sub(r"\(self: [^,)]*", "(", words.partition("->")[0])
            if re.search(r"(c10d::|_distributed_c10d\.)Work\b", arguments):
                takers.add(place + name)
    # Of a torch with CUDA; it looks at the work of NCCL that it is given.
    assert takers - {"ProcessGroupNCCL._verify_work_timeout"} == KEEPERS


def test_work_from_cpp_is_whole_without_its_python_half(group: Any) -> None:
    """As after `boxed()`, for TorchScript: only what C++ keeps of it is left."""
    tensor = one()
    boxed = dist.all_reduce(tensor, async_op=True).boxed()
    gc.collect()
    kept = Work.unbox(boxed)
    assert kept.wait(timedelta(seconds=ranks.GROUP_TIMEOUT_S))
    assert kept.get_future().value()[0] is tensor
    # Not for C++ to override in Python: the defaults, which say so or (is_completed) which no code of torch asks.
    assert not kept.is_completed()
    for refused in (kept.result, kept.source_rank, kept.get_future_result):
        with pytest.raises(RuntimeError):
            refused()


# --- the contract of a future -------------------------------------------------------------------------------


def futures_of_works() -> None:
    ran: list[int] = []
    for number in range(100):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        early = work.get_future()
        work.wait()
        assert early.done()
        child = early.then(lambda future: future.value()[0])
        assert child.done()
        assert bool((child.value() == dist.get_world_size()).all())
        late = dist.all_reduce(torch.ones(4), async_op=True)
        late.wait()
        late.get_future().add_done_callback(lambda _: ran.append(1))
        assert len(ran) == number + 1


def test_future_is_complete_when_wait_returns_and_calls_back_at_once() -> None:
    ranks.run(futures_of_works)


def callback_of_a_message_that_is_late() -> float:
    """Rank 1 sends only when both have done a collective in a callback that was registered after the receive's."""
    other = 1 - dist.get_rank()
    late, total = torch.zeros(1), torch.ones(1)
    receive = dist.irecv(late, other)
    told = receive.get_future().then(lambda _: dist.all_reduce(late))
    reduced = dist.all_reduce(total, async_op=True).get_future().then(lambda _: dist.all_reduce(total))
    reduced.wait()
    dist.send(torch.full((1,), 3.0), other)
    told.wait()
    return float(total + late)


def test_callback_of_a_pending_message_holds_up_no_other() -> None:
    assert ranks.run(callback_of_a_message_that_is_late) == [10.0, 10.0]


# --- works that are given to C++ ----------------------------------------------------------------------------


def waits_by_tensor() -> None:
    size = dist.get_world_size()
    mine = float(dist.get_rank() + 1)
    total = size * (size + 1) / 2
    for _ in range(5):
        tensor, gathered = torch.full((1_000_000,), mine), [torch.zeros(500_000) for _ in range(size)]
        small = torch.full((8,), mine)
        with functional.allow_inflight_collective_as_graph_input_ctx():
            dist.all_reduce(tensor, async_op=True)
            dist.all_gather(gathered, torch.full((500_000,), mine), async_op=True)
            dist.broadcast(small, 0, async_op=True)
        gc.collect()
        assert bool((torch.ops._c10d_functional.wait_tensor(tensor) == total).all())
        for rank, part in enumerate(gathered):
            assert bool((torch.ops._c10d_functional.wait_tensor(part) == rank + 1).all())
        assert bool((torch.ops._c10d_functional.wait_tensor(small) == 1).all())
    assert c10d._get_work_registry_size() == 0


def test_wait_tensor_waits_for_a_collective_under_way() -> None:
    ranks.run(waits_by_tensor)


def joins_with_effective_size() -> float:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(dist.get_rank())
    with Join([replica], divide_by_initial_world_size=False):
        for _ in range(1 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            replica(torch.randn(4, 8, generator=data)).square().mean().backward()
            optimizer.step()
    return float(model.weight.detach().sum())


def test_join_that_divides_by_the_ranks_left_is_as_over_gloo() -> None:
    sums = ranks.run(joins_with_effective_size)
    assert sums[0] == sums[1]
    assert sums == pytest.approx(ranks.run(joins_with_effective_size, backend="gloo"))


def timeout_of_a_group_is_changed() -> bool:
    dist.all_reduce(torch.ones(4))
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=0.3), dist.group.WORLD)
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["over"])
        return True
    with pytest.raises(CollectiveTimeoutError):
        dist.all_reduce(torch.ones(4))
    store.set("over", "")
    return True


def test_timeout_of_a_group_can_be_changed_as_torchtitan_does() -> None:
    assert all(ranks.run(timeout_of_a_group_is_changed))
