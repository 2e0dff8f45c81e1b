"""Training jobs: passes in order, gradients in the order of the schedulers that ship, times that add up."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dlcp.errors import ArgumentError
from dlcp.transport.layer_order import P3, ByteScheduler, Fifo, LayerPriority, Order
from dlcp_sim import _core, workloads
from dlcp_sim.fabrics import ThreeTier
from dlcp_sim.training_times import TrainingReport, report_of
from dlcp_sim.workloads.collectives import CoarseRing
from dlcp_sim.workloads.load import Load
from dlcp_sim.workloads.models import Layer, Model, Speed
from dlcp_sim.workloads.training import TrainingJob, fuse

FAST = ThreeTier(hosts_per_edge=10, rate_bps=100e9, delay_s=1e-6)
SLOW = ThreeTier(hosts_per_edge=10, rate_bps=1e9, delay_s=1e-6)


def small(
    parameters: tuple[int, ...] = (1000, 300_000, 50_000, 2_000_000), macs: tuple[int, ...] = (4, 3, 2, 1)
) -> Model:
    layers = tuple(Layer(f"l{i}", p, m) for i, (p, m) in enumerate(zip(parameters, macs, strict=True)))
    return Model("small", "made up", layers, 10, Speed(1000, "made up", "made up"))


def run_load(load: Load, simulation: _core.Simulation) -> list[TrainingReport]:
    """Runs a load on a bare simulation; what became of its jobs."""
    load.apply(simulation)
    simulation.run()
    times, arrays = simulation.task_times(), load.arrays()
    return [
        report_of(
            job,
            {name: arrays[f"job.{number}.{name}"] for name in ("forward", "backward", "start", "done")},
            times["started_ps"],
            times["finished_ps"],
        )
        for number, job in enumerate(load.jobs)
    ]


def run(job: TrainingJob, fabric: ThreeTier = FAST) -> TrainingReport:
    load = job.build(fabric, 1)
    simulation = _core.Simulation(fabric.build(), _core.Policy(), "line_rate", {})
    return run_load(load, simulation)[0]


@pytest.mark.parametrize(
    "topology", ["ring", "direct", "halving_doubling", "tree", "bounded", "hub", "hierarchical"]
)
@pytest.mark.parametrize("scheduler", ["fifo", "p3", "byte_scheduler", "layer_priority"])
def test_every_combination_ends_and_adds_up(topology: str, scheduler: str) -> None:
    job = TrainingJob(model=small(), workers=4, topology=topology, scheduler=scheduler, group_size=2)
    report = run(job)
    assert np.isfinite(report.communication_end_s).all()
    assert report.iteration_s.shape == (2,)
    # A worker computes one thing at a time, layers in order.
    assert (report.forward_start_s[:, :, 1:] >= report.forward_end_s[:, :, :-1]).all()
    assert (report.backward_start_s[:, :, :-1] >= report.backward_end_s[:, :, 1:]).all()
    # Gradients leave when they are made; the next forward of a layer waits for them.
    assert (report.communication_start_s >= report.ready_s).all()
    assert (report.communication_end_s >= report.communication_start_s).all()
    first = [unit[0] for unit in report.units]
    assert (report.forward_start_s[1:][:, :, first] >= report.communication_end_s).all()
    np.testing.assert_allclose(report.compute_s, 0.01)
    np.testing.assert_allclose(report.exposed_s.mean(axis=1), report.iteration_s - 0.01, atol=1e-9)


def test_with_little_to_send_an_iteration_is_its_compute() -> None:
    report = run(TrainingJob(model=small((1, 1, 1, 1)), workers=4))
    assert report.iteration_s == pytest.approx(0.01, rel=0.01)
    assert report.samples_per_s == pytest.approx(4000, rel=0.01)
    assert "exposed" in report.summary()


def test_with_little_to_compute_an_iteration_is_its_communication() -> None:
    """Ring, link-bound: 2 (n - 1) / n of the gradients over the link."""
    model = small((0, 0, 0, 5_000_000))
    report = run(TrainingJob(model=model, workers=4, compute_scale=1e-6, scheduler="layer_priority"), SLOW)
    ideal_s = 2 * 3 / 4 * 20e6 * 8 / 1e9
    assert report.iteration_s == pytest.approx(ideal_s * 4160 / 4096, rel=0.01)


def test_overlap_helps_and_none_is_the_sum() -> None:
    """Without any overlap an iteration is compute plus communication."""
    job = TrainingJob(model=small(), workers=4, scheduler="p3", overlap="none")
    times = {
        overlap: run(_replace(job, overlap=overlap), SLOW).iteration_s.mean()
        for overlap in ("both", "backward", "none")
    }
    assert times["both"] < times["backward"] < times["none"]
    alone = run(_replace(job, compute_scale=1e-9), SLOW).iteration_s.mean()
    assert times["none"] == pytest.approx(alone + 0.01, rel=0.01)


def _replace(job: TrainingJob, **changes: Any) -> TrainingJob:
    return dataclasses.replace(job, **changes)


def test_priority_shortens_what_is_exposed() -> None:
    """The front layer is large and last made: with priorities it goes ahead of the back layers."""
    model = small((1_000_000, 50_000, 50_000, 4_000_000), (10, 10, 10, 1))
    times = {
        scheduler: run(
            TrainingJob(model=model, workers=4, topology="hub", scheduler=scheduler), SLOW
        ).iteration_s.mean()
        for scheduler in ("fifo", "p3", "byte_scheduler")
    }
    assert times["p3"] < 0.99 * times["fifo"]
    assert times["byte_scheduler"] < 0.99 * times["fifo"]


# --- the same order as the schedulers that ship --------------------------------------------------------------------


def starts_by_order(
    order: Order, ready_s: list[tuple[float, int]], seconds_per_byte: float
) -> list[tuple[int, float]]:
    """When each slice starts if slices share nothing and each takes its bytes' time: (number, start)."""
    events = [(at, 0, layer) for at, layer in ready_s]
    found: list[tuple[int, float]] = []
    while events:
        events.sort()
        at, kind, what = events.pop(0)
        if kind == 0:
            order.handle_ready(what)
        else:
            order.handle_finished(order.slices[what])
        while (piece := order.poll_slice()) is not None:
            found.append((piece.number, at))
            events.append((at + piece.nbytes * seconds_per_byte, 1, piece.number))
    return found


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", ["fifo", "p3", "byte_scheduler", "layer_priority"])
def test_slices_start_in_the_order_of_the_schedulers(name: str, together: bool) -> None:
    """A channel of gates, each over after its bytes' time, against dlcp.transport.layer_order on the same times."""
    layer_bytes = [900_001, 3_000_000, 64_000, 5_300_000, 1_500_000]
    makers = {
        "fifo": lambda: Fifo(layer_bytes),
        "p3": lambda: P3(layer_bytes, together=together),
        "byte_scheduler": lambda: ByteScheduler(layer_bytes, together=together),
        "layer_priority": lambda: LayerPriority(layer_bytes),
    }
    order = makers[name]()
    rng = np.random.default_rng(7)
    # Backward's order, in gaps so long and short that slices wait and do not.
    ready_s = list(zip(np.cumsum(rng.uniform(1e-5, 9e-4, 5)).tolist(), (4, 3, 2, 1, 0), strict=True))
    seconds_per_byte = 3.1e-10
    expected = starts_by_order(order, ready_s, seconds_per_byte)

    load = Load()
    credit = order.credit_bytes if order.limits_what_is_under_way else 10**15  # type: ignore[attr-defined]
    channel = load.channels.append(credit_bytes=credit, together=int(together))
    made = {layer: load.add_computations(0, round(at * 1e12)) for at, layer in ready_s}
    gates = []
    for piece in order.slices:
        gate = load.add_computations(
            0,
            round(piece.nbytes * seconds_per_byte * 1e12),
            channel=channel,
            priority=0 if name == "fifo" else piece.layer,
            channel_bytes=piece.nbytes,
        )
        load.add_edges(made[piece.layer], gate)
        gates.append(int(gate))
    simulation = _core.Simulation(FAST.build(), _core.Policy(), "line_rate", {})
    load.apply(simulation)
    assert simulation.run()
    started = simulation.task_times()["started_ps"][gates] / 1e12
    assert len(expected) == len(order.slices)
    np.testing.assert_allclose(started, [at for _, at in sorted(expected)], atol=1e-10)
    assert len(set(started.tolist())) > (3 if name in ("p3", "byte_scheduler") else 1)


def test_jobs_use_the_schedulers_slices_classes_and_credit() -> None:
    layer_bytes = [4 * layer.parameters for layer in small().layers]
    load = TrainingJob(model=small(), workers=2, topology="direct", scheduler="p3", iterations=1).build(
        FAST, 1
    )
    order = P3(layer_bytes)
    assert load.jobs[0]["pieces"] == [piece.layer for piece in order.slices]
    assert set(load.channels["credit_bytes"]) == {order.credit_bytes}
    load = TrainingJob(model=small(), workers=2, scheduler="layer_priority", iterations=1).build(FAST, 1)
    by_label = {
        load.labels[label].split()[-1]: c
        for label, c in zip(load.flows["label"], load.flows["traffic_class"], strict=True)
    }
    assert by_label == {f"l{piece.layer}": piece.traffic_class for piece in LayerPriority(layer_bytes).slices}


def test_workers_out_of_step_do_not_wait_for_ever() -> None:
    """Credits spent on different slices: the trap that `together` is against."""
    job = TrainingJob(
        model=small((400_000, 400_000, 400_000, 400_000)),
        workers=4,
        scheduler="p3",
        slices_under_way=1,
        stragglers={1: 2.0, 3: 1.3},
        jitter=0.2,
        iterations=3,
    )
    report = run(job, SLOW)
    assert np.isfinite(report.communication_end_s).all()
    assert (report.iteration_s > 0.02 * 0.5).all()


# --- single settings -------------------------------------------------------------------------------------------------


def test_fusion_fills_units_from_the_back() -> None:
    def fused(layer_bytes: list[int], fusion_bytes: int) -> list[tuple[int, int, int]]:
        return [(unit.first, unit.last, unit.bytes) for unit in fuse(layer_bytes, fusion_bytes)]

    assert fused([10, 20, 0, 5, 30, 1], 25) == [(0, 0, 10), (1, 3, 25), (4, 5, 31)]
    assert fused([0, 5, 0, 7], 0) == [(0, 2, 5), (3, 3, 7)]  # layers without parameters go with others
    load = TrainingJob(model=small(), workers=2, fusion_bytes=10**9, iterations=1).build(FAST, 1)
    assert load.jobs[0]["units"] == [[0, 3]]


def test_a_straggler_holds_everybody() -> None:
    report = run(TrainingJob(model=small(), workers=4, stragglers={2: 1.5}))
    assert report.iteration_s.mean() == pytest.approx(0.015, rel=0.05)
    assert report.exposed_s[:, 0].mean() > 0.004
    assert report.exposed_s[:, 2].mean() < 0.002


def test_jitter_is_the_seeds() -> None:
    job = TrainingJob(model=small(), workers=2, jitter=0.3)
    durations = [job.build(FAST, seed).tasks["value"][:8].tolist() for seed in (1, 1, 2)]
    assert durations[0] == durations[1] != durations[2]


def test_sparse_gradients_send_their_share() -> None:
    whole, tenth = (
        TrainingJob(model=small(), workers=4, send_ratio=ratio, iterations=1)
        .build(FAST, 1)
        .flows["bytes"]
        .sum()
        for ratio in (1.0, 0.1)
    )
    assert tenth == pytest.approx(0.1 * whole, rel=1e-3)
    assert whole == pytest.approx(2 * 3 * 4 * small().parameters, rel=1e-3)


def test_losses_are_per_layer_and_the_strictest_of_a_unit() -> None:
    job = TrainingJob(
        model=small(), workers=3, topology="hub", servers=1, loss_ratio=(0.4, 0.3, 0.2, 0.1), iterations=1
    )
    load = job.build(FAST, 1)
    lossy = load.flows["loss_ratio"] > 0
    assert lossy.sum() * 2 == len(load.flows)  # pushes
    assert set(np.round(load.flows["loss_ratio"][lossy], 3)) == {0.1, 0.2, 0.3, 0.4}
    fused = _replace(job, fusion_bytes=10**9).build(FAST, 1)
    assert set(np.round(fused.flows["loss_ratio"], 3)) == {0.0, 0.1}


def test_one_at_a_time_is_slower_than_all_at_once_where_latency_counts() -> None:
    model = small((1000,) * 12, (1,) * 12)
    job = TrainingJob(model=model, workers=8, compute_scale=1e-9)
    together, one_by_one = (
        run(job).iteration_s.mean(),
        run(_replace(job, one_at_a_time=True)).iteration_s.mean(),
    )
    assert one_by_one > 8 * together


def test_a_coarse_ring_trains_as_fast() -> None:
    job = TrainingJob(model=small(), workers=8, compute_scale=0.1)
    exact = run(job, SLOW).iteration_s.mean()
    coarse = run(_replace(job, coarse=CoarseRing(6, 3e-6, 1e9, 4096)), SLOW).iteration_s.mean()
    assert coarse == pytest.approx(exact, rel=0.02)


def test_sparse_gradients_are_gathered() -> None:
    """Ten workers, each with 1 % of the values and as many indices: a fifth of the tensor for each to receive."""
    job = TrainingJob(
        model=small(), workers=10, topology="all_gather", send_ratio=10 * 0.01 * 2, iterations=1
    )
    load = job.build(FAST, 1)
    assert load.flows["bytes"].sum() == pytest.approx(10 * 0.9 * 0.2 * 4 * small().parameters, rel=1e-3)
    assert np.isfinite(run(job).iteration_s).all()


def test_what_is_summed_inside_a_host_takes_its_time() -> None:
    model = small((0, 0, 0, 1_000_000))
    job = TrainingJob(model=model, workers=4, compute_scale=1e-9, iterations=1)
    alone, inside = run(job).iteration_s[0], run(_replace(job, local_rate_bps=32e9)).iteration_s[0]
    assert inside - alone == pytest.approx(2 * 1e-3, rel=0.01)  # 4 MB before and after


def test_two_jobs_share_the_network() -> None:
    def job(first: int) -> TrainingJob:
        return TrainingJob(
            model=small(),
            workers=4,
            hosts=tuple(range(first, first + 4)),
            topology="hub",
            server_hosts=(9,),
            name=f"job {first}",
        )

    alone = run(job(0), SLOW).iteration_s.mean()
    load = workloads.together(job(0), job(4)).build(SLOW, 1)
    both = run_load(load, _core.Simulation(SLOW.build(), _core.Policy(), "line_rate", {}))
    assert len(both) == 2
    assert both[1].job["name"] == "job 4"
    assert min(report.iteration_s.mean() for report in both) > 1.5 * alone


def test_a_report_of_an_unfinished_run_says_what_it_knows() -> None:
    load = TrainingJob(model=small(), workers=4, iterations=3).build(FAST, 1)
    simulation = _core.Simulation(FAST.build(), _core.Policy(), "line_rate", {})
    load.apply(simulation)
    simulation.run(until_ps=round(0.0305e12))
    times = simulation.task_times()
    arrays = load.arrays()
    tasks = {name: arrays[f"job.0.{name}"] for name in ("forward", "backward", "start", "done")}
    report = report_of(load.jobs[0], tasks, times["started_ps"], times["finished_ps"])
    assert 1 <= len(report.iteration_s) < 3
    assert np.isnan(report.backward_end_s[-1]).any()
    assert load.iteration_s(times["finished_ps"]) == pytest.approx(report.iteration_s.tolist())


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model": "resnet"}, "resnet50"),
        ({"topology": "star"}, "halving_doubling"),
        ({"scheduler": "lifo"}, "layer_priority"),
        ({"workers": 1}, "workers is 1"),
        ({"iterations": 0}, "iterations is 0"),
        ({"send_ratio": 0}, "send_ratio is 0"),
        ({"stragglers": {9: 2.0}}, "worker 9"),
        ({"loss_ratio": (0.1, 0.2)}, "loss_ratio is"),
        ({"executor": True, "topology": "hub"}, "executor runs no hub"),
        ({"topology": "hierarchical", "group_size": 3}, "group_size is 3"),
        ({"servers": 7, "topology": "hub"}, "servers"),
        ({"hosts": (1, 2)}, "hosts are 2"),
        ({"one_at_a_time": True, "scheduler": "p3"}, "one_at_a_time"),
        ({"coarse": CoarseRing(3, 0, 1e9, 4096), "topology": "hub"}, "coarse"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        _replace(TrainingJob(workers=4), **changes).build(FAST, 1)


@pytest.mark.parametrize(
    "model",
    ["alexnet", "vgg16", "resnet50", "inception_v3", "lstm", "transformer_base", "bert_large", "gpt2"],
)
def test_every_model_makes_a_job(model: str) -> None:
    load = TrainingJob(model=model, workers=2, max_layers=12, iterations=1).build(FAST, 1)
    assert len(load.jobs[0]["layers"]) <= 12
    assert load.flows["bytes"].sum() > 2e8
