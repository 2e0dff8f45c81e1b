"""Who adds how much, by the rates of links; and that nothing is lost when it changes."""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any

import pytest
import torch
import torch.distributed as dist

import dlcp.torch
from dlcp.torch.gradient import owner_shares
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.owner_shares import PARTS, best_shares, even_shares, link_time, next_shares
from dlcp.torch.gradient.pipeline import BufferCall
from tests.support.seeds import for_each_seed
from tests.torch import ranks
from tests.torch.gradient.test_exchange import WHOLE, layout_of, same_on_all_ranks, total
from tests.torch.gradient.test_low_bit import LOW, kept, whole_numbers


@for_each_seed(range(60))
def test_no_other_shares_free_the_slowest_link_sooner(seed: int) -> None:
    draw = random.Random(seed)
    rates = [draw.choice([1.0, 4.0, draw.uniform(0.1, 10.0)]) for _ in range(draw.choice([3, 4]))]
    found = best_shares(rates)
    assert sum(found) == PARTS
    grid = range(0, PARTS + 1, 4)
    others = (
        (*some, PARTS - sum(some))
        for some in itertools.product(grid, repeat=len(rates) - 1)
        if sum(some) <= PARTS
    )
    # Whole parts round the best time up by one part's, at most.
    rounding = (len(rates) - 2) / PARTS / min(rate for rate, own in zip(rates, found, strict=True) if own)
    assert link_time(found, rates) <= min(link_time(one, rates) for one in others) + rounding


@pytest.mark.parametrize("size", [3, 4, 7, 100])
def test_equal_links_own_equal_shares_and_a_very_slow_one_nothing(size: int) -> None:
    assert best_shares([5.0] * size) == even_shares(size)
    assert max(even_shares(size)) - min(even_shares(size)) <= 1
    slow = best_shares([5.0] * (size - 1) + [0.5])
    assert slow[-1] == 0
    assert max(slow[:-1]) - min(slow[:-1]) <= 1


def test_shares_change_when_it_is_worth_it_and_come_back() -> None:
    rates: deque[list[float]] = deque(maxlen=owner_shares.STEPS)
    shares = None

    def after(steps: int, *now: float) -> Any:
        nonlocal shares
        for _ in range(steps):
            rates.append(list(now))
            shares = next_shares(shares, rates)
        return shares

    assert after(7, 8.0, 8.0, 2.0) is None  # too few steps to tell
    assert after(1, 8.0, 8.0, 2.0) == (32, 32, 0)
    assert after(20, 8.0, 7.0, 2.0) == (32, 32, 0)
    # Not known of one rank: nothing changes.
    assert after(20, 8.0, 8.0, 0.0) == (32, 32, 0)
    assert after(8, 8.0, 8.0, 8.0) is None
    assert after(20, 8.0, 8.0, 7.0) is None


# --- between ranks ----------------------------------------------------------------------------------------------


def mass_while_owners_change() -> list[tuple[int, ...] | None]:
    numel, own = 96_000, dist.get_rank()
    layout = layout_of(numel)
    step = 0
    # The third rank's link is slow, then the first's, then none.
    owner_shares.sending_rate_bps = lambda _: 1.0 if own == (2, 0, 99)[min(2, step // 14)] else 8.0  # type: ignore[assignment]
    state = dlcp.torch.GradientState(codec="int4", owners="by_link", **LOW)
    exchange = exchange_of(state)
    given, applied = torch.zeros(numel, dtype=torch.float64), torch.zeros(numel, dtype=torch.float64)
    seen: list[tuple[int, ...] | None] = []
    for step in range(42):
        gradient = whole_numbers(numel, step)
        given += total(gradient.double())
        result = exchange.all_reduce(gradient, layout, BufferCall(average=True)).wait()
        same_on_all_ranks(result)
        applied += result.double() * dist.get_world_size()
        (known,) = state.pipeline._owners._groups.values()  # type: ignore[attr-defined]
        if not seen or seen[-1] != known.shares:
            seen.append(known.shares)
        if step == 20:
            saved = state.state_dict()
            state.load_state_dict(saved)
    left = total(kept(state, layout, "sender")) + dist.get_world_size() * total(kept(state, layout, "owner"))
    assert torch.equal(given, applied + left)
    assert left.any()
    return seen


def test_what_goes_in_is_applied_or_kept_while_owners_change() -> None:
    # Four ranks, whose means are exact. Medians make the change from one slow link to another pass through equal ones.
    seen = ranks.run(mass_while_owners_change, 4, environment=WHOLE)
    assert seen == [[None, (22, 21, 0, 21), None, (0, 22, 21, 21), None]] * 4
