"""Estimates: a schedule's shape is what the checker counts, and an estimate grows with what it should grow with."""

from __future__ import annotations

import random

import pytest

from dlcp.transport.schedule import PLACED, build
from dlcp.transport.schedule.checker import cost
from dlcp.transport.schedule.estimate import Network, shape_of, time_ns
from tests.support.schedules import PAIRS


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_shape_is_what_the_checker_counts(collective: str, algorithm: str) -> None:
    for size in (2, 3, 4, 7, 8, 13):
        hosts = tuple(range(size))
        placed = hosts if algorithm in PLACED else None
        counted = cost([build(collective, algorithm, size, rank, 0, placed) for rank in hosts], collective)
        shape = shape_of(collective, algorithm, hosts)
        assert (shape.hops, shape.inside_hops, shape.peers) == (counted.steps, 0, counted.peers)
        assert shape.sent_ratio == pytest.approx(counted.sent_ratio)
        assert shape.crossing_ratio == pytest.approx(max(counted.sent_ratio, counted.received_ratio))


@pytest.mark.parametrize("seed", range(8))
def test_nothing_crosses_inside_a_host_and_all_of_it_between_hosts(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randrange(2, 12)
    hosts = tuple(rng.randrange(3) for _ in range(size))
    for algorithm in ("direct", "halving_doubling", "ring", "tree"):
        shape = shape_of("all_reduce", algorithm, hosts)
        alone = shape_of("all_reduce", algorithm, (0,) * size)
        apart = shape_of("all_reduce", algorithm, tuple(range(size)))
        assert (alone.hops, alone.crossing_ratio) == (0, 0)
        assert alone.inside_hops == apart.hops >= shape.hops + shape.inside_hops >= shape.hops
        assert shape.sent_ratio == alone.sent_ratio == apart.sent_ratio


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_more_bytes_slower_links_and_longer_hops_take_longer(collective: str, algorithm: str) -> None:
    network = Network((0, 0, 1, 1, 2, 2))
    took = time_ns(collective, algorithm, 1 << 20, network)
    assert time_ns(collective, algorithm, 2 << 20, network) > took
    assert time_ns(collective, algorithm, 1 << 20, network._replace(link_bps=1e9)) > took
    assert time_ns(collective, algorithm, 1 << 20, network._replace(hop_ns=100_000)) > took
