"""All-reduces of several workers through an aggregating switch, over links that lose, double and reorder.

What holds whatever the network does: all workers end with the same bits; a result is the sum of exactly the workers in
its bitmap, each once; a worker knows what of its values is in it; everything ends in bounded time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from dlcp.errors import CollectiveTimeoutError, GroupFailedError, MismatchError, PeerFailedError
from dlcp.switch.aggregation import AggregationResult, JobSettings, Worker
from dlcp.switch.aggregation.packet import LANES
from dlcp.switch.aggregation.quantise import block_count
from tests.support.aggregation_network import MS, InterpretedSwitch, Job, Link, Network
from tests.support.aggregation_twin import AggregatingSwitch
from tests.support.bmv2 import Program

Arrays = list[list[npt.NDArray[np.generic]]]  # by worker, then by message


def job_settings(number: int = 7, workers: int = 3, **changes: object) -> JobSettings:
    values = {"slots": 16, "trust_switch": True, **changes}
    return JobSettings(job=number, workers=workers, **values)  # type: ignore[arg-type]


def random_arrays(rng: np.random.Generator, workers: int, sizes: list[int], floating: bool) -> Arrays:
    def array(size: int) -> npt.NDArray[np.generic]:
        if floating:
            scale = np.exp2(rng.integers(-30, 30, size))
            return (rng.standard_normal(size) * scale).astype(np.float32)
        return rng.integers(-(10**6), 10**6, size).astype(np.int32)

    return [[array(size) for size in sizes] for _ in range(workers)]


def start(job: Job, arrays: Arrays, now_ns: int = 0) -> None:
    for worker, messages in zip(job.workers, arrays, strict=True):
        for values in messages:
            worker.start(values, now_ns)


def outcomes(job: Job, message: int) -> list[AggregationResult]:
    return [finished[message].result for finished in job.finished]


def check(job: Job, arrays: Arrays, partial: bool) -> None:
    """The properties, of all messages of one job."""
    assert job.failed == [None] * len(job.workers)
    for number in range(1, len(arrays[0]) + 1):
        results = outcomes(job, number)
        first = results[0]
        for result in results:
            assert result.values.tobytes() == first.values.tobytes()
            assert result.contributors.tobytes() == first.contributors.tobytes()
            assert result.saturated.tobytes() == first.saturated.tobytes()
        if not partial:
            assert set(first.contributors.tolist()) == {job.settings.everyone}
        inputs = [worker[number - 1] for worker in arrays]
        if inputs[0].dtype == np.int32:
            check_integers(results, inputs)
        else:
            check_floats(results, inputs, partial)


def check_integers(results: list[AggregationResult], inputs: list[npt.NDArray[np.generic]]) -> None:
    total = np.zeros(inputs[0].shape, np.int64)
    for worker, (result, values) in enumerate(zip(results, inputs, strict=True)):
        inside = np.repeat(result.contributors >> worker & 1, LANES)[: values.size] == 1
        assert np.array_equal(result.applied, np.where(inside, values, 0))
        total += result.applied.astype(np.int64)
    assert np.array_equal(results[0].values, total)
    assert not results[0].saturated.any()


def check_floats(
    results: list[AggregationResult], inputs: list[npt.NDArray[np.generic]], partial: bool
) -> None:
    applied = np.zeros(inputs[0].shape, np.float64)
    for worker, (result, values) in enumerate(zip(results, inputs, strict=True)):
        rows = block_count(values.size)
        inside = np.repeat(result.contributors >> worker & 1, LANES)[: values.size] == 1
        assert not result.applied[~inside].any()
        applied += result.applied.astype(np.float64)
        if not partial:  # then nobody's values were clipped: half a step, a whole one at the range's end
            padded = np.zeros((len(inputs), rows * LANES))
            padded[:, : values.size] = np.abs(np.array(inputs, np.float64))
            largest = padded.reshape(len(inputs), rows, LANES).max(axis=(0, 2))
            step = np.exp2(np.frexp(largest)[1] - 26.0)  # 26 bits for 32 workers, more for fewer
            error = np.abs(result.applied.astype(np.float64) - values.astype(np.float64))
            rounding = np.abs(values.astype(np.float64)) * 2.0**-24  # of `applied` to float32
            assert (error <= np.repeat(step, LANES)[: values.size] + rounding).all()
    # Sums of integers times a power of two, rounded once to float32; so is each of `applied`.
    bound = sum(np.abs(r.applied.astype(np.float64)) for r in results) * 2.0**-23
    assert (np.abs(results[0].values.astype(np.float64) - applied) <= bound).all()


@dataclass
class Case:
    """One random run; the seed replays it."""

    seed: int

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.workers = rng.choice((1, 2, 3, 3, 5, 8))
        self.sizes = [rng.choice((1, 31, 32, 33, 700, 1500)) for _ in range(rng.randint(1, 6))]
        self.floating = rng.random() < 0.6
        self.deadline_ns = rng.choice((None, None, 3 * MS, 40 * MS))
        quorum = rng.randint(1, self.workers) if self.deadline_ns else 1
        self.settings = job_settings(
            workers=self.workers,
            slots=rng.choice((2, 4, 16, 100)),
            deadline_ns=self.deadline_ns,
            quorum=quorum,
            open_messages=rng.choice((1, 2, 4)),
            timeout_ns=120_000 * MS,  # two slots at 30 % loss take 0.6 s for each block
        )
        self.link = Link(
            loss_ratio=rng.choice((0.0, 0.01, 0.1, 0.3)),
            duplicate_ratio=rng.choice((0.0, 0.1, 0.5)),
            jitter_ns=rng.choice((0, 100_000, 15 * MS)),
        )


def run_case(case: Case, switch: AggregatingSwitch | InterpretedSwitch, admitted: bool = True) -> Network:
    network = Network(switch, case.seed, case.link)
    network.add_jobs(case.settings, admitted=admitted)
    [job] = network.jobs
    arrays = random_arrays(np.random.default_rng(case.seed), case.workers, case.sizes, case.floating)
    # Workers come one after the other, some of them late.
    rng = random.Random(case.seed + 1)
    for worker, messages in zip(job.workers, arrays, strict=True):
        at = rng.choice((0, 0, 2 * MS, 60 * MS, 500 * MS))

        def begin(worker: object = worker, messages: list[npt.NDArray[np.generic]] = messages) -> None:
            for values in messages:
                worker.start(values, network.now_ns)  # type: ignore[attr-defined]
            network.poll()

        network.at(at, begin)
    network.run(120_000 * MS, lambda: network.all_finished(len(case.sizes)))
    assert network.all_finished(len(case.sizes)), f"Case({case.seed}) does not end: {job.failed}"
    check(job, arrays, case.deadline_ns is not None)
    network.run(network.now_ns + 20_000 * MS, lambda: all(w.is_idle for w in job.workers))
    assert all(worker.is_idle for worker in job.workers), f"Case({case.seed}): something is kept for ever"
    return network


@pytest.mark.parametrize("seed", range(300, 360))
def test_random_networks_beside_the_twin(seed: int) -> None:
    run_case(Case(seed), AggregatingSwitch())


@pytest.mark.parametrize("seed", range(100, 106))
def test_random_networks_through_the_compiled_program(repository: Path, seed: int) -> None:
    program = Program.load(str(repository / "p4" / "compiled" / "aggregation.json"), seed=0)
    run_case(Case(seed), InterpretedSwitch(program))


@pytest.mark.parametrize("seed", range(200, 210))
def test_random_networks_without_aggregation(seed: int) -> None:
    network = run_case(Case(seed), AggregatingSwitch(), admitted=False)
    hub = network.jobs[0].hub
    assert hub is not None
    assert hub.counters["added_up"] > 0


def test_clean_network_needs_no_hub() -> None:
    switch = AggregatingSwitch()
    network = Network(switch, 0)
    network.add_jobs(job_settings(workers=4))
    arrays = random_arrays(np.random.default_rng(0), 4, [1000], True)
    start(network.jobs[0], arrays)
    network.run(1000 * MS, lambda: network.all_finished(1))
    check(network.jobs[0], arrays, False)
    # 32 blocks of values and one of exponents; each worker sends each once.
    assert dict(switch.outcomes) == {(1, "added"): 3 * 33, (1, "completed"): 33}
    assert [result.by_hub for result in outcomes(network.jobs[0], 1)] == [0] * 4


def test_jobs_do_not_mix() -> None:
    switch = AggregatingSwitch()
    network = Network(switch, 3, Link(0.1, 0.2, jitter_ns=1 * MS))
    network.add_jobs(job_settings(7, 2), job_settings(8, 3), job_settings(9, 2, deadline_ns=20 * MS))
    rng = np.random.default_rng(3)
    all_arrays = [random_arrays(rng, len(job.workers), [400, 50], False) for job in network.jobs]
    for job, arrays in zip(network.jobs, all_arrays, strict=True):
        start(job, arrays)
    network.run(20_000 * MS, lambda: network.all_finished(2))
    for job, arrays in zip(network.jobs, all_arrays, strict=True):
        check(job, arrays, job.settings.deadline_ns is not None)
    used = {row for row, _ in switch.outcomes}
    assert used == {1, 2, 3}


def start_late(network: Network, worker: int, values: npt.NDArray[np.generic]) -> None:
    network.jobs[0].workers[worker].start(values, network.now_ns)
    network.poll()


def test_straggler_is_left_out_and_knows_it() -> None:
    network = Network(AggregatingSwitch(), 0)
    network.add_jobs(job_settings(workers=3, deadline_ns=10 * MS, quorum=2))
    [job] = network.jobs
    arrays = random_arrays(np.random.default_rng(0), 3, [64], False)
    job.workers[0].start(arrays[0][0], 0)
    job.workers[1].start(arrays[1][0], 0)
    network.at(100 * MS, lambda: start_late(network, 2, arrays[2][0]))
    network.run(1000 * MS, lambda: network.all_finished(1))
    check(job, arrays, True)
    last = outcomes(job, 1)[2]
    assert last.contributors.tolist() == [0b011, 0b011]
    assert last.counts.tolist() == [2, 2]
    assert not last.applied.any()


def test_straggler_far_behind_holds_nobody_up_without_a_switch() -> None:
    """More blocks than the job has slots are decided by the hub before the straggler begins."""
    network = Network(AggregatingSwitch(), 0)
    network.add_jobs(job_settings(workers=3, deadline_ns=10 * MS, quorum=2), admitted=False)
    [job] = network.jobs
    arrays = random_arrays(np.random.default_rng(0), 3, [100 * LANES], False)
    job.workers[0].start(arrays[0][0], 0)
    job.workers[1].start(arrays[1][0], 0)
    network.run(10_000 * MS)
    assert [len(finished) for finished in job.finished] == [1, 1, 0]
    job.workers[2].start(arrays[2][0], network.now_ns)
    network.run(20_000 * MS, lambda: network.all_finished(1))
    check(job, arrays, True)


def test_quorum_is_waited_for() -> None:
    network = Network(AggregatingSwitch(), 0)
    network.add_jobs(job_settings(workers=3, deadline_ns=10 * MS, quorum=3))
    [job] = network.jobs
    arrays = random_arrays(np.random.default_rng(0), 3, [64], False)
    job.workers[0].start(arrays[0][0], 0)
    job.workers[1].start(arrays[1][0], 0)
    network.run(400 * MS)
    assert job.finished == [{}, {}, {}]
    job.workers[2].start(arrays[2][0], network.now_ns)
    network.run(10_000 * MS, lambda: network.all_finished(1))
    check(job, arrays, False)


def test_dead_worker_fails_the_others_by_name() -> None:
    network = Network(AggregatingSwitch(), 0)
    network.add_jobs(job_settings(workers=3, peer_timeout_ns=1000 * MS))
    [job] = network.jobs
    arrays = random_arrays(np.random.default_rng(0), 3, [64], False)
    start(job, arrays)
    network.take_down(job.participants[1].port)
    network.run(40_000 * MS)
    for worker in (0, 2):
        failed = job.failed[worker]
        assert failed is not None
        assert isinstance(failed.error, PeerFailedError)
        assert failed.error.culprit == 1
        with pytest.raises(GroupFailedError, match="workers \\[1\\] do not answer"):
            job.workers[worker].start(arrays[worker][0], network.now_ns)
    alone = job.failed[1]
    assert alone is not None
    assert isinstance(alone.error, CollectiveTimeoutError)
    assert "the hub does not answer" in str(alone.error)


def test_failure_reaches_those_who_only_wait() -> None:
    """Where half of the packets are lost: nobody is left to find out by its own time-out."""
    network = Network(AggregatingSwitch(), 1, Link(loss_ratio=0.3))
    network.add_jobs(
        job_settings(workers=6, peer_timeout_ns=1000 * MS, timeout_ns=60_000 * MS), admitted=False
    )
    [job] = network.jobs
    arrays = random_arrays(np.random.default_rng(0), 6, [64], False)
    start(job, arrays)
    network.take_down(job.participants[1].port)
    network.run(10_000 * MS)
    failed = [job.failed[worker] for worker in (0, 2, 3, 4, 5)]
    assert all(one is not None and isinstance(one.error, PeerFailedError) for one in failed), failed
    assert job.hub is not None
    assert job.hub.next_time_ns() is None, "it is told for ever"


def test_worker_that_never_starts_is_named() -> None:
    network = Network(AggregatingSwitch(), 0)
    network.add_jobs(job_settings(workers=3, timeout_ns=3000 * MS))
    [job] = network.jobs
    for worker in (0, 2):
        job.workers[worker].start(np.ones(5, np.int32), 0)
    network.run(20_000 * MS)
    for worker in (0, 2):
        failed = job.failed[worker]
        assert failed is not None
        assert isinstance(failed.error, CollectiveTimeoutError)
        assert "the hub waits for workers [1]" in str(failed.error)


def test_deadline_of_one_worker_alone_is_a_mismatch() -> None:
    network = Network(AggregatingSwitch(), 0)
    network.add_jobs(job_settings(workers=2))
    [job] = network.jobs
    job.workers[0] = Worker(job_settings(workers=2, deadline_ns=5 * MS), 0)
    job.workers[0].start(np.ones(5, np.int32), 0)
    network.at(50 * MS, lambda: start_late(network, 1, np.ones(5, np.int32)))
    network.run(1000 * MS)
    assert job.failed[1] is not None
    assert isinstance(job.failed[1].error, MismatchError)


def test_switch_that_loses_its_memory_loses_nothing() -> None:
    """Restarted in the middle, without entries: it forwards, and the hub takes over."""
    switch = AggregatingSwitch()
    network = Network(switch, 5, Link(0.05, 0.1, jitter_ns=200_000))
    network.add_jobs(job_settings(workers=4, deadline_ns=15 * MS))
    [job] = network.jobs
    arrays = random_arrays(np.random.default_rng(5), 4, [3000], True)
    start(job, arrays)

    def restart() -> None:
        switch.slots.clear()
        switch.tables["participant"].clear()

    network.at(2 * MS, restart)
    network.run(25_000 * MS, lambda: network.all_finished(1))
    check(job, arrays, True)
    assert job.hub is not None
    assert job.hub.counters["copied"] > 0
    assert job.hub.counters["added_up"] > 0


def test_sums_beyond_the_range_are_told() -> None:
    network = Network(AggregatingSwitch(), 0)
    network.add_jobs(job_settings(workers=2))
    [job] = network.jobs
    most = 2**31 - 1
    values = np.array([most, -most, 5, most], np.int32)
    start(job, [[values], [np.array([1, -2, 5, -7], np.int32)]])
    network.run(1000 * MS, lambda: network.all_finished(1))
    for result in outcomes(job, 1):
        assert result.values.tolist() == [most, -most - 1, 10, most - 7]
        assert result.saturated.tolist() == [True, True, False, False]


def test_what_is_not_finite_is_so_for_everyone() -> None:
    network = Network(AggregatingSwitch(), 0)
    network.add_jobs(job_settings(workers=2))
    [job] = network.jobs
    values = np.arange(64, dtype=np.float32)
    broken = values.copy()
    broken[3] = np.inf
    start(job, [[values], [broken]])
    network.run(1000 * MS, lambda: network.all_finished(1))
    for result in outcomes(job, 1):
        assert np.isnan(result.values[:32]).all()
        assert result.values[32:].tolist() == (2 * values[32:]).tolist()
        assert not result.applied[:32].any()


def test_same_seed_same_run() -> None:
    def trace() -> tuple[int, int, dict[tuple[int, str], int]]:
        switch = AggregatingSwitch()
        network = run_case(Case(4), switch)
        return network.now_ns, network.frames, dict(switch.outcomes)

    assert trace() == trace()
