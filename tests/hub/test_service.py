"""A hub and jobs on loopback: sums, several jobs at once, and how everything that can go wrong is said."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlcp.errors import (
    ArgumentError,
    CollectiveAbortedError,
    CollectiveError,
    DlcpError,
    HubError,
    JobError,
    MismatchError,
    PeerFailedError,
    SettingsError,
)
from dlcp.hub import core_group
from dlcp.hub import group as served_group
from dlcp.hub import job as served_job
from dlcp.hub import service as served
from dlcp.hub.core_group import CoreGroup
from dlcp.hub.job import ServedJob
from dlcp.hub.service import HubService
from dlcp.transport import job as rank_job
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from dlcp.transport.hub.control import HubControl
from dlcp.transport.hub.group import HubGroup
from dlcp.transport.hub.plan import HubPlan
from dlcp.transport.hub.rule import OptimizerRule
from dlcp.transport.job import Job
from dlcp.transport.rank_card import RankCard
from dlcp.transport.schedule.hub import KEY_BYTES
from dlcp.transport.settings import Settings
from dlcp.transport.store import FileStore
from dlcp.transport.work import Work
from tests.support.children import Child
from tests.support.ranks import PATIENCE_S, World

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
MIB = 1 << 20


@contextlib.contextmanager
def service(cores: int = 2, **changes: Any) -> Iterator[HubService]:
    how = {"memory_bytes": 256 * MIB, "job_memory_bytes": 64 * MIB} | changes
    of_cores = ("inject_loss_ratio", "shm", "peer_timeout_s", "max_messages_per_peer")
    settings = Settings(**{name: how.pop(name) for name in of_cores if name in how})
    keys = {"job": KEY, "second": OTHER_KEY}
    with HubService("127.0.0.1", 0, keys, cores=cores, settings=settings, **how) as hub:
        yield hub


@pytest.fixture(scope="module")
def hub() -> Iterator[HubService]:
    """For tests that leave it whole."""
    with service() as opened:
        yield opened


def ranks_of(service: HubService, size: int, **settings: Any) -> World:
    return World(size, **({"key": KEY, "hub": service.address, "hub_bytes_min": 1} | settings))


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.005)


def reduced(
    group: Communicator, array: np.ndarray[Any, Any], dtype: DataType, op: Reduction, **how: Any
) -> bytes:
    group.all_reduce(Span.of(array), dtype, op, **how).wait()
    return array.tobytes()


@contextlib.contextmanager
def joined(
    hub: HubService,
    name: str,
    incarnation: int,
    job_key: bytes = KEY,
    rank: int = 0,
    change_key: Callable[[str], Any] = lambda digits: digits,
    **card: str,
) -> Iterator[None]:
    """A connection of a rank of a job of its own."""
    with socket.create_connection(("127.0.0.1", hub.port), PATIENCE_S) as stream:
        control = HubControl.connect(stream, {"job": KEY, "second": OTHER_KEY}[name], name)
        request = {"do": "join", "rank": rank, "size": 2, "job": 1, "encrypt": False, "first_rank": 2}
        request |= {"key": change_key(control.cover(job_key).hex())}
        card = asdict(RankCard.of_this_process(0, "127.0.0.1:9", None)) | card
        control.ask(request | {"incarnation": f"{incarnation:x}", "card": card})
        yield


# --- sums ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3])
def test_bits_are_those_of_a_ring_for_whole_numbers(hub: HubService, size: int) -> None:
    with ranks_of(hub, size) as world:
        groups = world.open()

        def work(group: Communicator) -> None:
            for numel in (1, 17, KEY_BYTES // 4 * 5 + 3):
                for dtype, kind in ((np.float32, DataType.f32), (np.int64, DataType.i64)):
                    for op in (Reduction.SUM, Reduction.MAX, Reduction.AVG):
                        # An average of 2 or 3 whole numbers that it divides.
                        given = (6 * (np.arange(numel) % 91 + group.rank)).astype(dtype)
                        own, ring = given.copy(), given.copy()
                        if op is Reduction.AVG and kind is DataType.i64:
                            continue
                        found = reduced(group, own, kind, op)
                        assert found == reduced(group, ring, kind, op, algorithm="ring"), (numel, kind, op)

        world.each(groups, work)


def test_all_ranks_have_the_same_bits_of_any_numbers(hub: HubService) -> None:
    with ranks_of(hub, 3) as world:

        def work(group: Communicator) -> list[bytes]:
            draw = np.random.default_rng(group.rank)
            arrays = [draw.standard_normal(100_001).astype(np.float32) for _ in range(6)]
            works = [group.all_reduce(Span.of(array), DataType.f32) for array in arrays]  # all at once
            for one in works:
                one.wait()
            return [array.tobytes() for array in arrays]

        found = world.each(world.open(), work)
        assert found[0] == found[1] == found[2]
        assert len(set(found[0])) == 6


def test_a_subgroup_has_a_hub_too(hub: HubService) -> None:
    with ranks_of(hub, 3) as world:
        for members in ([0, 1, 2], [2, 1]):
            groups = world.open(members)
            arrays = [np.full(50_000, 1 + group.job.rank, np.float32) for group in groups]
            world.each(
                groups,
                lambda group, arrays=arrays: reduced(group, arrays[group.rank], DataType.f32, Reduction.SUM),
            )
            assert all((array == sum(1 + rank for rank in members)).all() for array in arrays)


def test_racks_have_a_hub_each() -> None:
    """Two racks of two ranks; a third hub shares the keys of one of them."""
    with service(cores=1) as first, service(cores=3) as second, service(cores=1) as third:
        racks = (f"{first.address},{third.address}", second.address)
        with World(4, key=KEY, hub_bytes_min=1, per_rank=lambda rank: {"hub": racks[rank % 2]}) as world:

            def work(group: Communicator) -> bytes:
                array = (np.arange(300_001) % 1009 + group.rank).astype(np.float32)
                return reduced(group, array, DataType.f32, Reduction.SUM)

            found = world.each(world.open(), work)
            assert set(found) == {(4.0 * (np.arange(300_001) % 1009) + 6).astype(np.float32).tobytes()}


def test_a_hub_of_two_racks_is_named() -> None:
    with service(cores=1) as first, service(cores=1) as second:
        racks = (f"{first.address},{second.address}", f"{second.address},{first.address}")
        with World(2, key=KEY, per_rank=lambda rank: {"hub": racks[rank]}) as world:

            def refusal(rank: int) -> None:
                with pytest.raises(
                    HubError, match=f"{first.address} is named with other hubs, or in another"
                ):
                    world.jobs[rank].open_communicator("all")

            world.run(refusal)


LOSSY = {"inject_loss_ratio": 0.03, "shm": False}


def test_loss_changes_no_bit() -> None:
    """Packets get lost on all ways, between hubs of two racks too."""
    with service(cores=1, **LOSSY) as first, service(cores=1, **LOSSY) as second:
        racks = (first.address, second.address)
        with World(
            3, key=KEY, hub_bytes_min=1, **LOSSY, per_rank=lambda rank: {"hub": racks[rank // 2]}
        ) as world:
            groups = world.open()

            def work(group: Communicator, **how: Any) -> bytes:
                draw = np.random.default_rng(group.rank)
                array = draw.integers(-999, 999, 70_001).astype(np.float32)
                return reduced(group, array, DataType.f32, Reduction.SUM, **how)

            found = world.each(groups, work)
            assert len(set(found)) == 1
            assert found == world.each(groups, lambda group: work(group, algorithm="ring"))


def test_weights_at_the_hubs_are_stepped_once_per_step() -> None:
    """Two racks, packets lost: only a key's home steps it. All values are multiples of a half or so, so exact."""
    rate, momentum, steps, numel = 0.5, 0.5, 5, 40_003
    with service(cores=2, **LOSSY) as first, service(cores=2, **LOSSY) as second:
        racks = (first.address, second.address)
        with World(
            4, key=KEY, hub_bytes_min=1, **LOSSY, per_rank=lambda rank: {"hub": racks[rank % 2]}
        ) as world:

            def work(group: Communicator) -> bytes:
                hub_group = group.hub_group
                assert hub_group is not None
                number, rule = hub_group.take_weights(1), OptimizerRule.sgd(rate, momentum=momentum)
                array = (np.arange(numel) % 17).astype(np.float32)
                hub_group.load(number, Span.of(array), rule, {}).wait()
                weights, velocity = array.astype(np.float64), np.zeros(numel)
                for step in range(1, steps + 1):
                    gradient = (np.arange(numel) % (5 + step)).astype(np.float64)
                    array[:] = gradient + 2 * group.rank - 3  # the mean over 4 ranks is the gradient
                    hub_group.step(number, Span.of(array), rule, step, average=True, how={}).wait()
                    velocity = momentum * velocity + gradient
                    weights -= rate * velocity
                    np.testing.assert_array_equal(array, weights)
                return array.tobytes()

            assert len(set(world.each(world.open(), work))) == 1


def test_a_step_under_way_keeps_the_state_that_a_load_replaces() -> None:
    """Native code has its addresses. Rank 1 makes the step after both have loaded."""
    with service(cores=1) as hub, ranks_of(hub, 2) as world:
        groups = world.open()
        rule, (first,) = OptimizerRule.sgd(0.5, momentum=0.5), {group.reserve(3) for group in groups}
        zeros = [[np.zeros(1000, np.float32) for _ in range(3)] for _ in groups]

        def ends(group: Communicator) -> HubGroup:
            assert group.hub_group is not None
            return group.hub_group

        def load(group: Communicator, part: int) -> None:
            data = Span.of(zeros[group.rank][part])
            ends(group).load(0, data, rule, {"sequence": first + part}, part=part).wait()

        def step(group: Communicator) -> Work:
            data = Span.of(zeros[group.rank][2])
            return ends(group).step(0, data, rule, 2, average=False, how={"sequence": first + 2})

        world.each(groups, lambda group: load(group, 0))
        core_group = next(iter(next(iter(hub._jobs.values())).groups.values()))[1].cores[0]
        # A rank's load may be over before the core's is, whose operation would be taken for the step.
        wait_until(lambda: core_group._under_way == 0, "the first load is not over")
        begun = step(groups[0])
        wait_until(lambda: core_group._under_way == 1, "the step has not begun")
        state = weakref.ref(core_group._weights[0].states[0])
        world.each(groups, lambda group: load(group, 1))
        wait_until(lambda: core_group._under_way == 1, "the load is not over")
        assert state() is not None
        step(groups[1]).wait()
        begun.wait()


def test_steps_of_weights_that_are_not_there_are_refused(hub: HubService) -> None:
    with ranks_of(hub, 2) as world:

        def work(group: Communicator) -> None:
            assert group.hub_group is not None
            with pytest.raises(ArgumentError, match="weights 7 are not loaded"):
                group.hub_group.step(
                    7, Span.of(np.ones(9, np.float32)), OptimizerRule.sgd(0.1), 1, average=True, how={}
                )

        world.each(world.open(), work)


def test_collectives_wait_for_memory() -> None:
    """At a core two ranks' contributions to one of these buffers fit, to two they do not."""
    with service(job_memory_bytes=3 * MIB) as hub, ranks_of(hub, 2) as world:

        def work(group: Communicator) -> None:
            arrays = [np.full(MIB // 4, number, np.float32) for number in range(8)]
            works = [group.all_reduce(Span.of(array), DataType.f32) for array in arrays]
            for number, one in enumerate(works):
                one.wait()
                assert (arrays[number] == 2 * number).all()

        world.each(world.open(), work)


# --- jobs apart ---------------------------------------------------------------------------------------------


def test_two_jobs_at_once_do_not_mix_and_one_leaves_the_other() -> None:
    """They have the same group numbers, sizes and ranks; the second goes in the middle of the first's work."""
    with (
        service() as hub,
        ranks_of(hub, 2) as one,
        ranks_of(hub, 2, key=OTHER_KEY, hub_job="second") as other,
    ):

        def rounds(world: World, value: float, count: int) -> None:
            groups = world.open()

            def work(group: Communicator) -> None:
                for _ in range(count):
                    array = np.full(100_000, value, np.float32)
                    reduced(group, array, DataType.f32, Reduction.SUM)
                    assert (array == 2 * value).all()

            world.each(groups, work)

        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(rounds, one, 1.0, 60)
            second = pool.submit(rounds, other, 1000.0, 20)
            second.result(PATIENCE_S)
            assert sorted(hub.jobs) == ["job", "second"]
            other.run(lambda rank: other.jobs[rank].close())
            first.result(PATIENCE_S)
        wait_until(lambda: hub.jobs == ["job"], "the job that left is still there")
        rounds(one, 3.0, 3)


def test_a_job_whose_process_dies_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_job, "GRACE_S", 0.1)
    # Its cores wait for the dead for as long as a peer may be silent.
    with service(peer_timeout_s=1.0) as hub:
        child = Child(
            f"""
            from dlcp.transport.job import Job
            from dlcp.transport.store import MemoryStore
            from threading import Thread
            store = MemoryStore()
            def rank(number):
                job = Job(store, number, 2, key=bytes(32), hub="{hub.address}", hub_job="second")
                job.open_communicator("all")
                jobs.append(job)
            jobs = []
            threads = [Thread(target=rank, args=(number,)) for number in range(2)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            print("here", flush=True)
            input()
            """
        )
        try:
            assert child.line() == "here"
            assert "second" in hub.jobs
        finally:
            child.kill()
        wait_until(lambda: "second" not in hub.jobs, "the dead job is still there")


def test_groups_of_a_rank_that_is_gone_end_for_all_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its control connection broke, and nothing else. The others are told, and wait once and not for each core."""
    waits: list[float] = []

    def wait_over(group: CoreGroup, timeout_s: float, *, orderly: bool) -> None:
        waits.append(timeout_s)
        now_s[0] += timeout_s

    now_s = [0.0]
    monkeypatch.setattr(served_group, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(served_job, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(CoreGroup, "wait_over", wait_over)
    with service(cores=2) as hub, ranks_of(hub, 3) as world:
        groups = world.open()
        world.open()
        world.open([1, 2])  # so that the job stays
        world.jobs[0].hub_client._joined[hub.address].control._stream.shutdown(socket.SHUT_RDWR)

        def until_told(group: Communicator) -> None:
            while True:  # the hub hears of it a little later, and makes sums until then
                reduced(group, np.ones(1000, np.float32), DataType.f32, Reduction.SUM)

        def told(group: Communicator) -> None:
            with pytest.raises(CollectiveError, match="the hub's core"):
                until_told(group)

        world.each(groups, told)
        wait_until(lambda: len(waits) == 4, "groups are still open")
        assert sum(waits) == Settings().peer_timeout_s + served_job.GRACE_S


# --- refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"key": OTHER_KEY}, "its key of the job is another one"),
        ({"hub_job": "nobody's"}, 'it has no key for a job "nobody\'s"'),
        ({"hub": "127.0.0.1:1"}, "cannot be reached from rank 0: .* see that `dlcp hub` runs there"),
        ({"hub": "127.0.0.1"}, "hub is '127.0.0.1'; accepted: host:port"),
    ],
)
def test_what_a_hub_refuses_is_said_on_every_rank(
    hub: HubService, changes: dict[str, Any], said: str
) -> None:
    with ranks_of(hub, 2, **changes) as world:

        def refusal(rank: int) -> DlcpError:
            with pytest.raises(HubError, match=said) as caught:
                world.jobs[rank].open_communicator("all")
            return caught.value

        world.run(refusal)


@pytest.mark.parametrize("size", [1, 3])
def test_the_hubs_key_admits_a_job_whose_key_is_drawn_or_another(
    hub: HubService, tmp_path: Path, size: int
) -> None:
    (tmp_path / "hub.key").write_text(KEY.hex())
    for key in (None, bytes(range(1, 33))):
        with ranks_of(hub, size, key=key, hub_key_file=str(tmp_path / "hub.key")) as world:
            groups = world.open()

            def work(group: Communicator) -> None:
                given = np.full(KEY_BYTES, group.rank + 1, np.float32)
                reduced(group, given, DataType.f32, Reduction.SUM)
                assert (given == sum(range(size + 1))).all()

            world.each(groups, work)


def test_ranks_of_one_job_have_one_job_key(hub: HubService) -> None:
    with (
        joined(hub, "job", 5),
        pytest.raises(HubError, match="is here with another job key; give all"),
        joined(hub, "job", 5, bytes(32), rank=1),
    ):
        pass


@pytest.mark.parametrize(
    # Each in a start of its own: the hub hears a little later that a connection has ended.
    ("incarnation", "change_key"),
    list(
        enumerate(
            [lambda _: None, lambda _: "", lambda _: "nonsense", lambda key: key[2:], lambda key: key + "00"],
            60,
        )
    ),
)
def test_a_rank_without_a_proper_job_key_is_refused(
    hub: HubService, incarnation: int, change_key: Callable[[str], Any]
) -> None:
    refused = pytest.raises(HubError, match="its job key is none: accepted: 64 hexadecimal digits")
    with refused, joined(hub, "job", incarnation, change_key=change_key):
        pass
    with joined(hub, "job", incarnation):  # but for the key it may come
        pass


def test_a_job_that_nothing_admits_has_no_hub(hub: HubService) -> None:
    with ranks_of(hub, 2, key=None) as world:

        def refusal(rank: int) -> None:
            # Rank 0's own error, and what it leaves for the other.
            with pytest.raises(
                (SettingsError, HubError), match="nothing admits this job there; set hub_key_file"
            ):
                world.jobs[rank].open_communicator("all")

        world.run(refusal)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "rank 0 has a hub for 1 bytes and more, rank 1 has no hub; set hub"),
        ({"hub": "127.0.0.1:9", "hub_bytes_min": 2}, "rank 1 has a hub for 2 bytes and more; set hub"),
    ],
)
def test_ranks_that_use_a_hub_otherwise_are_named(
    hub: HubService, settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody begins another start here, which a rank that is refused would wait for.
    monkeypatch.setattr(rank_job, "STALE_S", 0.05)
    per_rank = ({"hub": hub.address, "hub_bytes_min": 1}, settings)
    with pytest.raises(JobError, match=said):
        World(2, key=KEY, per_rank=lambda rank: per_rank[rank]).close()


def test_a_second_rank_of_the_same_job_and_nonce_is_refused(hub: HubService) -> None:
    with ranks_of(hub, 2) as world:
        world.open()
        twin = world.jobs[0].hub_client.__class__(world.jobs[0])
        with pytest.raises(HubError, match="rank 0 of a job 'job' with this nonce is connected already"):
            twin.open([0, 1], 77, "twin", [hub.address] * 2)


def test_jobs_beyond_the_hubs_memory_are_refused() -> None:
    with service(memory_bytes=100 * MIB) as hub, ranks_of(hub, 2) as world:
        world.open()
        with (
            ranks_of(hub, 2, key=OTHER_KEY, hub_job="second") as other,
            pytest.raises(HubError, match="it has no memory left: 1 jobs have"),
        ):
            other.open()


def test_one_name_leaves_memory_to_the_others() -> None:
    with service(cores=1, memory_bytes=192 * MIB) as hub, contextlib.ExitStack() as stack:
        for incarnation in (1, 2):
            stack.enter_context(joined(hub, "job", incarnation))
        with pytest.raises(
            HubError, match="2 jobs have .* 2 of them named 'job', and the first job of each name"
        ):
            stack.enter_context(joined(hub, "job", 3))
        stack.enter_context(joined(hub, "second", 1))
        assert sorted(hub.jobs) == ["job", "job", "second"]


def test_a_job_that_died_gives_its_place_to_its_next_start() -> None:
    """Its groups are still open, for ranks that are left; another name does not get the place."""
    with service(memory_bytes=64 * MIB, peer_timeout_s=PATIENCE_S) as hub, ranks_of(hub, 2) as dead:
        dead.open()
        dead.jobs[0].hub_client._joined[hub.address].control._stream.shutdown(socket.SHUT_RDWR)
        (job,) = hub._jobs.values()
        wait_until(lambda: job.is_ending, "the connection is still there")
        with pytest.raises(HubError, match="it has no memory left"), joined(hub, "second", 1):
            pass
        with ranks_of(hub, 2) as world:
            world.open()
            assert hub.jobs == ["job"]
            assert job not in hub._jobs.values()


@pytest.mark.parametrize(
    ("workers", "numel", "count", "said"),
    [
        (2, 100_000, 103, "100 wait for memory already"),
        (1, 0, 101, "100 of its workers' wait for other workers"),
    ],
)
def test_announcements_take_bounded_memory(workers: int, numel: int, count: int, said: str) -> None:
    """Both workers announce sums of ever new sizes, of which two have room; or one of them does, alone."""
    with (
        service(cores=1, job_memory_bytes=2 * MIB, max_messages_per_peer=100) as hub,
        ranks_of(hub, 2) as world,
    ):
        ends = [group.hub_group for group in world.open()]
        ((_, group),) = next(iter(hub._jobs.values())).groups.values()
        core = group.cores[0].core
        for number, end in itertools.product(range(1, count + 1), ends[:workers]):
            assert end is not None
            data = Span.of(np.ones(numel + number, np.float32))
            plan = end._plan(None, "", end._calls.all_reduce, data[1], DataType.f32, Reduction.SUM, False)
            assert isinstance(plan, HubPlan)
            end._announce(plan, 1000 + number, 0)
            assert core._plans_bytes <= 2 * MIB // 8
        wait_until(lambda: group.failed, "it goes on announcing")
        assert said in str(group.cores[0].failure)


def test_a_job_opens_a_bounded_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_job, "_GROUPS_MAX", 1)
    with service() as hub, ranks_of(hub, 2) as world:
        world.open()
        with pytest.raises(HubError, match="job 'job' has 1 groups open here; accepted: no more"):
            world.open()


def test_strangers_cause_few_lines_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(served, "_NOTES_MAX", 3)
    with service() as hub:
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", hub.port), PATIENCE_S) as stranger:
                stranger.sendall(b"\0\0\0\2{}")
                assert not stranger.recv(1)
    assert caplog.text.count("a stranger says") == 3


def test_ranks_add_a_buffer_that_no_core_has_memory_for(caplog: pytest.LogCaptureFixture) -> None:
    with service(job_memory_bytes=MIB) as hub, ranks_of(hub, 2) as world:

        def work(group: Communicator) -> None:
            for numel in (MIB, 10_000, MIB):
                values = np.ones(numel, np.float32)
                reduced(group, values, DataType.f32, Reduction.SUM)
                assert (values == 2).all()

        world.each(world.open(), work)
        (job,) = hub._jobs.values()
        assert {buffer.nbytes for core in job.cores for _, _, buffer, _ in core._plans} == {40_000}
    # Of each core's keys, half of the buffer, two contributions.
    said = f"all_reduce of {4 * MIB} bytes needs {4 * MIB} bytes at a core of the hub, 0 of them"
    assert caplog.text.count(said) == 1


def test_memory_that_the_host_has_not_fails_the_group_and_no_later_one(
    hub: HubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(sizes: tuple[int, ...]) -> None:
        raise MemoryError(f"no room for {sum(sizes)} bytes")

    with ranks_of(hub, 2) as world:

        def work(group: Communicator) -> bytes:
            return reduced(group, np.ones(1000, np.float32), DataType.f32, Reduction.SUM)

        def fails(group: Communicator) -> None:
            with pytest.raises(CollectiveError, match="the hub's core"):
                work(group)

        monkeypatch.setattr(core_group, "Memory", none)
        world.each(world.open(), fails)
        monkeypatch.undo()
        assert set(world.each(world.open(), work)) == {np.full(1000, 2, np.float32).tobytes()}


def test_weights_that_a_core_refuses_leave_its_memory_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks ask for no more than the core has; these do not look."""
    monkeypatch.setattr(HubGroup, "_shortage", lambda *_: None)
    with service(job_memory_bytes=2 * MIB) as hub, ranks_of(hub, 2) as world:
        groups = world.open()

        def load(group: Communicator, numel: int) -> None:
            assert group.hub_group is not None
            group.hub_group.load(0, Span.of(np.ones(numel, np.float32)), OptimizerRule.adam(0.1), {}).wait()

        def fails(group: Communicator) -> None:
            with pytest.raises(CollectiveError, match="the hub's core"):
                load(group, 220_000)

        world.each(groups, lambda group: load(group, 1000))
        world.each(groups, fails)
        (job,) = hub._jobs.values()
        wait_until(lambda: all(core._held_bytes == 0 for core in job.cores), "memory is held for nobody")


def test_weights_and_sums_share_a_cores_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2 MiB weights have more than one: ranks make a sum that needs another, and a core that is asked refuses.

    One with a number, which ranks may start before the weights are there or after, is refused here.
    """
    with service(cores=1, job_memory_bytes=2 * MIB) as hub, ranks_of(hub, 2) as world:
        groups = world.open()
        weights, sums = MIB // 4 * 5 // 8, MIB // 4 * 7 // 16

        def load(group: Communicator) -> None:
            assert group.hub_group is not None
            rule = OptimizerRule.sgd(0.1, momentum=0.5)
            group.hub_group.load(0, Span.of(np.ones(weights // 2, np.float32)), rule, {}).wait()
            group.hub_group.load(1, Span.of(np.ones(weights // 2, np.float32)), rule, {}).wait()

        def add(group: Communicator, **how: Any) -> None:
            values = np.ones(sums, np.float32)
            reduced(group, values, DataType.f32, Reduction.SUM, **how)
            assert (values == 2).all()

        def refused(group: Communicator) -> None:
            number = group.reserve(1)
            with pytest.raises(HubError, match="needs .* bytes at a core of the hub, .* of them for what it"):
                add(group, sequence=number)

        def fails(group: Communicator) -> None:
            with pytest.raises(CollectiveError, match="the hub's core"):
                add(group)

        world.each(groups, load)
        world.each(groups, add)
        world.each(groups, refused)
        monkeypatch.setattr(HubGroup, "_shortage", lambda *_: None)
        world.each(groups, fails)


def test_a_rank_of_another_version_leaves_nothing_behind(
    hub: HubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ServedJob] = []

    def make(*arguments: Any) -> ServedJob:
        made.append(ServedJob(*arguments))
        return made[-1]

    monkeypatch.setattr(served, "ServedJob", make)
    with pytest.raises(HubError, match="runs dlcp 0.0"), joined(hub, "job", 1, version="0.0"):
        pass
    assert [core.endpoint.closed for job in made for core in job.cores] == [True, True]


def test_ranks_that_call_different_things_are_named(hub: HubService) -> None:
    with ranks_of(hub, 2) as world:

        def work(group: Communicator) -> DlcpError:
            op = (Reduction.SUM, Reduction.MAX)[group.rank]
            with pytest.raises(MismatchError) as caught:
                reduced(group, np.ones(100_000, np.float32), DataType.f32, op, timeout_s=20)
            return caught.value

        found = world.each(world.open(), work)
        assert all(error.culprit in (0, 1) for error in found), found


def test_strangers_keep_no_rank_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many connections that say nothing the oldest ends; that of a rank stays."""
    monkeypatch.setattr(served, "STRANGERS_MAX", 3)
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(service())
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", hub.port), PATIENCE_S))
            for _ in range(10)
        ]
        assert [stranger.recv(1) for stranger in strangers[:7]] == [b""] * 7
        with ranks_of(hub, 2) as world:
            groups = world.open()
            assert len(hub._strangers) <= 3
            arrays = [np.ones(1000, np.float32) for _ in groups]
            world.each(groups, lambda group: reduced(group, arrays[group.rank], DataType.f32, Reduction.SUM))
            assert all((array == 2).all() for array in arrays)


def test_a_malformed_request_is_refused_and_harms_nothing(hub: HubService) -> None:
    with ranks_of(hub, 2) as world:
        groups = world.open()
        control = world.jobs[0].hub_client._joined[hub.address].control
        for request, said in (
            ({"do": "open", "number": 9}, "it cannot read the request: KeyError"),
            ({"do": "open", "number": "x"}, "it cannot read the request"),
            ({"do": "dance"}, "it does not know the request 'dance'"),
            ({}, "it cannot read the request: KeyError"),
        ):
            with pytest.raises(HubError, match=said):
                control.ask(request)
        arrays = [np.ones(1000, np.float32) for _ in groups]
        world.each(groups, lambda group: reduced(group, arrays[group.rank], DataType.f32, Reduction.SUM))
        assert all((array == 2).all() for array in arrays)


def test_many_small_collectives_at_once_are_followed_in_order(hub: HubService) -> None:
    """More announcements than receives are posted for, and more than calls may be nested."""
    with ranks_of(hub, 2) as world:

        def work(group: Communicator) -> None:
            arrays = [np.full(3, number, np.float32) for number in range(1500)]
            works = [group.all_reduce(Span.of(array), DataType.f32) for array in arrays]
            for number, one in enumerate(works):
                one.wait()
                assert (arrays[number] == 2 * number).all()

        world.each(world.open(), work)


# --- gone ---------------------------------------------------------------------------------------------------


def test_a_hub_that_is_killed_fails_every_rank_by_name(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text(f"job {KEY.hex()}\n")
    child = Child(
        f"""
        import sys
        from dlcp.hub.command import main
        sys.exit(main(["--bind", "127.0.0.1:0", "--keys", {str(keys)!r}, "--cores", "2"]))
        """
    )
    try:
        address = child.line().split()[3]
        with World(2, key=KEY, hub=address, hub_bytes_min=1, peer_timeout_s=1.0) as world:
            groups = world.open()
            have_one_sum = threading.Barrier(2)

            def work(group: Communicator) -> DlcpError:
                array = np.ones(100_000, np.float32)
                reduced(group, array, DataType.f32, Reduction.SUM)
                have_one_sum.wait(60)
                if group.rank == 0:
                    child.kill()
                    with pytest.raises(PeerFailedError, match="the hub's core") as caught:
                        reduced(group, array, DataType.f32, Reduction.SUM)
                else:
                    # It waits for the hub and rank 0, or comes when all is over.
                    with pytest.raises(DlcpError, match="the hub's core") as caught:
                        reduced(group, array, DataType.f32, Reduction.SUM)
                return caught.value

            world.each(groups, work)

            def afterwards(group: Communicator) -> None:
                with pytest.raises(DlcpError, match="failed before"):
                    reduced(group, np.ones(8, np.float32), DataType.f32, Reduction.SUM)

            world.each(groups, afterwards)
    finally:
        child.kill()


def test_a_hub_that_stops_in_good_order_fails_every_rank_by_name() -> None:
    with service() as hub, ranks_of(hub, 2, peer_timeout_s=30.0) as world:
        groups = world.open()

        def work(group: Communicator) -> None:
            reduced(group, np.ones(9, np.float32), DataType.f32, Reduction.SUM)
            group.barrier().wait()
            if group.rank == 0:
                hub.close()
            # Told by the core, so that nobody waits for a silent peer.
            with pytest.raises(CollectiveAbortedError, match="the hub's core . .* aborted the group"):
                reduced(group, np.ones(100_000, np.float32), DataType.f32, Reduction.SUM)

        world.each(groups, work)
        assert not [thread for thread in threading.enumerate() if thread.name == "dlcp-hub-rank"]


def test_a_worker_that_is_killed_is_blamed_and_not_the_hub(tmp_path: Path) -> None:
    """The rank that opened the group at the hub dies in mid-step: the others learn from the cores who is missing."""
    with service(peer_timeout_s=1.0) as hub:
        kill_a_worker(hub, tmp_path)


def kill_a_worker(hub: HubService, tmp_path: Path) -> None:
    how = f"key=bytes(range(32)), hub={hub.address!r}, hub_bytes_min=1, peer_timeout_s=1.0, timeout_s=60"
    child = Child(
        f"""
        import time
        from dlcp.transport.job import Job
        from dlcp.transport.store import FileStore
        job = Job(FileStore({str(tmp_path / "store")!r}), 0, 3, {how})
        job.open_communicator("all")
        print("here", flush=True)
        time.sleep(60)
        """
    )
    store = FileStore(tmp_path / "store")

    def rank(number: int) -> int | None:
        settings: dict[str, Any] = {"hub": hub.address, "hub_bytes_min": 1, "peer_timeout_s": 1.0}
        with Job(store, number, 3, key=KEY, timeout_s=60, flight_recorder_entries=0, **settings) as job:
            group = job.open_communicator("all")
            barrier.wait()
            work = group.all_reduce(Span.of(np.ones(100_000, np.float32)), DataType.f32)
            barrier.wait()
            with pytest.raises(PeerFailedError, match="rank 0 at") as caught:
                work.wait(PATIENCE_S)
            return caught.value.culprit

    barrier = threading.Barrier(3)
    try:
        with ThreadPoolExecutor(2) as pool:
            ranks = [pool.submit(rank, number) for number in (1, 2)]
            assert child.line() == "here"
            barrier.wait(PATIENCE_S)
            barrier.wait(PATIENCE_S)
            child.kill()
            assert [each.result(PATIENCE_S) for each in ranks] == [0, 0]
    finally:
        child.kill()
