"""Switch policies: that they are as their authors set them, and that the simulator's switches do what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlcp.switch import Policy, PolicyError, Port, Thresholds, TrafficClass
from dlcp.switch.policy import DROPPABLE_LEVELS
from dlcp_sim import switches
from dlcp_sim.fabrics import Fabric, FatTree, LeafSpine, Star, TwoSites
from tests.support.simulation import Flow, completions_ps, simulate

PACKET, WIRE = 4096, 4160
S_PS = 332_800

FABRICS: dict[str, Fabric] = {
    "fat-tree": FatTree(8),
    "10 Gb/s": LeafSpine(9, 4, 16, rate_bps=10e9, uplink_rate_bps=40e9, delay_s=2e-7),
    "400 Gb/s": Star(4, rate_bps=400e9, delay_s=1e-7),
    "two sites": TwoSites(2, 2, 4, long_delay_s=10e-3),
    "1 Gb/s": Star(4, rate_bps=1e9, delay_s=1e-5),
}


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
@pytest.mark.parametrize("name", [*switches.BY_NAME, "unbounded"])
def test_policy_holds_on_any_fabric(fabric: Fabric, name: str) -> None:
    policy = switches.unbounded() if name == "unbounded" else switches.BY_NAME[name](fabric)
    assert policy.name == name
    assert Policy.from_toml(policy.to_toml()) == policy
    core = switches.to_core(policy)
    assert core.path_choice == policy.path_choice
    assert core.validate() == ""


def test_core_policy_has_every_field() -> None:
    policy = Policy(
        path_choice="adaptive",
        shared_bytes=1_000_000,
        shared_alpha_log2=-3,
        trimmed_bytes=87,
        trimmed_class=5,
        pause_above_bytes=9_000,
        resume_below_bytes=8_000,
    )
    core = switches.to_core(policy)
    for name in (
        "path_choice",
        "shared_bytes",
        "shared_alpha_log2",
        "trimmed_bytes",
        "trimmed_class",
        "pause_above_bytes",
        "resume_below_bytes",
    ):
        assert getattr(core, name) == getattr(policy, name)
    assert switches.to_core(Policy(port_bytes=77)).port_bytes == 77


def test_thresholds_of_single_ports_are_refused_and_not_forgotten() -> None:
    one = TrafficClass(3, critical=Thresholds(9_000))
    policy = Policy(classes=(one,), ports=(Port("Ethernet0", 10**11), Port("Ethernet4", 10**11, (one,))))
    with pytest.raises(PolicyError, match="port 'Ethernet4' has thresholds of its own; accepted: none"):
        switches.to_core(policy)
    switches.to_core(replace(policy, ports=policy.ports[:1]))


def test_figures_are_those_of_the_papers() -> None:
    ten = FABRICS["10 Gb/s"]
    # pFabric, 4.1: two bandwidth-delay products; its fabric has a round trip of 14.6 us, so about 36 kB.
    rtt_s = ten.base_rtt_s(1500)
    assert switches.pfabric(ten).port_bytes == pytest.approx(2 * rtt_s * 10e9 / 8, rel=0.001)
    # NDP, 3.1: eight packets, and as many bytes of headers.
    ndp = switches.ndp(ten)
    assert (
        ndp.traffic_class(0).critical == ndp.traffic_class(0).level(3) == Thresholds(trim_above_bytes=63_000)
    )
    assert ndp.traffic_class(7).critical.drop_above_bytes == 72_000
    # DCQCN, table 14, at 40 Gb/s.
    marks = switches.lossless(Star(4, rate_bps=40e9)).traffic_class(0).critical
    assert (marks.mark_from_bytes, marks.mark_full_bytes, marks.mark_ratio) == (5_000, 200_000, 0.01)
    # RFC 8257, 4.1: K above C RTT / 7; for short round trips, room for twenty packets.
    long = TwoSites(2, 2, 4, long_delay_s=10e-3)
    k = switches.dctcp(long, port_bytes=10**9).traffic_class(0).critical.mark_from_bytes
    assert k == pytest.approx(100e9 * long.base_rtt_s(WIRE) / 8 / 7, rel=1e-6)
    assert switches.dctcp(long).traffic_class(0).critical.mark_from_bytes == 250_000
    assert switches.dctcp(ten, packet_bytes=1500).traffic_class(0).critical.mark_from_bytes == 30_000
    # NSCC: 0.2, 0.8 and 1 bandwidth-delay products.
    marks = switches.trimming(FABRICS["fat-tree"]).traffic_class(0).critical
    product = FABRICS["fat-tree"].bandwidth_delay_bytes(WIRE)
    assert (marks.mark_from_bytes, marks.mark_full_bytes, marks.trim_above_bytes) == (
        product // 5,
        product * 4 // 5,
        product,
    )


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
@pytest.mark.parametrize("trim", [False, True])
def test_dlcp_droppable_packets_make_room_before_critical_ones_do(fabric: Fabric, trim: bool) -> None:
    policy = switches.dlcp(fabric, trim=trim)
    for number in range(7):
        one = policy.traffic_class(number)
        limits = [one.level(i).trim_above_bytes if trim else one.level(i).drop_above_bytes for i in range(8)]
        assert len(set(limits)) == DROPPABLE_LEVELS
        assert limits == sorted(limits)
        end = one.critical.trim_above_bytes if trim else one.critical.drop_above_bytes
        assert limits[0] >= end // 2, "what is dropped early leaves a link idle"
        assert one.critical.mark_from_bytes < limits[-1] <= end < policy.port_bytes
        assert trim or limits[-1] == end * 3 // 4, "critical packets find room"
    assert policy.traffic_class(7) == type(one)(7)


# --- what the simulator's switches make of them --------------------------------------------------------------


def overload(
    policy: Policy, senders: int = 2, packets: int = 2000, **more: float
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Counters of the overloaded port by class, and how long each flow took."""
    fabric = Star(senders + 1)
    flows = [Flow(1 + i, 0, packets * PACKET) for i in range(senders)]
    found = simulate(fabric, flows, policy=policy, parameters=more)
    port = fabric.port("edge 0", "host 0")
    return {name: values[port] for name, values in found.port_counters().items()}, completions_ps(found)


def test_drop_tail_fills_its_buffer_and_no_more() -> None:
    fabric = Star(3)
    policy = switches.drop_tail(fabric, port_bytes=50 * WIRE + 7)
    port, _ = overload(policy)
    assert port["max_depth_bytes"].max() == 50 * WIRE
    # 4000 come in the time of 2000; the port is busy from the first to the last and then empties its queue.
    assert port["packets_in"][0] == 4000
    assert abs(int(port["packets_sent"][0]) - 2050) <= 1
    assert port["packets_dropped"][0] == 4000 - port["packets_sent"][0]
    assert port["packets_marked"].sum() == port["packets_trimmed"].sum() == 0


def test_dctcp_marks_what_finds_more_than_k() -> None:
    fabric = Star(3)
    k = 20 * WIRE
    port, took = overload(switches.dctcp(fabric, mark_above_bytes=k, port_bytes=10**9))
    # Two come while one leaves: the n-th pair finds n - 1 and n waiting, or so; all but the first 40 find more than 20.
    assert 4000 - 45 <= port["packets_marked"][0] <= 4000 - 38
    assert (took > 0).all()
    port, _ = overload(switches.dctcp(fabric, mark_above_bytes=2000 * WIRE, port_bytes=10**9))
    assert port["packets_marked"][0] == 0


def test_ramp_marks_with_rising_probability() -> None:
    # The queue grows evenly from nothing to 2000 packets: below 500 none, to 1500 half of half, above all.
    policy = switches.lossless(
        Star(3), mark_from_bytes=500 * WIRE, mark_full_bytes=1500 * WIRE, mark_ratio=0.5
    )
    port, _ = overload(replace(policy, pause_above_bytes=None, resume_below_bytes=0))
    expected = 2000 * 0.25 + 1000
    assert abs(int(port["packets_marked"][0]) - expected) < 4 * (2000 * 0.25 * 0.75) ** 0.5 + 10


def test_ndp_keeps_eight_packets_and_every_header() -> None:
    policy = switches.ndp(Star(3), packet_bytes=WIRE)
    port, _ = overload(policy, packets=500, ecn_capable=0)
    assert port["max_depth_bytes"][0] == 8 * WIRE
    assert port["packets_trimmed"][0] == port["packets_in"][7] == port["packets_sent"][7] > 400
    assert port["packets_sent"][0] + port["packets_trimmed"][0] == 1000
    assert port["bytes_sent"][7] == 64 * port["packets_sent"][7]
    assert port["packets_dropped"].sum() == 0


def test_header_queue_ends_somewhere() -> None:
    # Of eighty packets at once nearly all are cut to 64 bytes: 5 kB in the time of 4, so that headers alone overload.
    policy = switches.ndp(Star(81), packet_bytes=WIRE, queue_packets=2)
    port, _ = overload(policy, senders=80, packets=20, ecn_capable=0)
    assert port["max_depth_bytes"][7] <= 2 * WIRE + 64
    assert port["packets_dropped"][7] > 0


def test_lossless_fabric_pauses_and_loses_nothing() -> None:
    fabric = FatTree(4)
    policy = switches.lossless(fabric, pause_above_bytes=20 * WIRE)
    flows = [Flow(i, 0, 400 * PACKET) for i in range(1, 16)]
    found = simulate(fabric, flows, policy=policy)
    counters = found.port_counters()
    assert (completions_ps(found) > 0).all()
    assert counters["packets_dropped"].sum() == 0
    assert counters["pauses"].sum() > 10
    # An input may fill the threshold and what is under way when the pause is sent: a round trip and two packets. The
    # last switch has two hosts' inputs and two uplinks, less the receiver's own.
    headroom = 2 * 1e-6 * 100e9 / 8 + 3 * WIRE + 84
    assert counters["max_depth_bytes"].max() <= 3 * (20 * WIRE + WIRE + headroom)
    # Pauses reached the hosts, and the receiver's link was never idle: 15 flows of 400 packets, one after the other.
    assert counters["pauses"][: fabric.hosts].sum() > 0
    last_ps = completions_ps(found).max()
    assert 15 * 400 * S_PS < last_ps < 15 * 400 * S_PS * 1.01


@pytest.mark.parametrize(("alpha_log2", "share"), [(0, 1 / 2), (-2, 1 / 5), (3, 8 / 9)])
def test_one_hot_port_gets_its_dynamic_threshold(alpha_log2: int, share: float) -> None:
    # q = alpha (B - q) at the end: Choudhury and Hahne, ToN 1998, II.
    shared = 1000 * WIRE
    policy = switches.with_shared_buffer(switches.unbounded(), shared, alpha_log2)
    port, _ = overload(policy)
    assert port["max_depth_bytes"].max() == pytest.approx(share * shared, abs=2 * WIRE)


def test_two_hot_ports_share_a_buffer_evenly() -> None:
    shared = 1000 * WIRE
    policy = switches.with_shared_buffer(switches.unbounded(), shared, 1)
    fabric = Star(6)
    flows = [Flow(2 + i, i % 2, 2000 * PACKET) for i in range(4)]
    found = simulate(fabric, flows, policy=policy)
    for host in (0, 1):
        depth = found.port_counters()["max_depth_bytes"][fabric.port("edge 0", f"host {host}")].max()
        assert depth == pytest.approx(2 / 5 * shared, rel=0.02)  # alpha B / (1 + 2 alpha)


def test_high_class_goes_first() -> None:
    fabric = Star(3)
    flows = [Flow(1, 0, 500 * PACKET, traffic_class=2), Flow(2, 0, 500 * PACKET, traffic_class=5)]
    low, high = completions_ps(simulate(fabric, flows)) / S_PS
    assert 501 < high < 510
    assert 1001 < low < 1010
