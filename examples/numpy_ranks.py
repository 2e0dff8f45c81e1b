"""Without torch: ranks that fit a linear model together, with NumPy alone.

    python examples/numpy_ranks.py [RANKS]

On several hosts each runs `fit` for its own rank, over a folder that all of them see.
"""

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from dlcp.numpy import Ranks


def fit(folder: str, rank: int, size: int) -> float:
    samples = np.random.default_rng(0)
    inputs = samples.normal(size=(4096, 64))
    outputs = inputs @ samples.normal(size=64) + 0.1 * samples.normal(size=4096)
    # Each rank works on its share of the samples.
    inputs, outputs = inputs[rank::size], outputs[rank::size]
    weights = np.zeros(64)
    with Ranks(folder, rank, size, timeout_s=60) as ranks:
        for _ in range(20):
            error = inputs @ weights - outputs
            # The gradient, and behind it the loss: one sum over all ranks.
            total = ranks.all_reduce(np.append(inputs.T @ error, error @ error) / 4096)
            weights -= 0.5 * total[:-1]
    return float(total[-1])


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(size, get_context("spawn")) as pool:
        losses = list(pool.map(fit, [folder] * size, range(size), [size] * size))
    print(f"loss {losses[0]:.9g}")
