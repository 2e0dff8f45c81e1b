"""Schedules over a hub are right for any workers, racks, cores and keys, and move the bytes that they say."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from dlcp.errors import ArgumentError
from dlcp.transport.schedule import Combine, RankSchedule, Send
from dlcp.transport.schedule.checker import ScheduleError, check, cost
from dlcp.transport.schedule.hub import (
    KEY_BYTES,
    KEYS_MAX,
    Hub,
    all_reduce,
    coded_all_reduce,
    coded_reduce_scatter,
    hub_of,
    key_count,
    layouts,
    reduce_scatter,
)
from dlcp.transport.schedule.interpreter import run


def hubs() -> list[Hub]:
    """All of up to 4 workers on up to 2 racks, with up to 3 cores and 4 keys; and some that are larger."""
    found = []
    for workers, cores, keys in itertools.product(range(1, 5), range(1, 4), range(1, 5)):
        found.append(hub_of((0,) * workers, cores, (64,) * keys))
        if workers > 1:
            found.append(hub_of((0,) * (workers - 1) + (1,), cores, tuple(64 * key for key in range(keys))))
    draw = random.Random(7)
    for _ in range(30):
        racks = draw.randint(1, 4)
        places = list(range(racks)) + [draw.randrange(racks) for _ in range(draw.randint(0, 12))]
        draw.shuffle(places)
        sizes = tuple(draw.randrange(0, 999) for _ in range(draw.randint(1, 20)))
        found.append(hub_of(tuple(places), draw.randint(1, 5), sizes))
    return found


def schedules_of(hub: Hub) -> list[RankSchedule]:
    return [all_reduce(rank, hub) for rank in range(hub.world_size)]


def test_every_hub_is_right() -> None:
    for hub in hubs():
        check(schedules_of(hub), "all_reduce", hub=hub)


def test_every_hub_is_right_for_coded_values() -> None:
    for hub in hubs():
        check([coded_all_reduce(rank, hub) for rank in range(hub.world_size)], "coded_all_reduce", hub=hub)


def test_the_only_contribution_of_a_rack_goes_to_the_home_as_it_is() -> None:
    """Coded anew it would lose something again."""
    hub = hub_of((0, 0, 1), 1, (64, 64))
    cores = [coded_all_reduce(rank, hub).operations for rank in (3, 4)]
    final = [[each.final for each in core if isinstance(each, Combine)] for core in cores]
    assert final == [[True, False], [True]]


def test_a_core_that_sends_a_code_before_the_sum_is_complete_is_found() -> None:
    hub = hub_of((0, 0, 0), 1, (64,))
    schedules = [coded_all_reduce(rank, hub) for rank in range(hub.world_size)]
    core = schedules[3]
    receives, combine, sends = core.operations[:3], core.operations[3], core.operations[4:]
    assert isinstance(combine, Combine)
    short = combine._replace(operands=combine.operands[:2])
    schedules[3] = replace(core, operations=(*receives, short, *sends))
    with pytest.raises(ScheduleError, match="is final but lacks the contribution of rank 2"):
        check(schedules, "coded_all_reduce", hub=hub)


def scattered(hub: Hub, keys: int) -> Hub:
    """With so many keys for each worker."""
    sizes = tuple(64 * (1 + key % 3) for key in range(hub.workers * keys))
    wanted_by = tuple(worker for worker in range(hub.workers) for _ in range(keys))
    return hub_of(hub.racks, hub.cores, sizes, wanted_by)


def test_every_hub_is_right_for_a_reduce_scatter() -> None:
    for each, keys in itertools.product(hubs(), (1, 3)):
        hub = scattered(each, keys)
        schedules = [reduce_scatter(rank, hub) for rank in range(hub.world_size)]
        check(schedules, "reduce_scatter", hub=hub)
        found = cost(schedules, "reduce_scatter", hub=hub)
        assert found.steps == (2 if hub.rack_count == 1 else 3)
        assert found.scratch_ratio == 0


def test_every_hub_is_right_for_a_coded_reduce_scatter() -> None:
    for each, keys in itertools.product(hubs(), (1, 3)):
        hub = scattered(each, keys)
        schedules = [coded_reduce_scatter(rank, hub) for rank in range(hub.world_size)]
        check(schedules, "coded_reduce_scatter", hub=hub)
        assert cost(schedules, "coded_reduce_scatter", hub=hub).steps == (2 if hub.rack_count == 1 else 3)


def test_a_sum_that_goes_to_another_worker_is_found() -> None:
    hub = scattered(hub_of((0, 0), 1, (64,)), 1)
    right = [reduce_scatter(rank, hub) for rank in range(hub.world_size)]
    swapped = hub._replace(wanted_by=hub.wanted_by[::-1])
    check(right, "reduce_scatter", hub=hub)
    with pytest.raises(ScheduleError):
        check(right, "reduce_scatter", hub=swapped)


def test_a_contribution_left_out_is_found() -> None:
    hub = hub_of((0, 0, 1), 1, (64, 64))
    schedules = schedules_of(hub)
    core = schedules[3]
    schedules[3] = replace(core, operations=core.operations[1:])
    with pytest.raises(ScheduleError):
        check(schedules, "all_reduce", hub=hub)


@pytest.mark.parametrize("hub", hubs()[-8:])
def test_all_ranks_get_the_sum_in_any_order_of_arrival(hub: Hub) -> None:
    schedules = schedules_of(hub)
    draw = np.random.default_rng(3)
    sizes = [int(draw.integers(0, 9)) for _ in hub.owners]
    given = [[draw.standard_normal(size).astype(np.float32) for size in sizes] for _ in range(hub.workers)]
    ends = []
    for seed in range(2):
        outputs = [
            [
                np.full(sizes[role.part], np.nan, np.float32)
                if role.holds is None
                else given[rank][role.part].copy()
                for role in layout.outputs
            ]
            for rank, layout in enumerate(layouts(hub))
        ]
        run(schedules, [[] for _ in schedules], outputs, seed=seed)
        for mine in outputs[: hub.workers]:
            for key in range(len(sizes)):
                np.testing.assert_allclose(mine[key], sum(each[key] for each in given), rtol=1e-4, atol=1e-4)
                np.testing.assert_array_equal(mine[key], outputs[0][key])
        ends.append([key.tobytes() for key in outputs[0]])
    assert ends[0] == ends[1], "bits depend on the order of arrival"


@pytest.mark.parametrize("hub", [hub for hub in hubs() if hub.rack_count == 1 and hub.workers > 1][-12:])
def test_without_some_workers_all_ranks_get_the_sum_of_the_others(hub: Hub) -> None:
    """Only cores know who is absent."""
    draw = random.Random(hub.workers)
    sizes = [draw.randint(0, 9) for _ in hub.owners]
    for seed in range(3):
        absent = tuple(sorted(draw.sample(range(hub.workers), draw.randint(1, hub.workers - 1))))
        there = [worker for worker in range(hub.workers) if worker not in absent]
        schedules = (
            schedules_of(hub)[: hub.workers] + schedules_of(hub._replace(absent=absent))[hub.workers :]
        )
        outputs = [
            [
                np.full(sizes[role.part], 0 if role.holds is None else 2.0**rank, np.float32)
                for role in layout.outputs
            ]
            for rank, layout in enumerate(layouts(hub))
        ]
        run(schedules, [[] for _ in schedules], outputs, seed=seed)
        for mine in outputs[: hub.workers]:
            for key in mine:
                assert (key == sum(2.0**worker for worker in there)).all()


def test_a_worker_sends_the_tensor_once_and_a_core_its_share_to_all() -> None:
    hub = hub_of((0,) * 8, 4, (KEY_BYTES,) * 64)
    found = cost(schedules_of(hub), "all_reduce", hub=hub)
    assert (found.sent_ratio, found.received_ratio) == (8 / 4, 8 / 4)  # of the cores, the busiest
    assert found.steps == 2
    assert found.scratch_ratio == 0
    worker = all_reduce(0, hub)
    assert sum(isinstance(operation, Send) for operation in worker.operations) == 64


def test_workers_of_a_rack_send_to_different_cores_at_a_time() -> None:
    hub = hub_of((0, 1) * 4, 4, (KEY_BYTES,) * 32)
    for rack in range(2):
        sent = [
            [operation.peer for operation in all_reduce(rank, hub).operations if isinstance(operation, Send)]
            for rank in range(hub.workers)
            if hub.racks[rank] == rack
        ]
        assert all(len(set(peers)) == 4 for peers in zip(*sent, strict=True))


@pytest.mark.parametrize(("racks", "cores"), [(1, 2), (2, 1), (3, 2), (4, 3)])
def test_a_racks_up_link_carries_the_tensor_twice_less_its_own_part(racks: int, cores: int) -> None:
    """2 (r - 1) / r of it, however many workers there are: counted over the schedule's sends."""
    sizes = (KEY_BYTES,) * (racks * cores * 4)
    for per_rack in (1, 5):
        hub = hub_of(tuple(rank // per_rack for rank in range(racks * per_rack)), cores, sizes)
        places = [*hub.racks, *(hub.place_of(rank)[0] for rank in range(hub.workers, hub.world_size))]
        crossing = [0] * racks
        for rank in range(hub.world_size):
            for operation in all_reduce(rank, hub).operations:
                if isinstance(operation, Send) and places[operation.peer] != places[rank]:
                    crossing[places[rank]] += KEY_BYTES
        assert crossing == [2 * (racks - 1) * sum(sizes) // racks] * racks


@pytest.mark.parametrize("nbytes", [1, KEY_BYTES, 25 << 20, 25 << 20 | 4, 1 << 30])
def test_keys_are_short_and_cores_share_them(nbytes: int) -> None:
    for cores in (1, 4, 7):
        keys = key_count(nbytes, cores)
        size = -(-nbytes // keys)
        assert keys <= cores * KEYS_MAX
        assert size <= KEY_BYTES or keys == cores * KEYS_MAX
        owners = hub_of((0, 0), cores, (size,) * keys).owners
        loads = [owners.count(core) for core in range(cores)]
        assert max(loads) - min(loads) <= 1


@pytest.mark.parametrize(
    ("racks", "cores", "said"),
    [((), 1, "racks is"), ((1, 1), 1, "without gaps"), ((0, 0), 0, "cores is 0; accepted: at least 1")],
)
def test_what_is_no_hub_is_refused(racks: tuple[int, ...], cores: int, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        hub_of(racks, cores, (64,))
