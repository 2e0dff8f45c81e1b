"""Loads are what they say: the reference's definitions, published distributions, published parameter counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlcp.errors import ArgumentError
from dlcp_sim import _core, workloads
from dlcp_sim.fabrics import FatTree, ThreeTier
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import LineRate
from dlcp_sim.workloads import SizeDistribution, models
from dlcp_sim.workloads.collectives import CoarseRing
from dlcp_sim.workloads.load import Kind, Load, Table, When

STAR = ThreeTier(hosts_per_edge=8, rate_bps=100e9)


def links(source: np.ndarray, destination: np.ndarray, k: int) -> dict[int, int]:
    """How many flows cross how many links of a k-ary fat-tree."""
    same_edge = source // (k // 2) == destination // (k // 2)
    same_pod = source // (k * k // 4) == destination // (k * k // 4)
    crossed = np.where(same_edge, 2, np.where(same_pod, 4, 6))
    return {int(length): int((crossed == length).sum()) for length in np.unique(crossed)}


@pytest.mark.parametrize(("k", "lengths"), [(8, {2: 1, 4: 13, 6: 114}), (16, {2: 9, 4: 55, 6: 960})])
def test_permutation_is_the_references(k: int, lengths: dict[int, int]) -> None:
    """P128 and P1024 of simulators.md, by the path lengths that it states."""
    flows = workloads.permutation(bytes=2_000_000).build(FatTree(k), 1).flows
    assert links(flows["source"], flows["destination"], k) == lengths
    assert sorted(flows["source"]) == sorted(flows["destination"]) == list(range(k**3 // 4))
    assert set(flows["bytes"]) == {2_000_000}


def test_incast_is_the_references() -> None:
    """I32 of simulators.md."""
    flows = workloads.incast(senders=32).build(FatTree(8), 1).flows
    assert list(flows["source"][:3]) == [38, 75, 112]
    assert set(flows["destination"]) == {0}
    assert links(flows["source"], flows["destination"], 8) == {4: 3, 6: 29}


def test_incast_to_another_host_spares_it() -> None:
    flows = workloads.incast(senders=7, to=5, spread_s=1e-6).build(STAR, 3).flows
    assert sorted(flows["source"]) == [0, 1, 2, 3, 4, 6, 7]
    assert flows["start_ps"].max() <= 10**6
    assert len(set(flows["start_ps"])) > 1


def test_all_to_all_has_every_pair_once() -> None:
    flows = workloads.all_to_all(bytes=10).build(STAR, 1).flows
    pairs = set(zip(flows["source"].tolist(), flows["destination"].tolist(), strict=True))
    assert len(pairs) == len(flows) == 56
    assert all(a != b for a, b in pairs)
    assert len(set(flows["destination"][:: 8 - 1])) == 8  # first destinations differ


@pytest.mark.parametrize(("name", "packets"), [("web_search", 1138), ("data_mining", 5117)])
def test_sizes_have_the_published_mean(name: str, packets: int) -> None:
    """The means that pFabric's simulations state for their tables."""
    sizes = SizeDistribution.of(name)
    assert sizes.mean_bytes / 1460 == pytest.approx(packets, rel=0.003)
    drawn = sizes.draw(np.random.default_rng(1), 200_000)
    assert drawn.mean() == pytest.approx(sizes.mean_bytes, rel=0.05)
    assert drawn.min() >= 1


def test_sizes_follow_their_table() -> None:
    drawn = SizeDistribution.of(((100, 0), (200, 0.5), (1000, 1))).draw(np.random.default_rng(1), 100_000)
    assert (drawn <= 200).mean() == pytest.approx(0.5, abs=0.01)
    assert drawn.min() >= 100
    assert drawn.max() <= 1000


@pytest.mark.parametrize(
    "table", [((5, 0.1), (9, 1)), ((9, 0), (5, 1)), ((1, 0), (2, 0.6), (3, 0.5)), ((1, 0),)]
)
def test_a_table_that_is_no_distribution_is_refused(table: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ArgumentError, match="sizes are"):
        SizeDistribution.of(table)


def test_poisson_asks_for_its_load() -> None:
    load = workloads.poisson(load=0.6, sizes="web_search", duration_s=0.05).build(STAR, 4)
    offered = load.flows["bytes"].sum() * 8 / 0.05
    assert offered == pytest.approx(0.6 * 8 * 100e9, rel=0.1)
    assert (load.flows["source"] != load.flows["destination"]).all()
    gaps = np.diff(load.flows["start_ps"])
    assert (gaps >= 0).all()
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)  # exponential


def test_poisson_to_few_is_measured_by_them() -> None:
    load = workloads.poisson(
        load=0.5, sizes=50_000, flows=20_000, duration_s=None, destinations=(0, 1)
    ).build(STAR, 1)
    assert set(load.flows["destination"]) == {0, 1}
    offered = load.flows["bytes"].sum() * 8e12 / load.flows["start_ps"].max()
    assert offered == pytest.approx(0.5 * 2 * 100e9, rel=0.05)


def test_cross_traffic_is_between_its_pairs() -> None:
    load = workloads.cross_traffic(pairs=((0, 1), (2, 3)), load=0.4, duration_s=0.2).build(STAR, 1)
    mine = load.flows["source"] == 2
    assert set(load.flows["destination"][mine]) == {3}
    assert load.flows["bytes"][mine].sum() * 8 / 0.2 == pytest.approx(0.4 * 100e9, rel=0.1)


def test_same_seed_same_load_and_another_seed_another() -> None:
    def drawn(seed: int) -> np.ndarray:
        return workloads.poisson(duration_s=0.001).build(STAR, seed).flows["bytes"]

    assert drawn(1).tolist() == drawn(1).tolist()
    assert drawn(1).tolist() != drawn(2).tolist()


def test_workloads_together_keep_their_labels() -> None:
    both = workloads.together(workloads.incast(senders=3, label="mine"), workloads.permutation())
    load = both.build(STAR, 1)
    assert load.labels == ["mine", "permutation"]
    assert (load.flows["label"] == [0] * 3 + [1] * 8).all()
    assert both.as_dict()["workloads"][0]["kind"] == "incast"


@pytest.mark.parametrize(
    ("workload", "match"),
    [
        (workloads.permutation(bytes=-1), "bytes is -1"),
        (workloads.permutation(hosts=99), "hosts is 99"),
        (workloads.incast(senders=8), "senders is 8"),
        (workloads.incast(senders=(0, 1)), "other than 0"),
        (workloads.incast(senders=3, loss_ratio=2), "loss_ratio is 2"),
        (workloads.incast(senders=3, traffic_class=7), "traffic_class is 7"),
        (workloads.poisson(load=0), "load is 0"),
        (workloads.poisson(flows=5, duration_s=0.1), "one of them"),
        (workloads.poisson(sizes="fb"), "web_search"),
        (workloads.cross_traffic(pairs=((1, 1),)), "pairs is"),
        (workloads.Flows(rows=((0, 1),)), "row"),
        (workloads.collective(algorithm="ring", times=0), "times is 0"),
        (workloads.collective(algorithm="ring", loss_ratio=-0.1), "loss_ratio is -0.1; accepted: 0 to 1"),
        (workloads.collective(algorithm="circle"), "circle"),
        (workloads.collective(algorithm="hierarchical", group_size=3), "group_size is 3"),
    ],
)
def test_what_cannot_be_is_refused_by_name(workload: workloads.Workload, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        workload.build(STAR, 1)


def test_tables_broadcast_and_refuse() -> None:
    table = Table(a=("u4", None), b=("u1", 7))
    assert table.append(a=np.zeros((2, 3))).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert table.append(a=9, b=[1, 2]).tolist() == [6, 7]
    assert table["a"].tolist() == [0] * 6 + [9, 9]
    assert table["b"].tolist() == [7] * 6 + [1, 2]
    for bad in ({"a": -1}, {"a": 2**32}, {"b": 1}, {"a": 1, "c": 1}):
        with pytest.raises(ArgumentError):
            table.append(**bad)


def test_a_load_runs_as_it_says() -> None:
    """Flows by the clock, and a chain of tasks: exact times (line rate, two links)."""
    load = Load()
    load.flows.append(source=2, destination=3, bytes=4096, start_ps=1000)
    before = load.add_computations(0, 5_000_000)
    flow = load.add_flow_tasks(0, 1, 4096 * 3)
    then = load.add_computations(1, 7)
    load.add_edges(before, flow)
    load.add_edges(flow, then, When.FINISHED)
    simulation = _core.Simulation(STAR.build(), _core.Policy(), "line_rate", {})
    load.apply(simulation)
    assert simulation.run()
    packet_ps, delay_ps = 4160 * 80, 10**6
    assert simulation.flow_results()["delivered_ps"].tolist() == [
        1000 + 2 * packet_ps + 2 * delay_ps,
        5_000_000 + 4 * packet_ps + 2 * delay_ps,
    ]
    assert simulation.task_times()["finished_ps"][int(then)] == 5_000_000 + 4 * packet_ps + 2 * delay_ps + 7
    assert load.tasks["kind"].tolist() == [Kind.COMPUTE, Kind.FLOW, Kind.COMPUTE]


OWN_MODEL = models.Model(
    "own",
    "none",
    (models.Layer("a", 10, 5), models.Layer("b", 0, 3)),
    4,
    models.Speed(9.0, "none", "made up"),
)


@pytest.mark.parametrize(
    "workload",
    [
        workloads.permutation(hosts=(3, 1, 2)),
        workloads.poisson(sizes=((1.0, 0.0), (10.0, 1.0)), flows=5, duration_s=None),
        workloads.together(workloads.incast(senders=3), workloads.Flows(rows=((0, 1, 500),))),
        workloads.collective(algorithm="hub", servers=(3, 4)),
        workloads.TrainingJob(model="vgg16", stragglers={1: 1.5}, loss_ratio=0.1),
        workloads.TrainingJob(model=OWN_MODEL, coarse=CoarseRing(3, 1e-6, 1e9, 4096)),
        workloads.ChakraTrace(prefix="trace", groups={"a": (0, 1)}, algorithms={"all_reduce": "direct"}),
    ],
)
def test_a_scenarios_file_keeps_a_workload(workload: workloads.Workload, tmp_path: Path) -> None:
    scenario = Scenario(fabric=STAR, transport=LineRate(), workload=workload)
    (tmp_path / "scenario.toml").write_text(scenario.to_toml())
    assert Scenario.load(tmp_path / "scenario.toml").workload == workload


def test_a_model_from_a_table_that_is_none_is_refused() -> None:
    for table in ({}, {"name": "a"}, {"name": "a", "paper": "", "layers": [], "batch": 1, "speed": {}}):
        with pytest.raises(ArgumentError, match="model"):
            workloads.TrainingJob(model=table)


# --- models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "millions", "gmac"),
    [
        # torchvision's counts and GFLOPS (there: multiply-accumulates), which are the papers' to the digits shown
        ("alexnet", 61.1, 0.71),
        ("vgg16", 138.4, 15.47),
        ("resnet50", 25.56, 4.09),
        ("inception_v3", 27.16, 5.71),
        ("transformer_big", 213, None),
        ("bert_large", 336.2, None),
        ("gpt2", 124.4, None),
        ("gpt2_xl", 1557.6, None),
    ],
)
def test_models_have_the_published_size(model: str, millions: float, gmac: float | None) -> None:
    one = models.model(model)
    assert one.parameters / 1e6 == pytest.approx(millions, rel=0.006)
    if gmac is not None:
        assert one.macs / 1e9 == pytest.approx(gmac, rel=0.01)


def test_variants_have_theirs() -> None:
    assert models.inception_v3(auxiliary=False).parameters == 23_834_568
    assert models.resnet50().parameters == 25_557_032
    assert models.vgg16().parameters == 138_357_544
    assert models.alexnet().parameters == 61_100_840
    pooled = sum(layer.parameters for layer in models.bert_large().layers if layer.name != "head")
    assert pooled == 335_141_888
    # Zaremba's large model has 66 M parameters with 10,000 words and one matrix of biases less.
    assert models.lstm(10_000).parameters / 1e6 == pytest.approx(66, rel=0.01)
    # 12.9 B in whole: 16 slices.
    assert models.gpt3_13b(1).parameters / 1e9 == pytest.approx(12.85, rel=0.01)
    assert models.gpt3_13b(16).parameters * 16 > models.gpt3_13b(1).parameters


def test_compute_times_add_up_to_the_published_step() -> None:
    one = models.model("resnet50")
    step_s = sum(one.forward_s()) + sum(one.backward_s())
    assert step_s == pytest.approx(64 / 405)
    assert sum(one.backward_s(8)) == pytest.approx(2 / 3 * 8 / 405)
    assert min(one.forward_s()) > 0


def test_merged_models_keep_their_sums() -> None:
    one = models.model("resnet50")
    few = one.merged(10)
    assert len(few.layers) == 10
    assert (few.parameters, few.macs) == (one.parameters, one.macs)
    assert few.layers[0].name.startswith("conv1")
    assert max(layer.parameters for layer in few.layers) < one.parameters / 4


def test_every_model_is_in_the_table_with_its_source() -> None:
    text = models.table()
    for name in models.MODELS:
        assert name in text
        assert len(models.model(name).speed.source) > 20
    with pytest.raises(ArgumentError, match="resnet50"):
        models.model("resnet")
