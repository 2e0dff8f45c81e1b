"""JAX, without torch: gradients summed over all ranks inside jit.

    python examples/with_jax.py [RANKS]

PRECISION=int8: in few bits. On several hosts each runs `fit` for its own rank, over a folder that all of them see.
"""

import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import numpy as np

import dlcp.jax
from dlcp.numpy import Ranks


def loss_of(weights: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    outputs = jnp.tanh(inputs @ weights["first"]) @ weights["second"]
    return jnp.mean((outputs - jnp.sin(inputs[:, :1])) ** 2)


def fit(folder: str, rank: int, size: int) -> float:
    first, second = jax.random.split(jax.random.key(rank))
    weights = {
        "first": jax.random.normal(first, (32, 128)) / 8,
        "second": jax.random.normal(second, (128, 1)) / 16,
    }
    samples = np.random.default_rng(0)
    with Ranks(folder, rank, size, timeout_s=60) as ranks:

        @jax.jit
        def step(weights: dict[str, jax.Array], inputs: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
            loss, gradients = jax.value_and_grad(loss_of)(weights, inputs)
            loss = dlcp.jax.all_reduce(ranks, loss, "avg")
            gradients = dlcp.jax.all_reduce(ranks, gradients, "avg", precision=os.environ.get("PRECISION"))
            return jax.tree.map(lambda weight, mean: weight - 0.1 * mean, weights, gradients), loss

        weights = dlcp.jax.broadcast(ranks, weights)  # all ranks begin with those of rank 0
        for _ in range(40):
            batch = samples.normal(size=(128, 32))[rank::size]
            weights, loss = step(weights, jnp.asarray(batch, jnp.float32))
        return float(loss)


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(size, get_context("spawn")) as pool:
        losses = list(pool.map(fit, [folder] * size, range(size), [size] * size))
    print(f"loss {losses[0]:.9g}")
