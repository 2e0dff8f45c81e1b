"""EpochSampler: an epoch is a permutation, shared out over any number of ranks, with restarts in its middle."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from dlcp.errors import ArgumentError
from dlcp.torch.data.sampler import EpochSampler


def of_all_ranks(length: int, world_size: int, **options: Any) -> list[EpochSampler]:
    return [EpochSampler(length, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


@pytest.mark.parametrize("seed", range(40))
def test_every_epoch_has_every_sample_once_through_restarts_with_other_numbers_of_ranks(seed: int) -> None:
    chance = random.Random(seed)
    length = chance.choice([0, 1, chance.randrange(2, 50), chance.randrange(50, 500)])
    for epoch in range(2):
        state = None
        taken: list[int] = []
        for leg in range(4):
            samplers = of_all_ranks(length, chance.randrange(1, 12), seed=seed)
            for sampler in samplers:
                if state is None:
                    sampler.set_epoch(epoch)
                else:
                    sampler.load_state_dict(state)
                    sampler.set_epoch(epoch)
            shares = [list(sampler) for sampler in samplers]
            assert [len(share) for share in shares] == [len(sampler) for sampler in samplers]
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
            steps = len(shares[0]) if leg == 3 else chance.randrange(len(shares[0]) + 1)
            taken += [index for share in shares for index in share[:steps]]
            state = samplers[0].state_dict(steps)
        assert sorted(taken) == list(range(length))


@pytest.mark.parametrize("seed", range(10))
def test_drop_gives_all_ranks_equally_many(seed: int) -> None:
    chance = random.Random(seed)
    length, world_size = chance.randrange(200), chance.randrange(1, 12)
    shares = [list(sampler) for sampler in of_all_ranks(length, world_size, remainder="drop")]
    assert {len(share) for share in shares} == {length // world_size}
    assert len({index for share in shares for index in share}) == length - length % world_size


def test_epochs_and_seeds_differ_and_repeat() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = EpochSampler(60, rank=0, world_size=1, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    orders = [tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)]
    assert len(set(orders)) == 9
    assert order(2, 1) == list(orders[7])
    assert list(EpochSampler(4, rank=0, world_size=1, shuffle=False)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: EpochSampler(5, rank=3, world_size=3), "rank is 3; accepted: an integer from 0 to 2"),
        (lambda: EpochSampler(5, rank=0, world_size=1, remainder="drip"), "did you mean drop"),
        (lambda: EpochSampler(5, rank=0, world_size=1).state_dict(6), "taken is 6"),
        (
            lambda: EpochSampler(5, rank=0, world_size=1).load_state_dict(
                EpochSampler(6, rank=0, world_size=1).state_dict(1)
            ),
            "the state has length 6; accepted: 5",
        ),
        (
            lambda: EpochSampler(5, rank=0, world_size=1).load_state_dict({"seed": 0}),
            "lacks epoch, length, start",
        ),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        call()
