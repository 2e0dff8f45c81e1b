"""Hosts whose processors take time: what that costs, and what results say of their hosts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

pytest.importorskip("dlcp_sim._core", reason="the extension module is not built")

import dlcp_sim as ds
from dlcp.errors import ArgumentError
from dlcp_sim import _core
from dlcp_sim.hosts import COSTS, REASONS, beside_shipped
from dlcp_sim.report.tables import unlike
from dlcp_sim.transports import TRANSPORTS

ONE_FLOW = ds.Flows(rows=((0, 1, 4_000_000),))


def run(transport: ds.Transport, hosts: str, workload: Any = ONE_FLOW, **more: Any) -> ds.Result:
    return ds.Scenario(fabric=ds.Star(9), transport=transport, workload=workload, hosts=hosts, **more).run()


def test_runs_are_cheaper_than_single_packets_by_their_costs() -> None:
    """Of a packet in a run of 44, and of one by itself: host_costs.cpp, 1472 bytes and those below them."""

    def took_s(run_packets: int) -> float:
        transport = ds.Dlcp(run_packets=run_packets, paths=2 if run_packets == 1 else 1, datagram_bytes=1472)
        return float(run(transport, "sockets").flows.completion_s[0])

    message_ns, packet_ns, byte_ns = 2310, 286 + 156, 0.085
    both = packet_ns + byte_ns * (1472 + 66)
    expected = (message_ns + both) / (message_ns / 44 + both)
    assert took_s(1) / took_s(44) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("transport", [ds.Dlcp(run_packets=16, paths=1), ds.Tcp()], ids=lambda t: str(t.name))
def test_flows_to_several_hosts_are_sent_in_runs_too(transport: ds.Transport) -> None:
    """In turns packet by packet each packet would be a message of its own."""

    def last_s(*destinations: int) -> float:
        rows = tuple((0, host, 8_000_000 // len(destinations)) for host in destinations)
        return float(run(transport, "sockets", ds.Flows(rows=rows)).flows.completion_s.max())

    assert last_s(1, 2, 3, 4) < 1.25 * last_s(1)


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_every_transport_runs_on_every_kind_of_host(kind: str) -> None:
    workload = ds.incast(senders=4, bytes=50_000)
    took_s = {}
    for hosts in COSTS:
        result = run(TRANSPORTS[kind](), hosts, workload)
        assert result.flows.finished.all()
        assert (result.flows.delivered_bytes == 50_000).all()
        took_s[hosts] = result.flows.completion_s.max()
    assert took_s["free"] < took_s["xdp"] < took_s["sockets"]


def test_a_wake_up_is_paid_by_who_was_idle() -> None:
    """One packet: both hosts wake, and pay for a message, a packet and its bytes."""
    one = ds.Flows(rows=((0, 1, 1000),))
    free_s, sockets_s = (
        run(ds.LineRate(), hosts, one).flows.completion_s[0] for hosts in ("free", "sockets")
    )
    each_s = 5e-6 + 2310e-9 + (286 + 156) * 1e-9 + 1064 * 85e-12
    assert sockets_s - free_s == pytest.approx(2 * each_s, rel=1e-6)


def test_what_a_host_has_no_room_for_is_dropped_and_counted() -> None:
    result = run(ds.LineRate(), "sockets", ds.incast(senders=8, bytes=4_000_000), until_s=0.1)
    dropped = result.metadata["packets_dropped_at_hosts"]
    assert 0 < dropped < 8 * 977
    assert result.figures()["packets_dropped"] == 0
    assert not result.flows.finished.all()
    assert "packets dropped, for which a processor had no time" in result.summary()


@pytest.mark.parametrize("transport", [ds.Dlcp(), ds.Tcp()], ids=lambda t: str(t.name))
def test_threads_change_nothing(transport: ds.Transport) -> None:
    each = [
        ds.Scenario(
            fabric=ds.FatTree(4),
            transport=transport,
            workload=ds.permutation(bytes=200_000),
            hosts="sockets",
            threads=threads,
        ).run()
        for threads in (1, 3)
    ]
    assert (each[0].flows.completion_s == each[1].flows.completion_s).all()


def test_hosts_are_a_setting_like_others() -> None:
    scenario = ds.Scenario(fabric=ds.Star(3), transport=ds.Ndp(), workload=ONE_FLOW, hosts="xdp")
    assert ds.Scenario.from_dict(scenario.as_dict()) == scenario
    assert scenario.run().scenario["hosts"] == "xdp"
    assert list(COSTS) == _core.host_names()
    with pytest.raises(ArgumentError, match="hosts is 'socket'; accepted: free, sockets, xdp"):
        dataclasses.replace(scenario, hosts="socket")


# ---- what is said ----


def test_every_difference_from_the_shipped_hosts_has_a_reason() -> None:
    found = beside_shipped(ds.Dlcp())
    assert set(found) <= set(REASONS), "say in REASONS why this must differ, or make it the same"
    assert set(REASONS) <= set(_core.engine_settings({}))
    assert found["virtual_payload"] == (True, False)
    assert found["max_ack_delay_s"][0] is None, "it follows from the fabric"
    assert beside_shipped(ds.Uet()) == {}


def test_a_result_says_which_hosts_it_holds_for() -> None:
    result = run(ds.Dlcp(paths=3, min_rto_s=1.5e-3), "sockets")
    head = result.summary().partition("\n\n")[0]
    assert "\nhosts: sockets, packets cost them" in head
    assert "paths 3 (64)" in " ".join(head.split())
    assert "min_rto_s 0.0015 (0.0002)" in " ".join(head.split())
    assert ds.Result.from_bytes(result.to_bytes()).summary() == result.summary()


def test_a_comparison_says_only_what_differs() -> None:
    dlcp, tcp, tuned = (
        run(transport, "free") for transport in (ds.Dlcp(), ds.Tcp(), ds.Tcp(mtu_bytes=1500, persistent=True))
    )
    rows = {line.split("  ")[0]: line.split()[1:] for line in unlike([dlcp, tcp])}
    assert rows["connections"] == ["kept", "new"]
    assert rows["header, bytes"][-2:] == ["130", "90"]
    assert not {"payload, bytes", "hosts", "set"} & set(rows)
    rows = {line.split("  ")[0]: line for line in unlike([tcp, tuned])}
    assert rows["payload, bytes"].split()[-2:] == ["4096", "1448"]
    assert rows["set"].split("  ")[-1].strip() == "mtu_bytes=1500, persistent=True"
    assert rows["connections"].split()[-2:] == ["new", "kept"]
