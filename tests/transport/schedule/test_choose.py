"""The choice of an algorithm: one that serves, of the least estimated time; text that overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import pytest

from dlcp.errors import ArgumentError
from dlcp.transport.schedule import ALGORITHMS, PLACED
from dlcp.transport.schedule.choose import choose, parse_algorithms
from dlcp.transport.schedule.estimate import Network, time_ns
from dlcp.transport.schedule.layout import BOUNDED
from tests.support.schedules import PAIRS

WORLD_SIZES = [1, 2, 3, 4, 8, 9, 16, 17, 64, 1000]
NBYTES = [0, 1, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20, 4 << 30]


@pytest.mark.parametrize("collective", ALGORITHMS)
def test_choice_serves_the_collective(collective: str) -> None:
    for world_size in WORLD_SIZES:
        for nbytes in NBYTES:
            assert choose(collective, world_size, nbytes) in ALGORITHMS[collective]


def test_what_takes_the_least_or_little_more_is_chosen() -> None:
    for hosts in ((0, 0, 0), (0, 1, 2, 3), (0, 0, 1, 1), tuple(rank // 4 for rank in range(16))):
        for link_bps in (1e9, 100e9):
            network = Network(hosts, link_bps=link_bps)
            for collective, served in ALGORITHMS.items():
                for nbytes in NBYTES:
                    name = choose(collective, len(hosts), nbytes, network=lambda: network)  # noqa: B023
                    served_here = [
                        each for each in served if each not in PLACED or 1 < len(set(hosts)) < len(hosts)
                    ]
                    least = min(time_ns(collective, each, nbytes, network) for each in served_here)
                    assert time_ns(collective, name, nbytes, network) <= least / 0.9


def test_the_longer_a_round_trip_the_fewer_hops() -> None:
    taken = [
        choose("all_reduce", 16, 1 << 20, network=lambda: Network(tuple(range(16)), hop_ns=hop_ns))  # noqa: B023
        for hop_ns in (5e3, 500e3, 50e6)
    ]
    assert taken == ["ring", "direct", "one_shot"]


@pytest.mark.parametrize(
    ("collective", "world_size", "nbytes", "algorithm"),
    [
        ("all_reduce", 2, 4 << 10, "one_shot"),
        ("all_reduce", 4, 4 << 10, "one_shot"),
        ("all_reduce", 16, 256 << 10, "direct"),
        ("all_reduce", 4, 64 << 10, "direct"),
        ("all_reduce", 64, 4 << 10, "direct"),
        ("all_reduce", 1000, 1, "halving_doubling"),
        ("all_reduce", 64, 4 << 20, "ring"),
        ("all_reduce", 4, 64 << 20, "ring"),
        ("reduce_scatter", 4, 64 << 20, "ring"),
        ("all_gather", 100, 4 << 10, "halving_doubling"),
        ("broadcast", 64, 64 << 10, "tree"),
        ("broadcast", 4, 64 << 20, "ring"),
        ("gather", 4, 64 << 20, "direct"),
        ("all_to_all", 4, 64 << 20, "pairwise"),
    ],
)
def test_choice_follows_size(collective: str, world_size: int, nbytes: int, algorithm: str) -> None:
    assert choose(collective, world_size, nbytes) == algorithm


def chosen(collective: str, nbytes: int, hosts: tuple[int, ...], link_bps: float = 10e9) -> str:
    return choose(collective, len(hosts), nbytes, network=lambda: Network(hosts, link_bps=link_bps))


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
def test_several_hosts_with_several_ranks_each_add_by_hosts(collective: str) -> None:
    assert chosen(collective, 64 << 20, (0, 0, 1, 1)) == "hierarchical"
    assert chosen(collective, 64 << 20, (0, 1, 1, 1)) == "ring"  # one host has nobody to add with
    assert chosen(collective, 64 << 20, (0, 0, 0, 0)) == "ring"
    assert chosen(collective, 128 << 10, (0, 0, 1, 1)) == "hierarchical"
    many = tuple(rank // 2 for rank in range(128))
    assert chosen(collective, 1 << 20, many) == "hierarchical"
    assert chosen(collective, (1 << 20) - 1, many) != "hierarchical"


def test_large_tensors_go_by_hosts_where_their_links_are_slow() -> None:
    """A ring crosses more, but all the time; so it wins once links are nearly as fast as what is inside."""
    network = Network(tuple(rank // 8 for rank in range(64)), inside_bps=200e9)
    for link_bps, best in ((1e9, "hierarchical"), (100e9, "ring")):
        there = network._replace(link_bps=link_bps)
        assert choose("all_reduce", 64, 256 << 20, network=lambda: there) == best  # noqa: B023


def test_small_tensors_of_many_ranks_cross_from_host_to_host_seldom() -> None:
    for hosts, each in ((4, 4), (8, 8)):
        places = tuple(rank // each for rank in range(hosts * each))
        assert chosen("all_reduce", 32 << 10, places, 1e9) in ("hierarchical", "tree")


@pytest.mark.parametrize(
    ("hosts", "link_bps", "taken"),
    [
        ((0, 0, 0, 0), 10e9, {4 << 10: "tree", 1 << 20: "tree", 2 << 20: "ring"}),
        ((0, 1), 10e9, {128 << 10: "one_shot", 256 << 10: "halving_doubling", 1 << 20: "ring"}),
        (
            range(4),
            10e9,
            {4 << 10: "direct", 128 << 10: "direct", 256 << 10: "halving_doubling", 1 << 20: "ring"},
        ),
        (
            range(8),
            10e9,
            {4 << 10: "tree", 64 << 10: "tree", 128 << 10: "halving_doubling", 64 << 20: "ring"},
        ),
        (range(8), 1e8, {1 << 10: "tree", 16 << 10: "halving_doubling"}),
        ((0, 0, 1, 1), 1e9, {4 << 10: "hierarchical", 64 << 20: "hierarchical"}),
        ((0, 0, 0, 0, 1, 1, 1, 1), 1e9, {4 << 10: "tree", 1 << 20: "tree", 64 << 20: "hierarchical"}),
    ],
    ids=str,
)
def test_ranks_that_share_processors_send_few_messages(
    hosts: Sequence[int], link_bps: float, taken: dict[int, str]
) -> None:
    network = Network(tuple(hosts), link_bps=link_bps)
    for nbytes, name in taken.items():
        found = choose("all_reduce", len(hosts), nbytes, network=lambda: network, crowded=lambda: True)
        assert found == name, nbytes


def test_small_calls_of_many_ranks_ask_for_nobodys_card() -> None:
    def never() -> NoReturn:
        raise AssertionError("asked")

    for collective in ALGORITHMS:
        choose(collective, 100, 4 << 10, network=never, crowded=never)


def test_large_worlds_connect_few() -> None:
    """Beyond a few ranks, nobody needs a session with everybody unless the collective is such.

    Bounded ones are: what is lost of a message has to be one rank's contribution, so it goes in one hop.
    """
    for collective in ALGORITHMS.keys() - {"gather", "scatter", "all_to_all"} - BOUNDED:
        for nbytes in NBYTES:
            assert choose(collective, 100, nbytes) not in ("direct", "one_shot")


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_override_wins(collective: str, algorithm: str) -> None:
    overrides = parse_algorithms(f"{collective}={algorithm}")
    for nbytes in NBYTES:
        assert choose(collective, 4, nbytes, overrides) == algorithm
    other = next(name for name in ALGORITHMS if name != collective)
    assert choose(other, 4, 1 << 20, overrides) == choose(other, 4, 1 << 20)


def test_override_that_does_not_serve_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match="algorithm='tree' does not serve all_gather: use one of direct, "
    ):
        choose("all_gather", 4, 1, {"all_gather": "tree"})


def test_unknown_collective_is_refused() -> None:
    with pytest.raises(ArgumentError, match="collective='allreduce' is unknown: use one of all_reduce, "):
        choose("allreduce", 4, 1)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("", {}),
        (" , ", {}),
        ("all_reduce=ring", {"all_reduce": "ring"}),
        (" all_reduce = ring , broadcast=tree,", {"all_reduce": "ring", "broadcast": "tree"}),
    ],
)
def test_text_is_parsed(text: str, parsed: dict[str, str]) -> None:
    assert parse_algorithms(text) == parsed


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ring", "'ring': write collective=algorithm, as in all_reduce=ring,broadcast=tree"),
        (
            "all_reduce=",
            "'all_reduce=': all_reduce is served by one_shot, direct, halving_doubling, ring, hierarchical, tree",
        ),
        ("broadcast=ring,all_reduce=rign", "'all_reduce=rign': all_reduce is served by one_shot, "),
        ("allreduce=ring", "collective='allreduce' is unknown: use one of all_reduce, "),
        ("all_reduce=ring,all_reduce=tree", "'all_reduce=tree': all_reduce is there twice"),
    ],
)
def test_wrong_text_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        parse_algorithms(text)
    assert complaint in str(raised.value)
