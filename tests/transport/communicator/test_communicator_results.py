"""Every collective against NumPy: types, reductions, sizes from nothing to a megabyte, one to five ranks, algorithms.

Ranks are threads of this process with an endpoint each on loopback. Values are small integers, so that every order of
summation gives the same bits in every type.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from dlcp import errors
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from dlcp.transport.schedule import ALGORITHMS
from tests.support.ranks import World

Of = Callable[[int], World]
Array = npt.NDArray[np.generic]

TYPES: dict[DataType, type[np.generic]] = {
    DataType.f32: np.float32,
    DataType.f64: np.float64,
    DataType.f16: np.float16,
    DataType.i8: np.int8,
    DataType.i16: np.int16,
    DataType.i32: np.int32,
    DataType.i64: np.int64,
    DataType.u8: np.uint8,
    DataType.boolean: np.bool_,
}
COUNTS = [0, 1, 7, 1000, 65537]
MEGABYTE = 1 << 18  # elements of f32


def values(rank: int, count: int, dtype: DataType = DataType.f32) -> Array:
    """A rank's contribution: small, different by rank and place, the same in every run."""
    drawn = np.random.default_rng([rank, count]).integers(0, 2 if dtype is DataType.boolean else 4, count)
    return drawn.astype(TYPES[dtype])


def reduced(op: Reduction, parts: list[Array]) -> Array:
    """What the reduction of all contributions is."""
    stack = np.stack(parts)
    kind = parts[0].dtype
    match op:
        case Reduction.SUM:
            return np.any(stack, 0) if kind == np.bool_ else stack.sum(0, dtype=kind)
        case Reduction.AVG:
            total = stack.sum(0, dtype=np.float64 if kind.kind == "f" else kind)
            return (total / len(parts) if kind.kind == "f" else total // len(parts)).astype(kind)
        case Reduction.PRODUCT:
            return np.all(stack, 0) if kind == np.bool_ else stack.prod(0, dtype=kind)
        case Reduction.MIN:
            return stack.min(0)
        case Reduction.MAX:
            return stack.max(0)
        case Reduction.BAND:
            return np.bitwise_and.reduce(stack)
        case Reduction.BOR:
            return np.bitwise_or.reduce(stack)
        case Reduction.BXOR:
            return np.bitwise_xor.reduce(stack)


def supported() -> list[tuple[DataType, Reduction]]:
    bitwise = {Reduction.BAND, Reduction.BOR, Reduction.BXOR}
    return [
        (dtype, op)
        for dtype, kind in TYPES.items()
        for op in Reduction
        if not (op in bitwise and np.dtype(kind).kind == "f")
        and not (op is Reduction.AVG and dtype is DataType.boolean)
    ]


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_loss_on_the_way_changes_nothing(algorithm: str) -> None:
    """One packet in twenty is lost on arrival, of data and of all else."""
    count = 40_000
    parts = [np.random.default_rng(rank).standard_normal(count).astype(np.float32) for rank in range(4)]

    def one(group: Communicator) -> bytes:
        data = parts[group.rank].copy()
        for _ in range(3):
            np.copyto(data, parts[group.rank])
            group.all_reduce(Span.of(data), DataType.f32, algorithm=algorithm).wait()
        return data.tobytes()

    with World(4, inject_loss_ratio=0.05, shm=False) as lossy, World(4) as whole:
        results = {*lossy.each(lossy.open(), one), *whole.each(whole.open(), one)}
        assert sum(job.endpoint.stats().injected_lost_packets for job in lossy.jobs) > 0
    assert len(results) == 1


# --- reducing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("count", [*COUNTS, MEGABYTE])
def test_all_reduce_of_any_size(world: Of, size: int, count: int) -> None:
    groups = world(size).open()
    expected = reduced(Reduction.SUM, [values(rank, count) for rank in range(size)])

    def one(group: Communicator) -> Array:
        data = values(group.rank, count)
        group.all_reduce(Span.of(data), DataType.f32).wait()
        return data

    for data in world(size).each(groups, one):
        np.testing.assert_array_equal(data, expected)
    assert [group.sequence for group in groups] == [1] * size


@pytest.mark.parametrize(("dtype", "op"), supported(), ids=lambda value: value.name)
def test_all_reduce_of_any_type(world: Of, dtype: DataType, op: Reduction) -> None:
    count, size = 1001, 3
    parts = [values(rank, count, dtype) for rank in range(size)]

    def one(group: Communicator) -> Array:
        data = parts[group.rank].copy()
        group.all_reduce(Span.of(data), dtype, op).wait()
        return data

    for data in world(size).each(world(size).open(), one):
        np.testing.assert_array_equal(data, reduced(op, parts))


def test_all_reduce_of_bf16(world: Of) -> None:
    def one(group: Communicator) -> list[int]:
        data = np.array([0x3F80, 0x4000, 0xBF80], np.uint16)  # 1, 2, -1
        group.all_reduce(Span.of(data), DataType.bf16).wait()
        return data.tolist()

    assert world(3).each(world(3).open(), one) == [[0x4040, 0x40C0, 0xC040]] * 3  # 3, 6, -3


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_all_reduce_by_any_algorithm_gives_all_ranks_the_same_bits(
    world: Of, size: int, algorithm: str
) -> None:
    """Values of which every order of summation rounds differently."""
    count = 5000
    parts = [np.random.default_rng(rank).standard_normal(count).astype(np.float32) for rank in range(size)]

    def one(group: Communicator) -> list[bytes]:
        results = []
        for _ in range(3):
            data = parts[group.rank].copy()
            group.all_reduce(Span.of(data), DataType.f32, algorithm=algorithm).wait()
            results.append(data.tobytes())
        return results

    results = {each for rank in world(size).each(world(size).open(), one) for each in rank}
    assert len(results) == 1
    exact = np.sum(np.stack(parts).astype(np.float64), 0)
    np.testing.assert_allclose(np.frombuffer(results.pop(), np.float32), exact, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 1000, MEGABYTE])
def test_reduce_changes_the_roots_data_alone(world: Of, size: int, count: int) -> None:
    parts = [values(rank, count) for rank in range(size)]
    root = size - 1

    def one(group: Communicator) -> Array:
        data = parts[group.rank].copy()
        group.reduce(Span.of(data), DataType.f32, Reduction.MAX, root).wait()
        return data

    results = world(size).each(world(size).open(), one)
    np.testing.assert_array_equal(results[root], reduced(Reduction.MAX, parts))
    for rank in range(root):
        np.testing.assert_array_equal(results[rank], parts[rank])


@pytest.mark.parametrize("algorithm", ALGORITHMS["reduce"])
def test_reduce_by_any_algorithm(world: Of, algorithm: str) -> None:
    parts = [values(rank, 3000) for rank in range(5)]

    def one(group: Communicator) -> Array:
        data = parts[group.rank].copy()
        group.reduce(Span.of(data), DataType.f32, Reduction.AVG, 2, algorithm=algorithm).wait()
        return data

    results = world(5).each(world(5).open(), one)
    np.testing.assert_allclose(results[2], reduced(Reduction.AVG, parts))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("count", [0, 1, 333, MEGABYTE // 4])
def test_reduce_scatter_of_one_memory(world: Of, size: int, count: int) -> None:
    parts = [values(rank, count * size) for rank in range(size)]

    def one(group: Communicator) -> tuple[Array, Array]:
        source = parts[group.rank].copy()
        output = np.full(count, 99, np.float32)
        group.reduce_scatter(Span.of(output), Span.of(source), DataType.f32).wait()
        return output, source

    expected = reduced(Reduction.SUM, parts).reshape(size, count)
    for rank, (output, source) in enumerate(world(size).each(world(size).open(), one)):
        np.testing.assert_array_equal(output, expected[rank])
        np.testing.assert_array_equal(source, parts[rank])


@pytest.mark.parametrize("algorithm", ALGORITHMS["reduce_scatter"])
def test_reduce_scatter_of_uneven_parts(world: Of, algorithm: str) -> None:
    counts = [5, 0, 2000, 1]

    def one(group: Communicator) -> Array:
        sources = [values(group.rank, count) for count in counts]
        output = np.zeros(counts[group.rank], np.float32)
        group.reduce_scatter(
            Span.of(output), [Span.of(each) for each in sources], DataType.f32, algorithm=algorithm
        ).wait()
        return output

    for rank, output in enumerate(world(4).each(world(4).open(), one)):
        expected = reduced(Reduction.SUM, [values(other, counts[rank]) for other in range(4)])
        np.testing.assert_array_equal(output, expected)


def test_reduce_scatter_into_its_own_input(world: Of) -> None:
    def one(group: Communicator) -> Array:
        source = values(group.rank, 300)
        part = source[group.rank * 100 : (group.rank + 1) * 100]
        group.reduce_scatter(Span.of(part), Span.of(source), DataType.f32).wait()
        return part

    expected = reduced(Reduction.SUM, [values(rank, 300) for rank in range(3)])
    np.testing.assert_array_equal(np.concatenate(world(3).each(world(3).open(), one)), expected)


@pytest.mark.parametrize("size", [1, 3])
def test_factor_multiplies_before_the_sum(world: Of, size: int) -> None:
    """Each rank may have its own; inputs that are only read stay as they are."""

    def one(group: Communicator) -> tuple[list[float], ...]:
        factor = group.rank + 1.0
        data, source, mine = np.ones(10, np.float32), np.ones(2 * size, np.float32), np.ones(3, np.float32)
        part = np.zeros(2, np.float32)
        group.all_reduce(Span.of(data), DataType.f32, factor=factor).wait()
        group.reduce_scatter(Span.of(part), Span.of(source), DataType.f32, factor=factor).wait()
        group.reduce(Span.of(mine), DataType.f32, factor=factor, root=0).wait()
        return data.tolist(), part.tolist(), source.tolist(), mine.tolist()

    total = size * (size + 1) / 2
    for rank, (data, part, source, mine) in enumerate(world(size).each(world(size).open(), one)):
        assert data == [total] * 10
        assert part == [total] * 2
        assert source == [1.0] * 2 * size
        assert mine == ([total] * 3 if rank == 0 else [1.0] * 3)


# --- moving -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("count", [0, 1, 333, MEGABYTE // 4])
def test_all_gather_into_one_memory(world: Of, size: int, count: int) -> None:
    def one(group: Communicator) -> Array:
        output = np.full(count * size, 99, np.float32)
        own = values(group.rank, count)
        group.all_gather(Span.of(output), Span.of(own)).wait()
        return output

    expected = np.concatenate([values(rank, count) for rank in range(size)])
    for output in world(size).each(world(size).open(), one):
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_gather"])
def test_all_gather_of_uneven_parts_in_place(world: Of, algorithm: str) -> None:
    counts = [3, 0, 1500, 1]

    def one(group: Communicator) -> list[Array]:
        outputs = [np.zeros(count, np.float32) for count in counts]
        outputs[group.rank][:] = values(group.rank, counts[group.rank])
        spans = [Span.of(each) for each in outputs]
        group.all_gather(spans, spans[group.rank], algorithm=algorithm).wait()
        return outputs

    for outputs in world(4).each(world(4).open(), one):
        for rank, output in enumerate(outputs):
            np.testing.assert_array_equal(output, values(rank, counts[rank]))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("count", [0, 1, 1000, MEGABYTE])
def test_broadcast(world: Of, size: int, count: int) -> None:
    def one(group: Communicator) -> Array:
        data = values(group.rank, count)
        group.broadcast(Span.of(data), size - 1).wait()
        return data

    for data in world(size).each(world(size).open(), one):
        np.testing.assert_array_equal(data, values(size - 1, count))


@pytest.mark.parametrize("algorithm", ALGORITHMS["broadcast"])
def test_broadcast_by_any_algorithm(world: Of, algorithm: str) -> None:
    def one(group: Communicator) -> Array:
        data = values(group.rank, 50_000)
        group.broadcast(Span.of(data), 3, algorithm=algorithm).wait()
        return data

    for data in world(5).each(world(5).open(), one):
        np.testing.assert_array_equal(data, values(3, 50_000))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_gather_and_scatter_of_any_sizes(world: Of, size: int) -> None:
    """Only the root knows all of the sizes."""
    root = size // 2
    counts = [0, 1, 700, 40_000][-size:]

    def one(group: Communicator) -> tuple[list[Array], Array]:
        own = values(group.rank, counts[group.rank])
        outputs = [np.zeros(count, np.float32) for count in counts]
        back = np.zeros_like(own)
        at_root = group.rank == root
        spans = [Span.of(each) for each in outputs]
        group.gather(spans if at_root else None, Span.of(own), root).wait()
        group.scatter(Span.of(back), spans if at_root else None, root).wait()
        return outputs, back

    results = world(size).each(world(size).open(), one)
    for rank, (_, back) in enumerate(results):
        np.testing.assert_array_equal(results[root][0][rank], values(rank, counts[rank]))
        np.testing.assert_array_equal(back, values(rank, counts[rank]))


def test_gather_into_one_memory_and_scatter_from_it(world: Of) -> None:
    def one(group: Communicator) -> tuple[Array, Array]:
        whole, back = np.zeros(30, np.float32), np.zeros(10, np.float32)
        own = values(group.rank, 10)
        group.gather(Span.of(whole) if group.rank == 0 else None, Span.of(own), 0).wait()
        group.scatter(Span.of(back), Span.of(whole) if group.rank == 0 else None, 0).wait()
        return whole, back

    results = world(3).each(world(3).open(), one)
    np.testing.assert_array_equal(results[0][0], np.concatenate([values(rank, 10) for rank in range(3)]))
    for rank, (_, back) in enumerate(results):
        np.testing.assert_array_equal(back, values(rank, 10))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("count", [0, 1, 1000, MEGABYTE // 8])
def test_all_to_all_of_even_parts(world: Of, size: int, count: int) -> None:
    def one(group: Communicator) -> Array:
        source, target = values(group.rank, count * size), np.full(count * size, 99, np.float32)
        group.all_to_all(Span.of(target), Span.of(source)).wait()
        return target

    sources = np.concatenate([values(rank, count * size) for rank in range(size)]).reshape(size, size, count)
    for rank, target in enumerate(world(size).each(world(size).open(), one)):
        np.testing.assert_array_equal(target.reshape(size, count), sources[:, rank])


def test_all_to_all_of_uneven_parts(world: Of) -> None:
    """Rank i sends i · j elements to rank j; ranks 0 has nothing to do with anybody, and takes part."""

    def part(source: int, target: int) -> Array:
        return values(source * 10 + target, source * target * 100)

    def one(group: Communicator) -> list[Array]:
        inputs = [part(group.rank, other) for other in range(4)]
        outputs = [np.zeros_like(part(other, group.rank)) for other in range(4)]
        group.all_to_all([Span.of(each) for each in outputs], [Span.of(each) for each in inputs]).wait()
        return outputs

    for rank, outputs in enumerate(world(4).each(world(4).open(), one)):
        for other, output in enumerate(outputs):
            np.testing.assert_array_equal(output, part(other, rank))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_barrier_holds_everybody_back(world: Of, size: int) -> None:
    """Nobody leaves before the last has come."""
    came: list[int] = []

    def one(group: Communicator) -> int:
        came.append(group.rank)
        group.barrier().wait()
        return len(came)

    assert world(size).each(world(size).open(), one) == [size] * size


# --- arguments ----------------------------------------------------------------------------------------------


@pytest.fixture
def group(world: Of) -> Communicator:
    return world(2).open()[0]


DATA = np.zeros(8, np.float32)
SPAN = Span.of(DATA)
OTHER = Span.of(np.zeros(8, np.float32))
LONG = Span(SPAN.address, 30)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda g: g.all_reduce(LONG, DataType.f32),
            "data has 30 bytes; accepted: a whole number of f32, 4 bytes",
        ),
        (lambda g: g.all_reduce(SPAN, "float32"), "dtype is 'float32'; accepted: DataType.f32, f64"),
        (lambda g: g.all_reduce(SPAN, DataType.f32, "sum"), "op is 'sum'; accepted: Reduction.SUM"),
        (lambda g: g.all_reduce(SPAN, DataType.f32, Reduction.BOR), "op is Reduction.BOR of f32"),
        (
            lambda g: g.all_reduce(SPAN, DataType.f32, Reduction.MAX, factor=2.0),
            "factor is 2.0 with Reduction.MAX",
        ),
        (
            lambda g: g.all_reduce(SPAN, DataType.f32, algorithm="star"),
            "algorithm='star' does not serve all_reduce",
        ),
        (lambda g: g.reduce(SPAN, DataType.f32, root=2), "root is 2; accepted: a rank of group .*, 0 to 1"),
        (lambda g: g.reduce_scatter(SPAN, SPAN, DataType.f32), "output has 32 bytes; .*part of inputs, 16"),
        (
            lambda g: g.reduce_scatter(SPAN, [SPAN], DataType.f32),
            "inputs has 1 parts; accepted: one per rank, 2",
        ),
        (lambda g: g.all_gather(Span(0, 33), SPAN), "outputs has 33 bytes; accepted: a multiple of .* 2"),
        (
            lambda g: g.all_gather([SPAN, OTHER], LONG),
            "input has 30 bytes; accepted: as many as this rank's part",
        ),
        (lambda g: g.all_gather([SPAN, SPAN], SPAN), "outputs 0 and 1 share memory"),
        (lambda g: g.all_to_all([LONG, SPAN], SPAN), "outputs 0 and 1 share memory"),
        (lambda g: g.broadcast(SPAN, -1), "root is -1"),
        (lambda g: g.gather(None, SPAN, 0), "outputs is None at the root, rank 0"),
        (lambda g: g.gather([SPAN, OTHER], LONG, 0), "input has 30 bytes"),
        (lambda g: g.scatter(SPAN, None, 0), "inputs is None at the root, rank 0"),
        (lambda g: g.scatter(LONG, [SPAN, SPAN], 0), "output has 30 bytes"),
        (lambda g: g.all_to_all([SPAN, OTHER], [LONG, SPAN]), "own part of outputs has 32 bytes; .* 30"),
        (lambda g: g.send(SPAN, 0), "destination is 0, this rank itself"),
        (lambda g: g.send(SPAN, 2), "destination is 2; accepted: a rank of group"),
        (lambda g: g.receive(SPAN, 5), "source is 5"),
        (lambda g: g.send(SPAN, 1, 1 << 32), "tag is 4294967296; accepted: an integer from 0 to 4294967295"),
        (lambda g: g.receive(SPAN, 1, -1), "tag is -1"),
    ],
)
def test_wrong_call_raises_before_anything_is_sent(
    group: Communicator, call: Callable[[Communicator], object], words: str
) -> None:
    with pytest.raises(errors.ArgumentError, match=words):
        call(group)
    assert group.sequence == 0
    assert group.under_way == 0
    assert not DATA.any()
