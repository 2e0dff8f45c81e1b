"""JAX arrays and pytrees over dlcp: the collectives of dlcp.numpy inside jit, as callbacks on the host.

    import dlcp.jax
    from dlcp.numpy import Ranks

    with Ranks("/shared/run-1", rank, size) as ranks:
        step = jax.jit(lambda gradients: dlcp.jax.all_reduce(ranks, gradients, "avg"))

Callbacks are ordered: every rank makes its calls in one order, and JAX drops and repeats none. Arrays on an accelerator
are copied to the host and back. Not to be differentiated, mapped by vmap or sharded by pmap: JAX refuses it.
`Ranks` is used by one thread at a time, as JAX's ordered callbacks do.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from dlcp.numpy import Array, Ranks


def all_reduce(ranks: Ranks, tree: Any, op: str = "sum", *, precision: str | None = None) -> Any:
    """The reduction of all ranks' trees, leaf by leaf. Leaves of one type travel together, as one message.

    `tree`: an array or a pytree of arrays. The rest as of Ranks.all_reduce.
    """
    leaves, form = jax.tree.flatten(tree)

    def on_host(*given: Array) -> list[Array]:
        results: list[Array] = [np.empty(0)] * len(given)
        arrays = [np.asarray(each) for each in given]
        # Types in the order of their first leaves, which is the same on all ranks.
        for dtype in dict.fromkeys(each.dtype for each in arrays):
            places = [place for place, each in enumerate(arrays) if each.dtype == dtype]
            joined = np.concatenate([arrays[place].ravel() for place in places])
            total = ranks.all_reduce(joined, op, precision=precision)
            ends = np.cumsum([arrays[place].size for place in places])[:-1]
            for place, part in zip(places, np.split(total, ends), strict=True):
                results[place] = part.reshape(arrays[place].shape)
        return results

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in map(jax.numpy.asarray, leaves)]
    return jax.tree.unflatten(form, io_callback(on_host, shapes, *leaves, ordered=True))


def broadcast(ranks: Ranks, tree: Any, root: int = 0) -> Any:
    """The tree of rank `root`; the others' say shapes and types."""
    return jax.tree.map(
        lambda leaf: _call(lambda array: ranks.broadcast(array, root), leaf, leaf.shape), tree
    )


def all_gather(ranks: Ranks, tree: Any) -> Any:
    """Of each leaf all ranks', stacked: of shape (size, …)."""
    return jax.tree.map(lambda leaf: _call(ranks.all_gather, leaf, (ranks.size, *leaf.shape)), tree)


def reduce_scatter(ranks: Ranks, tree: Any, op: str = "sum") -> Any:
    """Of each leaf this rank's share of the reduction, along the first dimension, which divides into `size`."""

    def share(leaf: jax.Array) -> jax.Array:
        shape = (leaf.shape[0] // ranks.size, *leaf.shape[1:])
        return _call(lambda array: ranks.reduce_scatter(array, op), leaf, shape)

    return jax.tree.map(share, tree)


def _call(function: Any, leaf: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    result: jax.Array = io_callback(function, jax.ShapeDtypeStruct(shape, leaf.dtype), leaf, ordered=True)
    return result
