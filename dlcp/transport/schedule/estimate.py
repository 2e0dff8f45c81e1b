"""How long a collective takes by an algorithm, estimated: hops, and what the busiest link, host and rank have to carry.

The α-β-γ model of Thakur, Rabenseifner and Gropp (IJHPCA 19(1), 2005, section 3) over the schedules themselves, with
hosts: a hop between hosts costs more than one inside, ranks of a host share its link, and what a message adds to its
data counts. An estimate is for a choice: it ranks algorithms, and promises no time.

The constants below are fitted to simulated networks of 4 to 64 ranks (`bench defaults`), those of `Network` are typical
of what they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from dlcp.transport.schedule import PLACED, build
from dlcp.transport.schedule.hierarchical import Hosts
from dlcp.transport.schedule.operations import Chunk, Combine, RankSchedule, Receive, Send

RANKS_MAX = 64
"""Of a world whose schedules are looked at, which takes a tenth of a second for 64 ranks, and grows as squares."""

# Of a message that several hops pass on, what has to be there before the next hop begins.
_PASSED_ON_BYTES = 64 * 1024
# Of a ring, which passes on packet by packet.
_BLOCK_BYTES = 8 * 1024
_NOT_HIDDEN = 0.15
# What a message costs a link beside its data: headers of the packet and of its acknowledgement.
_MESSAGE_BYTES = 150
# By how much each peer that a rank exchanges messages with at a time lengthens what its link carries.
_CONTENTION = 0.004
# Where links and ranks work in steps, one after the other: for how much of the shorter step the other waits.
_WAITING = 0.5
_BY_STEPS = frozenset({"hierarchical", "tree"})
_RINGS = frozenset({"ring", "hierarchical"})
# How many hops inside a host weigh as one between hosts where the longest chain is looked for.
_FAR = 4
_Depth = tuple[int, int, int]
"""Of what a chunk holds: the weight of its chain, hops between hosts, hops inside."""
_NO_HOP: _Depth = (0, 0, 0)


LINK_BPS = 10e9
"""What a host's link counts as where nobody says."""


class Network(NamedTuple):
    """What is between the ranks of a group. What nobody has said is as of 10 Gbit/s Ethernet and kernel sockets."""

    hosts: Hosts
    """Per rank the number of its host."""
    link_bps: float = LINK_BPS
    """Of a host's link."""
    hop_ns: float = 50_000
    """From one host to another: a short message, until its receiver has acted on it."""
    inside_bps: float = 40e9
    """What a rank sends inside its host."""
    inside_hop_ns: float = 12_500
    message_ns: float = 1500
    """Of a rank's processor, per message that it sends or receives."""
    adding_bps: float = 64e9
    """What a rank adds up."""


class Shape(NamedTuple):
    """What the algorithm asks for, whatever the sizes. Ratios are of the whole tensor."""

    hops: int
    """Between hosts, on the longest chain of messages that need one another."""
    inside_hops: int
    """Inside hosts, on the same chain."""
    chain_ratio: float
    """What the messages of that chain carry, all hops together."""
    crossing_ratio: float
    """What the busiest host sends to or receives from others."""
    crossing_messages: int
    """How many messages that is."""
    sent_ratio: float
    """What the busiest rank sends."""
    added_ratio: float
    """What the busiest rank adds up."""
    messages: int
    """What the busiest rank sends and receives."""
    peers: int
    """Ranks that the busiest rank exchanges messages with."""


def time_ns(collective: str, algorithm: str, nbytes: int, network: Network) -> float:
    """The estimate. At most RANKS_MAX ranks. Raises ArgumentError as `build`."""
    shape = shape_of(collective, algorithm, network.hosts)
    contention = 1 + _CONTENTION * shape.peers
    link_ns, inside_ns = contention * 8e9 / network.link_bps, contention * 8e9 / network.inside_bps
    crossing_ns = (shape.crossing_ratio * nbytes + shape.crossing_messages * _MESSAGE_BYTES) * link_ns
    sending_ns = shape.sent_ratio * nbytes * inside_ns
    carrying_ns = max(crossing_ns, sending_ns)
    if algorithm in _BY_STEPS and 1 < len(set(network.hosts)) < len(network.hosts):
        carrying_ns += _WAITING * min(crossing_ns, sending_ns)
    steps = max(1, shape.hops + shape.inside_hops)
    chain_ns = shape.hops * network.hop_ns + shape.inside_hops * network.inside_hop_ns
    work_ns = shape.messages * network.message_ns + shape.added_ratio * nbytes * 8e9 / network.adding_bps
    if algorithm in _RINGS and shape.chain_ratio <= shape.sent_ratio:
        # Each rank sends a part while the next one comes, so a step takes little more than the longer of the two.
        block = min(shape.chain_ratio * nbytes / steps, _BLOCK_BYTES)
        chain_ns += block * (shape.hops * link_ns + shape.inside_hops * inside_ns)
        return work_ns + max(chain_ns, carrying_ns) + _NOT_HIDDEN * min(chain_ns, carrying_ns)
    passed = shape.chain_ratio * shape.hops / steps
    waits = min((passed - shape.crossing_ratio) * nbytes, (shape.hops - 1) * _PASSED_ON_BYTES)
    return work_ns + chain_ns + max(0.0, waits) * link_ns + carrying_ns


@lru_cache(maxsize=256)
def shape_of(collective: str, algorithm: str, hosts: Hosts) -> Shape:
    """Counted in the schedules of all ranks, which are right. Raises ArgumentError as `build`."""
    size = len(hosts)
    placed = hosts if algorithm in PLACED else None
    schedules = [build(collective, algorithm, size, rank, 0, placed) for rank in range(size)]
    chunk = 1 / max(max(each.input_chunks, each.output_chunks) for each in schedules)
    sent, received, added = [0] * size, [0] * size, [0] * size
    peers: list[set[int]] = [set() for _ in hosts]
    leaving, coming = dict.fromkeys(hosts, 0), dict.fromkeys(hosts, 0)
    for rank, schedule in enumerate(schedules):
        for operation in schedule.operations:
            if isinstance(operation, Send):
                sent[rank] += 1
                received[operation.peer] += 1
                peers[rank].add(operation.peer)
                peers[operation.peer].add(rank)
                if hosts[rank] != hosts[operation.peer]:
                    leaving[hosts[rank]] += 1
                    coming[hosts[operation.peer]] += 1
            elif isinstance(operation, Combine):
                added[rank] += len(operation.operands) - 1
            elif operation.operand is not None:
                added[rank] += 1
    hops, inside_hops = _longest_chain(schedules, hosts)
    crossing = max(*leaving.values(), *coming.values())
    return Shape(
        hops=hops,
        inside_hops=inside_hops,
        chain_ratio=(hops + inside_hops) * chunk,
        crossing_ratio=crossing * chunk,
        crossing_messages=crossing,
        sent_ratio=max(sent) * chunk,
        added_ratio=max(added) * chunk,
        messages=max(map(sum, zip(sent, received, strict=True))),
        peers=max(map(len, peers)),
    )


def _longest_chain(schedules: Sequence[RankSchedule], hosts: Hosts) -> tuple[int, int]:
    """Hops between hosts, which weigh four times as much, and inside them, of the longest chain."""
    at: list[dict[Chunk, _Depth]] = [{} for _ in schedules]
    under_way: dict[tuple[int, int, int], _Depth] = {}
    begun = [iter(schedule.operations) for schedule in schedules]
    held_up: dict[tuple[int, int, int], Receive] = {}
    longest, ready = _NO_HOP, list(range(len(schedules)))
    while ready:
        rank = ready.pop()
        chunks = at[rank]
        for operation in begun[rank]:
            if isinstance(operation, Send):
                weight, hops, inside = chunks.get(operation.source, _NO_HOP)
                far = hosts[rank] != hosts[operation.peer]
                depth = (weight + (_FAR if far else 1), hops + far, inside + (not far))
                longest = max(longest, depth)
                message = (rank, operation.peer, operation.message)
                under_way[message] = depth
                if (receive := held_up.pop(message, None)) is not None:
                    _arrive(at[operation.peer], receive, depth)
                    ready.append(operation.peer)
            elif isinstance(operation, Combine):
                chunks[operation.target] = max(chunks.get(each, _NO_HOP) for each in operation.operands)
            else:
                message = (operation.peer, rank, operation.message)
                if message not in under_way:
                    held_up[message] = operation
                    break
                _arrive(chunks, operation, under_way[message])
    return longest[1:]


def _arrive(chunks: dict[Chunk, _Depth], receive: Receive, depth: _Depth) -> None:
    operand = _NO_HOP if receive.operand is None else chunks.get(receive.operand, _NO_HOP)
    chunks[receive.target] = max(depth, operand)
