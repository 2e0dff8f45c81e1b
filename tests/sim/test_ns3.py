"""The same UDP packets over the same routes in ns-3: ports count the same, packets arrive at the same moments.

Routes are our simulator's (one per flow, by hash) and are given to ns-3, so that what is compared is links, queues and
times. ns3/fixed_routes.cc is compiled into build/ns3 when it or its compiler has changed: some seconds, once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlcp.study.network._ns3 import HEADER_BYTES, Ns3Error, program, run, sent_packets, work
from dlcp_sim import switches
from dlcp_sim.fabrics import Fabric, FatTree, LeafSpine
from dlcp_sim.result import Result
from dlcp_sim.scenario import Scenario, Trace
from dlcp_sim.transports import LineRate
from dlcp_sim.workloads.flows import Flows

PAYLOAD_BYTES = 4096


@pytest.fixture(scope="module")
def ns3() -> Path:
    """The compiled program; skips where ns-3 is not installed."""
    try:
        return program()
    except Ns3Error as error:
        if "compile" in str(error):
            raise
        pytest.skip(f"nothing was compared with ns-3: {error}")


def simulated(fabric: Fabric, source: np.ndarray, destination: np.ndarray, size: int, seed: int) -> Result:
    """Flows that start at different picoseconds, so that no two packets are ever due at the same one."""
    start_s = np.random.default_rng(seed).integers(1, 330_000, len(source)) * 1e-12
    return Scenario(
        fabric=fabric,
        transport=LineRate(payload_bytes=PAYLOAD_BYTES, header_bytes=HEADER_BYTES),
        workload=Flows(
            rows=tuple(
                (int(a), int(b), size, float(t)) for a, b, t in zip(source, destination, start_s, strict=True)
            )
        ),
        switch=switches.unbounded(path_choice="flow_hash"),
        seed=seed,
        trace=Trace("all", 10_000_000),
    ).run()


def arrivals_of(result: Result) -> dict[int, list[int]]:
    """When each flow's packets were at their destination, in picoseconds: sent by the last port, and over its link."""
    sent, ports = sent_packets(result), result.ports
    last = ports.receiver[sent["port"]] == sent["destination"]
    port = sent["port"][last]
    transmit_ps = (
        sent["wire_bytes"][last].astype(np.int64) * 8 * 10**12 // ports.rate_bps[port].astype(np.int64)
    )
    time_ps = sent["time_ps"][last] + transmit_ps + np.round(ports.delay_s[port] * 1e12).astype(np.int64)
    flow = sent["flow"][last]
    return {int(f): sorted(time_ps[flow == f].tolist()) for f in np.unique(flow)}


def compare(built: Path, result: Result) -> None:
    """Runs the same in ns-3, and asserts that nothing differs."""
    answer = run(built, work(result, PAYLOAD_BYTES))
    counters = np.zeros((len(result.ports), 2), np.uint64)
    arrivals: dict[int, list[int]] = {}
    for line in answer.splitlines():
        kind, *words = line.split()
        if kind == "port":
            counters[int(words[0])] = [int(words[1]), int(words[2])]
        elif kind == "arrival":
            arrivals.setdefault(int(words[0]), []).append(int(words[1]))
    ours = np.stack([result.ports.packets_sent.sum(axis=1), result.ports.bytes_sent.sum(axis=1)], axis=1)
    assert np.array_equal(ours, counters), np.flatnonzero((ours != counters).any(axis=1))
    assert arrivals_of(result) == arrivals
    ends = np.round((result.flows.start_s + result.flows.completion_s) * 1e12).astype(np.int64)
    assert ends.tolist() == [arrivals[flow][-1] for flow in range(len(result.flows))]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_permutation_on_a_fat_tree_is_as_in_ns3(ns3: Path, seed: int) -> None:
    fabric = FatTree(4, rate_bps=100e9, delay_s=1e-6)
    hosts = np.random.default_rng(seed).permutation(fabric.hosts)
    result = simulated(fabric, hosts, np.roll(hosts, -1), 150_000, seed)
    assert int(result.ports.max_depth_bytes.max()) > 10 * PAYLOAD_BYTES, (
        "no two flows met: nothing is compared"
    )
    compare(ns3, result)


def test_permutation_on_128_hosts_is_as_in_ns3(ns3: Path) -> None:
    fabric = FatTree(8, rate_bps=100e9, delay_s=1e-6)
    hosts = np.random.default_rng(1).permutation(fabric.hosts)
    compare(ns3, simulated(fabric, hosts, np.roll(hosts, -1), 60_000, 1))


def test_incast_with_a_slower_core_is_as_in_ns3(ns3: Path) -> None:
    fabric = LeafSpine(4, 2, 4, rate_bps=100e9, uplink_rate_bps=40e9, delay_s=1.5e-6)
    source = np.arange(1, fabric.hosts)
    compare(ns3, simulated(fabric, source, np.zeros_like(source), 100_000, 5))
