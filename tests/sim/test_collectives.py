"""Collectives as graphs of messages: each adds up what it should, waits for what it must, and takes the time it must.

What a graph computes is run on symbols: messages start in a random order that the load's edges allow, and carry what
their sender's schedule makes of what has been delivered to it by then.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from dlcp.transport.schedule import ALGORITHMS, Combine, RankSchedule, Receive, Send, Space, build
from dlcp.transport.schedule.layout import layout
from dlcp_sim import _core, workloads
from dlcp_sim.fabrics import LeafSpine, Star, ThreeTier
from dlcp_sim.faults import RandomLoss
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dlcp, transport_named
from dlcp_sim.workloads.collectives import (
    CoarseRing,
    balanced,
    hub,
    in_groups,
    lay,
    split,
)
from dlcp_sim.workloads.graphs import rank_program, rank_programs, template
from dlcp_sim.workloads.load import Kind, Load, When

STAR = ThreeTier(hosts_per_edge=16, rate_bps=100e9)
PAYLOAD, WIRE, PACKET_PS, DELAY_PS = 4096, 4160, 4160 * 80, 10**6

EVERY = [
    (collective, algorithm, world)
    for collective, algorithms in ALGORITHMS.items()
    for algorithm in algorithms
    for world in (2, 3, 5, 8)
]


class Rank:
    """What a rank knows: its schedule, and which messages it has."""

    def __init__(self, collective: str, algorithm: str, world: int, rank: int, root: int) -> None:
        self.schedule = build(collective, algorithm, world, rank, root)
        self.given = layout(collective, world, rank, root, self.schedule.output_chunks)
        self.rank = rank
        self.delivered: dict[tuple[int, int], Counter[int]] = {}

    def run(self, until: tuple[int, int] | None) -> Counter[int] | list[Counter[int] | None]:
        """The value of a message (peer, number) as things are, or of all outputs. Fails if something is missing."""
        holds: dict[object, Counter[int] | None] = {}
        for space, roles in ((Space.INPUT, self.given.inputs), (Space.OUTPUT, self.given.outputs)):
            for index, role in enumerate(roles):
                holds[space, index] = None if role.holds is None else Counter([role.holds])
        for operation in self.schedule.operations:
            if isinstance(operation, Send):
                if (operation.peer, operation.message) == until:
                    value = holds[tuple(operation.source)]
                    assert value is not None, "sends what is not there yet"
                    return value
            elif isinstance(operation, Receive):
                value = self.delivered.get((operation.peer, operation.message))
                if value is not None and operation.operand is not None:
                    other = holds[tuple(operation.operand)]
                    value = None if other is None else value + other
                holds[tuple(operation.target)] = value
            elif isinstance(operation, Combine):
                values = [holds[tuple(operand)] for operand in operation.operands]
                holds[tuple(operation.target)] = None if None in values else sum(values, Counter())
        return [holds[Space.OUTPUT, index] for index in range(self.schedule.output_chunks)]


def messages_by_number(collective: str, algorithm: str, world: int, root: int) -> list[tuple[int, int, int]]:
    """(sender, receiver, index) of each message, as template() numbers them: as a rank's program first names them."""
    numbers: dict[tuple[int, int, int], None] = {}
    for rank in range(world):
        for operation in build(collective, algorithm, world, rank, root).operations:
            if isinstance(operation, Send):
                numbers.setdefault((rank, operation.peer, operation.message))
            elif isinstance(operation, Receive):
                numbers.setdefault((operation.peer, rank, operation.message))
    return list(numbers)


@pytest.mark.parametrize(("collective", "algorithm", "world"), EVERY)
def test_a_graph_computes_its_collective(collective: str, algorithm: str, world: int) -> None:
    root = world - 1
    graph = template(collective, algorithm, world, root)
    named = messages_by_number(collective, algorithm, world, root)
    assert [(a, b) for a, b, _ in named] == list(zip(graph.source, graph.destination, strict=True))
    load = Load()
    start = load.add_computations(np.arange(world), 1)[None, :]
    done = lay(load, graph, np.arange(world), world * 64, gates=start)[0]
    message_of = {
        int(row): index for index, row in enumerate(np.flatnonzero(load.tasks["kind"] == Kind.FLOW))
    }

    ranks = [Rank(collective, algorithm, world, rank, root) for rank in range(world)]
    waits = np.bincount(load.edges["after"], minlength=len(load.tasks))
    then: dict[tuple[int, int], list[int]] = {}
    for before, after, when in zip(
        *(load.edges[name].tolist() for name in ("before", "after", "when")), strict=True
    ):
        then.setdefault((before, when), []).append(after)
    draw = random.Random(world)
    ready = [task for task in range(len(load.tasks)) if waits[task] == 0]
    assert set(ready) == set(start[0].tolist())  # nobody takes part before his start
    seen = 0
    while ready:
        task = ready.pop(draw.randrange(len(ready)))
        seen += 1
        if task in message_of:
            sender, receiver, index = named[message_of[task]]
            value = ranks[sender].run((receiver, index))
            ranks[receiver].delivered[sender, index] = value
        elif task in done:
            rank = int(np.flatnonzero(done == task)[0])
            for role, value in zip(ranks[rank].given.outputs, ranks[rank].run(None), strict=True):
                wanted = Counter(other for other in range(world) if role.wants >> other & 1)
                assert value == wanted
        for when in (0, 1):
            for after in then.get((task, when), []):
                waits[after] -= 1
                if waits[after] == 0:
                    ready.append(after)
    assert seen == len(load.tasks)


def test_bytes_are_those_of_the_schedule() -> None:
    """A ring sends 2 (n - 1) / n of the tensor per rank, uneven parts and pieces included."""
    load = Load()
    lay(load, template("all_reduce", "ring", 5), np.arange(5), [1003, 77], pipeline_bytes=30)
    assert load.flows["bytes"].sum() == 2 * 4 * (1003 + 77)
    assert load.flows["bytes"].max() <= 30
    assert load.flows["bytes"].min() >= 1


def test_split_is_even() -> None:
    assert split([10, 3], 4).tolist() == [[2, 3, 2, 3], [0, 1, 1, 1]]
    assert split(7, 1).tolist() == [7]


def finish_ps(load: Load, tasks: np.ndarray, fabric: ThreeTier = STAR) -> np.ndarray:
    simulation = _core.Simulation(fabric.build(), _core.Policy(), "line_rate", {})
    load.apply(simulation)
    assert simulation.run()
    finished = simulation.task_times()["finished_ps"]
    assert (finished >= 0).all()
    return finished[tasks]


def step_ps(nbytes: int) -> int:
    """A message over two links, store and forward, of whole packets."""
    packets = -(-nbytes // PAYLOAD)
    return (packets + 1) * PACKET_PS + 2 * DELAY_PS


@pytest.mark.parametrize("world", [2, 4, 8])
def test_ring_takes_its_closed_form(world: int) -> None:
    """2 (N - 1) [(m + L - 1) s + L d] (docs/simulator/validation.md, 3), to the picosecond."""
    load = Load()
    part = 10 * PAYLOAD
    done = lay(load, template("all_reduce", "ring", world), np.arange(world), world * part)
    assert set(finish_ps(load, done)[0]) == {2 * (world - 1) * step_ps(part)}


def test_halving_doubling_takes_its_closed_form() -> None:
    """Rounds of n/2, n/4, … parts, one message per part, back to back; then the same backwards."""
    world, part = 8, 10 * PAYLOAD
    load = Load()
    done = lay(load, template("all_reduce", "halving_doubling", world), np.arange(world), world * part)
    finished = finish_ps(load, done)[0]
    ideal = 2 * sum(step_ps(parts * part) for parts in (4, 2, 1))
    assert finished.max() == pytest.approx(ideal, rel=0.15)  # parts of a round go on by themselves
    assert finished.min() >= 2 * 7 * 10 * PACKET_PS  # bandwidth: 2 (n - 1) parts


def test_all_to_all_takes_its_closed_form() -> None:
    """(N - 1) / N of the tensor on each link and a latency, when nobody's flows meet more than evenly."""
    world, part = 8, 20 * PAYLOAD
    load = Load()
    done = lay(load, template("all_to_all", "pairwise", world), np.arange(world), world * part)
    finished = finish_ps(load, done)[0]
    bound = 7 * 20 * PACKET_PS + PACKET_PS + 2 * DELAY_PS
    assert (finished >= bound).all()
    assert (finished <= 1.1 * bound).all()


def test_hub_takes_its_closed_form() -> None:
    """W workers push W S bytes through the hub's link, and it sends as many back."""
    load = Load()
    workers, nbytes = np.arange(6), 100 * PAYLOAD
    _, done = hub(load, workers, np.array([9]), nbytes, 0)
    finished = finish_ps(load, done)[0]
    each_way = 600 * PACKET_PS
    assert finished.max() == pytest.approx(2 * (each_way + PACKET_PS + 2 * DELAY_PS), rel=0.01)


def test_hub_shares_tensors_among_servers_and_spares_its_own_link() -> None:
    load = Load()
    hosts, sizes = np.arange(4), np.array([400, 100, 300, 200])
    _, done = hub(load, hosts, hosts, sizes, balanced(sizes, 4))
    assert len(load.flows) == 4 * 3 * 2  # a worker beside its server sends nothing
    assert load.flows["bytes"].sum() == 2 * 3 * sizes.sum()
    assert done.shape == (4, 4)
    assert balanced([5, 5, 5, 9], 2).tolist() == [1, 1, 0, 0]
    finish_ps(load, done)


@pytest.mark.parametrize(("kind", "world"), [("hub", 4), ("hierarchical", 6)])
def test_ends_wait_for_everybody(kind: str, world: int) -> None:
    """No rank is through before every rank's start has reached it, whatever the order."""
    load = Load()
    start = load.add_computations(np.arange(world), 1)
    if kind == "hub":
        _, done = hub(
            load, np.arange(world), np.array([8, 9]), [500, 700, 900], [0, 1, 0], gates=np.tile(start, (3, 1))
        )
    else:
        graph = template("all_reduce", "hierarchical", world, placement=in_groups(world, 2))
        done = lay(load, graph, np.arange(world), [600, 70], gates=np.tile(start, (2, 1)))
    reached = [{task} if task in start else set() for task in range(len(load.tasks))]
    order = np.argsort(load.edges["before"], kind="stable")
    for _ in range(12):
        for before, after in zip(load.edges["before"][order], load.edges["after"][order], strict=True):
            reached[after] |= reached[before]
    for task in done.reshape(-1):
        assert reached[task] >= set(start.tolist())


def test_hierarchical_sends_less_between_groups() -> None:
    load = Load()
    graph = template("all_reduce", "hierarchical", 8, placement=in_groups(8, 4))
    done = lay(load, graph, np.arange(8), 8000)
    between = load.flows["source"] // 4 != load.flows["destination"] // 4
    assert load.flows["bytes"][between].sum() == 4 * 2 * (2 - 1) * 2000  # a ring of two per shard, both ways
    assert load.flows["bytes"][~between].sum() == 2 * 2 * 3 * 8000  # reduce-scatter and all-gather
    assert len(set(finish_ps(load, done).reshape(-1))) == 1


def test_pieces_pipeline_a_chain() -> None:
    """A broadcast down a chain of 8: whole, 7 messages one after the other; in pieces, little more than one."""

    def slowest(pipeline_bytes: int | None) -> int:
        load = Load()
        graph = template("broadcast", "ring", 8, 0)
        done = lay(load, graph, np.arange(8), 100 * PAYLOAD, pipeline_bytes=pipeline_bytes)
        return int(finish_ps(load, done).max())

    assert slowest(None) == 7 * step_ps(100 * PAYLOAD)
    # Four pieces are under way at a time and share the link: so many packets a hop is behind the one before.
    hop_ps = step_ps(4 * 2 * PAYLOAD)
    assert slowest(2 * PAYLOAD) <= step_ps(100 * PAYLOAD) + 6 * hop_ps
    assert slowest(2 * PAYLOAD) >= step_ps(100 * PAYLOAD) + 6 * step_ps(2 * PAYLOAD)


def test_only_lossy_messages_may_lose() -> None:
    load = workloads.collective(
        collective="bounded_all_reduce",
        algorithm="direct",
        hosts=4,
        bytes=4000,
        loss_ratio=0.1,
        critical_ratio=0.5,
    ).build(STAR, 1)
    lossy = load.flows["loss_ratio"] > 0
    assert lossy.sum() == len(load.flows) // 2
    assert set(load.flows["critical_ratio"][lossy]) == {0.5}
    assert set(load.flows["critical_ratio"][~lossy]) == {1.0}


def test_collectives_follow_each_other() -> None:
    once, thrice = (
        workloads.collective(algorithm="ring", hosts=4, bytes=40_960, times=times).build(STAR, 1)
        for times in (1, 3)
    )
    ends = [finish_ps(load, np.arange(len(load.tasks))).max() for load in (once, thrice)]
    assert ends[1] == 3 * ends[0]


@pytest.mark.parametrize("algorithm", ["ring", "direct", "hub", "hierarchical"])
def test_every_kind_runs_as_a_workload(algorithm: str) -> None:
    work = workloads.collective(
        algorithm=algorithm, bytes=50_000, group_size=4, servers=2, start_s=1e-6, pipeline_bytes=5_000
    )
    load = work.build(STAR, 1)
    simulation = _core.Simulation(STAR.build(), _core.Policy(), "line_rate", {})
    load.apply(simulation)
    assert simulation.run()
    assert (simulation.task_times()["finished_ps"] >= 0).all()
    if algorithm == "hub":
        assert not set(load.flows["source"]) - set(range(16))
        assert set(load.flows["destination"][: len(load.flows) // 2]) <= {14, 15}


def test_acknowledged_ends_are_the_senders() -> None:
    """A rank to which nothing comes is through when what it sent is known to be there."""
    graph = template("reduce", "direct", 4, 2)
    sender = graph.done_rank != 2
    assert set(graph.done_when[sender]) == {When.ACKNOWLEDGED}
    assert set(graph.done_when[~sender]) == {When.FINISHED}


@pytest.mark.parametrize("steps", [1, 5, 30])
@pytest.mark.parametrize("part", [500, 10 * PAYLOAD])
def test_a_coarse_ring_takes_a_rings_time(steps: int, part: int) -> None:
    """Same bytes on every link; same time, as long as there are steps enough to be one."""
    world = 16
    ring = CoarseRing(steps, 2 * (DELAY_PS + 64 * 80) / 1e12, 100e9, PAYLOAD)
    load, exact = Load(), Load()
    done = ring.lay(load, np.arange(world), world * part)
    assert load.flows["bytes"].sum() == world * 2 * (world - 1) * part
    full = lay(exact, template("all_reduce", "ring", world), np.arange(world), world * part)
    took, exact_ps = finish_ps(load, done)[0], finish_ps(exact, full)[0]
    if steps == 30:
        assert took.tolist() == exact_ps.tolist()
    elif steps > 1:
        assert took == pytest.approx(exact_ps, rel=0.02)
    else:
        assert took.max() < 0.9 * exact_ps.min()


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halving_doubling"])
def test_the_executor_and_the_graph_take_about_as_long(algorithm: str) -> None:
    """The same collective over dlcp, as messages that wait for whole messages and by the executor, which pipelines."""
    times = {}
    for executor in (False, True):
        work = workloads.collective(algorithm=algorithm, hosts=4, bytes=4_000_000, executor=executor)
        result = Scenario(fabric=STAR, transport=Dlcp(), workload=work).run()
        assert result.tasks is not None
        assert np.isfinite(result.tasks.finish_s).all()
        times[executor] = float(result.tasks.finish_s.max())
        assert not executor or "4 of 4 tasks finished in " in result.summary()
    bytes_s = 2 * 3 / 4 * 4e6 * 8 / 100e9
    assert bytes_s < times[True] < 2 * bytes_s
    assert times[True] < 1.1 * times[False]


def test_a_bounded_job_over_dlcp_loses_within_its_budget() -> None:
    work = workloads.collective(
        collective="bounded_all_reduce",
        algorithm="direct",
        hosts=16,
        bytes=16_000_000,
        loss_ratio=0.1,
        critical_ratio=0.5,
    )
    flows = Scenario(fabric=STAR, transport=Dlcp(), workload=work).run().flows
    lossy = flows.abandoned_bytes > 0
    assert lossy.any()
    assert (flows.abandoned_bytes <= 0.1 * flows.bytes).all()
    assert flows.finished.all()


@pytest.mark.parametrize(
    ("collective", "algorithm", "world_size"), [*EVERY, *((c, a, 16) for c, a, world in EVERY if world == 8)]
)
def test_programs_made_by_turning_one_are_those_of_the_schedules(
    collective: str, algorithm: str, world_size: int
) -> None:
    """Ranks that do the same are not built one by one: each must still be what its schedule says."""
    made = rank_programs(collective, algorithm, world_size)
    for rank, program in enumerate(made):
        assert program.equals(rank_program(collective, algorithm, world_size, rank)), rank


def test_the_graph_of_a_ring_takes_time_in_proportion_to_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Building a rank's schedule in Python costs its messages: with one build per rank, set-up was quadratic."""
    from dlcp_sim.workloads import graphs

    built: list[int] = []
    build = graphs.build

    def counted(collective: str, algorithm: str, world_size: int, rank: int, *others: Any) -> RankSchedule:
        built.append(rank)
        return build(collective, algorithm, world_size, rank, *others)

    monkeypatch.setattr(graphs, "build", counted)
    graph = graphs.template.__wrapped__("all_reduce", "ring", 64)
    assert graph.messages == 64 * 2 * 63
    assert len(built) <= 5


def test_figures_count_what_the_executor_sent_again_and_gave_up() -> None:
    result = Scenario(
        fabric=ThreeTier(hosts_per_edge=8, rate_bps=100e9),
        transport=Dlcp(),
        workload=workloads.collective(
            collective="bounded_all_reduce",
            algorithm="direct",
            bytes=2_000_000,
            executor=True,
            loss_ratio=0.3,
            critical_ratio=0.2,
        ),
        faults=(RandomLoss("host 3", 0.02),),
    ).run()
    counters = result.metadata["transport_counters"]
    figures, collectives = result.figures(), result.collectives
    assert collectives is not None
    assert counters["abandoned_bytes"] > 0
    assert figures["abandoned_bytes"] == collectives.abandoned_bytes.sum() == counters["abandoned_bytes"]
    assert figures["retransmitted_packets"] > 0
    assert figures["delivered_bytes"] > 0
    assert "given up: " in result.summary()
    assert "packets: " in result.summary()
    assert " 0 sent again" not in result.summary()


@pytest.mark.parametrize(
    ("collective", "transport", "critical_ratio", "note"),
    [
        ("bounded_all_reduce", "dlcp", 1.0, "note: loss_ratio has no effect while critical_ratio is 1"),
        ("bounded_all_reduce", "dctcp", 0.5, "note: dctcp delivers all bytes: loss_ratio has no effect"),
        (
            "all_reduce",
            "dlcp",
            0.5,
            "note: all messages of all_reduce direct are reliable: loss_ratio has no",
        ),
        ("bounded_all_reduce", "dlcp", 0.5, ""),
    ],
)
def test_a_loss_ratio_without_effect_is_noted(
    collective: str, transport: str, critical_ratio: float, note: str
) -> None:
    result = Scenario(
        fabric=STAR,
        transport=transport_named(transport),
        workload=workloads.collective(
            collective=collective,
            algorithm="direct",
            bytes=100_000,
            loss_ratio=0.3,
            critical_ratio=critical_ratio,
        ),
    ).run()
    assert ("note: " in result.summary()) == bool(note)
    assert note in result.summary()


def test_classes_that_receivers_do_not_heed_are_noted() -> None:
    low, high = (workloads.permutation(bytes=10_000, traffic_class=number) for number in (0, 3))
    workload = workloads.together(low, high)
    notes = {
        name: Scenario(fabric=STAR, transport=transport_named(name), workload=workload)
        .run()
        .metadata["notes"]
        for name in ("ndp", "uet")
    }
    assert notes == {"ndp": ["receivers of ndp pull flows of all traffic classes in turn"], "uet": []}


def test_auto_is_what_the_library_takes() -> None:
    """Few hops for small data, a ring for large, by machines where their links are slower than their ranks'."""
    star = Star(8, rate_bps=25e9)
    machines = LeafSpine(2, 1, 4, rate_bps=200e9, uplink_rate_bps=25e9)
    for fabric, nbytes, group_size, expected in (
        (star, 64, 0, "one_shot"),
        (star, 64_000, 0, "direct"),
        (star, 100_000_000, 0, "ring"),
        (machines, 100_000_000, 4, "hierarchical"),
        (machines, 100_000_000, 0, "ring"),
    ):
        load = workloads.collective(bytes=nbytes, group_size=group_size).build(fabric, 1)
        assert load.labels == [f"all_reduce {expected}"]
        assert f"runs by {expected}, " in " ".join(Dlcp().notes(load))
