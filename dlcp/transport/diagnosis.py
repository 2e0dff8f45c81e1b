"""Collects the facts of a failure when it is noticed: which ranks are concerned, and what they report.

This is done once per group: a group fails as a whole, so the facts of its first failure serve all of its operations.
Reading other ranks' accounts (call_log.py), and the cards of ranks that this one has not met, takes a fraction of a
second at most, also when the store is gone. Nothing else here blocks.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dlcp import errors
from dlcp.transport.call_log import CallLog, exchange_accounts
from dlcp.transport.failures import FailureContext, Member, explain, is_of_the_group, wait_timeout
from dlcp.transport.store import Store

if TYPE_CHECKING:
    from dlcp._native import CollectiveResult
    from dlcp.transport.job_ranks import JobRanks
    from dlcp.transport.work import Work

# How long to wait for other ranks' accounts. A timeout is reported at most a second late, and the executor uses up to
# 0.7 s of that to find the rank to blame. A rank that has not reached the operation has no account either.
_TIMEOUT_ACCOUNTS_S = 0.2
_MISMATCH_ACCOUNTS_S = 1.0
# How long to wait for the cards of a culprit and a reporter that this rank has not met.
_CARDS_S = 0.2
# At most so many of the ranks that an operation waits for are asked.
_ASKED_MAX = 4


class Diagnosis:
    """The diagnosis of one group, on one rank. `log`: what this rank called."""

    def __init__(
        self, job: JobRanks, name: str, members: tuple[int, ...], store: Store, log: CallLog
    ) -> None:
        self._job = job
        self._name = name
        self._members = members
        self._rank = members.index(job.rank)
        self._store = store
        self._log = log
        self._context: FailureContext | None = None

    def explain(self, work: Work, result: CollectiveResult, reason: str) -> errors.CollectiveError:
        """The exception of a work that has failed. `reason`: the argument of abort(). One thread at a time."""
        if not is_of_the_group(result, single=not work.numbered):
            context = self._look_around(result, {}, reason)
        else:
            if self._context is None:
                reading = _CardReading(self._job, self._strangers(result))
                accounts = self._ask(result)
                reading.wait()
                self._context = self._look_around(result, accounts, reason)
            context = self._context
        return explain(result, work.operation, work.words, work.sequence if work.numbered else None, context)

    def wait_timeout(self, work: Work, waited_s: float) -> errors.WaitTimeoutError:
        """The exception of a wait() whose time is up."""
        own = {self._rank: self._member(self._rank)}
        settings = self._job.settings
        context = FailureContext(
            self._name, self._rank, own, settings.peer_timeout_s, settings.max_messages_per_peer
        )
        return wait_timeout(
            work.operation, work.words, work.sequence if work.numbered else None, context, waited_s
        )

    def _strangers(self, result: CollectiveResult) -> list[int]:
        """The ranks that a result names and this rank has not met: ranks in the job."""
        named = _known(result) - {self._rank}
        ranks = sorted(self._members[group_rank] for group_rank in named)
        return [rank for rank in ranks if self._job.known_card(rank) is None]

    def _ask(self, result: CollectiveResult) -> dict[int, str]:
        """Publishes this rank's account of the failed operation, and reads those of other ranks that may have one."""
        kind = result.cause if result.error == "group_failed" else result.error
        if kind not in ("timeout", "mismatch"):
            return {}
        concerned = _known(result) if kind == "mismatch" else set()
        if result.error == "timeout":
            concerned |= {each.peer for each in result.waiting_for[:_ASKED_MAX]}
        return exchange_accounts(
            self._store,
            result.sequence,
            self._rank,
            self._log.account_of(result.sequence),
            sorted(concerned - {self._rank}),
            _MISMATCH_ACCOUNTS_S if kind == "mismatch" else _TIMEOUT_ACCOUNTS_S,
        )

    def _look_around(
        self, result: CollectiveResult, accounts: Mapping[int, str], reason: str
    ) -> FailureContext:
        """What this rank knows about the members that a result names."""
        named = _known(result) | {each.peer for each in result.waiting_for}
        return FailureContext(
            self._name,
            self._rank,
            {rank: self._member(rank) for rank in named | {self._rank}},
            self._job.settings.peer_timeout_s,
            self._job.settings.max_messages_per_peer,
            self._log.words_of(result.sequence),
            accounts,
            reason,
        )

    def _member(self, group_rank: int) -> Member:
        rank = self._members[group_rank]
        if rank == self._job.rank:
            return Member(rank, self._job.card)
        runtime = self._job.endpoint.runtime
        connected, silent_s = False, None
        with contextlib.suppress(errors.DlcpError):
            connected = runtime.established(rank)
            silent_s = runtime.peer_statistics(rank).get("silent_s")
        return Member(rank, self._job.known_card(rank), connected, silent_s)


def _known(result: CollectiveResult) -> set[int]:
    """Culprit and reporter, where a result knows them: ranks in the group."""
    return {rank for rank in (result.culprit, result.reporter) if rank is not None}


class _CardReading:
    """Reads cards from the store, on a thread of its own: the store's server may be what has died."""

    def __init__(self, job: JobRanks, ranks: list[int]) -> None:
        self._end_s = time.monotonic() + _CARDS_S
        self._thread: threading.Thread | None = None
        if ranks:
            self._thread = threading.Thread(target=_read, args=(job, ranks), name="dlcp-cards", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Waits until the cards are read, or the time is up."""
        if self._thread is not None:
            self._thread.join(max(0.0, self._end_s - time.monotonic()))


def _read(job: JobRanks, ranks: list[int]) -> None:
    for rank in ranks:
        with contextlib.suppress(Exception):
            job.card_of(rank, _CARDS_S)
