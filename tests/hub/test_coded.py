"""Coded sums over a hub: the bits that ranks make among themselves, and what codes leave is in the next sum.

Over racks a sum is coded twice, so there bits are others, the same on all ranks.

Contributions are whole numbers times a power of two, so every sum is exact and mass is an equality.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dlcp.errors import ArgumentError, CollectiveError, HubError
from dlcp.hub.core_group import CoreGroup
from dlcp.hub.service import HubService
from dlcp.transport.bounded import LossRules
from dlcp.transport.coded import CODECS, GROUP_VALUES, CodedRules
from dlcp.transport.communicator import Communicator, Reduction, Span
from dlcp.transport.hub.coded import CodedTerms, KeptAtHub
from dlcp.transport.hub.plan import KEY_GROUPS, HubPlan, HubPlanner
from tests.hub.test_service import KEY, LOSSY, MIB, ranks_of, service, wait_until
from tests.support.ranks import World
from tests.transport.communicator.test_communicator_coded import Bytes, Floats, coded, decoded, parts_of

GROUPS = 5 * KEY_GROUPS + 3
"""Keys of two sizes."""
ONE_RACK, RACKS = (0, 0, 0), (0, 1, 0, 0, 1)
"""By rank the number of its rack."""


@contextlib.contextmanager
def in_racks(places: Sequence[int], **settings: Any) -> Iterator[tuple[list[HubService], World]]:
    """Ranks in these racks, each with a hub of two cores."""
    of_ranks = {name: value for name, value in settings.items() if name in LOSSY}
    with contextlib.ExitStack() as opened:
        hubs = [opened.enter_context(service(cores=2, **settings)) for _ in range(max(places) + 1)]
        world = World(
            len(places),
            key=KEY,
            hub_bytes_min=1,
            per_rank=lambda rank: {"hub": hubs[places[rank]].address},
            **of_ranks,
        )
        yield hubs, opened.enter_context(world)


def contribution(rank: int, step: int, groups: int = GROUPS) -> Floats:
    drawn = np.random.default_rng([rank, step])
    return drawn.integers(-1000, 1000, groups * GROUP_VALUES).astype(np.float32)


def summed(
    group: Communicator, codes: Bytes, codec: str, op: Reduction = Reduction.SUM, **rules: Any
) -> Bytes:
    result = np.zeros_like(codes)
    group.coded_all_reduce(
        parts_of(result, group.size, codec),
        parts_of(codes, group.size, codec),
        CodedRules(codec, **rules),
        op,
    ).wait()
    return result


def core_groups(hub: HubService) -> list[CoreGroup]:
    (job,) = hub._jobs.values()
    ((_, served),) = job.groups.values()
    return served.cores


def kept_at(hubs: Sequence[HubService], kept: KeptAtHub) -> float:
    """The sum of all that the hubs keep, exactly: of whole numbers."""
    cores = [core for hub in hubs for core in core_groups(hub)]
    found = [each._residuals[kept.number].arrays[kept.before - 1] for each in cores]
    return float(sum(array.astype(np.float64).sum() for array in found))


def buffers_at(hub: HubService) -> set[Any]:
    """The codecs of what the cores have planned; None: of sums that are not coded."""
    (job,) = hub._jobs.values()
    return {buffer.codec for core in job.cores for _, _, buffer, _ in core._plans}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("op", [Reduction.SUM, Reduction.AVG], ids=["sum", "mean"])
def test_bits_are_those_that_ranks_make_among_themselves(codec: str, op: Reduction) -> None:
    with service(cores=2) as hub, ranks_of(hub, 3) as over_hub, World(3) as direct:

        def work(group: Communicator) -> bytes:
            return summed(group, coded(contribution(group.rank, 0), codec), codec, op).tobytes()

        found = over_hub.each(over_hub.open(), work)
        assert buffers_at(hub) == {CODECS[codec].codec}
        assert len(set(found)) == 1
        assert found == direct.each(direct.open(), work)


@pytest.mark.parametrize("op", [Reduction.SUM, Reduction.AVG], ids=["sum", "mean"])
@pytest.mark.parametrize("codec", CODECS)
def test_over_racks_each_sum_is_that_of_the_racks_sums(codec: str, op: Reduction) -> None:
    """Whichever rack is a key's home, its workers come first there, and then the other rack's sum, coded."""
    with in_racks(RACKS) as (hubs, world):

        def work(group: Communicator) -> Bytes:
            assert group.takes_coded(GROUPS)
            return summed(group, coded(contribution(group.rank, 0), codec), codec, op)

        found = world.each(world.open(), work)
        assert [buffers_at(hub) for hub in hubs] == [{CODECS[codec].codec}] * 2
    assert len({each.tobytes() for each in found}) == 1
    given = [decoded(coded(contribution(rank, 0), codec), codec) for rank in range(len(RACKS))]
    of_racks = [sum(each for each, rack in zip(given, RACKS, strict=True) if rack == home) for home in (0, 1)]
    divisor = np.float32(len(RACKS) if op is Reduction.AVG else 1)
    expected = [
        coded((of_racks[home] + decoded(coded(of_racks[1 - home], codec), codec)) / divisor, codec)
        for home in (0, 1)
    ]
    unit = CODECS[codec].group_bytes
    at_home = [(found[0] == each).reshape(-1, unit).all(axis=1) for each in expected]
    assert (at_home[0] | at_home[1]).all()
    assert min(each.sum() for each in at_home) > GROUPS // 4


@pytest.mark.parametrize("places", [ONE_RACK, RACKS], ids=["one rack", "two racks"])
def test_what_codes_leave_is_in_the_next_sum_whatever_the_loss_the_codec_and_skipped_steps(
    places: Sequence[int],
) -> None:
    """After each step: all that ranks gave = all that was applied + what the hub keeps. Packets get lost."""
    with in_racks(places, **LOSSY) as (hubs, world):
        groups = world.open()
        kept = [KeptAtHub() for _ in groups]
        given = applied = 0.0
        lefts = []
        for step, codec in enumerate(["int8", "int8", "int4", "int2", "int4", "int4"]):

            def work(group: Communicator, step: int = step, codec: str = codec) -> tuple[Floats, Bytes]:
                codes = coded(contribution(group.rank, step), codec)
                return decoded(codes, codec), summed(group, codes, codec, kept=kept[group.rank])

            ends = world.each(groups, work)
            assert len({result.tobytes() for _, result in ends}) == 1
            is_applied = step != 3
            for each in kept:
                each.end_step(applied=is_applied)
            if is_applied:
                given += sum(float(values.astype(np.float64).sum()) for values, _ in ends)
                applied += float(decoded(ends[0][1], codec).astype(np.float64).sum())
            assert given == applied + kept_at(hubs, kept[0])
            lefts.append(kept_at(hubs, kept[0]))
        assert len(set(lefts)) == len(lefts) - 1  # what was skipped left nothing
        assert lefts[2] == lefts[3]


@pytest.mark.parametrize(
    ("places", "left_max"), [((0, 0), 1.0), ((0, 1, 1, 0, 0, 0), 3.0)], ids=["one rack", "two racks"]
)
def test_over_many_steps_all_is_applied_but_half_a_code_and_without_memory_it_is_not(
    places: Sequence[int], left_max: float
) -> None:
    """Gradients of two ranks differ, so that the code of their mean leaves something. int2: codes of -1, 0 and 1.

    A mean is at most 1, and with what is kept at most 2: half a code is at most 1. Over racks the code of a rack's sum
    leaves as much beside it, and the racks' sums are of up to twice as much.
    """
    steps, codec = 32, "int2"
    ramp = np.tile(np.linspace(0.0, 1.0, GROUP_VALUES, dtype=np.float32), KEY_GROUPS + 1)
    gradients = [(ramp > 0.5).astype(np.float32), (ramp > 0.75).astype(np.float32)]
    contributions = [coded(gradient, codec) for gradient in gradients]
    given = steps * (decoded(contributions[0], codec) + decoded(contributions[1], codec)) / 2
    with in_racks(places) as (_, world):
        groups = world.open()

        def work(group: Communicator, kept: KeptAtHub | None) -> Floats:
            total = np.zeros_like(given)
            for _ in range(steps):
                result = summed(group, contributions[group.rank % 2], codec, Reduction.AVG, kept=kept)
                total += decoded(result, codec)
                if kept is not None:
                    kept.end_step(applied=True)
            return total

        kept = [KeptAtHub() for _ in groups]
        with_memory = world.each(groups, lambda group: work(group, kept[group.rank]))[0]
        without = world.each(groups, lambda group: work(group, None))[0]
    assert np.abs(with_memory - given).max() <= left_max
    assert np.abs(without - given).max() == steps / 2


def test_a_factor_multiplies_what_is_kept() -> None:
    with service(cores=1) as hub, ranks_of(hub, 2) as world:
        groups, kept = world.open(), [KeptAtHub() for _ in range(2)]

        def work(group: Communicator, step: int, factor: float) -> tuple[Floats, Floats]:
            codes = coded(contribution(group.rank, step), "int4")
            result = summed(group, codes, "int4", kept=kept[group.rank], factor=factor)
            kept[group.rank].end_step(applied=True)
            return decoded(codes, "int4"), decoded(result, "int4")

        first = world.each(groups, lambda group: work(group, 0, 1.0))
        left = first[0][0] + first[1][0] - first[0][1]
        assert left.any()
        second = world.each(groups, lambda group: work(group, 1, 2.0))
        (at_hub,) = core_groups(hub)
        now = at_hub._residuals[kept[0].number].arrays[kept[0].before - 1]
        np.testing.assert_array_equal(second[0][0] + second[1][0] + 2 * left - second[0][1], now)


@pytest.mark.parametrize("places", [ONE_RACK, RACKS], ids=["one rack", "two racks"])
def test_what_is_forgotten_is_not_added_and_its_memory_is_free(places: Sequence[int]) -> None:
    with in_racks(places) as (hubs, world):
        groups, kept = world.open(), [KeptAtHub() for _ in places]

        def work(group: Communicator) -> bytes:
            codes = coded(contribution(group.rank, 0), "int4")
            result = summed(group, codes, "int4", kept=kept[group.rank])
            kept[group.rank].end_step(applied=True)
            return result.tobytes()

        def forget(group: Communicator) -> int:
            assert group.hub_group is not None
            counted = group.hub_group._held_bytes
            group.hub_group.forget(kept[group.rank])
            return counted

        first, second = world.each(groups, work)[0], world.each(groups, work)[0]
        assert first != second
        cores = [core for hub in hubs for core in core_groups(hub)]
        held, number = [each.core._held_bytes for each in cores], kept[0].number
        assert world.each(groups, forget) == [max(held)] * len(places)
        assert world.each(groups, work)[0] == first  # under another number, and says what to forget
        assert kept[0].number != number
        assert [list(each._residuals) for each in cores] == [[kept[0].number]] * len(cores)
        assert [each.core._held_bytes for each in cores] == held
        world.each(groups, lambda group: group.close())
        wait_until(lambda: all(each.core._held_bytes == 0 for each in cores), "memory is held for nobody")


def test_sums_with_a_budget_with_residuals_of_ranks_and_short_ones_stay_among_ranks() -> None:
    with service(cores=1) as hub, ranks_of(hub, 2, hub_bytes_min=4 * GROUP_VALUES * 8) as world:

        def work(group: Communicator) -> None:
            assert not group.takes_coded(7)
            assert group.takes_coded(8)
            codes = coded(contribution(group.rank, 0, 8), "int4")
            own = np.zeros(4 * GROUP_VALUES, np.float32)
            summed(group, codes, "int4", before=Span.of(own), after=Span.of(own))
            short = coded(contribution(group.rank, 0, 7), "int4")
            summed(group, short, "int4")
            with pytest.raises(ArgumentError, match="kept is at a hub, and this sum is the ranks'"):
                summed(group, short, "int4", kept=KeptAtHub())
            result, parts = np.zeros_like(codes), parts_of(codes, 2, "int4")
            rules = CodedRules("int4")
            group.coded_all_reduce(parts_of(result, 2, "int4"), parts, rules, loss=LossRules(0.0)).wait()

        groups = world.open()
        world.each(groups, work)
        assert buffers_at(hub) == set()
        world.each(groups, lambda group: summed(group, coded(contribution(0, 0, 8), "int4"), "int4"))
        assert buffers_at(hub) == {CODECS["int4"].codec}


def test_a_hub_takes_no_memory_of_ranks_for_what_is_left() -> None:
    with service(cores=1) as hub, ranks_of(hub, 2, hub_bytes_min=1) as world:

        def work(group: Communicator) -> None:
            codes = coded(contribution(group.rank, 0, 8), "int4")
            own = np.zeros(8 * GROUP_VALUES, np.float32)
            with pytest.raises(ArgumentError, match="after or values is given; accepted over a hub: neither"):
                summed(group, codes, "int4", after=Span.of(own))
            summed(group, codes, "int4")

        world.each(world.open(), work)


def test_ranks_that_say_different_things_of_what_is_kept_are_found() -> None:
    with service(cores=1) as hub, ranks_of(hub, 2) as world:
        groups = world.open()

        def fails(group: Communicator) -> None:
            rules = {"kept": KeptAtHub()} if group.rank else {}
            with pytest.raises(CollectiveError):
                summed(group, coded(contribution(group.rank, 0), "int4"), "int4", **rules)

        world.each(groups, fails)


def test_what_a_hub_has_no_memory_to_keep_is_refused_by_name() -> None:
    with service(cores=1, job_memory_bytes=MIB) as hub, ranks_of(hub, 2) as world:

        def work(group: Communicator) -> None:
            codes = coded(contribution(group.rank, 0, 2 * KEY_GROUPS), "int4")
            summed(group, codes, "int4", kept=KeptAtHub())
            with pytest.raises(
                HubError, match="with what its code leaves needs .* bytes at a core of the hub"
            ):
                summed(group, codes, "int4", kept=KeptAtHub())
            summed(group, codes, "int4")

        world.each(world.open(), work)


def test_a_core_keeps_rows_to_its_last_byte_and_ranks_make_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of three rows two have room; once the first is let go, the third has it, before the hub hears of its sum."""
    numel = 2 * KEY_GROUPS * GROUP_VALUES
    row = 8 * numel + 1024
    needed = 3 * 2 * KEY_GROUPS * CODECS["int4"].group_bytes
    with service(cores=1, job_memory_bytes=2 * row + needed) as hub, ranks_of(hub, 2) as world:
        groups, kept = world.open(), [[KeptAtHub() for _ in range(3)] for _ in range(2)]

        def keep(group: Communicator, index: int) -> bool:
            assert group.hub_group is not None
            return group.hub_group.keep(kept[group.rank][index], "int4", 2 * KEY_GROUPS, scattered=False)

        def add(group: Communicator, *rows: int) -> list[bytes]:
            codes = coded(contribution(group.rank, 0, 2 * KEY_GROUPS), "int4")
            return [summed(group, codes, "int4", kept=kept[group.rank][index]).tobytes() for index in rows]

        def forget(group: Communicator) -> None:
            assert group.hub_group is not None
            group.hub_group.forget(kept[group.rank][0])

        for _ in range(2):
            for index in range(3):
                assert world.each(groups, lambda group, at=index: keep(group, at)) == [index < 2] * 2
        said = [each.getMessage() for each in caplog.records if "has no room" in each.getMessage()]
        figures = f"needs {3 * row + needed} bytes at a core of the hub, {3 * row} of them for what it keeps"
        assert len(said) == 1
        assert said[0].startswith("rank 0, group")
        assert f"{figures}, and it has {2 * row + needed} for this job" in said[0]
        first, second = world.each(groups, lambda group: add(group, 0, 1))[0]
        assert first == second
        (core,) = core_groups(hub)
        assert core.core._held_bytes == 2 * row
        world.each(groups, forget)
        assert world.each(groups, lambda group: keep(group, 2)) == [True] * 2
        assert world.each(groups, lambda group: add(group, 2))[0] == [first]
        assert list(core._residuals) == [kept[0][1].number, kept[0][2].number]


def test_a_sum_that_no_core_has_memory_for_is_made_by_ranks(caplog: pytest.LogCaptureFixture) -> None:
    with (
        service(cores=1, job_memory_bytes=MIB) as hub,
        ranks_of(hub, 2) as over_hub,
        World(2) as direct,
    ):

        def work(group: Communicator) -> list[bytes]:
            values = [contribution(group.rank, 0, count) for count in (16 * KEY_GROUPS, 8)]
            return [summed(group, coded(each, "int8"), "int8").tobytes() for each in values]

        found = over_hub.each(over_hub.open(), work)
        assert found == direct.each(direct.open(), work)
        (job,) = hub._jobs.values()
        small = 8 * CODECS["int8"].group_bytes
        assert {buffer.nbytes for core in job.cores for _, _, buffer, _ in core._plans} == {small}
        large = 16 * KEY_GROUPS * CODECS["int8"].group_bytes
        needed = f"coded_all_reduce of {large} bytes needs {3 * large} bytes at a core of the hub, 0 of them"
        assert caplog.text.count(needed) == 1


@pytest.mark.parametrize("missing", [0, 1])
def test_over_racks_a_core_has_room_to_its_last_byte(missing: int) -> None:
    """For its three workers' contributions, the other rack's sum, the result, and what codes leave."""
    groups = 2 * KEY_GROUPS  # a key for each core
    needed = 5 * KEY_GROUPS * CODECS["int4"].group_bytes + 8 * KEY_GROUPS * GROUP_VALUES + 1024
    with in_racks(RACKS, job_memory_bytes=2 * (needed - missing)) as (hubs, world):

        def work(group: Communicator) -> bool:
            assert group.hub_group is not None
            kept = KeptAtHub()
            has_room = group.hub_group.keep(kept, "int4", groups, scattered=False)
            if has_room:
                codes = coded(contribution(group.rank, 0, groups), "int4")
                summed(group, codes, "int4", kept=kept)
            return has_room

        assert world.each(world.open(), work) == [not missing] * len(RACKS)
        held = {core.core._held_bytes for hub in hubs for core in core_groups(hub)}
        assert held == {0 if missing else 8 * KEY_GROUPS * GROUP_VALUES + 1024}


def test_memory_that_cannot_be_cut_into_keys_is_refused() -> None:
    with service(cores=1) as hub, ranks_of(hub, 2) as world:

        def work(group: Communicator) -> None:
            codes = coded(contribution(group.rank, 0, 8), "int4")
            one, other = parts_of(codes, 2, "int4")
            outputs = parts_of(np.zeros_like(codes), 2, "int4")
            with pytest.raises(ArgumentError, match="inputs lie apart"):
                group.coded_all_reduce(outputs, [other, one], CodedRules("int4"))
            with pytest.raises(ArgumentError, match="outputs have"):
                group.coded_all_reduce(outputs[:1], [one, other], CodedRules("int4"))
            with pytest.raises(ArgumentError, match="overlap"):
                group.coded_all_reduce([one, other], [one, other], CodedRules("int4"))

        world.each(world.open(), work)


@pytest.mark.parametrize("groups", [1, 3, KEY_GROUPS + 1])
def test_fewer_keys_than_cores_and_several_sums_at_once(groups: int) -> None:
    """Three cores: some have no key of a sum. Each row of sums has what its own codes left."""
    rows, steps, size = 3, 3, 2
    with service(cores=3) as hub, ranks_of(hub, size) as world:

        def work(group: Communicator) -> list[bytes]:
            kept, found = [KeptAtHub() for _ in range(rows)], []
            for step in range(steps):
                codes = [
                    coded(contribution(group.rank, 10 * row + step, groups), "int2") for row in range(rows)
                ]
                results = [np.zeros_like(each) for each in codes]
                works = [
                    group.coded_all_reduce(
                        parts_of(result, size, "int2"),
                        parts_of(each, size, "int2"),
                        CodedRules("int2", kept=row),
                    )
                    for result, each, row in zip(results, codes, kept, strict=True)
                ]
                for one in works:
                    one.wait()
                for row in kept:
                    row.end_step(applied=True)
                found += [result.tobytes() for result in results]
            return found

        found = world.each(world.open(), work)
    assert found[0] == found[1]
    for row in range(rows):
        left = np.zeros(groups * GROUP_VALUES, np.float32)
        for step in range(steps):
            total = left + sum(
                decoded(coded(contribution(rank, 10 * row + step, groups), "int2"), "int2")
                for rank in range(size)
            )
            code = coded(total, "int2")
            left = total - decoded(code, "int2")
            assert found[0][step * rows + row] == code.tobytes(), (row, step)


@pytest.mark.parametrize(
    "change",
    [{"nbytes": 33}, {"coded": CodedTerms(CODECS["int4"].codec, kept=7, before=1)}],
    ids=["no whole groups", "nothing is kept under the number"],
)
def test_a_core_refuses_what_it_cannot_serve(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks say no such thing; these do, and the group fails on all of them."""
    as_coded = HubPlanner.as_coded

    def wrong(self: HubPlanner, plan: HubPlan, terms: CodedTerms) -> HubPlan:
        made = as_coded(self, plan, terms)
        made.announcement = made.announcement._replace(**change)
        return made

    monkeypatch.setattr(HubPlanner, "as_coded", wrong)
    with service(cores=1) as hub, ranks_of(hub, 2) as world:

        def fails(group: Communicator) -> None:
            with pytest.raises(CollectiveError, match="the hub's core"):
                summed(group, coded(contribution(group.rank, 0, 8), "int4"), "int4")

        world.each(world.open(), fails)
        (job,) = hub._jobs.values()
        wait_until(lambda: all(core._held_bytes == 0 for core in job.cores), "memory is held for nobody")
