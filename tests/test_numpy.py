"""dlcp.numpy: what its collectives make of arrays, and what they refuse. dlcp.jax where JAX is installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlcp.errors import ArgumentError, MismatchError
from dlcp.numpy import TYPES, Ranks
from dlcp.transport import MemoryStore

SIZE = 3


def on_ranks(program: Callable[[Ranks], Any]) -> list[Any]:
    """What it returned on each rank."""
    store = MemoryStore()

    def run(rank: int) -> Any:
        with Ranks(store, rank, SIZE, timeout_s=60) as ranks:
            return program(ranks)

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(run, range(SIZE)))


@pytest.mark.parametrize("dtype", sorted(set(TYPES) - {"bfloat16", "bool"}))
def test_sums_shares_and_stacks_are_numpys(dtype: str) -> None:
    arrays = [np.random.default_rng(rank).integers(0, 20, (6, 5)).astype(dtype) for rank in range(SIZE)]

    def program(ranks: Ranks) -> Any:
        own = arrays[ranks.rank]
        kept = own.copy()
        results = (
            ranks.all_reduce(own),
            ranks.reduce_scatter(own),
            ranks.all_gather(own),
            ranks.broadcast(own, 1),
        )
        ranks.barrier()
        assert (own == kept).all()
        return results

    total = np.sum(arrays, axis=0, dtype=dtype)
    for rank, (summed, share, stacked, given) in enumerate(on_ranks(program)):
        assert {each.dtype for each in (summed, share, stacked, given)} == {np.dtype(dtype)}
        assert (summed == total).all()
        assert (share == total[2 * rank : 2 * rank + 2]).all()
        assert (stacked == np.stack(arrays)).all()
        assert (given == arrays[1]).all()


def test_few_bits_are_near_and_the_same_everywhere() -> None:
    arrays = [np.random.default_rng(rank).normal(size=1000).astype(np.float32) for rank in range(SIZE)]
    results = on_ranks(
        lambda ranks: [
            ranks.all_reduce(arrays[ranks.rank].astype(kind), "avg", precision=precision)
            for kind, precision in (("f4", "int8"), ("f4", "int4"), ("f2", "int8"))
        ]
    )
    mean = np.mean(arrays, axis=0)
    for first, *others in zip(*results, strict=True):
        assert all((first == other).all() for other in others)
    for result, near in zip(results[0], (0.05, 0.6, 0.05), strict=True):
        assert 0 < np.abs(result - mean).max() < near
    assert [result.dtype for result in results[0]] == [np.float32, np.float32, np.float16]


def test_arrays_without_values_dimensions_or_order() -> None:
    turned = np.arange(6.0).reshape(2, 3).T
    results = on_ranks(
        lambda ranks: (
            ranks.all_reduce(2.5),
            ranks.all_reduce(np.zeros((0, 4))),
            ranks.all_reduce(turned),
            ranks.all_reduce(np.zeros(0, np.float32), precision="int8"),
            ranks.all_reduce([True, False], "max"),
        )
    )
    for number, empty, sums, coded, flags in results:
        assert (number.shape, float(number)) == ((), 7.5)
        assert empty.shape == (0, 4)
        assert (sums == 3 * turned).all()
        assert coded.shape == (0,)
        assert flags.tolist() == [True, False]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ranks: ranks.all_reduce(["a"]), "array is of <U1; accepted: float32"),
        (lambda ranks: ranks.all_reduce(np.zeros(2, ">f4")), "in this machine's byte order"),
        (lambda ranks: ranks.all_reduce(1j), "array is of complex128"),
        (lambda ranks: ranks.all_reduce(1.0, "mean"), "op is 'mean'; accepted: sum, avg"),
        (lambda ranks: ranks.all_reduce(1, precision="int8"), "array is of int64; accepted with precision"),
        (lambda ranks: ranks.all_reduce(np.float32(1), precision="int3"), "precision is 'int3'"),
        (
            lambda ranks: ranks.all_reduce(np.float32(1), "max", precision="int8"),
            "op is 'max'; accepted with",
        ),
        (lambda ranks: ranks.reduce_scatter(np.zeros(4)), r"shape \(4,\); accepted: .* multiple of 3"),
        (lambda ranks: ranks.reduce_scatter(1.0), r"shape \(\)"),
    ],
)
def test_what_is_no_array_for_it_is_named(call: Callable[[Ranks], Any], words: str) -> None:
    def program(ranks: Ranks) -> None:
        with pytest.raises(ArgumentError, match=words):
            call(ranks)
        ranks.barrier()  # nothing was sent

    on_ranks(program)


def test_ranks_that_differ_in_shape_are_told() -> None:
    def reduce(ranks: Ranks) -> None:
        ranks.all_reduce(np.zeros((2, 3) if ranks.rank else (3, 2)))
        ranks.barrier()  # a rank that only sends may be done before anybody can tell it

    def program(ranks: Ranks) -> None:
        with pytest.raises(MismatchError, match=r"\(2, 3\)|\(3, 2\)"):
            reduce(ranks)

    on_ranks(program)


def test_a_tree_of_jax_is_reduced_inside_jit() -> None:
    jax = pytest.importorskip("jax")
    import dlcp.jax

    store = MemoryStore()
    with Ranks(
        store, 0, 1, timeout_s=60
    ) as ranks:  # one: callbacks of ranks in one process would wait for each other
        tree = {"a": jax.numpy.ones((2, 3)), "b": [jax.numpy.arange(4), jax.numpy.float32(2)]}
        same = jax.jit(lambda given: dlcp.jax.all_reduce(ranks, given))(tree)
        assert jax.tree.all(jax.tree.map(lambda one, other: (one == other).all(), tree, same))
        assert dlcp.jax.all_gather(ranks, tree)["a"].shape == (1, 2, 3)
        assert dlcp.jax.reduce_scatter(ranks, tree["a"]).shape == (2, 3)
        assert dlcp.jax.broadcast(ranks, tree)["b"][1] == 2
        assert dlcp.jax.broadcast(ranks, {"step": 7})["step"] == 7
        # The scale of one leaf is not another's.
        uneven = {"large": jax.numpy.full(3, 1000.0), "small": jax.numpy.full(3, 0.001)}
        coded = dlcp.jax.all_reduce(ranks, uneven, precision="int8")
        assert abs(coded["small"] - 0.001).max() < 1e-4
        for words, call in (
            ("op is 'mean'", lambda: dlcp.jax.all_reduce(ranks, tree, "mean")),
            ("array is of complex64", lambda: dlcp.jax.all_gather(ranks, 1j)),
            (r"shape \(\)", lambda: dlcp.jax.reduce_scatter(ranks, 1.0)),
        ):
            with pytest.raises(ArgumentError, match=words):
                call()


OTHER_LIBCRYPTO = """
void abort(void);
void *EVP_CIPHER_CTX_new(void) { abort(); return 0; }
void *EVP_CIPHER_fetch(void) { abort(); return 0; }
void *EVP_KDF_fetch(void) { abort(); return 0; }
int EVP_EncryptUpdate(void) { abort(); return 0; }
"""
SUM_OF_TWO = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
from dlcp.numpy import Ranks

def add(rank):
    with Ranks(sys.argv[2], rank, 2, timeout_s=60, crypto_library="openssl") as ranks:
        return ranks.all_reduce(np.full(1000, rank + 1.0))[0]

with ThreadPoolExecutor(2) as pool:
    print(list(pool.map(add, range(2))))
"""


def test_another_libcrypto_of_the_process_is_not_called(tmp_path: Path) -> None:
    """TensorFlow lends BoringSSL's functions to all: the first session over it ended with a segmentation fault."""
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(OTHER_LIBCRYPTO)
    subprocess.run(["c++", "-x", "c", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
    words = [sys.executable, "-c", SUM_OF_TWO, str(library), str(tmp_path / "store")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "[np.float64(3.0), np.float64(3.0)]\n"), done.stderr
