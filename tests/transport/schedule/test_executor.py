"""The native executor against the interpreter: the same bits, while packets are lost and come in any order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from dlcp.transport.schedule import ALGORITHMS
from dlcp.transport.schedule.interpreter import run
from dlcp.transport.schedule_memory import even_parts
from tests.support.ranks import World
from tests.support.schedules import build_all

SIZES = [2, 3, 5, 8]
# Hundreds of packets per rank, not a multiple of anything.
ELEMENTS = 100_003
ROOT = 1

Array = npt.NDArray[np.float32]


@pytest.fixture(scope="module", params=SIZES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    # Small datagrams over several paths, of which one packet in fifty is lost.
    with World(
        request.param, shm=False, inject_loss_ratio=0.02, max_datagram_bytes=1472, paths=4, run_packets=1
    ) as world:
        yield world
        lost = [job.endpoint.stats().injected_lost_packets for job in world.jobs]
        assert all(count > 0 for count in lost), (
            "nothing was lost: these tests have shown less than they claim"
        )


def contributions(size: int, elements: int) -> list[Array]:
    """Normal deviates: every other order of addition shows in the last bits of some."""
    return [
        np.random.default_rng([rank, elements]).standard_normal(elements).astype(np.float32)
        for rank in range(size)
    ]


def cut(memory: Array, chunks: int) -> list[Array]:
    """Views of the parts that native code cuts memory into."""
    parts = even_parts(Span.of(memory), chunks, DataType.f32)
    base = Span.of(memory).address
    return [memory[(part.address - base) // 4 :][: part.nbytes // 4] for part in parts]


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
@pytest.mark.parametrize("op", [Reduction.SUM, Reduction.AVG])
def test_all_reduce_has_the_bits_of_the_interpreter(world: World, algorithm: str, op: Reduction) -> None:
    schedules = build_all("all_reduce", algorithm, world.size)
    expected = contributions(world.size, ELEMENTS)
    run(
        schedules,
        [[] for _ in schedules],
        [cut(memory, schedule.output_chunks) for memory, schedule in zip(expected, schedules, strict=True)],
        finish=(lambda total: total / np.float32(world.size)) if op is Reduction.AVG else None,
        block_elements=ELEMENTS,
    )

    def one(group: Communicator) -> Array:
        data = contributions(world.size, ELEMENTS)[group.rank]
        group.all_reduce(Span.of(data), DataType.f32, op, algorithm=algorithm).wait()
        return data

    for data in world.each(world.open(), one):
        np.testing.assert_array_equal(data.view(np.uint32), expected[0].view(np.uint32))


@pytest.mark.parametrize("algorithm", ALGORITHMS["reduce_scatter"])
def test_reduce_scatter_has_the_bits_of_the_interpreter(world: World, algorithm: str) -> None:
    """Parts of different sizes, the second of them empty."""
    sizes = [(37 * rank) % 101 * 97 if rank != 1 else 0 for rank in range(world.size)]
    total = sum(sizes)
    ends = np.cumsum(sizes)[:-1]
    inputs = [np.split(memory, ends) for memory in contributions(world.size, total)]
    expected = [np.empty(size, np.float32) for size in sizes]
    schedules = build_all("reduce_scatter", algorithm, world.size)
    run(schedules, inputs, [[output] for output in expected], block_elements=total + 1)

    def one(group: Communicator) -> Array:
        output = np.empty(sizes[group.rank], np.float32)
        parts = [Span.of(part) for part in inputs[group.rank]]
        group.reduce_scatter(Span.of(output), parts, DataType.f32, algorithm=algorithm).wait()
        return output

    for data, wanted in zip(world.each(world.open(), one), expected, strict=True):
        np.testing.assert_array_equal(data.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("algorithm", ALGORITHMS["reduce"])
def test_reduce_has_the_bits_of_the_interpreter(world: World, algorithm: str) -> None:
    schedules = build_all("reduce", algorithm, world.size, ROOT)
    inputs = contributions(world.size, ELEMENTS)
    outputs = [[np.empty(ELEMENTS, np.float32)] if rank == ROOT else [] for rank in range(world.size)]
    run(schedules, [[memory] for memory in inputs], outputs, block_elements=ELEMENTS)

    def one(group: Communicator) -> Array:
        data = inputs[group.rank].copy()
        group.reduce(Span.of(data), DataType.f32, root=ROOT, algorithm=algorithm).wait()
        return data

    got = world.each(world.open(), one)
    for rank, data in enumerate(got):
        wanted = outputs[ROOT][0] if rank == ROOT else inputs[rank]
        np.testing.assert_array_equal(data.view(np.uint32), wanted.view(np.uint32))
