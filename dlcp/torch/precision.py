"""Collectives in few bits, for tensors that are no gradients: weights, activations, pseudo-gradients.

    dlcp.torch.all_reduce(tensor, precision="int8")

Values travel in groups of 64 with one scale (native/collective/codec.hpp), both to the rank that adds them and back.
What the bits leave is lost: nothing is kept for a later call, so gradients are better off with
GradientState(recipe="low_bit"). All ranks end with the same bits. The calls of torch.distributed itself stay exact.

Tensors are of float32, float16 or bfloat16, on the CPU or CUDA; the kernels run on the CPU, in float32.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from dlcp.errors import ArgumentError
from dlcp.torch import checks
from dlcp.torch.backend_name import BACKEND_NAME
from dlcp.torch.monitored_barrier import NON_MEMBER
from dlcp.torch.process_group import ProcessGroup
from dlcp.torch.tensors import CODED_DTYPES, CopyBack, readable, reduction, span, type_text, writable
from dlcp.torch.work import CollectiveWork
from dlcp.transport.coded import (
    GROUP_VALUES,
    CodecTraits,
    CodedRules,
    codec_traits,
    decode_runs,
    encode_runs,
    group_parts,
)
from dlcp.transport.communicator import Reduction, Work
from dlcp.transport.span import Span

_SPARES_MAX = 8


def all_reduce(
    tensor: Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    *,
    precision: str,
) -> CollectiveWork | None:
    """As dist.all_reduce, with values in few bits: the tensor becomes what the code of the sum (or mean) says.

    `tensor`: of CODED_DTYPES. `op`: SUM or AVG. `precision`: "bf16", "fp16", "int8", "int4", "int2", "fp8_e4m3" or
    "fp8_e5m2". A finite value beyond 65504 becomes that under "fp16"; under "int8" to "fp8_e5m2" the finite values of a
    group of 64 become 0 beside an infinity or NaN. Blocks, unless `async_op`: then a work is returned. Raises
    ValueError, TypeError, and the collective's errors, after which the tensor is as it was.
    """
    members, codec = _group(group), codec_traits(precision, "precision")
    kind = _reduction(op, "all_reduce")
    _check(tensor, "all_reduce", "tensor")
    back = CopyBack()
    result = writable(tensor, "tensor", back)
    count = tensor.numel()
    groups = -(-count // GROUP_VALUES)
    coded, summed = _spares.take(groups * codec.group_bytes), _spares.take(groups * codec.group_bytes)
    runs = np.array([[0, count, 0]], np.int64)
    _encode(codec, readable(tensor, "tensor"), runs, coded)
    parts = group_parts(groups, members.size())
    with members.starting("coded_all_reduce", _options(async_op), (coded, summed)) as (communicator, how):
        rules = CodedRules(precision)
        work = communicator.coded_all_reduce(
            _parts(summed, parts, codec),
            _parts(coded, parts, codec),
            rules,
            kind,
            agree=_agree(tensor),
            **how,
        )

    def finish() -> None:
        _decode(codec, summed, runs, result)
        back.run()
        _spares.give_back(coded, summed)

    return _work([work], [tensor], finish, async_op)


def _reduction(op: Any, collective: str) -> Reduction:
    kind, factor = reduction(op, collective)
    if factor is not None:
        raise ArgumentError(f"op is PREMUL_SUM in a {collective} with a precision; accepted: SUM, AVG")
    return kind


def reduce_scatter(
    output: Tensor,
    input: Tensor,  # noqa: A002
    op: Any = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    *,
    precision: str,
) -> CollectiveWork | None:
    """As dist.reduce_scatter_tensor, with contributions in few bits; the sum (or mean) of them is coded by a hub alone.

    `input`: as many elements as `output` for each rank, of one of CODED_DTYPES; it stays as it is. The rest as of
    all_reduce.
    """
    members, codec = _group(group), codec_traits(precision, "precision")
    kind = _reduction(op, "reduce_scatter")
    _check(output, "reduce_scatter", "output")
    _check(input, "reduce_scatter", "input")
    size, count = members.size(), output.numel()
    checks.same_count(input, count * size, "reduce_scatter", "input")
    back = CopyBack()
    result = writable(output, "output", back)
    groups = -(-count // GROUP_VALUES)
    part_bytes = groups * codec.group_bytes
    coded, summed = _spares.take(size * part_bytes), _spares.take(part_bytes)
    values = torch.empty(groups * GROUP_VALUES)
    _encode(codec, readable(input, "input"), _even_runs(size, count, groups), coded)
    parts = [(rank * groups, (rank + 1) * groups) for rank in range(size)]
    keep = coded, summed, values
    with members.starting("coded_reduce_scatter", _options(async_op), keep) as (communicator, how):
        rules = CodedRules(precision, values=span(values), summed=span(summed))
        work = communicator.coded_reduce_scatter(
            _parts(coded, parts, codec), rules, kind, agree=_agree(input), **how
        )

    def finish() -> None:
        if work.algorithm == "hub":
            _decode(codec, summed, _even_runs(1, count, groups), result)
        else:
            result.view(-1).copy_(values[:count])
        back.run()
        _spares.give_back(coded, summed)

    return _work([work], [output], finish, async_op)


def all_gather(
    output: Tensor,
    input: Tensor,  # noqa: A002
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    *,
    precision: str,
) -> CollectiveWork | None:
    """As dist.all_gather_into_tensor, in few bits: also of its own part a rank gets what the others get.

    `output`: as many elements for each rank as `input`, of one of CODED_DTYPES. The rest as of all_reduce.
    """
    members, codec = _group(group), codec_traits(precision, "precision")
    _check(output, "all_gather", "output")
    _check(input, "all_gather", "input")
    size, count = members.size(), input.numel()
    checks.same_count(output, count * size, "all_gather", "output")
    back = CopyBack()
    result = writable(output, "output", back)
    groups = -(-count // GROUP_VALUES)
    nbytes = groups * codec.group_bytes
    coded, gathered = _spares.take(nbytes), _spares.take(size * nbytes)
    _encode(codec, readable(input, "input"), np.array([[0, count, 0]], np.int64), coded)
    parts = [(rank * groups, (rank + 1) * groups) for rank in range(size)]
    agree = f"{_agree(input)} in {precision}"
    with members.starting("all_gather", _options(async_op), (coded, gathered)) as (communicator, how):
        work = communicator.all_gather(_parts(gathered, parts, codec), span(coded), agree=agree, **how)

    def finish() -> None:
        _decode(codec, gathered, _even_runs(size, count, groups), result)
        back.run()
        _spares.give_back(coded, gathered)

    return _work([work], [output], finish, async_op)


# --- memory -----------------------------------------------------------------------------------------------------


class _Spares:
    """Memory for codes, used again: fresh pages cost as much as coding what goes there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Tensor] = []

    def take(self, nbytes: int) -> Tensor:
        """uint8 [nbytes], with whatever it last held."""
        with self._lock:
            for index, tensor in enumerate(self._free):
                if tensor.numel() == nbytes:
                    return self._free.pop(index)
        return torch.empty(nbytes, dtype=torch.uint8)

    def give_back(self, *tensors: Tensor) -> None:
        """These are free again; the oldest beyond a few are released."""
        with self._lock:
            self._free = (self._free + list(tensors))[-_SPARES_MAX:]


_spares = _Spares()


def _parts(memory: Tensor, parts: Sequence[tuple[int, int]], codec: CodecTraits) -> list[Span]:
    """Each rank's groups of coded memory."""
    whole, unit = span(memory), codec.group_bytes
    return [whole.part(begin * unit, (end - begin) * unit) for begin, end in parts]


def _even_runs(size: int, count: int, groups: int) -> NDArray[np.int64]:
    """`count` values for each rank, each from a new group on."""
    return np.array([[rank * count, count, rank * groups] for rank in range(size)], np.int64)


def _encode(codec: CodecTraits, values: Tensor, runs: NDArray[np.int64], coded: Tensor) -> None:
    wide = values.detach().float()
    encode_runs(codec.codec, wide.data_ptr(), runs, coded.data_ptr())


def _decode(codec: CodecTraits, coded: Tensor, runs: NDArray[np.int64], values: Tensor) -> None:
    """Into contiguous memory of one of CODED_DTYPES."""
    wide = values if values.dtype == torch.float32 else torch.empty(values.shape)
    decode_runs(codec.codec, coded.data_ptr(), runs, wide.data_ptr())
    if wide is not values:
        values.copy_(wide)


# --- works ------------------------------------------------------------------------------------------------------


class _Finish(CopyBack):
    """What is to be done where a plain collective would only copy results back."""

    __slots__ = ("_finish",)

    def __init__(self, finish: Callable[[], None]) -> None:
        super().__init__()
        self._finish = finish

    def __bool__(self) -> bool:
        return True

    def run(self) -> None:
        with torch.no_grad():
            self._finish()


def _work(
    operations: Sequence[Work], result: list[Tensor], finish: Callable[[], None], async_op: bool
) -> CollectiveWork | None:
    work = CollectiveWork(operations, result, _Finish(finish))
    if async_op:
        # The result is there even if nobody waits.
        work.settle_when_over()
        return work
    work.wait()
    return None


def _options(async_op: bool) -> Any:
    options = dist.AllreduceOptions()
    options.asyncOp = async_op
    return options


def _group(group: dist.ProcessGroup | None) -> Any:
    if group == NON_MEMBER:
        raise ValueError("group is one that this rank is not in; accepted: a group of this rank's")
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("there is no process group; accepted: after init_process_group")
    if (inner := ProcessGroup.within(group)) is None:
        raise TypeError(f"the group's backend is {group.name()}; accepted with a precision: {BACKEND_NAME}")
    return inner


def _agree(tensor: Tensor) -> str:
    """What ranks compare besides the coded memory, whose last group may be full or not."""
    return f"{tensor.numel()} of {type_text(tensor.dtype)}"


def _check(tensor: Tensor, operation: str, what: str) -> None:
    if not isinstance(tensor, Tensor) or tensor.dtype not in CODED_DTYPES:
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        accepted = ", ".join(str(dtype).removeprefix("torch.") for dtype in CODED_DTYPES)
        raise TypeError(f"{operation} with a precision: {what} has dtype {kind}; accepted: {accepted}")
