"""The transport dlcp from Python: settings, flows over the shipping engine, collectives of its executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlcp_sim as ds
from dlcp.errors import ArgumentError
from dlcp.transport.schedule import ALGORITHMS, Receive, Send, build
from dlcp_sim import _core
from dlcp_sim.transports import Dlcp
from dlcp_sim.workloads.executor import Collective, add_collective, compiled, memory_bytes, part_bytes

FABRIC = ds.FatTree(4, rate_bps=100e9, delay_s=1e-6)


def run(workload: ds.Workload, **settings: object) -> ds.Result:
    transport = settings.pop("transport", Dlcp())
    return ds.Scenario(fabric=FABRIC, transport=transport, workload=workload, seed=1, **settings).run()  # type: ignore[arg-type]


def test_parameters_are_in_native_units_and_leave_out_what_follows_from_the_fabric() -> None:
    assert "max_ack_delay_ps" not in Dlcp().parameters()
    given = Dlcp(min_rto_s=2e-5, congestion="line_rate", trim=True).parameters()
    assert given["min_rto_ps"] == 20_000_000
    assert given["congestion"] == 2
    assert given["trim"] == 1


def test_a_permutation_ends_within_a_third_of_its_bounds() -> None:
    result = run(ds.permutation(bytes=1_000_000))
    assert result.flows.finished.all()
    assert float(result.flows.slowdown.max()) < 1.33


def test_turns_keep_an_incast_s_queue_short() -> None:
    incast = ds.incast(bytes=500_000, senders=8)
    deepest = {
        congestion: int(
            run(
                incast, transport=Dlcp(congestion=congestion), switch=ds.switches.unbounded()
            ).ports.max_depth_bytes.max()
        )
        for congestion in ("window", "auto")
    }
    assert deepest["auto"] <= deepest["window"]


def test_a_bounded_flow_gives_up_nothing_where_nothing_is_lost() -> None:
    # Short flows over paths of unequal queues: few of their packets have shown how late the others are.
    load = ds.permutation(bytes=50_000, loss_ratio=0.3, critical_ratio=0.1)
    result = ds.Scenario(fabric=ds.FatTree(8), transport=Dlcp(), workload=load, seed=1).run()
    assert result.ports.packets_dropped.sum() == 0
    assert result.flows.abandoned_bytes.sum() == 0


def test_bounded_flows_under_overload_give_up_droppable_blocks_only() -> None:
    flows = ds.incast(bytes=400_000, senders=12, loss_ratio=0.2, critical_ratio=0.4)
    result = run(flows)
    abandoned = result.flows.abandoned_bytes
    assert result.flows.finished.all()
    assert 0 < int(abandoned.sum()) <= 12 * 80_000
    assert int(abandoned.max()) <= 80_000


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [(collective, algorithm) for collective, served in ALGORITHMS.items() for algorithm in served],
)
def test_every_collective_runs_on_the_executor_and_no_faster_than_its_links(
    collective: str, algorithm: str
) -> None:
    nbytes, hosts = 400_003, (0, 3, 5, 8, 11, 14)
    result = run(
        ds.collective(
            collective=collective, algorithm=algorithm, bytes=nbytes, hosts=hosts, executor=True, group_size=2
        )
    )
    over = result.tasks.finish_s
    assert np.isfinite(over).all()
    plans = [
        build(collective, algorithm, len(hosts), rank, 0, (0, 0, 1, 1, 2, 2)) for rank in range(len(hosts))
    ]
    most = 0.0
    for rank, plan in enumerate(plans):
        inputs, outputs = memory_bytes(collective, plan, len(hosts), rank, nbytes)
        lengths = {0: part_bytes(inputs, plan.input_chunks), 1: part_bytes(outputs, plan.output_chunks)}
        lengths[2] = [lengths[int(space)][index] for space, index in plan.scratch]
        sent = [operation.source for operation in plan.operations if isinstance(operation, Send)]
        received = [operation.target for operation in plan.operations if isinstance(operation, Receive)]
        for chunks in (sent, received):
            carried = sum(lengths[int(chunk.space)][chunk.index] for chunk in chunks)
            most = max(most, 8 * carried / 100e9)
    assert float(np.max(over)) >= most
    assert float(np.max(over)) < 3 * most + 100e-6


def test_a_bounded_collective_on_the_executor_abandons_within_its_budget() -> None:
    fabric = ds.Star(8, rate_bps=100e9, delay_s=1e-6)
    policy = ds.switches.dlcp(fabric, drop_from_bytes=0, drop_full_bytes=4000)
    simulation = _core.Simulation(
        fabric.build(), ds.switches.to_core(policy), "dlcp", Dlcp().parameters(), seed=3
    )
    one = Collective(
        "bounded_all_reduce", "direct", tuple(range(8)), 4_000_000, loss_ratio=0.1, critical_ratio=0.2
    )
    index = add_collective(simulation, one)
    simulation.add_tasks(
        kind=np.full(8, 2, np.uint8),
        host=np.arange(8, dtype=np.uint32),
        value=(np.int64(index) << 32) | np.arange(8),
        channel=np.full(8, _core.NONE, np.uint32),
        priority=np.zeros(8, np.int64),
        channel_bytes=np.zeros(8, np.uint64),
        returned_by=np.full(8, _core.NONE, np.uint32),
    )
    assert simulation.run()
    found = _core.collective_results(simulation, index)
    assert found["error"] == [None] * 8
    assert (found["finished_ps"] > 0).all()
    assert 0 < found["abandoned_bytes"].sum() <= 0.1 * 7 * 4_000_000
    per_message = [
        each.abandoned_bytes / each.message_bytes
        for rank in range(8)
        for each in _core.collective_result(simulation, index, rank).abandoned
    ]
    assert max(per_message) <= 0.1


def test_only_dlcp_runs_collectives_itself() -> None:
    simulation = _core.Simulation(FABRIC.build(), _core.Policy(), "line_rate", {})
    with pytest.raises(ValueError, match='transport "dlcp" only'):
        add_collective(simulation, Collective("all_reduce", "ring", hosts=(0, 1), bytes=8))


def test_parts_are_those_of_a_communicator() -> None:
    assert part_bytes(4096, 4) == [1024] * 4
    assert part_bytes(1000, 3) == [384, 384, 232]
    assert part_bytes(100, 4) == [64, 36, 0, 0]
    assert part_bytes(10, 0) == []
    assert compiled("all_reduce", "ring", 4, 1) is compiled("all_reduce", "ring", 4, 1)


def hub_run(fabric: ds.Fabric, nbytes: int, **how: Any) -> ds.Result:
    load = ds.collective(algorithm="hub", bytes=nbytes, executor=True, **how)
    return ds.Scenario(fabric=fabric, transport=Dlcp(), workload=load, seed=1).run()


def test_a_hub_takes_what_a_workers_link_takes_and_a_ring_more() -> None:
    """8 workers, 8 cores on hosts of their own, at 25 Gb/s: a link carries the tensor once, in a ring 1.75 times."""
    nbytes, fabric = 4_194_304, ds.Star(16, rate_bps=25e9, delay_s=1e-6)
    over_hub = float(np.max(hub_run(fabric, nbytes, servers=8, times=2).tasks.finish_s))
    ring = ds.Scenario(
        fabric=fabric,
        transport=Dlcp(),
        workload=ds.collective(algorithm="ring", bytes=nbytes, executor=True, hosts=8, times=2),
        seed=1,
    ).run()
    link_s = 2 * 8 * nbytes / 25e9
    assert link_s < over_hub < 1.15 * link_s
    assert over_hub < 0.65 * float(np.max(ring.tasks.finish_s))


def test_a_racks_up_link_carries_the_tensor_twice_less_its_own_part() -> None:
    """2 (r - 1) / r of it over r racks, plus headers and acknowledgements: once here, with 4 workers in each of 2."""
    nbytes = 4_194_304
    result = hub_run(
        ds.LeafSpine(2, 1, 6, rate_bps=25e9),
        nbytes,
        hosts=(0, 1, 2, 3, 6, 7, 8, 9),
        servers=(4, 5, 10, 11),
        group_size=4,
    )
    sent = result.ports.bytes_sent.sum(axis=1)
    up = [int(sent[port]) for port in range(len(sent)) if result.ports.name(port).endswith("→ aggregation 0")]
    assert len(up) == 2
    assert all(nbytes <= carried < 1.12 * nbytes for carried in up)


def test_servers_that_are_not_as_many_for_each_rack_are_refused() -> None:
    with pytest.raises(ArgumentError, match="3 servers for 2 racks; accepted: as many for each rack"):
        hub_run(ds.Star(7, rate_bps=25e9), 1000, hosts=4, servers=3, group_size=2)
