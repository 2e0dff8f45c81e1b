"""What the doctor concludes from measurements between ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlcp.doctor.finding import Finding, Verdict
from dlcp.doctor.probe import RankPair
from dlcp.doctor.rank_pairs import PairMember, look_at_rank_pairs
from dlcp.doctor.ranks import rounds


def member(rank: int, **changes: object) -> PairMember:
    return replace(
        PairMember(
            name=f"rank {rank}",
            host=f"node{rank}",
            address=f"10.0.0.{rank}:700{rank}",
            interface="eth0",
            where=f"place {rank}",
            version="0.1.0",
            wire_version=1,
            torch="2.13.0",
        ),
        **changes,
    )


def pair(source: int, target: int, **changes: object) -> RankPair:
    return replace(
        RankPair(
            source=source,
            target=target,
            rtt_s=100e-6,
            echo_s=200e-6,
            goodput_bps=9e9,
            sent_packets=10_000,
            lost_packets=0,
            datagram_bytes=1472,
            datagram_bytes_own=1472,
            clock_offset_s=1e-3,
        ),
        **changes,
    )


def closed(source: int, target: int, silence: str | None) -> RankPair:
    return RankPair(source=source, target=target, error="it did not answer", silence=silence)


def all_pairs(size: int) -> list[RankPair]:
    return [pair(a, b) for a in range(size) for b in range(size) if a != b]


def not_ok(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.verdict != Verdict.OK]


def test_healthy_ranks_are_all_in_order() -> None:
    findings = look_at_rank_pairs([member(rank) for rank in range(3)], all_pairs(3))
    assert not_ok(findings) == []
    assert [(one.topic, one.text) for one in findings] == [
        ("versions", "all run dlcp 0.1.0, wire version 1"),
        ("reach", "all 6 pairs of 3 are open"),
        ("mtu", "every pair carries datagrams of 1472 bytes"),
        ("speed", "goodput 9.00 to 9.00 Gbit/s, least round trip 100 to 100 µs"),
        ("loss", "at most 0.1 % of packets were lost on any pair, at full speed"),
        ("clock", "times of day differ by at most 1.0 ms"),
    ]


def test_silent_pair_names_both_ends_and_the_firewall_command() -> None:
    findings = look_at_rank_pairs([member(0), member(1)], [closed(0, 1, "silent"), closed(1, 0, "silent")])
    (found,) = not_ok(findings)
    assert found.verdict == Verdict.FAIL
    assert found.text == (
        "rank 0 (node0, eth0, 10.0.0.0:7000) and rank 1 (node1, eth0, 10.0.0.1:7001) do not reach each other: nothing"
        " comes back, as when a firewall drops UDP or the network does not route between them"
    )
    assert found.remedy == (
        "on node1: nft insert rule inet filter input ip saddr 10.0.0.0 meta l4proto udp accept (or: iptables -I INPUT"
        " -s 10.0.0.0 -p udp -j ACCEPT), and the same between them; routes: ip route get 10.0.0.1"
    )


def test_silent_listener_may_have_another_key_before_a_firewall_is_opened() -> None:
    pairs = [closed(0, 1, "silent"), closed(1, 0, "silent")]
    (found,) = not_ok(look_at_rank_pairs([member(0), member(1)], pairs, keys_agree=False))
    assert (
        "nothing comes back, as when the job keys or job numbers differ, a firewall drops UDP or"
        in found.text
    )
    assert str(found.remedy).startswith("first compare the keys, on both hosts: sha256sum")
    assert "if they are equal, on node1: nft insert rule" in str(found.remedy)


def test_host_that_udp_reaches_has_another_key_and_no_firewall() -> None:
    (found,) = not_ok(look_at_rank_pairs([member(0), member(1)], [closed(0, 1, "unanswered"), pair(1, 0)]))
    assert "UDP reaches the host, and what has port 7001 does not answer: another job key" in found.text
    assert "sha256sum" in str(found.remedy)
    assert "nft" not in str(found.remedy)


@pytest.mark.parametrize(
    ("silence", "text", "remedy"),
    [
        ("refused", "nobody has UDP port 7001", "on node1: ss -ulpn 'sport = :7001'"),
        ("no neighbour", "no host answers at 10.0.0.1", "on node0: ip neighbour show 10.0.0.1"),
        ("unreachable", "the network answers that 10.0.0.1 cannot be reached", "ip route get 10.0.0.1"),
        (None, "it did not answer", None),
    ],
)
def test_one_closed_way_says_what_came_back(silence: str | None, text: str, remedy: str | None) -> None:
    (found,) = not_ok(look_at_rank_pairs([member(0), member(1)], [closed(0, 1, silence), pair(1, 0)]))
    assert (
        "rank 0 (node0, eth0, 10.0.0.0:7000) cannot reach rank 1 (node1, eth0, 10.0.0.1:7001)" in found.text
    )
    assert text in found.text
    assert found.remedy is None if remedy is None else remedy in str(found.remedy)


def test_ipv6_pair_is_named_with_ipv6_words() -> None:
    members = [member(0, address="[fd00::1]:7000"), member(1, address="[fd00::2]:7001+shm:abc/def")]
    (found,) = not_ok(look_at_rank_pairs(members, [closed(0, 1, "silent")]))
    assert "[fd00::2]:7001)" in found.text
    assert "ip6 saddr fd00::1 meta l4proto udp" in str(found.remedy)


def test_narrow_way_is_told_from_narrow_interfaces() -> None:
    narrow = [pair(0, 1, datagram_bytes=548, path_mtu_bytes=1200), pair(1, 0, datagram_bytes=548)]
    there, back = not_ok(look_at_rank_pairs([member(0), member(1)], narrow))
    assert there.text == (
        "from rank 0 to rank 1 datagrams of 548 bytes get through, though the interfaces carry 1472: something in"
        " between has MTU 1200"
    )
    assert there.remedy == "tracepath -n 10.0.0.1; or, on both hosts: ip link set dev eth0 mtu 1200"
    assert back.text.endswith("has a smaller MTU and does not say which")

    unequal = [pair(0, 1), pair(1, 0, datagram_bytes_own=8972)]
    (found,) = not_ok(look_at_rank_pairs([member(0), member(1)], unequal))
    assert found.text == "interfaces carry datagrams of different sizes: rank 0 1472, rank 1 8972 bytes"


def test_slow_way_is_named_against_the_others() -> None:
    pairs = [*all_pairs(3)[1:], pair(0, 1, goodput_bps=1e9, rtt_s=5e-3)]
    texts = [one.text for one in not_ok(look_at_rank_pairs([member(rank) for rank in range(3)], pairs))]
    assert texts == [
        "from rank 0 to rank 1 goodput is 1.00 Gbit/s, the median 9.00",
        "from rank 0 to rank 1 a round trip takes 5.0 ms, the median 0.10",
    ]


@pytest.mark.parametrize(("lost", "named"), [(0, False), (10, False), (11, True), (300, True)])
def test_loss_is_named_above_a_thousandth(lost: int, named: bool) -> None:
    found = not_ok(look_at_rank_pairs([member(0), member(1)], [pair(0, 1, lost_packets=lost), pair(1, 0)]))
    assert bool(found) == named
    if named:
        assert f"from rank 0 to rank 1 {lost} of 10000 packets were lost" in found[0].text


def test_loss_of_frames_longer_than_the_mtu_says_so() -> None:
    pairs = [pair(0, 1, lost_packets=6000, oversized_frames=500), pair(1, 0)]
    (found,) = not_ok(look_at_rank_pairs([member(0), member(1)], pairs))
    assert "lost (60.00 %); rank 1 dropped 500 frames that are longer than its MTU" in found.text
    assert found.remedy is not None
    assert found.remedy.startswith("export DLCP_SEGMENTATION_OFFLOAD=0")


def test_clocks_far_apart_say_whose_is_ahead() -> None:
    pairs = [pair(0, 1, clock_offset_s=-7.5), pair(1, 0, clock_offset_s=7.4)]
    (found,) = not_ok(look_at_rank_pairs([member(0), member(1)], pairs))
    assert "the time of day of rank 0 is 7.5 s ahead of rank 1's" in found.text


def test_versions_that_differ_fail() -> None:
    members = [member(0), member(1, version="0.2.0", wire_version=2, torch="2.12.0")]
    found = not_ok(look_at_rank_pairs(members, all_pairs(2)))
    assert [one.verdict for one in found] == [Verdict.FAIL, Verdict.WARN]
    assert found[0].remedy == "on node1: in a checkout of dlcp 0.1.0, pip install ."
    assert found[1].text == "ranks run different torch: 2.12.0, 2.13.0"


@pytest.mark.parametrize(
    ("suffix", "how"), [("", "through the network's loopback"), ("+shm:1/2", "through shared memory")]
)
def test_ranks_of_one_host_say_how_they_talk(suffix: str, how: str) -> None:
    members = [member(rank, where="one", address=f"10.0.0.1:700{rank}{suffix}") for rank in range(2)]
    found = look_at_rank_pairs([*members, member(2)], all_pairs(3))[-1]
    assert found.text == f"rank 0, rank 1 are on one host, node0, and talk {how}"


@pytest.mark.parametrize("size", [*range(1, 10), 33, 64])
def test_tournament_lets_every_pair_meet_once_and_nobody_twice_at_once(size: int) -> None:
    met: list[tuple[int, int]] = []
    for pairs in rounds(size):
        playing = [rank for pair in pairs for rank in pair]
        assert len(playing) == len(set(playing))
        met += pairs
    assert sorted(met) == [(a, b) for a in range(size) for b in range(a + 1, size)]
    assert len(list(rounds(size))) == size - 1 + size % 2
