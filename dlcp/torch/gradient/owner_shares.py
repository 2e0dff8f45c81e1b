"""Who adds how much: ranks behind slow links own less of a sum, so that they send less.

In a direct exchange of `B` bytes over `n` ranks, the owner of a share f receives and sends f · (n - 1) · B for its own
part, and (1 - f) · B for the others': B · (1 + f · (n - 2)), each way. So where one link is slow, a step ends sooner
if its rank owns less, and at a quarter of the rate nothing: it then carries B where even shares make it 1.5 B
(n = 4), or nearly 2 B (many ranks). The values are the same, and so are their bits.

Rates are the transport's own estimates: the windows per round trip of all peers, together. Links that have nothing to
wait for seem faster than they are; once they own more, the estimate is that of a busy link, so shares settle. All
ranks know the rates of all a step later (agreement.py), and change shares seldom: what an owner keeps of the elements
of a share goes back to senders (feedback.py) when the share has another owner.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlcp.torch.gradient.agreement import Agreement

if TYPE_CHECKING:
    from dlcp.torch.gradient.pipeline import GradientBuffer
    from dlcp.torch.process_group import ProcessGroup
    from dlcp.transport.communicator import Communicator

Shares = tuple[int, ...]
"""By rank, how many PARTS-ths of a sum it owns."""

PARTS = 64
LEAST_RANKS = 3
"""Between two ranks both directions carry B, whoever owns."""
STEPS = 8
"""The median of the rates of so many steps counts."""
WORTH = 0.9
"""Shares change if the slowest link then has at most so much of the time."""


def even_shares(ranks: int) -> Shares:
    """As equal as whole parts can be."""
    return _whole([1.0 / ranks] * ranks)


def best_shares(rates: Sequence[float]) -> Shares:
    """The shares with which the link that takes longest takes the least time. `rates`: by rank, all above 0.

    Links that own something take equally long: 1 + f · (n - 2) is T · rate, with one T for all of them.
    """
    ranks = len(rates)
    by_rate = sorted(rates, reverse=True)
    total = time = 0.0
    for owners, rate in enumerate(by_rate, 1):
        if owners > 1 and time * rate <= 1.0:
            break  # this one, and all that are slower, own nothing
        total += rate
        time = (ranks - 2 + owners) / total
    return _whole([max(0.0, time * rate - 1.0) / (ranks - 2) for rate in rates])


def link_time(shares: Shares, rates: Sequence[float]) -> float:
    """How long the link takes that takes longest, for a sum of one byte."""
    spread = len(shares) - 2
    return max((1 + share / PARTS * spread) / rate for share, rate in zip(shares, rates, strict=True))


def _whole(shares: Sequence[float]) -> Shares:
    """PARTS in these shares, which add up to 1: rounded down, and one more for those that lose most by it."""
    parts = [int(share * PARTS) for share in shares]
    most = sorted(range(len(parts)), key=lambda rank: (parts[rank] - shares[rank] * PARTS, rank))
    for rank in most[: PARTS - sum(parts)]:
        parts[rank] += 1
    return tuple(parts)


class OwnerShares:
    """The shares of each group's ranks, from step to step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[ProcessGroup, _Group] = {}

    def of_step(self, buffer: GradientBuffer) -> Shares | None:
        """The shares of the step that a buffer belongs to, the same on all ranks; None: even ones.

        With the first buffer of a group's step the ranks tell each other their rates: blocks if what they told a step
        ago is still pending, and raises the collective's errors.
        """
        if buffer.group.size() < LEAST_RANKS:
            return None
        with self._lock:
            known = self._groups.get(buffer.group)
            if known is None:
                known = self._groups[buffer.group] = _Group(Agreement(buffer.group, "owners"))
            if known.step != buffer.step:
                known.step = buffer.step
                if figures := known.agreement.learn():
                    known.rates.append([rate for (rate,) in figures])
                    known.shares = next_shares(known.shares, known.rates)
                known.agreement.tell([sending_rate_bps(buffer.group.communicator)])
            return known.shares


@dataclass(slots=True)
class _Group:
    agreement: Agreement
    step: int = -1
    shares: Shares | None = None
    rates: deque[list[float]] = field(default_factory=lambda: deque(maxlen=STEPS))


def next_shares(shares: Shares | None, rates: Sequence[Sequence[float]]) -> Shares | None:
    """What shares become, by the rates of the last steps; 0: not known. None: even ones."""
    if len(rates) < STEPS or not all(map(all, rates)):
        return shares
    usual = [statistics.median(each) for each in zip(*rates, strict=True)]
    even = even_shares(len(usual))
    best, time = best_shares(usual), link_time(shares or even, usual)
    if shares is not None and link_time(even, usual) <= time:
        return None
    return best if link_time(best, usual) <= WORTH * time else shares


def sending_rate_bps(communicator: Communicator) -> float:
    """What this rank's link carries, by the windows and round-trip times of its peers; 0: not known.

    Not known where a peer is reached through shared memory: such ranks share their link.
    """
    endpoint = communicator.job.endpoint
    if endpoint.stats().io.channels:
        return 0.0
    known, rate_bps = set(endpoint.peers), 0.0
    for member in communicator.members:
        if member in known:
            peer = endpoint.peer_stats(member)
            if peer.established and peer.rtt_s > 0:
                rate_bps += 8 * peer.window_bytes / peer.rtt_s
    return rate_bps
