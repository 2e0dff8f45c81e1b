"""How ranks agree, through the store, which start of their job they are in.

A store outlives a start: launchers restart ranks on it, programs close a job and open another, ranks become fewer or
more. A rank cannot count starts for itself: one that died early, or was not needed, missed some. So rank 0 numbers
them, and a rank joins the newest start that is not complete. A start is complete when rank 0, which must be alive for
it, has seen all ranks; whoever comes later waits for the next one. A rank that waits in a start whose rank 0 is gone
moves on when rank 0 begins another.

Keys under `dlcp/`: `starts`, the number of the newest; of each, under its number, `job` (what rank 0 decided), `rank/R`
(a rank's card, or why it does not take part), and `complete` or `refused`, which rank 0 sets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from dlcp.errors import JobError, StoreTimeoutError
from dlcp.polling import looks
from dlcp.transport.rank_card import RankCard
from dlcp.transport.store import PrefixStore, Store

# A rank that does not fit the newest start waits so long for another one before it says so: the start may be one that
# failed, and this rank quicker than its rank 0. More than between the first and the last rank of most launchers.
STALE_S = 5.0
# How often a rank that waits for the others asks for what hardly ever happens: each look costs the store a request.
_RARELY_S = 1.0
# At most so many absent ranks are named.
_NAMED_MAX = 8


class Meeting:
    """One rank's way into the newest start of its job. Not thread-safe; blocks for the store and for other ranks.

    `timeout_s`: how long other ranks are waited for, all in all.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout_s: float) -> None:
        self._whole = PrefixStore("dlcp", store)
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s
        self._end_s = time.monotonic() + timeout_s
        self._number = 0
        self.store: Store = self._whole
        """The part of the store that belongs to the start, once it is known."""

    def begin(self) -> None:
        """Rank 0: begins another start."""
        self._enter(self._whole.add("starts", 1))

    def find(self) -> bytes:
        """Other ranks: what rank 0 decided for a start that is newer than the last one found, and not complete.

        Raises StoreTimeoutError: rank 0 did not begin one.
        """
        newest, rarely_s = self._number, 0.0
        for _ in looks(self._left_s()):
            if time.monotonic() >= rarely_s:
                newest, rarely_s = self._whole.add("starts", 0), time.monotonic() + _RARELY_S
            for number in (newest, newest + 1):
                if number > self._number and self._whole.check([f"{number}/job"]):
                    self._enter(number)
                    newest = number
                    if not self.store.check(["complete"]):
                        return self.store.get("job")
        raise self._late("rank 0's entry (rank 0 is not started, or died while starting)")

    def superseded(self, wait_s: float) -> bool:
        """Whether rank 0 begins another start within this time."""
        return any(self._whole.check([f"{self._number + 1}/job"]) for _ in looks(min(wait_s, self._left_s())))

    def arrive(self, card: RankCard, when_all_are_here: Callable[[], None]) -> bool:
        """Leaves this rank's card, and waits until all ranks have left theirs. False: rank 0 has begun another start.

        Rank 0 calls `when_all_are_here` before it lets the others go: what that leaves in the store is there for all.
        Raises StoreTimeoutError: ranks did not come; JobError: rank 0 does not take part.
        """
        cards = [f"rank/{rank}" for rank in range(self._size)]
        self.store.set(cards[self._rank], card.to_json())
        rarely_s = 0.0
        for _ in looks(self._left_s()):
            if self.store.check(["complete"]):
                return True
            if self._rank == 0:
                if self.store.check(cards):
                    when_all_are_here()
                    self.store.set("complete", "")
                    return True
            elif time.monotonic() >= rarely_s:
                rarely_s = time.monotonic() + _RARELY_S
                if self._whole.add("starts", 0) != self._number:
                    # A start that was completed meanwhile, and is over, was this rank's all the same.
                    return self.store.check(["complete"])
                if self.store.check(["refused"]):
                    if self.superseded(STALE_S):
                        return False
                    raise refusal_of(RankCard.from_json(self.store.get("rank/0"), 0))
        raise self._late(self._absent())

    def refuse(self, card: RankCard) -> None:
        """Leaves word why this rank does not take part; others learn it when they need it, of rank 0 soon.

        Blocks for a moment if there is no start yet. Raises StoreTimeoutError: none has begun.
        """
        if not self._number:
            if self._rank == 0:
                self.begin()
            else:
                self._end_s = min(self._end_s, time.monotonic() + STALE_S)
                self.find()
        self.store.set(f"rank/{self._rank}", card.to_json())
        if self._rank == 0:
            if not self.store.check(["job"]):
                self.store.set("job", json.dumps({"refusal": card.refusal}))
            self.store.set("refused", "")

    def _enter(self, number: int) -> None:
        self._number = number
        self.store = PrefixStore(str(number), self._whole)

    def _left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())

    def _late(self, what: str) -> StoreTimeoutError:
        return StoreTimeoutError(f"{what} was not in the store after {self._timeout_s:g} s")

    def _absent(self) -> str:
        absent = [rank for rank in range(self._size) if not self.store.check([f"rank/{rank}"])]
        if not absent:
            return "rank 0's word that all ranks have come (it died while it waited)"
        more = f" and {len(absent) - _NAMED_MAX} more" if len(absent) > _NAMED_MAX else ""
        ranks = ", ".join(f"rank {rank}" for rank in absent[:_NAMED_MAX])
        return f"the address of {ranks}{more} (not started, or died while starting)"


def refusal_of(card: RankCard) -> JobError:
    """The error of needing a rank that does not take part."""
    return JobError(f"{card.describe()} did not start: {card.refusal}")
