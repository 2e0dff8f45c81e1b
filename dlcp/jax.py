"""JAX arrays and pytrees over dlcp: the collectives of dlcp.numpy inside jit, as callbacks on the host.

    import dlcp.jax
    from dlcp.numpy import Ranks

    with Ranks("/shared/run-1", rank, size) as ranks:
        step = jax.jit(lambda gradients: dlcp.jax.all_reduce(ranks, gradients, "avg"))

Callbacks are ordered: every rank makes its calls in one order, and JAX drops and repeats none. Arrays on an
accelerator are copied to the host and back. Not to be differentiated, mapped by vmap or sharded by pmap: JAX refuses
it. A type, `op` or `precision` that does not fit raises ArgumentError where the function is traced. What fails later is
JAX's to tell: jax.errors.JaxRuntimeError, with dlcp's error in its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from dlcp.errors import ArgumentError
from dlcp.numpy import Array, Ranks, check_reduction
from dlcp.transport.coded import GROUP_VALUES

Shape = tuple[int, ...]


def all_reduce(ranks: Ranks, tree: Any, op: str = "sum", *, precision: str | None = None) -> Any:
    """The reduction of all ranks' trees, leaf by leaf. Leaves of one type travel together, as one message.

    `tree`: an array or a pytree of arrays. The rest as of Ranks.all_reduce.
    """
    leaves, form = jax.tree.flatten(jax.tree.map(jax.numpy.asarray, tree))
    for leaf in leaves:
        check_reduction(np.dtype(leaf.dtype), op, precision)

    def on_host(*given: Array) -> list[Array]:
        results: list[Array] = [np.empty(0)] * len(given)
        arrays = [np.asarray(each) for each in given]
        # In few bits a group of values has one scale, which is not to be another leaf's.
        unit = 1 if precision is None else GROUP_VALUES
        # Types in the order of their first leaves, which is the same on all ranks.
        for dtype in dict.fromkeys(each.dtype for each in arrays):
            places = [place for place, each in enumerate(arrays) if each.dtype == dtype]
            begins = np.cumsum([0, *(-(-arrays[place].size // unit) * unit for place in places)])
            joined = np.zeros(begins[-1], dtype)
            for place, begin in zip(places, begins[:-1], strict=True):
                joined[begin : begin + arrays[place].size] = arrays[place].ravel()
            total = ranks.all_reduce(joined, op, precision=precision)
            for place, begin in zip(places, begins[:-1], strict=True):
                results[place] = total[begin : begin + arrays[place].size].reshape(arrays[place].shape)
        return results

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    return jax.tree.unflatten(form, io_callback(on_host, shapes, *leaves, ordered=True))


def broadcast(ranks: Ranks, tree: Any, root: int = 0) -> Any:
    """The tree of rank `root`; the others' say shapes and types."""
    return _each(tree, lambda array: ranks.broadcast(array, root), lambda shape: shape)


def all_gather(ranks: Ranks, tree: Any) -> Any:
    """Of each leaf all ranks', stacked: of shape (size, …)."""
    return _each(tree, ranks.all_gather, lambda shape: (ranks.size, *shape))


def reduce_scatter(ranks: Ranks, tree: Any, op: str = "sum") -> Any:
    """Of each leaf this rank's share of the reduction, along the first dimension, which divides into `size`."""

    def share(shape: Shape) -> Shape:
        if not shape or shape[0] % ranks.size:
            raise ArgumentError(
                f"a leaf has shape {shape}; accepted: a first dimension that is a multiple of {ranks.size}"
            )
        return shape[0] // ranks.size, *shape[1:]

    return _each(tree, lambda array: ranks.reduce_scatter(array, op), share)


def _each(tree: Any, function: Callable[[Array], Array], shape_of: Callable[[Shape], Shape]) -> Any:
    def call(given: Any) -> Any:
        leaf = jax.numpy.asarray(given)
        check_reduction(np.dtype(leaf.dtype), "sum")
        return io_callback(
            function, jax.ShapeDtypeStruct(shape_of(leaf.shape), leaf.dtype), leaf, ordered=True
        )

    return jax.tree.map(call, tree)
