"""What a collective says of the tensors that it fills: those that share memory, and those that autograd knows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from dlcp.torch.tensors import DATA_TYPES, distinct, plain_sums
from tests.torch import ranks

Tensor = torch.Tensor
WHOLE = torch.zeros(6, 4)


@pytest.mark.parametrize(
    ("tensors", "share"),
    [
        ([WHOLE[:3], WHOLE[3:]], None),
        ([WHOLE[:4], WHOLE[3:]], (0, 1)),
        ([WHOLE[:, :2], WHOLE[:, 2:]], None),
        ([WHOLE[:, :3], torch.zeros(4), WHOLE[:, 2:]], (0, 2)),
        ([WHOLE.t(), WHOLE[5:]], (0, 1)),
        ([WHOLE[:0], WHOLE, WHOLE[3:3]], None),
        ([WHOLE[::2], WHOLE[1::2], WHOLE[5:, 3:]], (1, 2)),
    ],
    ids=str,
)
def test_tensors_that_share_memory_are_named(tensors: list[Tensor], share: tuple[int, int] | None) -> None:
    if share is None:
        distinct(tensors, "gather")
    else:
        with pytest.raises(ValueError, match=f"gather: tensors {share[0]} and {share[1]} share memory"):
            distinct(tensors, "gather")


class Own(Tensor):
    pass


def asked(**given: Any) -> Any:
    options = dist.AllreduceOptions()
    options.asyncOp = False
    for name, value in given.items():
        setattr(options, name, value)
    return options


def test_sums_that_need_no_preparation_are_read_at_once() -> None:
    """One tensor, as it lies; whatever else a call may bring is left to those who prepare it."""
    tensor = torch.zeros(6, 4)
    read = plain_sums.read([tensor], asked())
    assert read is not None
    assert read[:3] == (tensor.data_ptr(), 96, DATA_TYPES[torch.float32])
    assert read[3] is tensor
    others = {
        "complex numbers": torch.zeros(4, dtype=torch.complex64),
        "pairs of complex numbers": torch.view_as_real(torch.zeros(4, dtype=torch.complex64)),
        "a type that is not reduced": torch.zeros(4, dtype=torch.uint16),
        "columns": torch.zeros(4, 4)[:, :2],
        "turned": torch.zeros(4, 3).t(),
        "still to be negated": torch.zeros(4, dtype=torch.complex64).conj().imag,
        "followed by autograd": torch.zeros(4, requires_grad=True),
        "computed": torch.zeros(4, requires_grad=True) * 2,
        "sparse": torch.zeros(4, 4).to_sparse(),
        "a subclass": torch.zeros(4).as_subclass(Own),
        "elsewhere": torch.zeros(4, device="meta"),
        "none": None,
    }
    for words, other in others.items():
        assert plain_sums.read([other], asked()) is None, words
    assert plain_sums.read([tensor, torch.zeros(4)], asked()) is None
    assert plain_sums.read(tensor, asked()) is None
    for options in (
        asked(asyncOp=True),
        asked(reduceOp=dist.ReduceOp.AVG),
        asked(timeout=timedelta(seconds=1)),
    ):
        assert plain_sums.read([tensor], options) is None


def shared_outputs_are_refused_where_they_are_passed() -> None:
    """The other rank makes no call: nothing has left."""
    size = dist.get_world_size()
    own, pair, double = torch.ones(4), [torch.zeros(4)] * size, [torch.zeros(4 * size)] * 2
    group: Any = dist.group.WORLD
    calls: dict[str, Callable[[], Any]] = {
        "all_gather": lambda: dist.all_gather(pair, own),
        "gather": lambda: dist.gather(own, pair, dst=dist.get_rank()),
        "all_to_all": lambda: dist.all_to_all(pair, [own] * size),
        "all_reduce": lambda: group.allreduce([own, own]),
        "all_reduce coalesced": lambda: group.allreduce_coalesced([own, own]),
        "all_gather coalesced": lambda: group.all_gather_single_coalesced(double, [own, own]),
        "reduce_scatter coalesced": lambda: group.reduce_scatter_single_coalesced([own, own], double),
    }
    calls["broadcast"] = lambda: group.broadcast([own, own], dist.distributed_c10d.BroadcastOptions())
    if dist.get_rank() == 0:
        for call in calls.values():
            with pytest.raises(ValueError, match="share memory"):
                call()
    dist.barrier()


def test_outputs_that_share_memory_are_refused_in_every_operation() -> None:
    ranks.run(shared_outputs_are_refused_where_they_are_passed)


def coalesced_pairs_that_overlap() -> None:
    """What one pair reads, another fills: as if each pair were a call of its own, on values from before."""
    size, rank = dist.get_world_size(), dist.get_rank()
    group: Any = dist.group.WORLD
    for _ in range(20):
        whole = torch.full((40_000,), float(rank + 1))
        outputs = [torch.zeros(20_000 * size), whole]
        group.all_gather_single_coalesced(
            outputs, [whole[:20_000], torch.full((40_000 // size,), 9.0)]
        ).wait()
        assert [float(part.unique()) for part in outputs[0].chunk(size)] == [
            float(i + 1) for i in range(size)
        ]


def test_one_pair_may_fill_what_another_reads() -> None:
    ranks.run(coalesced_pairs_that_overlap)


def backward_after_collectives() -> None:
    x = torch.full((4,), 2.0, requires_grad=True)
    size = dist.get_world_size()
    filled: dict[str, Callable[[Tensor], Any]] = {
        "all_gather": lambda y: dist.all_gather([y[:2], y[2:]], torch.ones(2)),
        "all_gather_single": lambda y: dist.all_gather_into_tensor(y, torch.ones(4 // size)),
        "all_to_all": lambda y: dist.all_to_all_single(y, torch.ones(4)),
        "reduce_scatter": lambda y: dist.reduce_scatter_tensor(y, torch.ones(4 * size)),
        "scatter": lambda y: dist.scatter(y, [torch.ones(4)] * size if dist.get_rank() == 0 else None),
        "receive": lambda y: (dist.isend(torch.ones(4), dist.get_rank()), dist.recv(y, dist.get_rank())),
    }
    for fill in filled.values():
        y = x * 3
        fill(y)
        with pytest.raises(RuntimeError, match="autograd does not see collectives"):
            y.sum().backward()
    # Saved before, and changed.
    y = torch.ones(4)
    product = x * y
    dist.all_reduce(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    y = x * 3
    dist.all_reduce(y)
    with pytest.warns(UserWarning, match="this rank's values alone"):
        y.sum().backward()
    # A leaf, and what nobody asks a gradient of.
    dist.broadcast(x, 0)
    y = x * 3
    dist.broadcast(y, 0)


def test_backward_through_what_a_collective_has_filled_is_refused() -> None:
    ranks.run(backward_after_collectives)
