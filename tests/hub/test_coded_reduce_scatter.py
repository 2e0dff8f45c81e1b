"""Coded reduce-scatters over a hub: each rank gets the code of its part, and what codes leave is in the next sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dlcp.errors import ArgumentError
from dlcp.hub.service import HubService
from dlcp.transport.coded import CODECS, GROUP_VALUES, CodedRules
from dlcp.transport.communicator import Communicator, Reduction, Span
from dlcp.transport.hub.coded import KeptAtHub
from dlcp.transport.hub.plan import KEY_GROUPS
from tests.hub.test_coded import ONE_RACK, RACKS, contribution, core_groups, in_racks, kept_at
from tests.hub.test_service import LOSSY, ranks_of, service
from tests.transport.communicator.test_communicator_coded import Bytes, Floats, coded, decoded, parts_of

PART = KEY_GROUPS + 3
"""Groups of each rank: keys of two sizes."""
PLACES = pytest.mark.parametrize("places", [ONE_RACK, RACKS], ids=["one rack", "two racks"])


def contributed(rank: int, step: int, codec: str, size: int) -> Bytes:
    return coded(contribution(rank, step, size * PART), codec)


def scattered(
    group: Communicator, codes: Bytes, codec: str, op: Reduction = Reduction.SUM, **rules: Any
) -> Bytes:
    """The code of this rank's part of the sum."""
    result = np.zeros(len(codes) // group.size, np.uint8)
    work = group.coded_reduce_scatter(
        parts_of(codes, group.size, codec), CodedRules(codec, summed=Span.of(result), **rules), op
    )
    work.wait()
    assert work.algorithm == "hub"
    return result


def scattered_at(hub: HubService) -> set[tuple[Any, bool]]:
    """Codec, and whether it is scattered, of what the cores have planned."""
    (job,) = hub._jobs.values()
    return {(buffer.codec, buffer.scattered) for core in job.cores for _, _, buffer, _ in core._plans}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("op", [Reduction.SUM, Reduction.AVG], ids=["sum", "mean"])
@PLACES
def test_each_rank_gets_the_code_of_its_part(codec: str, op: Reduction, places: Sequence[int]) -> None:
    """A part's home is the rack of its rank, whose workers come first."""
    size = len(places)
    with in_racks(places) as (hubs, world):
        found = world.each(
            world.open(),
            lambda group: scattered(group, contributed(group.rank, 0, codec, size), codec, op),
        )
        assert [scattered_at(hub) for hub in hubs] == [{(CODECS[codec].codec, True)}] * len(hubs)
    given = [decoded(contributed(rank, 0, codec, size), codec).reshape(size, -1) for rank in range(size)]
    for rank, home in enumerate(places):
        total = np.zeros(PART * GROUP_VALUES, np.float32)
        for each, rack in zip(given, places, strict=True):
            total += each[rank] if rack == home else 0
        if len(hubs) > 1:
            others = sum(each[rank] for each, rack in zip(given, places, strict=True) if rack != home)
            total += decoded(coded(others, codec), codec)
        expected = coded(total / np.float32(size if op is Reduction.AVG else 1), codec)
        assert found[rank].tobytes() == expected.tobytes(), rank


@PLACES
def test_what_codes_leave_is_in_the_next_sum_whatever_the_loss_the_codec_and_skipped_steps(
    places: Sequence[int],
) -> None:
    """After each step: all that ranks gave = all that was applied + what the hubs keep. Packets get lost."""
    size = len(places)
    with in_racks(places, **LOSSY) as (hubs, world):
        groups = world.open()
        kept = [KeptAtHub() for _ in groups]
        given = applied = 0.0
        lefts = []
        for step, codec in enumerate(["int8", "int8", "int4", "int2", "int4", "int4"]):

            def work(group: Communicator, step: int = step, codec: str = codec) -> tuple[Floats, Floats]:
                codes = contributed(group.rank, step, codec, size)
                result = scattered(group, codes, codec, kept=kept[group.rank])
                return decoded(codes, codec), decoded(result, codec)

            ends = world.each(groups, work)
            is_applied = step != 3
            for each in kept:
                each.end_step(applied=is_applied)
            if is_applied:
                given += sum(float(values.astype(np.float64).sum()) for values, _ in ends)
                applied += sum(float(result.astype(np.float64).sum()) for _, result in ends)
            lefts.append(kept_at(hubs, kept[0]))
            assert given == applied + lefts[-1]
        assert len(set(lefts)) == len(lefts) - 1  # what was skipped left nothing
        assert lefts[2] == lefts[3]


def test_over_many_steps_all_is_applied_but_half_a_code_and_without_memory_it_is_not() -> None:
    """As test_coded.py has it of an all-reduce."""
    steps, codec = 32, "int2"
    ramp = np.tile(np.linspace(0.0, 1.0, GROUP_VALUES, dtype=np.float32), 2 * PART)
    contributions = [coded((ramp > at).astype(np.float32), codec) for at in (0.5, 0.75)]
    given = steps * (decoded(contributions[0], codec) + decoded(contributions[1], codec)) / 2
    with in_racks((0, 0)) as (_, world):
        groups = world.open()

        def work(group: Communicator, kept: KeptAtHub | None) -> Floats:
            total = np.zeros_like(given[: len(given) // 2])
            for _ in range(steps):
                result = scattered(group, contributions[group.rank], codec, Reduction.AVG, kept=kept)
                total += decoded(result, codec)
                if kept is not None:
                    kept.end_step(applied=True)
            return total

        kept = [KeptAtHub() for _ in groups]
        with_memory = np.concatenate(world.each(groups, lambda group: work(group, kept[group.rank])))
        without = np.concatenate(world.each(groups, lambda group: work(group, None)))
    assert np.abs(with_memory - given).max() <= 1.0
    assert np.abs(without - given).max() == steps / 2


@pytest.mark.parametrize("missing", [0, 1])
def test_a_core_has_room_to_its_last_byte(missing: int) -> None:
    """For what two workers contribute, the result, and what codes leave, of as many keys as both cores take."""
    groups = 4 * KEY_GROUPS
    of_core = 2 * KEY_GROUPS
    row = 8 * of_core * GROUP_VALUES + 1024
    needed = 3 * of_core * CODECS["int4"].group_bytes + row
    with service(cores=2, job_memory_bytes=2 * (needed - missing)) as hub, ranks_of(hub, 2) as world:

        def work(group: Communicator) -> bool:
            assert group.hub_group is not None
            kept = KeptAtHub()
            has_room = group.hub_group.keep(kept, "int4", groups, scattered=True)
            if has_room:
                scattered(group, coded(contribution(group.rank, 0, groups), "int4"), "int4", kept=kept)
            return has_room

        assert world.each(world.open(), work) == [not missing] * 2
        assert {core.core._held_bytes for core in core_groups(hub)} == {0 if missing else row}


def test_uneven_ones_and_those_that_want_no_code_stay_among_ranks() -> None:
    with service(cores=1) as hub, ranks_of(hub, 2) as world:

        def work(group: Communicator) -> None:
            codes = coded(contribution(group.rank, 0, 8), "int4")
            unit = CODECS["int4"].group_bytes
            even = parts_of(codes, 2, "int4")
            uneven = [Span.of(codes).part(0, 6 * unit), Span.of(codes).part(6 * unit, 2 * unit)]
            for parts, offers_code in ((even, False), (uneven, True)):
                own = parts[group.rank].nbytes
                values = np.zeros(own // unit * GROUP_VALUES, np.float32)
                summed = np.zeros(own, np.uint8)
                rules = CodedRules(
                    "int4", values=Span.of(values), summed=Span.of(summed) if offers_code else None
                )
                result = group.coded_reduce_scatter(parts, rules)
                result.wait()
                assert result.algorithm == "direct"
                both = sum(decoded(coded(contribution(rank, 0, 8), "int4"), "int4") for rank in range(2))
                begin = (parts[group.rank].address - codes.ctypes.data) // unit * GROUP_VALUES
                np.testing.assert_array_equal(values, both[begin : begin + len(values)])
                assert not summed.any()
            rules = CodedRules("int4", summed=Span.of(summed))
            with pytest.raises(ArgumentError, match="summed is a hub's, and this sum is the ranks'"):
                group.coded_reduce_scatter(uneven, rules)
            with pytest.raises(ArgumentError, match="values is None"):
                group.coded_reduce_scatter(even, CodedRules("int4"))
            short = CodedRules("int4", summed=Span.of(summed).part(0, unit))
            with pytest.raises(ArgumentError, match="outputs have"):
                group.coded_reduce_scatter(even, short)

        world.each(world.open(), work)
        assert scattered_at(hub) == set()
