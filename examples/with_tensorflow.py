"""TensorFlow, without torch: gradients summed over all ranks inside a tf.function.

    python examples/with_tensorflow.py [RANKS]

PRECISION=int8: in few bits. On several hosts each runs `fit` for its own rank, over a folder that all of them see.
"""

import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import tensorflow as tf

from dlcp.numpy import Ranks


def mean(ranks: Ranks, tensors: list[tf.Tensor], precision: str | None = None) -> list[tf.Tensor]:
    """Their means over all ranks. One call carries all of them: its order beside other ops is the program's."""
    flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
    total = tf.numpy_function(
        lambda each: ranks.all_reduce(each, "avg", precision=precision), [flat], flat.dtype
    )
    total.set_shape(flat.shape)
    parts = tf.split(total, [tensor.shape.num_elements() for tensor in tensors])
    return [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def fit(folder: str, rank: int, size: int) -> float:
    seeds = np.random.default_rng(rank)
    first = tf.Variable(seeds.normal(size=(32, 128)) / 8, dtype=tf.float32)
    second = tf.Variable(seeds.normal(size=(128, 1)) / 16, dtype=tf.float32)
    samples = np.random.default_rng(0)
    with Ranks(folder, rank, size, timeout_s=60) as ranks:

        @tf.function
        def step(inputs: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                outputs = tf.tanh(inputs @ first) @ second
                loss = tf.reduce_mean((outputs - tf.sin(inputs[:, :1])) ** 2)
            gradients = mean(ranks, tape.gradient(loss, [first, second]), os.environ.get("PRECISION"))
            for weight, gradient in zip([first, second], gradients, strict=True):
                weight.assign_sub(0.1 * gradient)
            return mean(ranks, [loss])[0]

        for weight in (first, second):
            weight.assign(ranks.broadcast(weight.numpy()))  # all ranks begin with those of rank 0
        for _ in range(40):
            batch = samples.normal(size=(128, 32))[rank::size]
            loss = step(tf.constant(batch, tf.float32))
        return float(loss)


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(size, get_context("spawn")) as pool:
        losses = list(pool.map(fit, [folder] * size, range(size), [size] * size))
    print(f"loss {losses[0]:.9g}")
