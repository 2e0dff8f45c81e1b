"""NumPy arrays over dlcp, without torch: collectives that take an array and return a new one.

    from dlcp.numpy import Ranks

    with Ranks("/shared/run-1", rank, size) as ranks:
        mean = ranks.all_reduce(gradient, "avg", precision="int8")

All ranks make the same calls in the same order, with arrays of equal shape and type; what differs raises MismatchError.
Calls block until the result is there. For results that come later, bounded loss and memory of one's own:
dlcp.transport, which this stands on.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlcp.errors import ArgumentError
from dlcp.transport import DataType, FileStore, Job, Reduction, Span, Store
from dlcp.transport.call_options import CollectiveKeywords
from dlcp.transport.coded import GROUP_VALUES, CodedRules, codec_traits, decode_runs, encode_runs, group_parts
from dlcp.transport.element import DATA_TYPES, native_op

Array = NDArray[Any]

TYPES: dict[str, DataType] = {each.torch_name: each.type for each in DATA_TYPES}
"""By the name of NumPy's type; bfloat16 is that of the package ml_dtypes, as JAX has it."""

WAITED: CollectiveKeywords = {"wait_follows": True}
"""Of all calls here: they block."""


class Ranks:
    """This rank's end of a group of processes. Closed by `with`, or close().

    `store`: where ranks find each other: a folder that all of them see, fresh for each job, or a dlcp.transport.Store.
    `settings`: of docs/settings.md. Blocks until all ranks are there. Raises what Job raises.
    """

    def __init__(self, store: str | os.PathLike[str] | Store, rank: int, size: int, **settings: Any) -> None:
        place = FileStore(store) if isinstance(store, (str, os.PathLike)) else store
        self.rank, self.size = rank, size
        self._job = Job(place, rank, size, **settings)
        try:
            self._group = self._job.open_communicator("numpy")
        except BaseException:
            self._job.close()
            raise

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the group. Again: nothing."""
        self._job.close()

    def all_reduce(self, array: ArrayLike, op: str = "sum", *, precision: str | None = None) -> Array:
        """The reduction of all ranks' arrays, of their shape and type; the same bits on all ranks.

        `op`: "sum", "avg", "product", "min", "max", "band", "bor" or "bxor". `precision`: values travel in so few bits,
        both ways ("int8", "int4", "int2", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"), and the result is what their code
        says; of floating point, with "sum" and "avg". Raises ArgumentError, CollectiveError.
        """
        given = _contiguous(array)
        kind = check_reduction(given.dtype, op, precision)
        if precision is not None:
            return self._coded_all_reduce(given, kind, precision)
        result = given.copy()
        self._group.all_reduce(
            Span.of(result), _type(given.dtype), kind, agree=str(given.shape), **WAITED
        ).wait()
        return result

    def broadcast(self, array: ArrayLike, root: int = 0) -> Array:
        """The array of rank `root`; the others' say shape and type."""
        result = _contiguous(array).copy()
        agree = f"{_type(result.dtype).name} {result.shape}"
        self._group.broadcast(Span.of(result), root, agree=agree, **WAITED).wait()
        return result

    def all_gather(self, array: ArrayLike) -> Array:
        """All ranks' arrays, stacked: of shape (size, …)."""
        given = _contiguous(array)
        result = np.empty((self.size, *given.shape), given.dtype)
        agree = f"{_type(given.dtype).name} {given.shape}"
        self._group.all_gather(Span.of(result), Span.of(given, writable=False), agree=agree, **WAITED).wait()
        return result

    def reduce_scatter(self, array: ArrayLike, op: str = "sum") -> Array:
        """This rank's share of the reduction: of `size` equal shares of the first dimension the one number `rank`.

        `op`: as of all_reduce. Raises ArgumentError, too, where the first dimension does not divide into `size`.
        """
        given = _contiguous(array)
        kind = check_reduction(given.dtype, op)
        if given.ndim == 0 or given.shape[0] % self.size:
            raise ArgumentError(
                f"array has shape {given.shape}; accepted: a first dimension that is a multiple of {self.size}"
            )
        result = np.empty((given.shape[0] // self.size, *given.shape[1:]), given.dtype)
        inputs = Span.of(given, writable=False)
        self._group.reduce_scatter(
            Span.of(result), inputs, _type(given.dtype), kind, agree=str(given.shape), **WAITED
        ).wait()
        return result

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._group.barrier(**WAITED).wait()

    def _coded_all_reduce(self, given: Array, op: Reduction, precision: str) -> Array:
        codec = codec_traits(precision, "precision")
        values = given.astype(np.float32)
        groups = -(-values.size // GROUP_VALUES)
        runs = np.array([[0, values.size, 0]], np.int64)
        coded, summed = (np.zeros(groups * codec.group_bytes, np.uint8) for _ in range(2))
        encode_runs(codec.codec, values.ctypes.data, runs, coded.ctypes.data)
        parts = [
            (first * codec.group_bytes, (end - first) * codec.group_bytes)
            for first, end in group_parts(groups, self.size)
        ]
        outputs, inputs = ([Span.of(memory).part(*part) for part in parts] for memory in (summed, coded))
        agree = f"{given.dtype} {given.shape}"
        self._group.coded_all_reduce(outputs, inputs, CodedRules(precision), op, agree=agree, **WAITED).wait()
        decode_runs(codec.codec, summed.ctypes.data, runs, values.ctypes.data)
        return values.astype(given.dtype, copy=False)


def _contiguous(array: ArrayLike) -> Array:
    return np.asarray(array, order="C")


def _type(dtype: np.dtype[Any]) -> DataType:
    found = TYPES.get(dtype.name)
    if found is None or not dtype.isnative:
        raise ArgumentError(
            f"array is of {dtype}; accepted: {', '.join(TYPES)}, in this machine's byte order"
        )
    return found


def check_reduction(dtype: np.dtype[Any], op: str, precision: str | None = None) -> Reduction:
    """What `op` names. Raises ArgumentError: nothing, or not of arrays of this type, or not in this precision."""
    kind = _type(dtype)
    try:
        found = Reduction(op)
    except ValueError:
        names = ", ".join(each.value for each in Reduction)
        raise ArgumentError(f"op is {op!r}; accepted: {names}") from None
    native_op(found, kind)
    if precision is None:
        return found
    codec_traits(precision, "precision")
    if kind not in (DataType.f32, DataType.f16, DataType.bf16):
        raise ArgumentError(f"array is of {dtype}; accepted with precision: 16 and 32 bits of floating point")
    if found not in (Reduction.SUM, Reduction.AVG):
        raise ArgumentError(f"op is {op!r}; accepted with precision: sum, avg")
    return found
