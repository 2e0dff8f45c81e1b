"""Owners of samples: even shares, and few that move when the number of ranks changes."""

from __future__ import annotations

from collections import Counter

from dlcp.torch.data.ownership import owner_of


def test_shares_are_even_and_only_the_new_rank_gains() -> None:
    before = [0] * 4000
    for world_size in range(1, 33):
        owners = [owner_of(index, world_size) for index in range(4000)]
        assert all(owner in (old, world_size - 1) for owner, old in zip(owners, before, strict=True))
        shares = Counter(owners)
        # Five standard deviations of a fair draw.
        expected = 4000 / world_size
        assert all(abs(shares[rank] - expected) <= 5 * expected**0.5 for rank in range(world_size))
        before = owners
