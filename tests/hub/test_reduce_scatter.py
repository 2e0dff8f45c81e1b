"""Reduce-scatters over a hub: each rank's part of the sum, as round a ring, and which of them go there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlcp.errors import ArgumentError, MismatchError
from dlcp.hub.service import HubService
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from dlcp.transport.schedule.adders import Addition
from dlcp.transport.schedule.hub import KEY_BYTES
from tests.hub.test_service import KEY, LOSSY, MIB, ranks_of, service
from tests.support.ranks import World


def scattered(
    group: Communicator, values: np.ndarray[Any, Any], dtype: DataType, op: Reduction, **how: Any
) -> bytes:
    """This rank's part of the reduction of an even number of parts."""
    output = np.zeros(len(values) // group.size, values.dtype)
    group.reduce_scatter(Span.of(output), Span.of(values), dtype, op, **how).wait()
    return output.tobytes()


def planned(hub: HubService) -> int:
    """How many kinds of reduce-scatters the cores have planned."""
    (job,) = hub._jobs.values()
    return sum(buffer.scattered for _, _, buffer, _ in job.cores[0]._plans)


@pytest.mark.parametrize("size", [2, 3])
def test_bits_are_those_of_a_ring_for_whole_numbers(size: int) -> None:
    with service(cores=2, **LOSSY) as hub, ranks_of(hub, size, **LOSSY) as world:

        def work(group: Communicator) -> None:
            for part in (1, 17, KEY_BYTES // 4 * 5 + 3):
                given = 6 * (np.arange(part * size) % 91 + group.rank)
                for dtype, kind in ((np.float32, DataType.f32), (np.int64, DataType.i64)):
                    for op in (Reduction.SUM, Reduction.MAX):
                        values = given.astype(dtype)
                        found = scattered(group, values, kind, op)
                        assert found == scattered(group, values, kind, op, algorithm="ring"), (part, op)
                        assert (values == given).all()
                values = given.astype(np.float32)
                found = scattered(group, values, DataType.f32, Reduction.AVG)
                assert found == scattered(group, values, DataType.f32, Reduction.AVG, algorithm="ring")

        world.each(world.open(), work)
        assert planned(hub) == 6


def test_parts_may_lie_apart_and_the_output_in_the_input_and_values_have_a_factor() -> None:
    size, part = 3, KEY_BYTES // 2 + 5
    with service(cores=2) as hub, ranks_of(hub, size) as world:

        def work(group: Communicator) -> None:
            parts = [np.full(part, 10.0 * index + group.rank, np.float32) for index in range(size)]
            own = parts[group.rank]
            spans = [Span.of(each) for each in parts]
            for factor in (None, 0.5):
                own[:] = 10.0 * group.rank + group.rank
                group.reduce_scatter(spans[group.rank], spans, DataType.f32, factor=factor).wait()
                assert (own == (factor or 1.0) * (30.0 * group.rank + 3)).all()

        world.each(world.open(), work)
        assert planned(hub) == 1


def test_any_numbers_are_added_in_the_order_of_ranks() -> None:
    size, part = 3, 10_001
    drawn = [np.random.default_rng(rank).standard_normal(size * part).astype(np.float32) for rank in range(3)]
    with service(cores=2) as hub, ranks_of(hub, size) as world:
        found = world.each(
            world.open(),
            lambda group: scattered(group, drawn[group.rank].copy(), DataType.f32, Reduction.SUM),
        )
    assert b"".join(found) == (drawn[0] + drawn[1] + drawn[2]).tobytes()


def test_uneven_and_short_ones_stay_among_ranks() -> None:
    with service(cores=1) as hub, ranks_of(hub, 2, hub_bytes_min=4000) as world:

        def work(group: Communicator) -> None:
            assert group.hub_group is not None
            for nbytes in (3992, 4000):
                one = Addition("reduce_scatter", nbytes, DataType.f32, Reduction.SUM, "")
                assert group.hub_group.takes(one) == (nbytes == 4000)
                assert not group.hub_group.takes(one._replace(even=False))
            parts = [np.full(numel, 1.0 + group.rank, np.float32) for numel in (3000, 2000)]
            own = parts[group.rank]
            spans = [Span.of(each) for each in parts]
            group.reduce_scatter(spans[group.rank], spans, DataType.f32).wait()
            assert (own == 3).all()

        world.each(world.open(), work)
        assert planned(hub) == 0


def test_hubs_of_racks_send_their_sums_to_the_rack_that_wants_them() -> None:
    """Three racks of unequal numbers of ranks; packets get lost."""
    with (
        service(cores=2, **LOSSY) as first,
        service(cores=2, **LOSSY) as second,
        service(cores=2, **LOSSY) as third,
    ):
        racks = [each.address for each in (first, second, third)]
        where = (0, 1, 2, 0, 1)
        with World(
            5, key=KEY, hub_bytes_min=1, **LOSSY, per_rank=lambda rank: {"hub": racks[where[rank]]}
        ) as world:

            def work(group: Communicator) -> None:
                for part in (1, 17, KEY_BYTES // 4 * 3 + 1):
                    values = 5 * (np.arange(part * 5) % 91 + group.rank).astype(np.float32)
                    for op in (Reduction.SUM, Reduction.AVG):
                        found = scattered(group, values, DataType.f32, op)
                        assert found == scattered(group, values, DataType.f32, op, algorithm="ring")

            world.each(world.open(), work)
            assert planned(first) == planned(second) == planned(third) == 3


def test_wrong_memory_is_refused_and_what_has_no_room_stays_among_ranks() -> None:
    with service(cores=1, job_memory_bytes=MIB) as hub, ranks_of(hub, 2) as world:

        def work(group: Communicator) -> None:
            short, whole = np.zeros(10, np.float32), np.zeros(24, np.float32)
            with pytest.raises(ArgumentError, match="output has 40 bytes; accepted"):
                group.reduce_scatter(Span.of(short), Span.of(whole), DataType.f32)
            # Too large for a core: among ranks.
            assert (
                scattered(group, np.ones(MIB, np.float32), DataType.f32, Reduction.SUM)[:4] == b"\0\0\0\x40"
            )
            assert scattered(group, whole, DataType.f32, Reduction.SUM) == bytes(48)

        world.each(world.open(), work)


def test_ranks_that_call_different_things_are_named() -> None:
    with service(cores=1) as hub, ranks_of(hub, 2) as world:

        def call(group: Communicator) -> None:
            values = np.ones(1000, np.float32)
            if group.rank:
                scattered(group, values, DataType.f32, Reduction.SUM)
            else:
                group.all_reduce(Span.of(values), DataType.f32).wait()

        def fails(group: Communicator) -> None:
            with pytest.raises(MismatchError, match="but this rank called"):
                call(group)

        world.each(world.open(), fails)
