"""The Chrome trace: JSON that viewers read, flows to the picosecond, slices of a lane that do not overlap."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlcp_sim.fabrics import FatTree, Star
from dlcp_sim.report import write_chrome_trace
from dlcp_sim.result import Result
from dlcp_sim.scenario import Sample, Scenario
from dlcp_sim.transports import Ndp
from dlcp_sim.workloads.flows import AllToAll
from dlcp_sim.workloads.training import TrainingJob


@pytest.fixture(scope="module")
def result() -> Result:
    return Scenario(
        fabric=FatTree(4, rate_bps=100e9, delay_s=1e-6),
        transport=Ndp(),
        workload=AllToAll(bytes=20_000, hosts=(0, 1, 5, 9)),
        sample=Sample(1e-6, "switches"),
        seed=3,
    ).run()


def events(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    loaded: list[dict[str, Any]] = json.loads(content, parse_float=Decimal)["traceEvents"]
    return loaded


def slices(found: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in found if event["ph"] == "X" and event["cat"] == category]


def ps(microseconds: Decimal | int) -> int:
    return int(microseconds * 10**6)


def test_every_flow_is_a_slice_at_its_source_to_the_picosecond(result: Result, tmp_path: Path) -> None:
    found = slices(events(write_chrome_trace(result, tmp_path / "run.json")), "flow")
    assert len(found) == len(result.flows) == 12
    arrays = result.arrays
    for event in found:
        flow = event["args"]["flow"]
        assert event["pid"] == arrays["flow.source"][flow]
        assert ps(event["ts"]) == arrays["flow.start_ps"][flow]
        assert ps(event["ts"]) + ps(event["dur"]) == arrays["flow.delivered_ps"][flow]
        assert event["args"]["finished"]


def test_slices_of_a_lane_do_not_overlap(result: Result, tmp_path: Path) -> None:
    lanes = defaultdict(list)
    for event in slices(events(write_chrome_trace(result, tmp_path / "run.json")), "flow"):
        lanes[event["pid"], event["tid"]].append((ps(event["ts"]), ps(event["ts"]) + ps(event["dur"])))
    assert len(lanes) == 12, "three flows of each of four hosts start at once"
    for spans in lanes.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_queues_are_counters_with_the_sampled_depths(result: Result, tmp_path: Path) -> None:
    counters = [
        event for event in events(write_chrome_trace(result, tmp_path / "run.json")) if event["ph"] == "C"
    ]
    samples = result.samples
    assert samples is not None
    deepest = int(samples.depth_bytes.max())
    assert deepest > 0
    assert max(depth for event in counters for depth in event["args"].values()) == deepest
    deep = np.flatnonzero(samples.depth_bytes.any(axis=(0, 2)))
    named = {event["name"] for event in counters}
    assert named == {f"{result.ports.name(int(samples.ports[place]))}, waiting bytes" for place in deep}


def test_a_compressed_trace_says_the_same(result: Result, tmp_path: Path) -> None:
    plain = events(write_chrome_trace(result, tmp_path / "run.json"))
    assert events(write_chrome_trace(result, tmp_path / "run.json.gz")) == plain


def test_a_flow_that_did_not_finish_lasts_to_the_end(result: Result, tmp_path: Path) -> None:
    ends = result.arrays["flow.delivered_ps"].copy()
    ends[4] = -1
    stopped = Result(result.metadata, {**result.arrays, "flow.delivered_ps": ends})
    found = slices(events(write_chrome_trace(stopped, tmp_path / "run.json")), "flow")
    (event,) = [one for one in found if one["args"]["flow"] == 4]
    assert not event["args"]["finished"]
    assert ps(event["ts"]) + ps(event["dur"]) == round(result.simulated_s * 1e12)


def test_layers_of_a_training_job_are_slices_of_their_workers(tmp_path: Path) -> None:
    result = Scenario(
        fabric=Star(4, rate_bps=100e9),
        transport=Ndp(),
        workload=TrainingJob(model="alexnet", workers=4, iterations=2),
    ).run()
    found = events(write_chrome_trace(result, tmp_path / "run.json"))
    (job,) = result.metadata["jobs"]
    for kind in ("forward", "backward"):
        chosen = slices(found, kind)
        assert {event["pid"] for event in chosen} == set(job["hosts"])
        assert {event["args"]["layer"] for event in chosen} == set(job["layers"])
