"""Every collective of torch.distributed over dlcp, beside Gloo where Gloo can do it.

All cases of a world size run in one set of ranks; each test looks at one case.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.torch import ranks
from tests.torch.cases import CASES, Case, values

WORLDS = (2, 3, 4)
# What each rank has to say of a case: nothing, or what went wrong.
Verdicts = list[dict[str, str | None]]


def same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


def verdict(function: Callable[[], object]) -> str | None:
    try:
        function()
    except Exception:
        return traceback.format_exc()
    return None


def attempt(run: Case, group: dist.ProcessGroup) -> tuple[list[torch.Tensor], str | None]:
    """What came out, and what went wrong."""
    try:
        return run(group), None
    except Exception:
        return [], traceback.format_exc()


def judge_cases() -> dict[str, str | None]:
    group = dist.group.WORLD
    gloo = dist.new_group(backend="gloo")
    found = {}
    for name, run in CASES.items():
        # Both run whatever the other does: the ranks must not come apart.
        ours, wrong = attempt(run, group)
        theirs, wrong_there = attempt(run, gloo)
        found[name] = wrong or wrong_there or verdict(partial(same, ours, theirs))
    for name, check in CHECKS.items():
        found[name] = verdict(check)
    return found


# --- what Gloo cannot do, or does otherwise -----------------------------------------------------------------

CHECKS: dict[str, Callable[[], Any]] = {}


def check(function: Callable[[], Any]) -> Callable[[], Any]:
    CHECKS[function.__name__] = function
    return function


def everyone(count: int, dtype: torch.dtype = torch.float32, salt: int = 0) -> list[torch.Tensor]:
    """The values of every rank, gathered over Gloo."""
    outputs = [torch.empty(count, dtype=dtype) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, values(count, dtype=dtype, salt=salt), group=gloo())
    return outputs


def gloo() -> dist.ProcessGroup:
    return next(group for group in dist.distributed_c10d._world.pg_map if dist.get_backend(group) == "gloo")


@check
def average() -> None:
    expected = torch.stack(everyone(12)).mean(0)
    tensor = values(12)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    torch.testing.assert_close(tensor, expected)


@check
def sum_with_a_factor() -> None:
    expected = torch.stack(everyone(12)).sum(0) * 0.5
    tensor = values(12)
    dist.all_reduce(tensor, torch.distributed._make_nccl_premul_sum(0.5))
    torch.testing.assert_close(tensor, expected)


@check
def reductions_of_bool() -> None:
    expected = torch.stack(everyone(12, torch.bool))
    for op, fold in ((dist.ReduceOp.SUM, expected.any(0)), (dist.ReduceOp.PRODUCT, expected.all(0))):
        tensor = values(12, dtype=torch.bool)
        dist.all_reduce(tensor, op)
        assert torch.equal(tensor, fold), op


@check
def all_gather_of_uneven_sizes() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    outputs = [torch.empty(other * 3) for other in range(size)]
    dist.all_gather(outputs, torch.full((rank * 3,), float(rank)))
    assert all(
        torch.equal(output, torch.full((other * 3,), float(other))) for other, output in enumerate(outputs)
    )


@check
def all_gather_of_a_stack() -> None:
    output = torch.empty(dist.get_world_size(), 4, 5)
    dist.all_gather_single(output, values(4, 5))
    assert torch.equal(output, torch.stack(everyone(20)).reshape(output.shape))


@check
def reduce_scatter_of_uneven_sizes() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, [torch.full((other + 1,), float(rank)) for other in range(size)])
    assert torch.equal(output, torch.full((rank + 1,), float(sum(range(size)))))


@check
def all_to_all_of_lists() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    inputs = [torch.full((rank + other, 2), float(rank * 10 + other)) for other in range(size)]
    outputs = [torch.empty(rank + other, 2) for other in range(size)]
    dist.all_to_all(outputs, inputs)
    for other, output in enumerate(outputs):
        assert torch.equal(output, torch.full((rank + other, 2), float(other * 10 + rank)))


@check
def eight_bit_floats_are_moved() -> None:
    tensor = values(16).to(torch.float8_e4m3fn)
    expected = [part.to(torch.float8_e4m3fn) for part in everyone(16)]
    outputs = [torch.empty_like(tensor) for _ in expected]
    dist.all_gather(outputs, tensor)
    assert all(
        torch.equal(out.view(torch.uint8), want.view(torch.uint8))
        for out, want in zip(outputs, expected, strict=True)
    )


@check
def tensors_of_any_layout_are_reduced() -> None:
    expected = torch.stack(everyone(24)).sum(0)
    whole = torch.zeros(6, 8)
    layouts = [
        torch.empty(24),
        whole[:, ::2],
        torch.empty(4, 6).t(),
        torch.empty(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
        torch.empty(24, 2)[:, 1],
    ]
    for tensor in layouts:
        tensor.copy_(values(24).reshape(tensor.shape))
        dist.all_reduce(tensor)
        assert torch.equal(tensor, expected.reshape(tensor.shape)), tensor.stride()
    assert not whole[:, 1::2].any(), "what lies between was touched"


@check
def tensors_of_any_layout_are_moved() -> None:
    size = dist.get_world_size()
    expected = everyone(12)
    outputs = [torch.empty(4, 3).t() for _ in range(size)]
    dist.all_gather(outputs, values(3, 4))
    assert all(torch.equal(out, want.reshape(3, 4)) for out, want in zip(outputs, expected, strict=True))
    expanded = torch.tensor([[float(dist.get_rank())]]).expand(3, 4)
    dist.all_gather(outputs, expanded)
    assert all(torch.equal(out, torch.full((3, 4), float(rank))) for rank, out in enumerate(outputs))
    received = torch.empty(8, 2)[:, 0]
    other = dist.get_rank() ^ 1
    if other < size:
        works = [dist.irecv(received, other), dist.isend(values(16)[::2], other)]
        for work in works:
            work.wait()
        assert torch.equal(received, everyone_of(other)[::2])


def everyone_of(rank: int) -> torch.Tensor:
    return (torch.arange(16) * 7 + rank * 3) % 5 * 1.0


@check
def conjugates_are_worked_out() -> None:
    tensor = torch.complex(values(5), values(5, salt=1))
    expected = tensor.clone().conj().resolve_conj()
    dist.all_reduce(expected)
    lazy = tensor.conj()
    dist.all_reduce(torch.view_as_real(lazy.resolve_conj()))
    negative = torch.complex(torch.zeros(5), values(5)).conj().imag
    assert negative.is_neg()
    plain = negative.clone().resolve_neg()
    dist.all_reduce(plain)
    dist.all_reduce(negative)
    assert torch.equal(negative, plain)


@check
def results_are_where_autograd_and_inference_want_them() -> None:
    size = dist.get_world_size()
    parameter = torch.nn.Parameter(torch.ones(4, 2).t().contiguous())
    dist.all_reduce(parameter.data)
    assert parameter.requires_grad
    assert torch.equal(parameter, torch.full((2, 4), float(size)))
    with torch.inference_mode():
        strided = torch.ones(4, 2)[:, 0]
    dist.all_reduce(strided)
    assert torch.equal(strided, torch.full((4,), float(size)))


@check
def memory_between_elements_is_refused() -> None:
    """Also where the call is waited for at once, and a sum of this size is known."""
    dist.all_reduce(torch.zeros(4))
    between = torch.frombuffer(bytearray(17), dtype=torch.float32, offset=1, count=4)
    with pytest.raises(ValueError, match="accepted: an address that is a multiple of 4"):
        dist.all_reduce(between)


@check
def all_gather_in_place() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    output = torch.full((size * 1000,), -1.0)
    own = output[rank * 1000 : (rank + 1) * 1000]
    own.fill_(float(rank))
    dist.all_gather_single(output, own)
    assert torch.equal(output, torch.arange(size).repeat_interleave(1000).float())


@check
def reduce_scatter_in_place() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = torch.arange(size).repeat_interleave(1000).float()
    own = whole[rank * 1000 : (rank + 1) * 1000]
    dist.reduce_scatter_single(own, whole)
    assert torch.equal(own, torch.full((1000,), float(rank * size)))


@check
def input_that_overlaps_the_output_is_copied() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    memory = torch.arange(size * 2 + size).float() + rank
    expected = torch.cat([torch.arange(2.0) + size + other for other in range(size)])
    dist.all_gather_single(memory[: size * 2], memory[size : size + 2])
    assert torch.equal(memory[: size * 2], expected)
    both = torch.full((size,), float(rank))
    dist.all_to_all_single(both, both)
    assert torch.equal(both, torch.arange(float(size)))


@check
def sparse_tensors_are_summed() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    indices = torch.tensor([[rank, size, rank]])
    for op, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, size)):
        tensor = torch.sparse_coo_tensor(
            indices, torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]), (size + 2, 2), check_invariants=True
        )
        dist.all_reduce(tensor, op)
        expected = torch.full((size + 2, 2), 4.0)
        expected[size], expected[size + 1] = 2.0 * size, 0.0
        assert torch.equal(tensor.to_dense(), expected / divisor)


@check
def a_rank_may_send_to_itself() -> None:
    received = torch.empty(3)
    works = [dist.isend(torch.ones(3), dist.get_rank()), dist.irecv(received, dist.get_rank())]
    for work in works:
        work.wait()
    assert torch.equal(received, torch.ones(3))


@check
def coalescing_manager() -> None:
    size = dist.get_world_size()
    tensors = [torch.ones(count) for count in (3, 5, 100_000)]
    with dist.distributed_c10d._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(torch.equal(tensor, torch.full_like(tensor, size)) for tensor in tensors)
    gathered = [torch.empty(size * 2), torch.empty(size * 3)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for output in gathered:
            dist.all_gather_single(output, torch.full((len(output) // size,), float(dist.get_rank())))
    manager.wait()
    assert all(
        torch.equal(output, torch.arange(size).repeat_interleave(len(output) // size).float())
        for output in gathered
    )
    shares = [torch.empty(4), torch.empty(6)]
    with dist.distributed_c10d._coalescing_manager():
        for share in shares:
            dist.reduce_scatter_single(share, torch.ones(len(share) * size))
    assert all(torch.equal(share, torch.full_like(share, size)) for share in shares)


@check
def functional_collectives() -> None:
    import torch.distributed._functional_collectives as functional

    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    reduced = functional.all_reduce(torch.ones(4), "sum", group)
    assert torch.equal(reduced + 0, torch.full((4,), float(size)))
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, group)
    assert torch.equal(gathered + 0, torch.arange(size).repeat_interleave(2).float())
    shared = functional.reduce_scatter_tensor(torch.ones(size * 2), "avg", 0, group)
    assert torch.equal(shared + 0, torch.ones(2))
    spread = functional.broadcast(torch.full((2,), float(rank)), 0, group)
    assert torch.equal(spread + 0, torch.zeros(2))
    swapped = functional.all_to_all_single(torch.full((size,), float(rank)), None, None, group)
    assert torch.equal(swapped + 0, torch.arange(size).float())
    several = functional.all_reduce_coalesced([torch.ones(2), torch.ones(3)], "sum", group)
    assert all(torch.equal(one + 0, torch.full_like(one, size)) for one in several)
    # The result of one, not awaited, as the input of another.
    dist.all_reduce(waiting := functional.all_reduce(torch.ones(4), "sum", group))
    assert torch.equal(waiting + 0, torch.full((4,), float(size * size)))


@check
def all_ranks_get_the_same_bits_every_time() -> None:
    generator = torch.Generator().manual_seed(dist.get_rank())
    for count in (7, 50_000):
        tensor = torch.randn(count, generator=generator)
        results = []
        for _ in range(3):
            results.append(tensor.clone())
            dist.all_reduce(results[-1])
        assert torch.equal(results[0], results[1])
        assert torch.equal(results[0], results[2])
        mine = results[0].view(torch.int32)
        everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyones, mine, group=gloo())
        assert all(torch.equal(one, mine) for one in everyones)


@check
def many_collectives_under_way() -> None:
    size = dist.get_world_size()
    tensors = [torch.full((100 + index,), float(index)) for index in range(100)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    assert all(
        torch.equal(tensor, torch.full_like(tensor, index * size)) for index, tensor in enumerate(tensors)
    )


@check
def sequence_numbers_count_collectives() -> None:
    group = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    assert group._get_sequence_number_for_group() == before + 2


@check
def subgroups_of_any_shape() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    any_order = "sort_ranks" in inspect.signature(dist.new_group).parameters  # from torch 2.12 on
    backwards = [list(reversed(range(size)))] if any_order else []
    for members in ([0], [size - 1], [0, size - 1], list(range(size)), *backwards):
        group = dist.new_group(members, **({"sort_ranks": False} if any_order else {}))
        if rank not in members:
            assert group == dist.GroupMember.NON_GROUP_MEMBER
            continue
        assert group.rank() == members.index(rank)
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == sum(members)
        dist.broadcast(tensor := torch.tensor([float(rank)]), group_src=0, group=group)
        assert tensor.item() == members[0]
        gathered = [torch.empty(1) for _ in members]
        dist.all_gather(gathered, torch.tensor([float(rank)]), group=group)
        assert [int(one) for one in gathered] == members
        dist.destroy_process_group(group)


@check
def split_group_and_new_subgroups() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    part = dist.group.WORLD.split_group([0, 1])
    if rank < 2:
        dist.all_reduce(tensor := torch.ones(3), group=part)
        assert torch.equal(tensor, torch.full((3,), 2.0))
        part.shutdown()
    if size % 2 == 0:
        own, _ = dist.new_subgroups(2)
        dist.all_reduce(tensor := torch.tensor([float(rank)]), group=own)
        assert tensor.item() == (rank // 2 * 2) * 2 + 1


@check
def device_mesh() -> None:
    size = dist.get_world_size()
    if size != 4:
        return
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    for name, expected in (("rows", 2.0), ("columns", 2.0)):
        dist.all_reduce(tensor := torch.ones(1), group=mesh[name].get_group())
        assert tensor.item() == expected


@check
def monitored_barrier_passes_when_all_come() -> None:
    import dlcp.torch

    dlcp.torch.monitored_barrier()
    dlcp.torch.monitored_barrier(timeout=30, wait_all_ranks=True)
    dist.group.WORLD.monitored_barrier()


# --- tests --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=WORLDS, ids=lambda size: f"world{size}")
def verdicts(request: pytest.FixtureRequest) -> Verdicts:
    return ranks.run(judge_cases, request.param, timeout_s=100)


@pytest.mark.parametrize("name", [*CASES, *CHECKS])
def test_collective(verdicts: Verdicts, name: str) -> None:
    wrong = [f"rank {rank}:\n{found[name]}" for rank, found in enumerate(verdicts) if found[name]]
    assert not wrong, "\n".join(wrong)
