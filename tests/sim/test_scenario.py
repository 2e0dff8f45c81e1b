"""Scenarios: what they refuse, what a run gives back, that threads change nothing, and what Ctrl-C leaves."""

from __future__ import annotations

import ast
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dlcp_sim._core", reason="the extension module is not built")

import dlcp_sim as ds
from dlcp.errors import ArgumentError
from dlcp_sim.transports import CLASSES as TRANSPORT_CLASSES
from dlcp_sim.workloads import Flows, incast, permutation


def scenario(**changes: Any) -> ds.Scenario:
    settings: dict[str, Any] = {
        "fabric": ds.FatTree(4),
        "transport": ds.Ndp(),
        "workload": permutation(bytes=100_000),
    }
    return ds.Scenario(**settings | changes)


# ---- what a run gives back ----


def test_an_unloaded_flow_takes_its_bound_to_the_picosecond() -> None:
    result = scenario(transport=ds.LineRate(), workload=Flows(rows=((0, 15, 40_960),))).run()
    # Ten packets of 4160 bytes at 100 Gb/s over six links of 1 µs: (n + L - 1) · s + L · d.
    expected_s = (10 + 6 - 1) * 4160 * 8 / 100e9 + 6e-6
    assert result.flows.completion_s[0] == pytest.approx(expected_s, rel=1e-12)
    assert result.flows.slowdown[0] >= 1
    assert result.flows.goodput_bps[0] == pytest.approx(8 * 40_960 / expected_s)


def test_sprayed_flows_may_be_faster_than_one_of_their_ways() -> None:
    """One of two uplinks is slow: both together are not, and no bound must say so."""
    fabric = ds.FatTree(4, link_rates={"edge 0 - aggregation 0": 10e9})
    result = scenario(fabric=fabric, workload=Flows(rows=((0, 15, 1_000_000),))).run()
    assert 1 <= result.flows.slowdown[0] < 5


def test_faults_leave_the_bound_that_slowdown_is_told_by() -> None:
    loss = ds.RandomLoss("edge 0 -> host 0", ratio=0.01)
    assert (scenario(faults=[loss]).run().flows.bound_s == scenario().run().flows.bound_s).all()


def test_flows_are_columns_in_a_users_units() -> None:
    result = scenario().run()
    found = result.flows
    assert len(found) == 16
    assert found.finished.all()
    assert sorted(found.source) == list(range(16))
    assert (found.start_s == 0).all()
    assert (found.delivered_bytes == 100_000).all()
    assert (found.completion_s < found.acknowledged_s).all()
    assert (found.completion_s >= found.bound_s).all()
    assert found.labels == ("permutation",)
    assert found.of("permutation").all()
    with pytest.raises(ArgumentError, match="label 'layer' is unknown; accepted: permutation"):
        found.of("layer")


def test_ports_count_what_the_flows_sent() -> None:
    result = scenario(transport=ds.LineRate(), workload=Flows(rows=((0, 1, 40_960),))).run()
    ports = result.ports
    assert ports.name(0) == "host 0 → edge 0"
    assert ports.packets_sent[0].sum() == 10
    assert ports.bytes_sent[0].sum() == 10 * 4160
    # Host to edge, edge to host: no other port moved.
    assert (ports.packets_sent.sum(axis=1) > 0).sum() == 2
    assert ports.utilization(result.simulated_s).max() <= 1


def test_result_says_how_it_was_made() -> None:
    result = scenario(seed=7, name="first").run()
    assert (result.seed, result.name, result.partial) == (7, "first", False)
    assert result.scenario == scenario(seed=7, name="first").as_dict()
    metadata = result.metadata
    assert metadata["hops"] > 0
    assert metadata["events"] >= metadata["hops"]
    assert 0 < metadata["loop_s"] <= metadata["wall_s"]
    assert 0 <= metadata["outside_ratio"] < 1
    assert set(metadata["versions"]) == {"dlcp", "python", "numpy"}


def test_a_result_shows_what_it_is_of() -> None:
    assert (
        repr(scenario().run())
        == "<Result: permutation on 16 hosts (three_tier) over ndp, seed 1, 16 of 16 flows finished>"
    )


def test_summary_names_what_matters() -> None:
    text = scenario().run().summary()
    assert text.startswith(
        "permutation on 16 hosts (three_tier) over ndp, seed 1\n16 of 16 flows finished in "
    )
    for word in ("mean", "p99", "slowdown", "goodput", "dropped", "trimmed", "ns of CPU per hop"):
        assert word in text


def test_until_ends_a_run_and_what_did_not_finish_is_nan() -> None:
    result = scenario(until_s=5e-6).run()
    assert not result.partial
    assert result.simulated_s == pytest.approx(5e-6)
    assert np.isnan(result.flows.completion_s).all()
    assert "0 of 16 flows finished" in result.summary()


def test_samples_and_traces_are_taken_where_they_are_asked_for() -> None:
    result = scenario(
        workload=incast(senders=8, bytes=200_000),
        sample=ds.Sample(1e-6, ["edge 0 -> host 0", "host 3"]),
        trace=ds.Trace(["edge 0 -> host 0"], limit=50),
    ).run()
    samples, trace = result.samples, result.trace
    assert samples is not None
    assert trace is not None
    assert [result.ports.name(port) for port in samples.ports] == ["host 3 → edge 1", "edge 0 → host 0"]
    assert samples.depth_bytes.shape == (len(samples.time_s), 2, 8)
    assert samples.depth_bytes[:, 1].max() > 0
    # The bottleneck was busy. What is sent counts when its transmission begins, so a microsecond may hold a packet too
    # many; all of them together do not.
    assert samples.rate_bps()[:, 1].sum(axis=1)[10:100].mean() == pytest.approx(100e9, rel=0.02)
    assert len(trace["time_ps"]) == 50
    assert set(trace["port"]) == {samples.ports[1]}


def test_nothing_is_recorded_unasked() -> None:
    result = scenario().run()
    assert (result.samples, result.trace, result.tasks) == (None, None, None)


# ---- determinism ----


def content(result: ds.Result) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in result.arrays.items()}


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    loss = ds.RandomLoss("edge 0 -> host 0", ratio=0.02)
    alone = scenario(workload=incast(senders=8, bytes=100_000), faults=[loss])
    several = scenario(workload=incast(senders=8, bytes=100_000), faults=[loss], threads=threads)
    assert content(alone.run()) == content(several.run())


def test_a_seed_repeats_and_another_differs() -> None:
    assert content(scenario().run()) == content(scenario().run())
    assert content(scenario().run()) != content(scenario(seed=2).run())


@pytest.mark.parametrize("transport", [ds.Ndp(), ds.Tcp(), ds.Dlcp()], ids=lambda t: str(t.name))
def test_a_run_ends_although_a_host_is_cut_off(transport: ds.Transport) -> None:
    result = scenario(
        transport=transport, workload=permutation(bytes=20_000), faults=[ds.LinkDown("host 3")]
    ).run()
    touched = (result.flows.source == 3) | (result.flows.destination == 3)
    assert (result.flows.finished == ~touched).all()
    assert not result.partial


# ---- kept ----


def test_a_saved_result_is_the_same(tmp_path: Path) -> None:
    result = scenario(sample=ds.Sample(1e-6, "hosts")).run()
    path = result.save(tmp_path / "deep" / "result")
    assert path == tmp_path / "deep" / "result.npz"
    again = ds.Result.load(path)
    assert again.metadata == result.metadata
    assert content(again) == content(result)
    assert again.summary() == result.summary()
    assert ds.Result.load(path.parent).metadata == result.metadata


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "not a result of the simulator"),
        (b"PK\3\4 something else", "not a result of the simulator"),
        (b"\x93NUMPY", "not a result of the simulator"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "result.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArgumentError, match=words) as caught:
        ds.Result.load(path)
    assert str(path) in str(caught.value)


def test_a_result_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.npz"
    np.savez(path, metadata=np.frombuffer(b'{"format": 99}', np.uint8))
    with pytest.raises(ArgumentError, match="another version"):
        ds.Result.load(path)
    np.savez(path, something=np.zeros(3))
    with pytest.raises(ArgumentError, match="not a result"):
        ds.Result.load(path)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fabric": "fat_tree"}, "fabric is 'fat_tree'; accepted: a fabric"),
        ({"fabric": ds.FatTree}, "accepted: a fabric, such as FatTree"),
        ({"transport": ds.Ndp}, "accepted: a transport, such as Ndp"),
        ({"workload": permutation}, "accepted: a workload"),
        ({"switch": "ndp"}, "switch is 'ndp'; accepted: a policy"),
        ({"faults": ["edge 0"]}, "faults is 'edge 0'; accepted: faults"),
        ({"workload": permutation(bytes="x")}, "workload.bytes is 'x'; accepted: a whole number"),
        ({"workload": ds.together(permutation(hosts=1.5))}, "workload.hosts is 1.5"),
        ({"fabric": ds.FatTree(4, link_rates={"host 1": "fast"})}, "fabric.link_rates is"),
        ({"seed": -1}, "seed is -1; accepted: a whole number from 0"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"seed": True}, "seed is True"),
        ({"threads": 0}, "threads is 0; accepted: a whole number from 1 to 1024"),
        ({"until_s": 0}, "until_s is 0; accepted: above 0"),
        ({"until_s": float("nan")}, "until_s is nan"),
        ({"sample": 1e-6}, "accepted: Sample"),
        ({"trace": "all"}, "accepted: Trace"),
        ({"name": 3}, "name is 3; accepted: text"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused_when_it_is_made(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        scenario(**changes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ds.Sample(0), "sample.interval_s is 0; accepted: 1e-9 to 1e3 seconds"),
        (
            lambda: ds.Sample(1e-6, "edges"),
            "sample.ports is 'edges'; accepted: all, hosts, switches, or a list",
        ),
        (lambda: ds.Sample(1e-6, [True]), "sample.ports is"),
        (lambda: ds.Trace(limit=0), "trace.limit is 0; accepted: a whole number from 1"),
        (
            lambda: ds.LineRate(payload_bytes=0),
            "line_rate.payload_bytes is 0; accepted: whole numbers from 1 to",
        ),
        (lambda: ds.LineRate(payload_bytes=float("inf")), "line_rate.payload_bytes is inf"),
        (lambda: ds.LineRate(ecn_capable=1), "line_rate.ecn_capable is 1; accepted: true or false"),
    ],
)
def test_a_part_that_cannot_be_is_refused_when_it_is_made(make: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        make()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workload": permutation(bytes=-3)}, "workload: bytes is -3; accepted"),
        ({"workload": incast(to=99)}, "workload: to is 99; accepted: hosts 0 to 15"),
        ({"sample": ds.Sample(1e-6, [10_000])}, "port is 10000; accepted: 0 to"),
        ({"sample": ds.Sample(1e-6, ["edge 0 -> host 9"])}, "accepted: two neighbours"),
        ({"faults": [ds.LinkDown("edge 99")]}, "node is 'edge 99'"),
    ],
)
def test_what_does_not_fit_the_fabric_is_refused_by_the_run(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        scenario(**changes).run()


# ---- progress and Ctrl-C ----


def long_scenario() -> ds.Scenario:
    """Takes far longer than any test waits."""
    return scenario(workload=permutation(bytes=2_000_000_000))


def test_progress_is_told_while_it_runs() -> None:
    moments: list[ds.Moment] = []

    def look(moment: ds.Moment) -> None:
        moments.append(moment)
        if len(moments) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(ds.Interrupted) as caught:
        long_scenario().run(look)
    assert [m.events for m in moments] == sorted({m.events for m in moments})
    assert moments[0].flows == 16
    assert moments[2].simulated_s > moments[0].simulated_s > 0
    assert "of 16 flows finished" in str(moments[2])
    # 32 GB are a second of a hundred Gb/s and more.
    assert 0 < moments[2].share < 0.5
    assert moments[0].remaining_s is None or moments[0].remaining_s > 0.1
    result = caught.value.result
    assert result.partial
    assert not result.flows.finished.any()
    assert result.ports.bytes_sent.sum() > 0
    assert "stopped before it was over" in result.summary()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_progress_ends_the_run() -> None:
    def look(moment: ds.Moment) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        long_scenario().run(look)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_runs_outside_the_main_thread() -> None:
    results: list[ds.Result] = []
    thread = threading.Thread(target=lambda: results.append(scenario().run()))
    thread.start()
    thread.join(30)
    assert results[0].flows.finished.all()


def test_the_interpreter_goes_on_while_the_loop_runs() -> None:
    """The loop holds no lock: another thread counts meanwhile."""
    ticks = 0
    over = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not over.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    result = scenario(workload=permutation(bytes=3_000_000)).run()
    over.set()
    thread.join()
    assert ticks > 100 * result.metadata["loop_s"]


def test_a_line_is_written_over_and_removed() -> None:
    code = """
import dlcp_sim as ds
from dlcp_sim.workloads import permutation
ds.Scenario(fabric=ds.FatTree(4), transport=ds.Ndp(), workload=permutation(bytes=40_000_000)).run(progress=True)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert run.stdout == b""
    assert run.stderr.startswith(b"\r")
    assert b" simulated, " in run.stderr
    assert run.stderr.endswith(b" \r")


# ---- the package ----


def test_names_for_type_checkers_are_the_names_there_are(repository: Path) -> None:
    tree = ast.parse((repository / "sim" / "dlcp_sim" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    static = {"Transport", *TRANSPORT_CLASSES}  # as the stub has them, which test_transport_settings holds
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        names = {alias.name for alias in node.names}
        if names != {"*"}:
            static |= names
        elif node.module != "dlcp_sim.transports":
            static |= set(importlib.import_module(str(node.module)).__all__)
    assert static == set(ds.__all__)
    for name in ds.__all__:
        assert getattr(ds, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Fattree'"):
        ds.Fattree  # noqa: B018


def test_importing_it_loads_nothing() -> None:
    code = "import sys, dlcp_sim; print([m for m in ('numpy', 'torch', 'matplotlib', 'ray') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_time_outside_the_loop_is_small_on_the_reference_permutation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Prints the share on P128 (128 hosts, 2 MB each); how much it may be is for `dlcp study speed` to say."""
    p128 = scenario(fabric=ds.FatTree(8), workload=permutation(bytes=2_000_000))
    p128.run()  # what is loaded and cached the first time
    began = time.perf_counter()
    share = min(p128.run().metadata["outside_ratio"] for _ in range(3))
    with capsys.disabled():
        print(f"\n{100 * share:.2f} % of P128 outside the native loop ({time.perf_counter() - began:.2f} s)")
    assert 0 <= share < 1


@pytest.mark.parametrize("transport", [ds.Dctcp(), ds.Dcqcn()])
def test_a_host_cut_off_for_good_stalls_its_flows(transport: ds.transports.Transport) -> None:
    """Though its peers' timers double, so that little happens in all the time there is."""
    scenario = ds.Scenario(
        fabric=ds.Star(3),
        transport=transport,
        workload=ds.Flows(rows=[(0, 1, 1000), (1, 2, 1000)]),
        faults=[ds.LinkDown("host 0", at_s=0)],
    )
    result = scenario.run()
    assert result.metadata["ended_by"] == "stalled"
    assert result.flows.finished.tolist() == [False, True]
    assert (
        "1 of 2 flows finished in 500.0 s of simulated time, then nothing got on any more" in result.summary()
    )
    assert result.simulated_s == scenario.run().simulated_s
