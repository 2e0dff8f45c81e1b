"""Who adds how much: ranks behind slow links own less of a sum, so that they send less.

In a direct exchange of B bytes over n ranks, the owner of a share f receives and sends f · (n - 1) · B for its own
part, and (1 - f) · B for the others': B · (1 + f · (n - 2)), each way. So where one link is slow, a step ends sooner if
its rank owns less. With even shares links carry 1.5 B (n = 4) or nearly 2 B (many ranks), and the link of a rank that
owns nothing carries B. The values are the same, and so is their precision.

Rates are the transport's own estimates: the windows per round trip of all peers, together. Links that wait for a slower
one seem faster than they are; once they own more, the estimate is that of a busy link, so shares settle. All ranks
know the rates of all a step later (agreement.py), and change shares seldom: what an owner kept goes back to its sender
then (feedback.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcp.torch.gradient.buffer.agreement import Agreements, Figures, estimates

if TYPE_CHECKING:
    from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
    from dlcp.transport.communicator import Communicator

Shares = tuple[int, ...]
"""By rank, how many parts of a sum it owns, of PARTS_PER_RANK for each rank."""

PARTS_PER_RANK = 64
LEAST_RANKS = 3
"""Between two ranks both directions carry B, whoever owns."""
RATE_STEPS = 8
"""The median of the rates of so many steps counts."""
WORTH_CHANGING = 0.9
"""Shares change if the slowest link then has at most so much of the time."""


def even_shares(ranks: int) -> Shares:
    """All own as much."""
    return (PARTS_PER_RANK,) * ranks


def best_shares(rates: Sequence[float]) -> Shares:
    """The shares with which the link that takes longest takes the least time. `rates`: by rank, all above 0.

    Links that own something take equally long: 1 + f · (n - 2) is time · rate. Those for which that is below 1 own
    nothing: at n = 4, one link of less than 0.6 of the others' rate.
    """
    ranks = len(rates)
    total = time = 0.0
    for owners, rate in enumerate(sorted(rates, reverse=True), 1):
        if owners > 1 and time * rate <= 1.0:
            break  # this one, and all that are slower, own nothing
        total += rate
        time = (ranks - 2 + owners) / total
    return _whole([max(0.0, time * rate - 1.0) / (ranks - 2) for rate in rates])


def link_time(shares: Shares, rates: Sequence[float]) -> float:
    """How long the link takes that takes longest, for a sum of one byte."""
    more = (len(shares) - 2) / (len(shares) * PARTS_PER_RANK)
    return max((1 + share * more) / rate for share, rate in zip(shares, rates, strict=True))


def _whole(shares: Sequence[float]) -> Shares:
    """Whole parts in these shares, which add up to 1: rounded down, and one more for those that lose most by it."""
    exact = [share * PARTS_PER_RANK * len(shares) for share in shares]
    parts = [int(each) for each in exact]
    most = sorted(range(len(parts)), key=lambda rank: (parts[rank] - exact[rank], rank))
    for rank in most[: PARTS_PER_RANK * len(shares) - sum(parts)]:
        parts[rank] += 1
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class LinkRates:
    """What is known of a group's links."""

    recent: tuple[Sequence[float], ...] = ()
    """By step, the last ones: by rank, bytes a second; 0: not known."""
    shares: Shares | None = None
    """None: even ones."""

    def next(self, rates: Sequence[float]) -> LinkRates:
        """After one more step."""
        recent = (*self.recent, rates)[-RATE_STEPS:]
        if len(recent) < RATE_STEPS or not all(map(all, recent)):
            return LinkRates(recent, self.shares)
        usual = [statistics.median(each) for each in zip(*recent, strict=True)]
        even, best = even_shares(len(usual)), best_shares(usual)
        time = link_time(self.shares or even, usual)
        if self.shares is not None and link_time(even, usual) <= time:
            return LinkRates(recent)
        return LinkRates(recent, best if link_time(best, usual) <= WORTH_CHANGING * time else self.shares)


class OwnerShares:
    """The shares of each group's ranks, from step to step."""

    def __init__(self) -> None:
        def decide(links: LinkRates | None, figures: Figures) -> LinkRates:
            return (links or LinkRates()).next([rate for (rate,) in figures])

        self._agreements = Agreements[LinkRates](
            "owners", lambda communicator: [sending_rate(communicator)], decide
        )

    def of_step(self, buffer: GradientBuffer) -> Shares | None:
        """The shares of the step that a buffer belongs to, the same on all ranks; None: even ones.

        May block, and raise: see Agreements.of_step.
        """
        if buffer.group.size() < LEAST_RANKS:
            return None
        links = self._agreements.of_step(buffer)
        return None if links is None else links.shares


def sending_rate(communicator: Communicator) -> float:
    """Bytes a second that this rank's link carries, by the windows and round-trip times of its peers; 0: not known.

    Not known where the endpoint has peers, of whatever group, that it reaches through shared memory: the ranks of one
    host share their link.
    """
    if communicator.job.endpoint.stats().io.channels:
        return 0.0
    return sum(window_bytes / rtt_s for rtt_s, window_bytes in estimates(communicator) if rtt_s > 0)
