"""Without torch: ranks that fit a linear model together, with NumPy and dlcp.transport alone.

    python examples/numpy_ranks.py [RANKS]

On several hosts each runs `fit` for its own rank, over a folder that all of them see.
"""

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from dlcp.transport import DataType, FileStore, Job, Span


def fit(folder: str, rank: int, ranks: int) -> float:
    samples = np.random.default_rng(0)
    inputs = samples.normal(size=(4096, 64))
    outputs = inputs @ samples.normal(size=64) + 0.1 * samples.normal(size=4096)
    # Each rank works on its share of the samples.
    inputs, outputs = inputs[rank::ranks], outputs[rank::ranks]
    weights = np.zeros(64)
    with Job(FileStore(folder), rank, ranks, timeout_s=60) as job:
        group = job.open_communicator("all")
        for _ in range(20):
            error = inputs @ weights - outputs
            # The gradient, and behind it the loss: one sum over all ranks.
            total = np.append(inputs.T @ error, error @ error) / 4096
            group.all_reduce(Span.of(total), DataType.f64).wait()
            weights -= 0.5 * total[:-1]
    return float(total[-1])


if __name__ == "__main__":
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(ranks, get_context("spawn")) as pool:
        losses = list(pool.map(fit, [folder] * ranks, range(ranks), [ranks] * ranks))
    print(f"loss {losses[0]:.9g}")
