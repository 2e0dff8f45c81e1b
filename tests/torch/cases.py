"""Every c10d collective as a case that runs over any backend, so that Gloo's result can stand beside dlcp's.

A case gets a group and answers the tensors that came out; inputs depend on the rank alone. What Gloo cannot do has an
expectation of its own in test_collectives.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

Tensor = torch.Tensor
Case = Callable[[dist.ProcessGroup], list[Tensor]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def values(*shape: int, dtype: torch.dtype = torch.float32, salt: int = 0) -> Tensor:
    """Small whole numbers, other ones on every rank: sums of them are exact in every type, in any order."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count) * 7 + dist.get_rank() * 3 + salt) % 5
    return numbers.to(dtype).reshape(shape)


def even(count: int, group: dist.ProcessGroup) -> list[Tensor]:
    return [torch.full((count,), -1.0) for _ in range(group.size())]


# --- reductions ---------------------------------------------------------------------------------------------


@case
def all_reduce(group: dist.ProcessGroup) -> list[Tensor]:
    tensor = values(1000)
    assert dist.all_reduce(tensor, group=group) is None
    return [tensor]


@case
def all_reduce_async(group: dist.ProcessGroup) -> list[Tensor]:
    tensors = [values(count) for count in (1, 17, 4096, 100_003)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
    return tensors


@case
def all_reduce_future(group: dist.ProcessGroup) -> list[Tensor]:
    tensor = values(100)
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2).wait()
    return [tensor, doubled, future.wait()[0]]


@case
def all_reduce_of_every_type(group: dist.ProcessGroup) -> list[Tensor]:
    tensors = [
        values(65, dtype=dtype)
        for dtype in (
            *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
            *(torch.int8, torch.uint8, torch.int32, torch.int64),
        )
    ]
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)
    return tensors


@case
def all_reduce_of_every_op(group: dist.ProcessGroup) -> list[Tensor]:
    tensors = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        for dtype in (torch.float32, torch.int64):
            tensor = values(33, dtype=dtype, salt=1)
            dist.all_reduce(tensor, op, group=group)
            tensors.append(tensor)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        tensor = values(33, dtype=torch.int32, salt=2)
        dist.all_reduce(tensor, op, group=group)
        tensors.append(tensor)
    return tensors


@case
def all_reduce_complex(group: dist.ProcessGroup) -> list[Tensor]:
    tensor = torch.complex(values(40), values(40, salt=1))
    dist.all_reduce(tensor, group=group)
    return [tensor]


@case
def all_reduce_empty(group: dist.ProcessGroup) -> list[Tensor]:
    tensors = [torch.empty(0), torch.empty(3, 0, dtype=torch.int64)]
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)
    return tensors


@case
def all_reduce_scalar(group: dist.ProcessGroup) -> list[Tensor]:
    tensor = torch.tensor(float(dist.get_rank() + 1))
    dist.all_reduce(tensor, group=group)
    return [tensor]


@case
def all_reduce_coalesced(group: dist.ProcessGroup) -> list[Tensor]:
    tensors = [values(3, 4), values(100_000), values(7), values(1)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    options = dist.AllreduceCoalescedOptions()
    again = [values(5, salt=index) for index in range(9)]
    group.allreduce_coalesced(again, options).wait()
    return tensors + again


@case
def reduce(group: dist.ProcessGroup) -> list[Tensor]:
    results = []
    for root in range(group.size()):
        tensor = values(50, salt=root)
        dist.reduce(tensor, group_dst=root, group=group)
        if group.rank() == root:
            results.append(tensor)
    return results


@case
def reduce_scatter(group: dist.ProcessGroup) -> list[Tensor]:
    output = torch.empty(30)
    dist.reduce_scatter(output, [values(30, salt=index) for index in range(group.size())], group=group)
    return [output]


@case
def reduce_scatter_single(group: dist.ProcessGroup) -> list[Tensor]:
    output = torch.empty(30)
    dist.reduce_scatter_single(output, values(30 * group.size()), group=group)
    return [output]


# --- gathering and spreading --------------------------------------------------------------------------------


@case
def broadcast(group: dist.ProcessGroup) -> list[Tensor]:
    tensors = []
    for root in range(group.size()):
        tensor = values(1000, salt=root)
        dist.broadcast(tensor, group_src=root, group=group)
        tensors.append(tensor)
    return tensors


@case
def broadcast_of_every_type(group: dist.ProcessGroup) -> list[Tensor]:
    tensors = [
        values(17, dtype=dtype)
        for dtype in (torch.float64, torch.bfloat16, torch.int8, torch.bool, torch.complex64)
    ]
    for tensor in tensors:
        dist.broadcast(tensor, group_src=0, group=group)
    return tensors


@case
def all_gather(group: dist.ProcessGroup) -> list[Tensor]:
    outputs = even(20, group)
    dist.all_gather(outputs, values(20), group=group)
    return outputs


@case
def all_gather_single(group: dist.ProcessGroup) -> list[Tensor]:
    output = torch.empty(4 * group.size(), 5)
    dist.all_gather_single(output, values(4, 5), group=group)
    return [output]


@case
def all_gather_coalesced(group: dist.ProcessGroup) -> list[Tensor]:
    outputs = [[torch.empty(2, 2), torch.empty(3)] for _ in range(group.size())]
    options = c10d.AllgatherOptions()
    group.allgather_coalesced(outputs, [values(2, 2), values(3, salt=1)], options).wait()
    return [tensor for received in outputs for tensor in received]


@case
def gather(group: dist.ProcessGroup) -> list[Tensor]:
    results = []
    for root in range(group.size()):
        outputs = even(10, group) if group.rank() == root else None
        dist.gather(values(10, salt=root), outputs, group_dst=root, group=group)
        results += outputs or []
    return results


@case
def scatter(group: dist.ProcessGroup) -> list[Tensor]:
    results = []
    for root in range(group.size()):
        output = torch.empty(10)
        inputs = [values(10, salt=index) for index in range(group.size())] if group.rank() == root else None
        dist.scatter(output, inputs, group_src=root, group=group)
        results.append(output)
    return results


@case
def all_to_all_single(group: dist.ProcessGroup) -> list[Tensor]:
    output = torch.empty(6 * group.size(), 2)
    dist.all_to_all_single(output, values(6 * group.size(), 2), group=group)
    return [output]


@case
def all_to_all_single_uneven(group: dist.ProcessGroup) -> list[Tensor]:
    size, rank = group.size(), group.rank()
    # Rank i sends j + i rows to rank j: none, one or several.
    gives = [rank + other for other in range(size)]
    gets = [rank + other for other in range(size)]
    output = torch.empty(sum(gets), 3)
    dist.all_to_all_single(output, values(sum(gives), 3), gets, gives, group=group)
    return [output]


# --- between two ranks --------------------------------------------------------------------------------------


@case
def send_and_receive(group: dist.ProcessGroup) -> list[Tensor]:
    size, rank = group.size(), group.rank()
    received = torch.empty(64)
    if rank % 2 == 0:
        dist.send(values(64), group_dst=(rank + 1) % size, group=group)
        dist.recv(received, group_src=(rank - 1) % size, group=group)
    else:
        dist.recv(received, group_src=(rank - 1) % size, group=group)
        dist.send(values(64), group_dst=(rank + 1) % size, group=group)
    return [received]


@case
def tags_keep_messages_apart(group: dist.ProcessGroup) -> list[Tensor]:
    size, rank = group.size(), group.rank()
    received = [torch.empty(8) for _ in range(3)]
    works = [
        dist.irecv(received[tag], group_src=(rank - 1) % size, group=group, tag=tag) for tag in (2, 0, 1)
    ]
    works += [
        dist.isend(values(8, salt=tag), group_dst=(rank + 1) % size, group=group, tag=tag) for tag in range(3)
    ]
    for work in works:
        work.wait()
    return received


@case
def messages_of_one_tag_keep_their_order(group: dist.ProcessGroup) -> list[Tensor]:
    size, rank = group.size(), group.rank()
    received = [torch.empty(9) for _ in range(5)]
    works = [
        dist.isend(values(9, salt=index), group_dst=(rank + 1) % size, group=group) for index in range(5)
    ]
    for tensor in received:
        dist.recv(tensor, group_src=(rank - 1) % size, group=group)
    for work in works:
        work.wait()
    return received


@case
def receive_from_anyone(group: dist.ProcessGroup) -> list[Tensor]:
    if group.rank() != 0:
        dist.send(values(4), group_dst=0, group=group)
        dist.barrier(group=group)
        return []
    received: dict[int, Tensor] = {}
    for _ in range(group.size() - 1):
        tensor = torch.empty(4)
        received[dist.recv(tensor, group=group)] = tensor
    # What a rank sends next is from anyone, too: Gloo then takes it, and ends the process because of its length.
    dist.barrier(group=group)
    assert sorted(received) == [dist.get_global_rank(group, rank) for rank in range(1, group.size())]
    return [tensor for _, tensor in sorted(received.items())]


@case
def batch_isend_irecv(group: dist.ProcessGroup) -> list[Tensor]:
    size, rank = group.size(), group.rank()
    received = torch.empty(128)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, received, group=group, group_peer=(rank - 1) % size),
            dist.P2POp(dist.isend, values(128), group=group, group_peer=(rank + 1) % size),
        ]
    )
    for work in works:
        work.wait()
    return [received]


# --- the rest -----------------------------------------------------------------------------------------------


@case
def barrier(group: dist.ProcessGroup) -> list[Tensor]:
    dist.barrier(group=group)
    dist.barrier(group=group, async_op=True).wait()
    return []


@case
def objects(group: dist.ProcessGroup) -> list[Tensor]:
    rank, size = group.rank(), group.size()
    gathered: list[object] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "words": "x" * rank * 100}, group=group)
    assert gathered == [{"rank": other, "words": "x" * other * 100} for other in range(size)]
    spread: list[object] = [rank, "of the root"] if rank == 0 else [None, None]
    dist.broadcast_object_list(spread, group_src=0, group=group)
    assert spread == [0, "of the root"]
    share: list[object] = [None]
    dist.scatter_object_list(share, list(range(size)) if rank == 0 else None, group_src=0, group=group)
    assert share == [rank]
    collected: list[object] | None = [None] * size if rank == 0 else None
    dist.gather_object(("of", rank), collected, group_dst=0, group=group)
    assert rank or collected == [("of", other) for other in range(size)]
    return []
