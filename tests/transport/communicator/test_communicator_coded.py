"""Coded collectives over real endpoints that lose packets: what ranks decode, what owners keep, equal bits.

Contributions are whole numbers times a power of two, so that every sum is exact and mass is an equality: what ranks put
in, and owners had kept = what ranks decode, and owners keep, and both ends say was abandoned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dlcp import _native, errors
from dlcp.transport.bounded import CollectiveOutcome, LossRules
from dlcp.transport.coded import CODECS, GROUP_VALUES, CodedRules, group_parts
from dlcp.transport.communicator import Communicator, Reduction, Span
from tests.support.ranks import World

Of = Callable[[int], World]
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def lossy() -> Any:
    """Four ranks over sockets that lose 5 % of what arrives."""
    with World(4, shm=False, inject_loss_ratio=0.05) as world:
        yield world


def contribution(rank: int, count: int) -> Floats:
    drawn = np.random.default_rng([17, rank])
    return (drawn.integers(-1000, 1000, count) * 2.0 ** drawn.integers(-8, 3)).astype(np.float32)


def coded(values: Floats, codec: str) -> Bytes:
    out = np.empty(len(values) // GROUP_VALUES * CODECS[codec].group_bytes, np.uint8)
    runs = np.array([[0, len(values), 0]], np.int64)
    _native.encode_runs(CODECS[codec].codec, values.ctypes.data, runs, out.ctypes.data)
    return out


def decoded(codes: Bytes, codec: str) -> Floats:
    out = np.empty(len(codes) // CODECS[codec].group_bytes * GROUP_VALUES, np.float32)
    runs = np.array([[0, len(out), 0]], np.int64)
    _native.decode_runs(CODECS[codec].codec, codes.ctypes.data, runs, out.ctypes.data)
    return out


def parts_of(memory: Bytes, size: int, codec: str) -> list[Span]:
    unit, whole = CODECS[codec].group_bytes, Span.of(memory)
    return [
        whole.part(begin * unit, (end - begin) * unit)
        for begin, end in group_parts(len(memory) // unit, size)
    ]


def lost_values(outcome: CollectiveOutcome, codes: Bytes, codec: str) -> Floats:
    """What was abandoned of this rank's contribution."""
    values, unit = decoded(codes, codec), CODECS[codec].group_bytes
    lost = np.zeros_like(values)
    for each in outcome.sent:
        for begin, end in each.ranges():
            assert begin % unit == 0
            assert end % unit == 0
            piece = slice(begin // unit * GROUP_VALUES, end // unit * GROUP_VALUES)
            lost[piece] = values[piece]
    return lost


def on_each(world: World, run: Callable[[Communicator], Any]) -> list[Any]:
    """What `run` returns on each rank of a fresh group."""
    groups = world.open()
    try:
        return world.each(groups, run)
    finally:
        world.each(groups, lambda group: group.close())


@pytest.mark.parametrize("codec", CODECS)
def test_coded_all_reduce_conserves_mass_under_loss(codec: str, lossy: World) -> None:
    unit = CODECS[codec].group_bytes
    groups = 400_001 // unit
    kept_before = np.full(groups * GROUP_VALUES, 0.5, np.float32)

    def run(group: Communicator) -> tuple[Floats, Floats, Floats]:
        codes = coded(contribution(group.rank, groups * GROUP_VALUES), codec)
        result = np.zeros_like(codes)
        begin, end = group_parts(groups, group.size)[group.rank]
        kept = kept_before[begin * GROUP_VALUES : end * GROUP_VALUES].copy()
        inputs = parts_of(codes, group.size, codec)
        importance = [
            None
            if rank == group.rank
            else np.full(-(-part.nbytes // group.block_bytes(rank, unit)), 7, np.uint8)
            for rank, part in enumerate(inputs)
        ]
        work = group.coded_all_reduce(
            parts_of(result, group.size, codec),
            inputs,
            CodedRules(codec, Span.of(kept), Span.of(kept)),
            loss=LossRules(0.3, importance),
        )
        work.wait()
        return decoded(result, codec), kept, lost_values(work.outcome, codes, codec)

    ends = on_each(lossy, run)
    assert all(np.array_equal(ends[0][0], result) for result, _, _ in ends[1:])
    given = sum(
        decoded(coded(contribution(rank, groups * GROUP_VALUES), codec), codec).astype(np.float64)
        for rank in range(4)
    )
    kept = np.concatenate([end[1] for end in ends]).astype(np.float64)
    lost = sum(end[2].astype(np.float64) for end in ends)
    assert np.any(lost)
    ended = ends[0][0].astype(np.float64) + kept + lost
    if codec.startswith("fp8"):  # four codes of different exponents make no exact sum
        assert np.abs(given + 0.5 - ended).max() <= 2**-21 * np.abs(given).max()
    else:
        assert np.array_equal(given + 0.5, ended)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_coded_reduce_scatter_leaves_the_mean_as_floats(size: int, world: Of) -> None:
    codec, groups = "int8", 40 * size

    def run(group: Communicator) -> tuple[Floats, Floats]:
        codes = coded(contribution(group.rank, groups * GROUP_VALUES), codec)
        begin, end = group_parts(groups, size)[group.rank]
        mean = np.empty((end - begin) * GROUP_VALUES, np.float32)
        inputs = parts_of(codes, size, codec)
        group.coded_reduce_scatter(inputs, CodedRules(codec, values=Span.of(mean)), Reduction.AVG).wait()
        return decoded(codes, codec), mean

    ends = on_each(world(size), run)
    total = ends[0][0].copy()
    for contributed, _ in ends[1:]:
        total += contributed  # in rank order, as the owner adds
    assert np.array_equal(np.concatenate([mean for _, mean in ends]), total / np.float32(size))


def test_ranks_with_different_codecs_fail_and_name_them() -> None:
    def run(group: Communicator) -> str:
        codec = "int4" if group.rank else "int8"
        codes = coded(contribution(group.rank, 64 * 64), codec)
        result = np.zeros_like(codes)
        rules = CodedRules(codec)
        with pytest.raises(errors.DlcpError) as caught:
            group.coded_all_reduce(parts_of(result, 2, codec), parts_of(codes, 2, codec), rules).wait()
        assert not result.any()
        return str(caught.value)

    with World(2) as world:
        for message in on_each(world, run):
            assert "int4" in message
            assert "int8" in message


def test_what_is_not_accepted_is_named(world: Of) -> None:
    def run(group: Communicator) -> None:
        codes = coded(contribution(0, 64 * 4), "int4")
        memory = parts_of(codes, 2, "int4")
        with pytest.raises(errors.ArgumentError, match="codec is 'int5'; accepted: bf16, fp16, int8"):
            group.coded_all_reduce(memory, memory, CodedRules("int5"))
        with pytest.raises(errors.ArgumentError, match="op is MAX; accepted for coded values: SUM, AVG"):
            group.coded_all_reduce(memory, memory, CodedRules("int4"), Reduction.MAX)
        with pytest.raises(
            errors.ArgumentError, match="a part has 68 bytes; accepted for int8: a multiple of 66"
        ):
            group.coded_all_reduce(memory, memory, CodedRules("int8"))
        with pytest.raises(errors.ArgumentError, match="output and input overlap"):
            group.coded_all_reduce(memory, memory, CodedRules("int4"))
        kept = Span.of(np.zeros(64, np.float32))
        with pytest.raises(errors.ArgumentError, match="before has 256 bytes; accepted: 512"):
            group.coded_all_reduce(memory, memory, CodedRules("int4", kept, kept))
        with pytest.raises(errors.ArgumentError, match="values is None; accepted: memory for the sum"):
            group.coded_reduce_scatter(memory, CodedRules("int4"))

    on_each(world(2), run)
