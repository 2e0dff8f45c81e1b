"""JAX: a sum over all ranks inside jit, as a callback of the host.

    torchrun --nproc-per-node 2 examples/with_jax.py

BACKEND=gloo: the same over Gloo.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.distributed as dist
from jax.experimental import io_callback


def sum_on_host(values: jax.Array) -> np.ndarray:
    total = np.array(values)  # a copy: JAX's own memory is not to be written
    dist.all_reduce(torch.from_numpy(total))
    return total


def all_reduce(values: jax.Array) -> jax.Array:
    """The sum over all ranks. Ordered: every rank makes its calls in one order, and JAX drops and repeats none."""
    return io_callback(sum_on_host, jax.ShapeDtypeStruct(values.shape, values.dtype), values, ordered=True)


def loss_of(weights: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    outputs = jnp.tanh(inputs @ weights["first"]) @ weights["second"]
    return jnp.mean((outputs - jnp.sin(inputs[:, :1])) ** 2)


@jax.jit
def step(weights: dict[str, jax.Array], inputs: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, inputs)
    means = jax.tree.map(lambda gradient: all_reduce(gradient) / dist.get_world_size(), gradients)
    return jax.tree.map(lambda weight, mean: weight - 0.1 * mean, weights, means), loss


dist.init_process_group(os.environ.get("BACKEND", "dlcp"))
first, second = jax.random.split(jax.random.key(0))
weights = {
    "first": jax.random.normal(first, (32, 128)) / 8,
    "second": jax.random.normal(second, (128, 1)) / 16,
}
samples = np.random.default_rng(dist.get_rank())
for _ in range(40):
    weights, loss = step(weights, jnp.asarray(samples.normal(size=(64, 32)), jnp.float32))
if dist.get_rank() == 0:
    print(f"loss {float(loss):.9g}")
dist.destroy_process_group()
