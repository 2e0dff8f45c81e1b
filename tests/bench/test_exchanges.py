"""The simulated exchanges: what a worker's port and an up-link carry is what the schedules' formulas say."""

from __future__ import annotations

import pytest

from bench.exchanges import NETWORKS, Network, simulate

pytest.importorskip("dlcp_sim._core", reason="the simulator is not built")
NBYTES = 1 << 20
HOSTS = Network(8, 200e9, 4, 25e9)


@pytest.mark.parametrize(
    ("exchange", "servers", "worker", "uplink"),
    # Two hosts of four workers. A hub's servers are below the up-link, as their workers.
    [
        ("ring", 0, 14 / 8, 14 / 8),
        ("hierarchical", 0, 14 / 8, 1.0),
        ("hub", 8, 1.0, 1.0),
        ("switch", 0, 1.0, 1.0),
    ],
)
def test_ports_carry_what_the_formulas_say(exchange: str, servers: int, worker: float, uplink: float) -> None:
    seconds, from_worker, over_uplink = simulate(HOSTS, exchange, servers, NBYTES)
    assert uplink * NBYTES * 8 / HOSTS.uplink_bps < seconds
    assert worker <= from_worker / NBYTES < 1.25 * worker
    assert uplink <= over_uplink / NBYTES < 1.25 * uplink


def test_servers_and_workers_of_every_network_are_apart_and_alike_in_each_group() -> None:
    for network in NETWORKS.values():
        for servers in network.servers:
            places = network.places(servers)
            assert len(places["hosts"]) == network.workers
            assert len(places["servers"]) == servers
            everyone = sorted(places["hosts"] + places["servers"])
            assert everyone == list(range(network.fabric(servers).hosts))
