"""Samples and packet records: what they hold adds up, and they are the same for any number of threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlcp_sim.fabrics import FatTree
from dlcp_sim.result import Result
from dlcp_sim.scenario import Sample, Scenario, Trace
from dlcp_sim.transports import Ndp
from dlcp_sim.workloads.flows import Permutation

SCENARIO = Scenario(
    fabric=FatTree(4, rate_bps=100e9, delay_s=1e-6),
    transport=Ndp(),
    workload=Permutation(bytes=100_000),
    sample=Sample(1e-6, "all"),
    trace=Trace("all", 1_000_000),
    seed=5,
)
SENT, DROPPED, TRIMMED = 1, 2, 4


@pytest.fixture(scope="module")
def result() -> Result:
    return SCENARIO.run()


def arrays(result: Result, prefix: str) -> dict[str, np.ndarray]:
    return {name: array for name, array in result.arrays.items() if name.startswith(prefix)}


def test_records_of_a_kind_are_as_many_as_the_counters_say(result: Result) -> None:
    trace = result.trace
    assert trace is not None
    for event, counters in ((SENT, result.ports.packets_sent), (TRIMMED, result.ports.packets_trimmed)):
        found = np.bincount(trace["port"][trace["event"] == event], minlength=len(result.ports))
        assert np.array_equal(found, counters.sum(axis=1))
    assert result.ports.packets_trimmed.sum() > 0
    assert (np.diff(trace["time_ps"]) >= 0).all()


def test_samples_are_regular_and_grow_to_the_counters(result: Result) -> None:
    samples = result.samples
    assert samples is not None
    assert np.allclose(np.diff(samples.time_s), 1e-6)
    assert samples.ports.tolist() == list(range(len(result.ports)))
    sent = samples.bytes_sent.astype(np.int64)
    assert (np.diff(sent, axis=0) >= 0).all()
    assert (sent[-1] <= result.ports.bytes_sent).all()
    assert sent[-1].sum() > 0.9 * result.ports.bytes_sent.sum()
    assert (samples.depth_bytes.max(axis=0) <= result.ports.max_depth_bytes).all()


@pytest.mark.parametrize("limit", [1, 1000, 1_000_000])
def test_two_and_three_threads_write_down_the_same(result: Result, limit: int) -> None:
    """A limit cuts at the same record, though each thread counts for itself."""
    one = replace(SCENARIO, trace=Trace("all", limit)).run()
    assert len(one.arrays["trace.time_ps"]) == min(limit, len(result.arrays["trace.time_ps"]))
    for threads in (2, 3):
        other = replace(SCENARIO, trace=Trace("all", limit), threads=threads).run()
        for prefix in ("trace.", "sample."):
            expected, found = arrays(one, prefix), arrays(other, prefix)
            assert expected.keys() == found.keys()
            for name, array in expected.items():
                assert np.array_equal(array, found[name]), name


def test_records_up_to_a_limit_are_the_first_of_all(result: Result) -> None:
    few = replace(SCENARIO, trace=Trace("all", 700)).run()
    for name, array in arrays(few, "trace.").items():
        assert np.array_equal(array, result.arrays[name][:700]), name


def test_a_port_that_is_asked_for_twice_is_there_once() -> None:
    twice = replace(SCENARIO, sample=Sample(1e-6, [3, 17, 3]), trace=None).run()
    once = replace(SCENARIO, sample=Sample(1e-6, [17, 3]), trace=None).run()
    for name, array in arrays(once, "sample.").items():
        assert np.array_equal(array, twice.arrays[name]), name
