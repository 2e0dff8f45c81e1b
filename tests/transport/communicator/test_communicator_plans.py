"""Which algorithm a call takes and who decides, and that a call of known shape is not planned again."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from dlcp.transport.job import Job
from dlcp.transport.schedule.choose import choose
from dlcp.transport.schedule.estimate import Network
from dlcp.transport.settings import Settings
from dlcp.transport.store import MemoryStore
from tests.support.hosts import on_hosts
from tests.support.ranks import PATIENCE_S, World

# Whether three ranks share this machine's processors.
CROWDED = len(os.sched_getaffinity(0)) < 3
ONE_HOST = Network((0, 0, 0))


def algorithms(groups: list[Communicator]) -> dict[str, str]:
    return {plan.operation: plan.algorithm for plan in groups[0]._plans.values()}


def run(world: World, groups: list[Communicator]) -> None:
    def one(group: Communicator) -> None:
        data = np.ones(10, np.float32)
        group.all_reduce(Span.of(data), DataType.f32).wait(PATIENCE_S)
        group.broadcast(Span.of(data)).wait(PATIENCE_S)
        group.barrier().wait(PATIENCE_S)

    world.each(groups, one)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            None,
            {
                "all_reduce": choose("all_reduce", 3, 40, network=lambda: ONE_HOST, crowded=lambda: CROWDED),
                "broadcast": choose("broadcast", 3, 40),
            },
        ),
        ("ring", {"all_reduce": "ring", "broadcast": "ring"}),
        ("one_shot", {"all_reduce": "one_shot", "broadcast": choose("broadcast", 3, 40)}),
        ("all_reduce=tree,broadcast=ring", {"all_reduce": "tree", "broadcast": "ring"}),
    ],
)
def test_setting_chooses_where_a_call_does_not(setting: str | None, expected: dict[str, str]) -> None:
    with World(3, algorithm=setting) as world:
        groups = world.open()
        run(world, groups)
        found = algorithms(groups)
        assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("setting", ["star", "all_reduce=star", "all_sing=ring"])
def test_setting_that_names_no_algorithm_is_refused(setting: str) -> None:
    with World(1, algorithm=setting) as world, pytest.raises(errors.ArgumentError, match="star|all_sing"):
        world.jobs[0].open_communicator("all")


def test_call_of_known_shape_is_not_planned_again() -> None:
    with World(2) as world:
        groups = world.open()
        run(world, groups)
        planned = dict(groups[0]._plans)
        run(world, groups)
        assert groups[0]._plans == planned

        def other(group: Communicator) -> None:
            data = np.ones(10, np.float32)
            group.all_reduce(Span.of(data), DataType.f32, Reduction.MAX).wait(PATIENCE_S)

        world.each(groups, other)
        assert len(groups[0]._plans) == len(planned) + 1


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp.transport.membership._PLANS_MAX", 3)
    with World(2) as world:
        groups = world.open()

        def one(group: Communicator) -> int:
            for count in range(1, 20):
                group.broadcast(Span.of(np.ones(count, np.uint8))).wait(PATIENCE_S)
            return len(group._plans)

        assert max(world.each(groups, one)) <= 3


@pytest.mark.parametrize(
    ("given", "job", "setting", "expected"),
    [(None, 7.0, None, 7.0), (3.0, 7.0, None, 3.0), (3.0, 7.0, 5.0, 5.0)],
)
def test_timeout_is_the_settings_or_the_groups_or_the_jobs(
    given: float | None, job: float, setting: float | None, expected: float
) -> None:
    with Job(MemoryStore(), 0, 1, settings=Settings(timeout_s=setting), timeout_s=job) as one:
        assert one.open_communicator("all", timeout_s=given).timeout_s == expected


def test_peers_are_connected_when_they_are_first_needed() -> None:
    with World(4, algorithm="ring") as world:
        groups = world.open()
        assert [job.endpoint.peers for job in world.jobs] == [()] * 4
        run(world, groups)
        for rank, job in enumerate(world.jobs):
            assert set(job.endpoint.peers) <= {(rank - 1) % 4, (rank + 1) % 4}


def place(
    world: World, hosts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, ranks: Sequence[int]
) -> None:
    """Some ranks believe that all of the job are on these hosts; in truth they are in one process."""
    for rank in ranks:
        monkeypatch.setattr(world.jobs[rank], "hosts_of", lambda *_: hosts)


def large_sum(group: Communicator) -> float:
    data = np.full(100_000, group.rank + 1, np.float32)
    group.all_reduce(Span.of(data), DataType.f32).wait(PATIENCE_S)
    assert (data == data[0]).all()
    return float(data[0])


def test_ranks_of_several_hosts_add_by_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    with World(4) as world:
        assert world.jobs[0].hosts_of([2, 0, 1]) == (0, 0, 0)
        assert [job.place_on_host(rank) for rank, job in enumerate(world.jobs)] == [0, 1, 2, 3]
        place(world, (0, 1, 1, 0), monkeypatch, range(4))
        groups = world.open()
        assert world.each(groups, large_sum) == [10.0] * 4
        assert algorithms(groups) == {"all_reduce": "hierarchical"}


def test_ranks_of_each_host_are_numbered_from_zero() -> None:
    with World(5) as world, on_hosts((0, 1, 1, 0, 1)):
        assert [job.place_on_host(rank) for rank, job in enumerate(world.jobs)] == [0, 0, 1, 1, 2]


def test_ranks_that_see_hosts_differently_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with World(4) as world:
        place(world, (0, 0, 1, 1), monkeypatch, range(3))
        place(world, (0, 1, 0, 1), monkeypatch, [3])

        def one(group: Communicator) -> errors.DlcpError:
            with pytest.raises(errors.DlcpError) as raised:
                large_sum(group)
            return raised.value

        assert any(isinstance(error, errors.MismatchError) for error in world.each(world.open(), one))


def test_the_log_says_what_was_chosen_and_why(caplog: pytest.LogCaptureFixture) -> None:
    """Once per collective and algorithm, on the group's first rank."""
    caplog.set_level("INFO", "dlcp")
    with World(3) as world:
        groups = world.open()
        for _ in range(2):
            run(world, groups)
    said = [line for line in caplog.messages if " goes by " in line]
    assert said == sorted(set(said), key=said.index)
    assert all(line.startswith("rank 0, group ") for line in said)
    assert any("all_reduce" in line and "3 ranks on 1 host" in line for line in said), said
