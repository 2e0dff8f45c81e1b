"""What the core says to columns, hosts and calls that it cannot take: errors with names, and nothing half done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlcp_sim import _core, switches
from dlcp_sim.fabrics import FatTree, Star
from tests.support.simulation import Flow, add_flows, permutation


def core(fabric: Any = None, transport: str = "line_rate", **settings: Any) -> Any:
    built = (fabric or Star(4)).build()
    return _core.Simulation(built, switches.to_core(switches.unbounded()), transport, {}, **settings)


def test_flows_that_come_too_late_leave_the_others_as_they_are() -> None:
    flows = permutation(16, 1_000_000)
    expected = core(FatTree(4))
    add_flows(expected, flows)
    assert expected.run()
    found = core(FatTree(4))
    add_flows(found, flows)
    found.run(until_ps=10**6)
    with pytest.raises(RuntimeError, match="flows are added before the run"):
        add_flows(found, [Flow(0, 1, 5)] * 100_000)
    # What the flows stood in before must not be looked at any more.
    memory = [np.full(16 * n, 255, np.uint8) for n in range(500)]
    assert found.run()
    assert len(memory) == 500
    for name, column in expected.flow_results().items():
        assert (found.flow_results()[name] == column).all(), name


def test_flows_are_added_all_or_none() -> None:
    simulation = core()
    add_flows(simulation, [Flow(0, 1, 1000)])
    with pytest.raises(ValueError, match="destination is 9; accepted: hosts 0 to 3"):
        add_flows(simulation, [Flow(0, 2, 1000), Flow(0, 9, 1000)])
    assert len(simulation.flow_bounds()) == 1
    assert simulation.run()
    assert simulation.flows_finished == 1


@pytest.mark.parametrize("transport", ["line_rate", "tcp", "dctcp", "pfabric", "ndp", "dcqcn", "uet", "dlcp"])
def test_flows_longer_than_packets_can_be_numbered_are_refused(transport: str) -> None:
    simulation = core(transport=transport)
    for flow_bytes in (2**50, 2**63, 2**64 - 1):
        with pytest.raises(ValueError, match=rf"bytes is {flow_bytes}; accepted: less than 2\^28 packets"):
            add_flows(simulation, [Flow(0, 1, flow_bytes)])


@pytest.mark.parametrize("start_ps", [-2, 2**55 + 1, 2**62])
def test_flows_that_begin_at_no_time_are_refused(start_ps: int) -> None:
    with pytest.raises(ValueError, match=rf"start_ps is {start_ps}; accepted: 0 to 2\^55"):
        add_flows(core(), [Flow(0, 1, 1, start_ps)])


def test_computations_that_do_not_end_are_refused() -> None:
    one = np.zeros(1, np.uint32)
    with pytest.raises(
        ValueError, match=r"value is 4611686018427387904; accepted: computations of 0 to 2\^55 ps"
    ):
        core().add_tasks(
            kind=np.zeros(1, np.uint8),
            host=one,
            value=np.array([2**62]),
            channel=one + _core.NONE,
            priority=np.zeros(1, np.int64),
            channel_bytes=np.zeros(1, np.uint64),
            returned_by=one + _core.NONE,
        )


def test_run_that_failed_is_not_run_again() -> None:
    simulation = core()
    add_flows(simulation, [Flow(0, 1, 5, -1)])
    with pytest.raises(ValueError, match="no start and no task"):
        simulation.run()
    with pytest.raises(RuntimeError, match="has failed does not go on; it said: .*no task"):
        simulation.run()


def test_hosts_out_of_range_have_no_round_trip() -> None:
    with pytest.raises(ValueError, match="host is 9999999; accepted: 0 to 3"):
        core().base_rtt_ps(0, 9_999_999, 1, 1)


def test_columns_of_other_shapes_and_lengths_are_refused() -> None:
    def columns(**other: Any) -> dict[str, Any]:
        zeros: dict[str, Any] = {
            "source": np.zeros(1, np.uint32),
            "destination": np.ones(1, np.uint32),
            "bytes": np.ones(1, np.uint64),
            "start_ps": np.zeros(1, np.int64),
            "traffic_class": np.zeros(1, np.uint8),
            "loss_ratio": np.zeros(1),
            "critical_ratio": np.ones(1),
            "patience_ps": np.full(1, -1, np.int64),
            "label": np.zeros(1, np.uint32),
        }
        return zeros | other

    simulation = core()
    assert simulation.add_flows(**columns()) == 0
    with pytest.raises(ValueError, match="columns have 1 and 2 entries"):
        simulation.add_flows(**columns(bytes=np.ones(2, np.uint64)))
    for wrong in (np.zeros((1, 1), np.uint32), np.array(["host 0"]), None):
        with pytest.raises(TypeError):
            simulation.add_flows(**columns(source=wrong))
    with pytest.raises(ValueError, match=r"loss_ratio is nan; accepted: \[0, 1\)"):
        simulation.add_flows(**columns(loss_ratio=np.full(1, np.nan)))
