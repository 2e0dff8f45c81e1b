"""The doctor as a job: every rank of a launcher checks its host, and all pairs of ranks are measured.

Ranks meet as a job does (dlcp.transport.job): same store, same key, same choice of interface, so that what works here
works there. Pairs take turns as in a tournament, so that each rank is in one measurement at a time. What a rank finds
goes through the store, which is TCP to the launcher and there even when no UDP comes through.

Invariant: every wait is bounded, and a rank that cannot take part says why in the store and stays out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dlcp.doctor.finding import Finding, Topic
from dlcp.doctor.host import look_at_host
from dlcp.doctor.probe import RankPair, Responder, probe
from dlcp.doctor.rank_pairs import PairMember, look_at_rank_pairs
from dlcp.doctor.report import Examination, Host
from dlcp.errors import DlcpError, StoreTimeoutError
from dlcp.transport.job import Job
from dlcp.transport.rank_card import this_place
from dlcp.transport.store import PrefixStore, Store, wait_for

# From the first rank at the store to the last; and for all ranks to be through one round.
MEET_TIMEOUT_S = 120.0


def rounds(size: int) -> Iterator[list[tuple[int, int]]]:
    """A tournament: every pair of ranks meets once, and in each round nobody meets two (the circle method)."""
    players: list[int | None] = list(range(size)) + ([None] if size % 2 else [])
    for _ in range(len(players) - 1):
        half = len(players) // 2
        meetings = zip(players[:half], reversed(players[half:]), strict=True)
        yield [(min(a, b), max(a, b)) for a, b in meetings if a is not None and b is not None]
        players = [players[0], players[-1], *players[1:-1]]


def examine_ranks(
    store: Store,
    rank: int,
    size: int,
    *,
    toward: str | None,
    environ: Mapping[str, str],
    timeout_s: float,
    changes: Mapping[str, Any],
) -> Examination | None:
    """This rank's part; the result at rank 0, None at the others, which may leave then.

    Blocks for the slowest rank, at most MEET_TIMEOUT_S a step. Raises StoreTimeoutError: a rank did not come; and what
    the store raises.
    """
    part = PrefixStore("dlcp-doctor", store)
    # One rank of a host looks at it: several at once would measure each other.
    is_first = environ.get("LOCAL_RANK", "0") == "0"
    findings = look_at_host(toward, environ, opens=False) if is_first else []
    card: dict[str, Any] = {"where": this_place(), "findings": [asdict(one) for one in findings]}
    job: Job | None = None
    try:
        job = Job(part, rank, size, timeout_s=MEET_TIMEOUT_S, toward=toward, **changes)
    except DlcpError as error:
        card["refusal"] = str(error)
    else:
        card["member"] = asdict(PairMember.of(f"rank {rank}", job.card))
    pairs: list[RankPair] = []
    part.set(f"doctor/card/{rank}", json.dumps(card))
    cards = [json.loads(_wait(part, f"doctor/card/{other}", other)) for other in range(size)]
    taking_part = [other for other in range(size) if "refusal" not in cards[other]]
    if job is not None:
        with job, Responder(job.endpoint):
            pairs = _meet(job, part, taking_part, timeout_s)
            part.set(f"doctor/pairs/{rank}", json.dumps([asdict(pair) for pair in pairs]))
            # Nobody closes before everybody has measured.
            for other in taking_part:
                _wait(part, f"doctor/pairs/{other}", other)
    if rank != 0:
        part.set(f"doctor/left/{rank}", "1")
        return None
    for other in taking_part:
        if other != 0:
            pairs += [RankPair(**pair) for pair in json.loads(_wait(part, f"doctor/pairs/{other}", other))]
    # The store may be this process's: the others leave first.
    for other in range(1, size):
        _wait(part, f"doctor/left/{other}", other)
    return _conclude(cards, taking_part, pairs)


def _meet(job: Job, part: Store, taking_part: Sequence[int], timeout_s: float) -> list[RankPair]:
    """This rank's measurements, in step with the others'."""
    pairs = []
    for number, meetings in enumerate(rounds(len(taking_part))):
        for turn in (0, 1):
            for meeting in meetings:
                source, target = taking_part[meeting[turn]], taking_part[meeting[1 - turn]]
                if source == job.rank:
                    pairs.append(_probe(job, target, timeout_s))
            key = f"doctor/round/{number}.{turn}"
            if part.add(f"{key}/count", 1) == len(taking_part):
                part.set(key, "over")
            wait_for(part, key, MEET_TIMEOUT_S, f"round {number} of {len(taking_part)} ranks")
    return pairs


def _probe(job: Job, target: int, timeout_s: float) -> RankPair:
    try:
        address = job.address_of(target)
    except DlcpError as error:
        return RankPair(source=job.rank, target=target, error=str(error))
    return probe(job.endpoint, job.rank, target, target, address, timeout_s)


def _conclude(
    cards: Sequence[dict[str, Any]], taking_part: Sequence[int], pairs: Sequence[RankPair]
) -> Examination:
    hosts: dict[str, Host] = {}
    for rank, card in enumerate(cards):
        name = card.get("member", {}).get("host", f"rank {rank}")
        host = hosts.setdefault(card["where"], Host(name, []))
        host.ranks.append(rank)
        if not host.findings:
            host.findings.extend(map(Finding.from_json, card["findings"]))
    refusals = [
        Topic("start").fail(f"rank {rank} cannot take part: {card['refusal']}")
        for rank, card in enumerate(cards)
        if "refusal" in card
    ]
    members = [PairMember(**cards[rank]["member"]) for rank in taking_part]
    places = {rank: place for place, rank in enumerate(taking_part)}
    renumbered = [replace(pair, source=places[pair.source], target=places[pair.target]) for pair in pairs]
    between = look_at_rank_pairs(members, renumbered) if len(members) > 1 else []
    return Examination([one.name for one in members], list(hosts.values()), refusals + between, renumbered)


def _wait(part: Store, key: str, rank: int) -> bytes:
    try:
        return wait_for(part, key, MEET_TIMEOUT_S, f"rank {rank}'s part")
    except StoreTimeoutError as error:
        raise StoreTimeoutError(
            f"{error}; see that `dlcp doctor` runs as every rank, and that rank {rank} has not died"
        ) from error
