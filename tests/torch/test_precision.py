"""Collectives in few bits: against the codec in torch's operations, on ranks of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import dlcp.torch
from dlcp.torch import codec
from tests.torch import ranks

COUNT = 10_007


def values_of(rank: int, count: int = COUNT) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(rank))


def through(values: torch.Tensor, precision: str) -> torch.Tensor:
    """What arrives of float32 values."""
    return codec.decode(codec.encode(values, precision), precision, len(values))


def reduced(size: int, precision: str, average: bool) -> torch.Tensor:
    """The owner's sum, before it is coded: the codes added in rank order."""
    total = through(values_of(0), precision)
    for rank in range(1, size):
        total += through(values_of(rank), precision)
    return total / size if average else total


def all_collectives() -> list[Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    found: list[Any] = []
    for precision in codec.CODECS:
        for average in (False, True):
            op = dist.ReduceOp.AVG if average else dist.ReduceOp.SUM
            tensor = values_of(rank)
            assert dlcp.torch.all_reduce(tensor, op, precision=precision) is None
            # A part of the result begins at a group, so its code is that of the whole.
            assert torch.equal(tensor, through(reduced(size, precision, average), precision)), precision
        whole = values_of(rank, COUNT * size)
        output = torch.empty(COUNT)
        work = dlcp.torch.reduce_scatter(output, whole, async_op=True, precision=precision)
        assert work is not None
        work.wait()
        expected = sum(
            through(values_of(other, COUNT * size)[rank * COUNT : (rank + 1) * COUNT], precision)
            for other in range(size)
        )
        assert torch.equal(output, expected), precision
        assert torch.equal(whole, values_of(rank, COUNT * size))
        gathered = torch.empty(size, COUNT)
        dlcp.torch.all_gather(gathered, values_of(rank), precision=precision)
        for other in range(size):
            assert torch.equal(gathered[other], through(values_of(other), precision)), precision
        found.append(gathered.sum().item())
    return found


def test_they_do_what_the_codec_says_in_rank_order() -> None:
    first, second, third = ranks.run(all_collectives, 3)
    assert first == second == third


def other_tensors() -> None:
    rank = dist.get_rank()
    for dtype in (torch.float16, torch.bfloat16):
        tensor = values_of(rank).to(dtype)
        dlcp.torch.all_reduce(tensor, precision="int8")
        total = through(values_of(0).to(dtype).float(), "int8") + through(
            values_of(1).to(dtype).float(), "int8"
        )
        assert torch.equal(tensor, through(total, "int8").to(dtype))
    square = torch.arange(600.0).view(20, 30) * (rank + 1)
    strided = square.t()
    dlcp.torch.all_reduce(strided, precision="bf16")
    assert torch.allclose(square, torch.arange(600.0).view(20, 30) * 3, rtol=0.02)
    nothing = torch.empty(0)
    dlcp.torch.all_reduce(nothing, precision="int4")
    seen = torch.ones(200)
    if rank:
        seen[7], seen[150] = float("inf"), float("nan")
    dlcp.torch.all_reduce(seen, precision="int4")
    assert seen[7] == float("inf")
    assert seen[150].isnan()
    plain = values_of(rank)
    dist.all_reduce(plain)
    assert torch.equal(plain, values_of(0) + values_of(1))


def test_types_and_shapes_and_what_is_not_finite() -> None:
    ranks.run(other_tensors, 2)


def refused() -> None:
    tensor = torch.ones(64)
    with pytest.raises(ValueError, match="precision is 'int5'; accepted: bf16"):
        dlcp.torch.all_reduce(tensor, precision="int5")
    with pytest.raises(TypeError, match="tensor has dtype torch.int64; accepted: float32, float16, bfloat16"):
        dlcp.torch.all_reduce(tensor.long(), precision="int8")
    with pytest.raises(ValueError, match="group is one that this rank is not in"):
        dlcp.torch.all_reduce(torch.ones(4), group=dist.GroupMember.NON_GROUP_MEMBER, precision="int8")
    with pytest.raises(ValueError, match="op is MAX; accepted for coded values: SUM, AVG"):
        dlcp.torch.all_reduce(tensor, dist.ReduceOp.MAX, precision="int8")
    with pytest.raises(ValueError, match="input has 64 elements .*; accepted: 128"):
        dlcp.torch.reduce_scatter(tensor, tensor, precision="int8")
    with pytest.raises(ValueError, match="output has 64 elements .*; accepted: 128"):
        dlcp.torch.all_gather(tensor, tensor, precision="int8")
    assert torch.equal(tensor, torch.ones(64))


def test_what_is_not_accepted_is_named() -> None:
    ranks.run(refused, 2)


def of_different_precisions() -> str:
    tensor = torch.ones(100)
    with pytest.raises(dlcp.errors.DlcpError) as caught:
        dlcp.torch.all_reduce(tensor, precision="int8" if dist.get_rank() else "int4")
    assert torch.equal(tensor, torch.ones(100))
    return str(caught.value)


def test_ranks_of_different_precisions_all_fail_by_name() -> None:
    for message in ranks.run(of_different_precisions, 2):
        assert "int4" in message
        assert "int8" in message


def scaled_first() -> None:
    op = dist._make_nccl_premul_sum(0.5)
    with pytest.raises(ValueError, match="op is PREMUL_SUM in a all_reduce with a precision"):
        dlcp.torch.all_reduce(torch.ones(100), op, precision="int8")


def test_a_factor_of_contributions_is_refused() -> None:
    ranks.run(scaled_first, 1)


COLLECTIVES = {
    "all_reduce": lambda values: dlcp.torch.all_reduce(values, precision="int8"),
    "reduce_scatter": lambda values: dlcp.torch.reduce_scatter(
        values.new_zeros(len(values) // 2), values, precision="int8"
    ),
    "all_gather": lambda values: dlcp.torch.all_gather(
        values.new_zeros(2 * len(values)), values, precision="int8"
    ),
}


def of_different_calls(name: str, calls: list[tuple[int, torch.dtype]]) -> str:
    count, dtype = calls[dist.get_rank()]
    values = torch.ones(count, dtype=dtype)
    with pytest.raises(dlcp.errors.MismatchError) as caught:
        COLLECTIVES[name](values)
    assert torch.equal(values, torch.ones(count, dtype=dtype))
    return str(caught.value)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_ranks_whose_codes_are_as_long_still_compare_sizes_and_types(name: str) -> None:
    """70 and 128 values are two groups alike; so are 128 of any type."""
    for other in ((70, torch.float32), (128, torch.float16)):
        calls = [(128, torch.float32), other]
        for message in ranks.run(of_different_calls, 2, name=name, calls=calls):
            assert "128 of float32" in message
            assert f"{other[0]} of {str(other[1]).removeprefix('torch.')}" in message
