"""Runs of elements: where two lists of them meet, and moving what lies in them, all runs at once.

A run is a begin and an end, or a begin and a count; a list of runs is a NumPy array of each, int64. There may be
thousands of runs of a packet each, so nothing here loops over runs: float32 and float64 in host memory are moved by
native code (native/collective/value_runs.hpp); any other tensor is read as rows that begin at every one of its
elements, and a run is one row of the width that is most common, or a few. Runs of one list are apart; the caller
ensures that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dlcp.torch.tensors import DATA_TYPES
from dlcp.transport.gradient import add_runs, gather_runs

Indices = NDArray[np.int64]
NOTHING: Indices = np.zeros(0, np.int64)
# 256 KiB of float32: a quarter of a core's second-level cache on most servers.
_PIECE_ELEMENTS = 1 << 16


class Meetings(NamedTuple):
    """Where runs of two lists meet, ascending: entry k is what run `first[k]` and run `second[k]` have in common."""

    first: Indices
    second: Indices
    begin: Indices
    end: Indices


def intersect(begin_1: Indices, end_1: Indices, begin_2: Indices, end_2: Indices) -> Meetings:
    """What two lists of runs have in common. Both ascending, the runs of each apart."""
    low = np.searchsorted(end_2, begin_1, "right")
    high = np.searchsorted(begin_2, end_1, "left")
    met = np.maximum(high - low, 0)
    first = np.repeat(np.arange(len(begin_1)), met)
    second = np.arange(len(first)) + np.repeat(low - (np.cumsum(met) - met), met)
    begin = np.maximum(begin_1[first], begin_2[second])
    end = np.minimum(end_1[first], end_2[second])
    # An empty run lies inside others without having anything in common with them.
    some = end > begin
    return Meetings(first[some], second[some], begin[some], end[some])


def merged(ranges: Iterable[tuple[int, int]] | NDArray[np.int64], numel: int) -> tuple[Indices, Indices]:
    """Begins and ends of ranges of a buffer of `numel` elements, ascending, those that touch made one.

    Raises ValueError for a range outside, backwards, or over another.
    """
    edges = np.asarray(ranges if isinstance(ranges, np.ndarray) else list(ranges), np.int64).reshape(-1, 2)
    edges = edges[edges[:, 0] != edges[:, 1]]
    if not len(edges):
        return NOTHING, NOTHING
    begin, end = edges[:, 0], edges[:, 1]
    if (begin[1:] < begin[:-1]).any():
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], end[order]
    if begin[0] < 0 or end.max() > numel or (begin > end).any():
        wrong = edges[(edges[:, 0] < 0) | (edges[:, 1] > numel) | (edges[:, 0] > edges[:, 1])][0].tolist()
        raise ValueError(f"range {tuple(wrong)}; accepted: within {numel} elements, begin before end")
    if (begin[1:] < end[:-1]).any():
        at = int(np.flatnonzero(begin[1:] < end[:-1])[0])
        raise ValueError(
            f"ranges ({begin[at]}, {end[at]}) and ({begin[at + 1]}, {end[at + 1]}) overlap; accepted: ranges apart"
        )
    apart = begin[1:] != end[:-1]
    return begin[np.concatenate(([True], apart))], end[np.concatenate((apart, [True]))]


def starts(counts: Indices) -> Indices:
    """Where each run begins if runs of these counts lie one after the other."""
    return np.cumsum(counts) - counts


def distinct(numbers: Indices) -> Indices:
    """Each of ascending numbers once."""
    return numbers[np.concatenate(([True], numbers[1:] != numbers[:-1]))] if len(numbers) else numbers


def gather(source: Tensor, begin: Indices, counts: Indices, out: Tensor | None = None) -> Tensor:
    """The runs of `source` one after the other: in `out`, of just that size and type, or in a new tensor."""
    if out is None:
        out = source.new_empty(int(counts.sum()))
    if _is_native(source, out):
        kind = DATA_TYPES[source.dtype]
        gather_runs(kind, source.data_ptr(), source.numel(), begin, counts, out.data_ptr(), out.numel())
        return out
    for width, here, there in _pieces(begin, starts(counts), counts, source):
        rows, index = _windows(source, width), _index(here, source)
        stretch = _stretch(out, there, width)
        if stretch is None:
            _windows(out, width).index_copy_(0, _index(there, out), rows.index_select(0, index))
        else:
            torch.index_select(rows, 0, index, out=stretch)
    return out


def add(
    target: Tensor, begin: Indices, counts: Indices, source: Tensor, at: Indices, factor: float = 1.0
) -> None:
    """target[run] += factor · source[run at `at`], in place; both 1-D, contiguous and of one device.

    Added in the wider of the two types; where they differ, rounded once.
    """
    if _is_native(target, source):
        add_runs(
            DATA_TYPES[target.dtype],
            *(target.data_ptr(), target.numel(), begin, counts),
            *(source.data_ptr(), source.numel(), at, factor),
        )
        return
    for width, here, there in _pieces(begin, at, counts, target):
        index, rows = _index(here, target), _stretch(source, there, width)
        if rows is None:
            rows = _windows(source, width).index_select(0, _index(there, source))
        windows = _windows(target, width)
        if target.dtype == source.dtype:
            windows.index_add_(0, index, rows, alpha=factor)
        else:
            wide = windows.index_select(0, index).to(torch.promote_types(target.dtype, source.dtype))
            windows.index_copy_(0, index, wide.add_(rows, alpha=factor).to(target.dtype))


def _is_native(*tensors: Tensor) -> bool:
    """Whether native code moves runs between these."""
    dtype = tensors[0].dtype
    return dtype in (torch.float32, torch.float64) and all(
        each.dtype == dtype and each.device.type == "cpu" and each.is_contiguous() and not each.requires_grad
        for each in tensors
    )


def _pieces(
    here: Indices, there: Indices, counts: Indices, like: Tensor
) -> Iterator[tuple[int, Indices, Indices]]:
    """The rows of runs; on a CPU in pieces that stay in its second-level cache between two passes."""
    for width, first, second in _rows(here, there, counts):
        size = max(1, _PIECE_ELEMENTS // width) if like.device.type == "cpu" else len(first)
        for at in range(0, len(first), size):
            yield width, first[at : at + size], second[at : at + size]


def _rows(here: Indices, there: Indices, counts: Indices) -> Iterator[tuple[int, Indices, Indices]]:
    """The runs cut into rows: per width, where its rows begin on either side, ascending within a run.

    Widths are the most common count, of which most runs are multiples since blocks are, and powers of two for what is
    left of a run: so the number of operations grows with the logarithm of the longest rest, not with the runs.
    """
    if not len(counts):
        return
    ascending = np.sort(counts)
    first = np.flatnonzero(np.concatenate(([True], ascending[1:] != ascending[:-1], [True])))
    width = int(ascending[first[np.argmax(first[1:] - first[:-1])]])
    times, rest = np.divmod(counts, width)
    if times.max() == 1 and times.min() == 1:
        yield width, here, there
    else:
        run = np.repeat(np.arange(len(counts)), times)
        step = (np.arange(len(run)) - np.repeat(np.cumsum(times) - times, times)) * width
        yield width, here[run] + step, there[run] + step
    done = times * width
    width = 1 << int(rest.max()).bit_length()
    while width := width >> 1:
        some = (rest & width) != 0
        if some.any():
            yield width, here[some] + done[some], there[some] + done[some]
            done[some] += width


def _windows(tensor: Tensor, width: int) -> Tensor:
    """All stretches of `width` elements, as rows that overlap. Rows that are written together must be apart."""
    return tensor.as_strided((tensor.numel() - width + 1, width), (1, 1))


def _stretch(tensor: Tensor, rows: Indices, width: int) -> Tensor | None:
    """Ascending rows, apart, as a view of what they are; None if there is something between them."""
    first, last = int(rows[0]), int(rows[-1]) + width
    return tensor[first:last].view(-1, width) if last - first == len(rows) * width else None


def _index(rows: Indices, like: Tensor) -> Tensor:
    return torch.from_numpy(rows).to(like.device)
