"""Hierarchical schedules are right wherever ranks are, and cross between hosts as often as they say."""

from __future__ import annotations

import itertools
import random

import pytest

from dlcp.errors import ArgumentError
from dlcp.transport.schedule import PLACED, Hosts, Send, build
from dlcp.transport.schedule.checker import check, cost
from tests.support.schedules import PAIRS

COLLECTIVES = [collective for collective, algorithm in PAIRS if algorithm in PLACED]


def placements() -> list[Hosts]:
    """All of up to 5 ranks, some of more, and hosts of one size."""
    found = [(0, *others) for n in range(1, 6) for others in itertools.product(range(n), repeat=n - 1)]
    draw = random.Random(18)
    for _ in range(40):
        n = draw.randint(6, 24)
        hosts = draw.randint(1, n)
        found.append(tuple(draw.randrange(hosts) for _ in range(n)))
    found.extend(
        tuple(rank // size for rank in range(count * size)) for count, size in ((2, 4), (4, 8), (9, 3))
    )
    return found


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_placement_is_right(collective: str) -> None:
    for hosts in placements():
        check(
            [build(collective, "hierarchical", len(hosts), rank, 0, hosts) for rank in range(len(hosts))],
            collective,
        )


@pytest.mark.parametrize(
    "hosts", [(0, 0, 0, 0, 1, 1, 1, 1), (0, 1, 2, 0, 1, 2), (0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2)]
)
def test_a_hosts_link_carries_the_tensor_twice_less_its_own_part(hosts: Hosts) -> None:
    """Of 1 tensor over m hosts: 2 (m - 1) / m for an all-reduce, half of it for its halves, whatever hosts have."""
    world, count = len(hosts), len(set(hosts))
    for collective in COLLECTIVES:
        plans = [build(collective, "hierarchical", world, rank, 0, hosts) for rank in range(world)]
        parts = plans[0].output_chunks if collective == "all_reduce" else world
        crossing = [0] * count
        for rank, plan in enumerate(plans):
            for operation in plan.operations:
                if isinstance(operation, Send) and hosts[operation.peer] != hosts[rank]:
                    crossing[hosts[rank]] += 1
        if collective == "all_reduce":
            assert crossing == [2 * (count - 1) * parts // count] * count
        elif collective == "all_gather":  # in a ring a host forwards what others have but the next one's own
            assert crossing == [parts - hosts.count((host + 1) % count) for host in range(count)]
        else:  # and sends on what ends elsewhere
            assert crossing == [parts - hosts.count(host) for host in range(count)]


def test_it_keeps_no_partial_sums_beside_the_tensor() -> None:
    hosts = tuple(rank // 4 for rank in range(16))
    found = cost(
        [build("all_reduce", "hierarchical", 16, rank, 0, hosts) for rank in range(16)], "all_reduce"
    )
    assert found.scratch_ratio == 0
    # A ring of 4 inside, one of 4 hosts twice round, and one hop to the others.
    assert found.steps == 3 + 2 * 3 + 1
    assert found.peers == 3 + 2


def test_hosts_that_are_not_one_per_rank_are_refused() -> None:
    with pytest.raises(ArgumentError, match="hosts has 3 entries; accepted: one per rank, 4"):
        build("all_reduce", "hierarchical", 4, 0, 0, (0, 0, 1))
