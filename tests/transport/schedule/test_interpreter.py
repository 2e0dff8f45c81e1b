"""Schedules on real arrays: right values, and the same bits whatever arrives first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.transport.schedule import Chunk, RankSchedule, Receive, Send, Space
from dlcp.transport.schedule.interpreter import StuckError, run
from dlcp.transport.schedule.layout import REDUCING
from tests.support.schedules import PAIRS, Memory, build_all, make_memory


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
@given(
    world_size=st.integers(1, 9),
    root=st.integers(0, 8),
    seed=st.integers(0, 2**32 - 1),
    in_place=st.booleans(),
)
def test_result_is_exact_for_any_order(
    collective: str, algorithm: str, world_size: int, root: int, seed: int, in_place: bool
) -> None:
    root %= world_size
    schedules = build_all(collective, algorithm, world_size, root)
    memory = make_memory(schedules, collective, root, seed=seed, in_place=in_place)
    inputs_before = [[chunk.copy() for chunk in chunks] for chunks in memory.inputs]
    run(schedules, memory.inputs, memory.outputs, seed=seed)
    for rank in range(world_size):
        for got, wanted in zip(memory.outputs[rank], memory.wanted[rank], strict=True):
            np.testing.assert_array_equal(got, wanted)
        if not in_place:
            for now, before in zip(memory.inputs[rank], inputs_before[rank], strict=True):
                np.testing.assert_array_equal(now, before)


def bits(memory: Memory) -> list[list[bytes]]:
    return [[chunk.tobytes() for chunk in chunks] for chunks in memory.outputs]


@pytest.mark.parametrize(("collective", "algorithm"), [pair for pair in PAIRS if pair[0] in REDUCING])
@given(world_size=st.integers(2, 9), root=st.integers(0, 8), seeds=st.tuples(st.integers(0), st.integers(0)))
def test_average_has_the_same_bits_for_any_order(
    collective: str, algorithm: str, world_size: int, root: int, seeds: tuple[int, int]
) -> None:
    """Rounding shows any other order of addition, and a second division, or none, shows as well."""
    root %= world_size
    schedules = build_all(collective, algorithm, world_size, root)
    results = []
    for seed, block_elements in zip(seeds, (1, 5), strict=True):
        memory = make_memory(schedules, collective, root, seed=7, dtype=np.float32)
        run(
            schedules,
            memory.inputs,
            memory.outputs,
            finish=lambda total: total / world_size,
            block_elements=block_elements,
            seed=seed,
        )
        for rank in range(world_size):
            for got, total in zip(memory.outputs[rank], memory.wanted[rank], strict=True):
                np.testing.assert_allclose(got, total / world_size, rtol=1e-5, atol=1e-6)
        results.append(bits(memory))
    assert results[0] == results[1]
    if collective == "all_reduce":
        assert all(rank_bits == results[0][0] for rank_bits in results[0])


def test_same_seed_runs_the_same_way() -> None:
    """Seen by a schedule whose result is luck: what is sent is overwritten meanwhile."""
    o = Chunk(Space.OUTPUT, 0)
    schedules = [
        RankSchedule(0, 1, (), (Send(1 - rank, 0, o), Receive(1 - rank, 0, o, o))) for rank in (0, 1)
    ]

    def result(seed: int) -> bytes:
        outputs = [[np.arange(64)], [np.arange(64) * 100]]
        run(schedules, [[], []], outputs, block_elements=1, seed=seed)
        return outputs[0][0].tobytes() + outputs[1][0].tobytes()

    assert result(1) == result(1)
    assert len({result(seed) for seed in range(8)}) > 1


def test_circle_is_stuck() -> None:
    o, t = Chunk(Space.OUTPUT, 0), Chunk(Space.SCRATCH, 0)
    schedules = [RankSchedule(0, 1, (o,), (Receive(1 - rank, 0, t), Send(1 - rank, 0, t))) for rank in (0, 1)]
    with pytest.raises(StuckError, match="4 operations on blocks wait for each other"):
        run(schedules, [[], []], [[np.zeros(3)], [np.zeros(3)]])


def test_unwritten_scratch_shows() -> None:
    """A schedule that reads what nobody wrote gets no zeros there, which would add without a trace."""
    o, t = Chunk(Space.OUTPUT, 0), Chunk(Space.SCRATCH, 0)
    schedules = [
        RankSchedule(0, 1, (o,), (Send(1, 0, t),)),
        RankSchedule(0, 1, (), (Receive(0, 0, o, o),)),
    ]
    outputs = [[np.zeros(3)], [np.zeros(3)]]
    run(schedules, [[], []], outputs)
    assert np.isnan(outputs[1][0]).all()
