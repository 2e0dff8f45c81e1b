"""Tensors as memory: what the transport reads and writes in place of a tensor, and the copy back.

The transport moves contiguous memory of this host. It uses a contiguous CPU tensor as it is. Any other tensor (strided,
lazily conjugate or negative, on another device) is copied to contiguous memory first, and results are copied back when
the collective is over. A tensor whose elements share memory is refused as an output: one place cannot hold two results.

Reductions take ten element types. Other collectives take any type with a fixed element size.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from dlcp.torch import cuda
from dlcp.transport import element
from dlcp.transport.communicator import DataType, Reduction, Span
from dlcp.transport.local_memory import PlainSums
from dlcp.transport.span import overlap_of

RedOpType: Any = torch.distributed.ReduceOp.RedOpType

DATA_TYPES: dict[torch.dtype, DataType] = {
    getattr(torch, each.torch_name): each.type for each in element.DATA_TYPES
}
FLOATING_DTYPES = tuple(dtype for dtype in DATA_TYPES if dtype.is_floating_point)
CODED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Types that are coded, or of which something may be left out; float64 travels exactly."""
# Keyed by number: comparing ReduceOp objects one by one costs 0.3 us each.
_REDUCTIONS = {
    int(RedOpType.SUM): Reduction.SUM,
    int(RedOpType.AVG): Reduction.AVG,
    int(RedOpType.PRODUCT): Reduction.PRODUCT,
    int(RedOpType.MIN): Reduction.MIN,
    int(RedOpType.MAX): Reduction.MAX,
    int(RedOpType.BAND): Reduction.BAND,
    int(RedOpType.BOR): Reduction.BOR,
    int(RedOpType.BXOR): Reduction.BXOR,
    # With a factor.
    int(RedOpType.PREMUL_SUM): Reduction.SUM,
}
_SUM = RedOpType.SUM
# Right on complex numbers when real and imaginary parts are reduced apart.
_LINEAR = {Reduction.SUM, Reduction.AVG}
_BITWISE = {Reduction.BAND, Reduction.BOR, Reduction.BXOR}

plain_sums = PlainSums(
    torch.Tensor,
    torch.strided,
    DATA_TYPES,
    torch.distributed.ReduceOp.SUM,
    timedelta(0),
    torch.is_grad_enabled,
    torch.autograd.graph.increment_version,
)
"""Reads the arguments of all_reduce: of one tensor that needs no preparation, to be summed while the caller waits."""

_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_CPU = torch.device("cpu")


class CopyBack:
    """The copies to make when a collective is over: from memory that the transport filled to the caller's tensors."""

    __slots__ = ("_events", "_pairs")

    def __init__(self) -> None:
        self._pairs: list[tuple[torch.Tensor, torch.Tensor, Any]] = []
        self._events: list[tuple[torch.device, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def add(self, tensor: torch.Tensor, memory: torch.Tensor, what: str) -> None:
        """Raises ValueError if the tensor cannot receive anything. `memory`: contiguous, of the same shape."""
        _refuse_overlap(tensor, what)
        # The copy comes after what the current stream still does to the tensor.
        before = cuda.now(tensor.device) if tensor.device != _CPU else None
        self._pairs.append((tensor, memory, before))

    def run(self) -> None:
        """Makes the copies; those to another device are under way afterwards."""
        for tensor, memory, before in self._pairs:
            if before is None:
                _fill(tensor, memory)
            else:
                self._events.append(cuda.fill(tensor, memory, before))
        # Releases the memory and the tensors.
        self._pairs = []

    def make_streams_wait(self) -> None:
        """Lets the current stream of each device wait for the copies to it."""
        for device, event in self._events:
            cuda.make_stream_wait(device, event)


def _fill(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    # A tensor made in inference mode may be changed in inference mode only.
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        tensor.detach().copy_(memory)


# --- memory of a tensor -------------------------------------------------------------------------------------


def readable(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Contiguous CPU memory that holds the tensor's values: the tensor itself, or a copy."""
    if is_memory(tensor):
        return tensor
    tensor = _strided(tensor, what)
    if tensor.device != _CPU:
        return cuda.to_host(tensor)
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def writable(tensor: torch.Tensor, what: str, back: CopyBack) -> torch.Tensor:
    """Contiguous CPU memory that will be filled: the tensor itself, or memory to copy from afterwards."""
    _note_change(tensor, what, is_replaced=True)
    if is_memory(tensor):
        return tensor
    tensor = _strided(tensor, what)
    memory = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device != _CPU)
    back.add(tensor, memory, what)
    return memory


def updatable(tensor: torch.Tensor, what: str, back: CopyBack) -> torch.Tensor:
    """Contiguous CPU memory that holds the tensor's values and will be changed."""
    _note_change(tensor, what, is_replaced=False)
    if is_memory(tensor):
        return tensor
    tensor = _strided(tensor, what)
    memory = readable(tensor, what)
    # Equal addresses: the tensor is of a subclass that adds no layout of its own.
    if memory.data_ptr() != tensor.data_ptr() or _is_lazy(tensor):
        back.add(tensor, memory, what)
    return memory


def _note_change(tensor: torch.Tensor, what: str, *, is_replaced: bool) -> None:
    """Tells autograd of a change that it does not see: backward then refuses what would be silently wrong."""
    if not torch.is_grad_enabled() or not isinstance(tensor, torch.Tensor):
        return
    base = tensor._base
    if tensor.grad_fn is not None:
        _tell_backward(tensor, what, is_replaced=is_replaced)
    # Of a view also the whole: that is what a backward from beside the view reaches.
    if base is not None and base.grad_fn is not None:
        _tell_backward(base, what, is_replaced=is_replaced)
    # For who saved it before, as any operation in place does.
    torch.autograd.graph.increment_version(tensor)


def _tell_backward(tensor: torch.Tensor, what: str, *, is_replaced: bool) -> None:
    """Has a backward that reaches the tensor, which is computed, hear that it has been filled since."""
    text = (
        f"backward reaches a tensor that {what} has filled since: autograd does not see collectives. Give the"
        " collective a detach() or memory of its own, or use torch.distributed.nn.functional"
    )

    def tell(_: torch.Tensor) -> None:
        if is_replaced:
            raise RuntimeError(f"{text}; the gradient would be that of the old values")
        warnings.warn(f"{text}; the gradient is that of this rank's values alone", stacklevel=2)

    tensor.register_hook(tell)  # type: ignore[no-untyped-call]


def span(memory: torch.Tensor) -> Span:
    """Where contiguous memory lies. An empty tensor has no address."""
    return Span(memory.data_ptr(), memory.nbytes)


def parts(memory: torch.Tensor, rows: Sequence[int]) -> list[Span]:
    """Contiguous memory cut along its first dimension, `rows` rows each."""
    address = memory.data_ptr()
    row_bytes = memory.nbytes // memory.shape[0] if memory.dim() and memory.shape[0] else 0
    spans = []
    for count in rows:
        spans.append(Span(address, count * row_bytes))
        address += count * row_bytes
    return spans


def apart(source: torch.Tensor, memory: torch.Tensor, place: torch.Tensor | None = None) -> torch.Tensor:
    """The source, or a copy where it overlaps `memory`, which the collective fills.

    `place`: the part of `memory` that receives the source itself; the source may be that part.
    """
    start, other = source.data_ptr(), memory.data_ptr()
    if start >= other + memory.nbytes or other >= start + source.nbytes:
        return source
    if place is not None and start == place.data_ptr() and source.nbytes == place.nbytes:
        return source
    return source.clone()


def apart_from_others(
    sources: Sequence[torch.Tensor], filled: Sequence[Sequence[torch.Tensor]]
) -> list[torch.Tensor]:
    """For several collectives at once: each source, or a copy where it overlaps what another of them fills."""
    result = list(sources)
    outside = [
        source
        for source, memories in zip(sources, filled, strict=True)
        if not any(_is_within(source, memory) for memory in memories)
    ]
    if overlap_of(span(memory) for memory in itertools.chain(outside, *filled)) is None:
        return result
    for own, memories in enumerate(filled):
        for other in range(len(result)):
            if other != own:
                for memory in memories:
                    result[other] = apart(result[other], memory)
    return result


def _is_within(part: torch.Tensor, whole: torch.Tensor) -> bool:
    start = part.data_ptr() - whole.data_ptr()
    return start >= 0 and start + part.nbytes <= whole.nbytes


def distinct(tensors: Sequence[torch.Tensor], what: str) -> None:
    """For tensors that one call fills. Raises ValueError: two of them share memory, so one place has two results."""
    if len(tensors) < 2:
        return
    if all(map(is_memory, tensors)) and overlap_of(map(span, tensors)) is None:
        return
    # What has no memory of its own is refused elsewhere.
    plain = {place: tensor for place, tensor in enumerate(tensors) if type(tensor) in _PLAIN_TYPES}
    for device in {tensor.device for tensor in plain.values()}:
        places = [place for place, tensor in plain.items() if tensor.device == device]
        extents = [_extent(tensors[place]) for place in places]
        at = dict(zip(places, extents, strict=True))
        # Columns of one matrix lie between each other without sharing anything.
        if overlap_of(extents) is None or not _meet([(plain[place], at[place][0]) for place in places]):
            continue
        first, second = next(
            pair
            for pair in itertools.combinations(places, 2)
            if _meet([(plain[place], at[place][0]) for place in pair])
        )
        raise ValueError(
            f"{what}: tensors {first} and {second} share memory, and both are to be filled; accepted: tensors apart "
            "from each other, as of empty_like()"
        )


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor's elements begin, and how many bytes on they end."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * tensor.itemsize


def _meet(tensors: Sequence[tuple[torch.Tensor, int]]) -> bool:
    """Whether a byte belongs to two of the tensors, each given with its address. Marks them all."""
    if all(tensor.is_contiguous() for tensor, _ in tensors):
        return overlap_of([_extent(tensor) for tensor, _ in tensors]) is not None
    begin = min(at for tensor, at in tensors if tensor.numel())
    end = max(sum(_extent(tensor)) for tensor, _ in tensors)
    # A mark for as many bytes as all of them are made of.
    unit = math.gcd(
        *(tensor.itemsize for tensor, _ in tensors), *(at - begin for tensor, at in tensors if tensor.numel())
    )
    marks = torch.zeros((end - begin) // unit, dtype=torch.uint8)
    for tensor, at in tensors:
        if tensor.numel():
            size = tensor.itemsize // unit
            strides = [stride * size for stride in tensor.stride()]
            marks.as_strided((*tensor.shape, size), (*strides, 1), (at - begin) // unit).add_(1)
    return int(marks.max()) > 1


def is_share(part: torch.Tensor, whole: torch.Tensor, rank: int) -> bool:
    """Whether `part` is the very memory of a rank's equal share of `whole`."""
    return part.data_ptr() == whole.data_ptr() + rank * part.nbytes


def is_memory(tensor: torch.Tensor) -> bool:
    """Whether the transport can use the tensor as it is."""
    return tensor.is_cpu and tensor.is_contiguous() and type(tensor) in _PLAIN_TYPES and not _is_lazy(tensor)


def _is_lazy(tensor: torch.Tensor) -> bool:
    """Whether a conjugation or negation is still to be applied to what the memory holds."""
    return tensor.is_neg() or tensor.is_conj()


def _strided(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """The tensor, with the result of an earlier functional collective awaited. Raises TypeError, ValueError."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} is a {type(tensor).__name__}; accepted: a tensor")
    if type(tensor) not in _PLAIN_TYPES:
        if hasattr(tensor, "trigger_wait"):
            tensor = tensor.trigger_wait()
        elif hasattr(tensor, "__tensor_flatten__"):
            raise TypeError(
                f"{what} is a {type(tensor).__name__}, which has no memory of its own; accepted: its parts"
            )
    if tensor.layout is not torch.strided:
        raise ValueError(f"{what} has layout {tensor.layout}; accepted: torch.strided")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{what} is on {tensor.device}; accepted: cpu, cuda")
    if tensor.is_quantized:
        raise TypeError(f"{what} is quantized ({tensor.dtype}); accepted: its int_repr()")
    return tensor


def _refuse_overlap(tensor: torch.Tensor, what: str) -> None:
    """Raises ValueError if two elements of the tensor may share memory, as after expand()."""
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 0:
            return
        if size == 1:
            continue
        if stride < extent:
            raise ValueError(
                f"{what} has elements that share memory (shape {tuple(tensor.shape)}, strides {tensor.stride()}); "
                "accepted: one element per place, as of a clone()"
            )
        extent += stride * (size - 1)


# --- types and operations -----------------------------------------------------------------------------------


def reduction(op: Any, operation: str) -> tuple[Reduction, float | None]:
    """The transport's name of a torch.distributed.ReduceOp, and the factor of PREMUL_SUM.

    Raises ValueError: an operation that is none, or a factor that is not a number.
    """
    if op == _SUM:
        return Reduction.SUM, None
    kind = getattr(op, "op", op)
    try:
        found = _REDUCTIONS[int(kind)]
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{operation}: op is {op!r}; accepted: {', '.join(item.name for item in Reduction)}, PREMUL_SUM"
        ) from None
    if kind != RedOpType.PREMUL_SUM:
        return found, None
    factor = op.__getstate__()[1]
    return found, float(factor.item() if isinstance(factor, torch.Tensor) else factor)


@functools.cache
def type_text(dtype: torch.dtype) -> str:
    """What ranks compare of tensors that are only moved."""
    return str(dtype).removeprefix("torch.")


def data_type(dtype: torch.dtype, op: Reduction, operation: str) -> DataType:
    """How the transport reduces elements of this type. Raises TypeError, ValueError: it cannot, or not with this op."""
    found = DATA_TYPES.get(dtype)
    if found is None:
        accepted = ", ".join(str(item).removeprefix("torch.") for item in DATA_TYPES)
        raise TypeError(f"{operation}: dtype is {dtype}; accepted: {accepted}, complex with SUM and AVG")
    if op is not Reduction.SUM and op in _BITWISE and dtype.is_floating_point:
        raise ValueError(f"{operation}: {op.name} of {dtype}; accepted: integers and bool")
    return found


def as_real(tensor: torch.Tensor, op: Reduction, operation: str) -> torch.Tensor:
    """A complex tensor as pairs of real numbers, any other as it is. Raises ValueError: with another op."""
    if not tensor.is_complex():
        return tensor
    if op not in _LINEAR:
        raise ValueError(f"{operation}: {op.name} of {tensor.dtype}; accepted of complex tensors: SUM, AVG")
    return torch.view_as_real(tensor)
