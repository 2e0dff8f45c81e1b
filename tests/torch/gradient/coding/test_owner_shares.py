"""Who adds how much, by the rates of links; and that nothing is lost when it changes."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist

import dlcp.torch
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.coding import owner_shares
from dlcp.torch.gradient.coding.owner_shares import (
    PARTS_PER_RANK,
    LinkRates,
    best_shares,
    even_shares,
    link_time,
)
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout
from dlcp.transport.communicator import Communicator
from tests.support.seeds import for_each_seed
from tests.torch import ranks
from tests.torch.gradient.recipes.test_low_bit import LOW, kept, whole_numbers
from tests.torch.gradient.test_exchange import WHOLE, same_on_all_ranks, total

RANKS = 4


@for_each_seed(range(60))
def test_no_other_shares_free_the_slowest_link_sooner(seed: int) -> None:
    draw = random.Random(seed)
    rates = [draw.choice([1.0, 4.0, draw.uniform(0.1, 10.0)]) for _ in range(draw.choice([3, 4]))]
    found, parts = best_shares(rates), PARTS_PER_RANK * len(rates)
    assert sum(found) == parts
    grid = range(0, parts + 1, parts // 16)
    others = (
        (*some, parts - sum(some))
        for some in itertools.product(grid, repeat=len(rates) - 1)
        if sum(some) <= parts
    )
    # Whole parts round the best time up by one part's, at most.
    rounding = (len(rates) - 2) / parts / min(rate for rate, own in zip(rates, found, strict=True) if own)
    assert link_time(found, rates) <= min(link_time(one, rates) for one in others) + rounding


@pytest.mark.parametrize("size", [3, 4, 7, 48, 100])
def test_equal_links_own_as_much_and_a_very_slow_one_nothing(size: int) -> None:
    assert best_shares([5.0] * size) == even_shares(size)
    assert link_time(even_shares(size), [1.0] * size) == pytest.approx(1 + (size - 2) / size)
    slow = best_shares([5.0] * (size - 1) + [0.5])
    assert slow[-1] == 0
    assert max(slow[:-1]) - min(slow[:-1]) <= 1
    # A link that is a little slower than many others is not worth a change.
    slower = [[1.0] * (size - 1) + [0.95]] * 20
    assert after(LinkRates(), *slower).shares is None


def after(links: LinkRates, *steps: Sequence[float]) -> LinkRates:
    for rates in steps:
        links = links.next(rates)
    return links


def test_shares_change_when_it_is_worth_it_and_come_back() -> None:
    slow, third = [8.0, 8.0, 2.0], (96, 96, 0)
    links = after(LinkRates(), *[slow] * 7)
    assert links.shares is None  # too few steps to tell
    links = after(links, slow)
    assert links.shares == third
    links = after(links, *[[8.0, 7.0, 2.0]] * 20)
    assert links.shares == third
    # Not known of one rank: nothing changes.
    links = after(links, *[[8.0, 8.0, 0.0]] * 20)
    assert links.shares == third
    links = after(links, *[[8.0, 8.0, 8.0]] * 8)
    assert links.shares is None
    assert after(links, *[[8.0, 8.0, 7.0]] * 20).shares is None


# --- between ranks ----------------------------------------------------------------------------------------------


SLOW = (3, 0, 99)
"""By 14 steps in turn, whose link is slow: one that then owns nothing, at either end; nobody's."""


def mass_while_owners_change() -> list[owner_shares.Shares | None]:
    counts = [5000, 64, 3000, 200, 7000, 1, 9000, 640]
    layout = Layout.of((f"weight {number}", count) for number, count in enumerate(counts))
    numel, rank, measured = layout.numel, dist.get_rank(), itertools.count()

    def rate(_: Communicator) -> float:
        return 1.0 if rank == SLOW[min(2, next(measured) // 14)] else 8.0

    owner_shares.sending_rate = rate  # type: ignore[assignment]
    state = dlcp.torch.GradientState(codec="int4", owners="by_link", **LOW)
    exchange = exchange_of(state)
    given, applied = torch.zeros(numel, dtype=torch.float64), torch.zeros(numel, dtype=torch.float64)
    seen: list[owner_shares.Shares | None] = []
    for step in range(42):
        gradient = whole_numbers(numel, step)
        given += total(gradient.double())
        result = exchange.all_reduce(gradient, layout, BufferCall(average=True)).wait()
        same_on_all_ranks(result)
        applied += result.double() * RANKS
        (group,) = state.pipeline._inner._owners._agreements._groups.values()  # type: ignore[attr-defined]
        shares = group.decision.shares if group.decision else None
        if not seen or seen[-1] != shares:
            seen.append(shares)
        state.end_step()
        # An owner keeps something of its own part alone.
        own = kept(state, layout, "owner").nonzero().flatten().tolist()
        assert bool(own) == (shares is None or shares[rank] > 0), step
        everyone = total((kept(state, layout, "owner") != 0).double())
        assert everyone.max() <= 1.0, step
        left = total(kept(state, layout, "sender") + kept(state, layout, "owner"))
        assert torch.equal(given, applied + left), step
        if step == 20:
            state.load_state_dict(state.state_dict())
    return seen


def test_what_goes_in_is_applied_or_kept_while_owners_change() -> None:
    # Four ranks, whose means are exact. Medians make one slow link become another through equal ones.
    seen = ranks.run(mass_while_owners_change, RANKS, environment=WHOLE)
    assert seen == [[None, (86, 85, 85, 0), None, (0, 86, 85, 85), None]] * RANKS


def one_measures_nothing() -> owner_shares.Shares | None:
    """Ranks reached through shared memory have no link of their own."""
    state = dlcp.torch.GradientState(owners="by_link", **LOW)
    for step in range(12):
        exchange_of(state).all_reduce(
            whole_numbers(9000, step), Layout.of([("weight", 9000)]), BufferCall(average=True)
        ).wait()
    communicator = dist.group.WORLD.communicator  # type: ignore[union-attr]
    rate = owner_shares.sending_rate(communicator)
    assert rate == 0.0 if "DLCP_SHM" not in os.environ else rate > 0.0
    (group,) = state.pipeline._inner._owners._agreements._groups.values()  # type: ignore[attr-defined]
    return group.decision.shares  # type: ignore[no-any-return]


def test_rates_are_those_of_links_that_a_rank_has_for_itself() -> None:
    assert ranks.run(one_measures_nothing, 3) == [None] * 3
    shares = ranks.run(one_measures_nothing, 3, environment=WHOLE)
    assert shares[0] == shares[1] == shares[2]
