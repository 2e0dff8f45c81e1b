"""What a group needs of its job: this rank's endpoint and settings, and what is known of the other ranks."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Iterable, Sequence

from dlcp import errors
from dlcp.transport.endpoint import Endpoint
from dlcp.transport.flight_recorder import FlightRecorder
from dlcp.transport.meeting import refusal_of
from dlcp.transport.metrics import Metrics
from dlcp.transport.rank_card import RankCard, check_reach, check_versions
from dlcp.transport.schedule.estimate import Network
from dlcp.transport.settings import Settings
from dlcp.transport.store import Store, asking, wait_for

# Group numbers fit what a message's tag has for them (native/collective/tag.hpp).
GROUPS = 1 << 14
# Where ranks are is read from all cards by all: 2^18 reads, seconds of a store's time.
_PLACED_RANKS_MAX = 512
# Of a hop beside the way there: threads that wake. A round trip of 36 us, as between namespaces of one machine,
# makes the 50 us of a Network of which nothing is known.
_ACTING_NS = 32_000


class JobRanks:
    """The ranks of a job, as one of them knows them. Any thread may use it."""

    store: Store
    """This job's part of the store."""
    settings: Settings
    """What the endpoint was opened with, job key and number included."""
    key_is_drawn: bool
    """Whether rank 0 drew the job key, so that nobody outside the job can have it."""
    incarnation: int
    """Drawn anew at each start of the job, 64 bits; see JobRecord."""
    endpoint: Endpoint
    """This rank's endpoint; its rank is the rank in the job."""
    card: RankCard
    """The card that this rank published in the store."""
    recorder: FlightRecorder
    """The last operations of this rank in all its groups."""
    metrics: Metrics
    """This rank's metrics."""

    def __init__(self, rank: int, size: int, timeout_s: float) -> None:
        self.rank = rank
        """This process's rank."""
        self.size = size
        """How many ranks there are."""
        self.timeout_s = timeout_s
        """How long to wait for another rank, seconds."""
        self.traffic_class_min = 0
        """No operation of a group leaves in a lower class, but for groups in the background. May be changed."""
        self._lock = threading.Lock()
        self._cards: dict[int, RankCard] = {}
        self._connected: set[int] = {rank}
        self._released: list[int] = []

    def card_of(self, rank: int, timeout_s: float | None = None) -> RankCard:
        """A rank's card; blocks until the rank has published it, at most `timeout_s` (None: the job's).

        Raises ArgumentError; JobError: that rank refused to start, or cannot go together with this one;
        StoreTimeoutError.
        """
        card = self._cards.get(rank)
        if card is not None:
            return card
        if not 0 <= rank < self.size:
            raise errors.ArgumentError(f"rank is {rank!r}; accepted: 0 to {self.size - 1}")
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        what = f"rank {rank}'s address (it is not started, or died while starting)"
        card = RankCard.from_json(wait_for(self.store, f"rank/{rank}", timeout_s, what), rank)
        check_versions(self.card, card)
        if card.refusal:
            raise refusal_of(card)
        check_reach(self.card, card)
        self._cards[rank] = card
        return card

    def known_card(self, rank: int) -> RankCard | None:
        """The card of a rank if it has been read before; for errors, which must not wait for the store."""
        return self._cards.get(rank)

    def look_up(self, ranks: Iterable[int]) -> None:
        """Reads the cards that are in the store by now: an error may have to name a rank when the store is gone.

        Does not wait and raises nothing. Ranks that are known already cost nothing.
        """
        with contextlib.suppress(Exception):
            for rank in ranks:
                try:
                    self.card_of(rank, 0.0)
                except errors.StoreGoneError:
                    return
                except errors.JobError:
                    continue

    def address_of(self, rank: int) -> str:
        """Where a rank's endpoint is; blocks and raises as card_of."""
        return self.card_of(rank).address

    def hosts_of(self, ranks: Sequence[int], timeout_s: float | None = None) -> tuple[int, ...] | None:
        """Per rank the number of its host, equal for ranks that reach each other over loopback; the same on all ranks.

        None: for more than 512 ranks, of which each would read all cards. Blocks and raises as card_of, once per rank.
        """
        if len(ranks) > _PLACED_RANKS_MAX:
            return None
        numbers: dict[str, int] = {}
        return tuple(numbers.setdefault(self.card_of(rank, timeout_s).where, len(numbers)) for rank in ranks)

    def network_of(self, ranks: Sequence[int], timeout_s: float | None = None) -> Network | None:
        """What is between these ranks, the same on all of them: all links count as the slowest that a card has.

        A hop is half the round trip that rank 0 measured, and what its receiver takes to act on a message.

        None, blocks and raises: as hosts_of.
        """
        hosts = self.hosts_of(ranks, timeout_s)
        if hosts is None:
            return None
        network = Network(hosts)
        rates = [card.line_rate_bps for card in map(self.card_of, ranks) if card.line_rate_bps > 0]
        if rates:
            network = network._replace(link_bps=float(min(rates)))
        if len(set(hosts)) > 1 and self.round_trip_s is not None:
            network = network._replace(hop_ns=_ACTING_NS + self.round_trip_s / 2 * 1e9)
        return network

    @functools.cached_property
    def round_trip_s(self) -> float | None:
        """To another host and back, seconds, as rank 0 measured it.

        None: no rank that was asked is on another host, or none answered. Asks the store once.
        """
        # Set before the start was complete, or not at all: so all ranks find the same.
        with asking("the round trip between hosts"):
            return float(self.store.get("round_trip_s")) if self.store.check(["round_trip_s"]) else None

    def place_on_host(self, rank: int) -> int:
        """How many of the job's ranks below this one are on its host. Blocks and raises as hosts_of.

        0 in a job of more than 512 ranks, of which each would read all cards.
        """
        hosts = self.hosts_of(range(rank + 1)) if self.size <= _PLACED_RANKS_MAX else None
        return 0 if hosts is None else hosts.count(hosts[rank]) - 1

    def is_crowded(self, ranks: Sequence[int], timeout_s: float | None = None) -> bool:
        """Whether some of these ranks have to share a processor, on any machine; the same on all ranks.

        False for more than 512 ranks, and where a rank does not say. Blocks and raises as hosts_of.
        """
        if len(ranks) > _PLACED_RANKS_MAX:
            return False
        cards = [self.card_of(rank, timeout_s) for rank in ranks]
        here = Counter(card.machine for card in cards)
        return any(0 < card.processors < here[card.machine] for card in cards)

    def connect(self, ranks: Iterable[int], timeout_s: float | None = None) -> None:
        """Makes ranks peers of the endpoint. Those that are peers already cost nothing; no handshake is waited for.

        Blocks for the ranks' entries in the store, at most `timeout_s` (None: the job's). Raises what card_of raises,
        and AddressError, LimitError, ClosedError, ForkError. A rank that has connected itself needs no entry.
        """
        new = [rank for rank in ranks if rank not in self._connected]
        peers = frozenset(self.endpoint.peers) if new else ()
        for rank in new:
            if came := rank in peers:
                self.look_up((rank,))  # for errors; it may have left, and the store with it
            card = self.known_card(rank) if came else self.card_of(rank, timeout_s)
            if card is not None and (not came or self.endpoint.runtime.established(rank)):
                self.endpoint.connect(rank, card.address, wait=False)
            self._connected.add(rank)

    def add_cards(self, cards: Iterable[RankCard]) -> None:
        """Makes members of groups known that are no ranks of the job: a hub's cores."""
        for card in cards:
            self._cards[card.rank] = card

    # ---- numbers of groups ----

    def release_number(self, number: int) -> None:
        """Notes that this rank is done with a group's number. The store is updated when the next group opens.

        Not at once: a rank that closes at the end of a run must not need a store that may be gone by then.
        """
        with self._lock:
            self._released.append(number)

    def draw_number(self, members: int) -> int:
        """A number that no open group of the job has: how many members hold each one is counted in the store."""
        for _ in range(GROUPS):
            number = (self.store.add("number/next", 1) - 1) % GROUPS
            if self.store.add(f"number/{number}", members) == members:
                return number
            self.store.add(f"number/{number}", -members)
        raise errors.LimitError(f"{GROUPS} groups are open; close some")
