"""Hierarchical: ranks of one host add among themselves, and one rank per host and shard talks to other hosts.

    inside a host            between hosts                 inside a host
    reduce-scatter, a ring   ring among the carriers       carriers hand out what they have
    to each shard's carrier  of one shard

A *carrier* of shard s is the s-th rank of each host; there are as many shards as the smallest host has ranks, so
hosts may differ. In an all-reduce over m hosts a host's link carries 2 (m - 1) / m of the tensor, however many ranks
there are and however they are numbered. A ring over all n ranks carries 2 (n - 1) / n if ranks of a host are
consecutive, and more if they are not. HiTopKComm (arXiv 2010.10458) has the same three steps. They overlap block by
block: nothing waits for a whole shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dlcp.transport.schedule.operations import Chunk, RankSchedule
from dlcp.transport.schedule.program import MAX_MESSAGES, Program, input_chunk, output_chunk

Hosts = tuple[int, ...]
"""Per rank the number of its host."""


@lru_cache(maxsize=64)
def ranks_by_host(hosts: Hosts) -> tuple[tuple[int, ...], ...]:
    """The ranks of each host. Numbers of hosts are only compared."""
    found: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return tuple(tuple(ranks) for ranks in found.values())


def suits(hosts: Hosts) -> bool:
    """Whether there are hosts to tell apart: several, with several ranks each, and messages for all parts."""
    ranks = ranks_by_host(hosts)
    shards = min(map(len, ranks))
    return len(ranks) > 1 and shards > 1 and shards * len(ranks) <= MAX_MESSAGES


@dataclass(frozen=True, slots=True)
class _View:
    """Hosts and ranks as one rank sees them."""

    ranks: tuple[tuple[int, ...], ...]
    """By host."""
    host: int
    """This rank's, as an index of `ranks`."""
    place: int
    """This rank's, among those of its host."""

    @classmethod
    def of(cls, hosts: Hosts, rank: int) -> _View:
        ranks = ranks_by_host(hosts)
        host = next(index for index, each in enumerate(ranks) if rank in each)
        return cls(ranks, host, ranks[host].index(rank))

    @property
    def shards(self) -> int:
        return min(map(len, self.ranks))

    @property
    def local(self) -> tuple[int, ...]:
        return self.ranks[self.host]

    def next_to(self, step: int) -> int:
        """The rank of this host that is `step` places on."""
        return self.local[(self.place + step) % len(self.local)]

    def beyond(self, step: int) -> int:
        """The carrier of this rank's shard `step` hosts on."""
        return self.ranks[(self.host + step) % len(self.ranks)][self.place]

    def shard_at(self, step: int) -> int | None:
        """The shard that is carried `step` places on; None: none is."""
        shard = (self.place + step) % len(self.local)
        return shard if shard < self.shards else None

    def hosts_back(self) -> Iterator[int]:
        """All hosts, this one first, in the order in which a ring brings what they have."""
        return ((self.host - step) % len(self.ranks) for step in range(len(self.ranks)))

    def owners(self, shard: int, host: int) -> tuple[int, ...]:
        """The ranks of a host whose parts the carriers of a shard move: the carrier, and others of larger hosts."""
        return self.ranks[host][shard :: self.shards]


def all_reduce(world_size: int, rank: int, hosts: Hosts) -> RankSchedule:
    """In place, as a ring: partial sums lie in the output until the result has come."""
    del world_size
    view = _View.of(hosts, rank)
    locals_, count = len(view.local), len(view.ranks)

    def parts(shard: int) -> list[Chunk]:
        return [output_chunk(shard * count + host) for host in view.hosts_back()]

    program = Program(output_chunks=view.shards * count)
    for hop in range(1, locals_):
        if (shard := view.shard_at(-hop)) is not None:
            for part in parts(shard):
                program.send(view.next_to(1), part)
        if (shard := view.shard_at(-hop - 1)) is not None:
            for part in parts(shard):
                program.receive(view.next_to(-1), part, part, final=hop == locals_ - 1 and count == 1)
    if view.place >= view.shards:
        for carrier in range(view.shards):
            for part in parts(carrier):
                program.receive(view.local[carrier], part)
        return program.schedule()

    own = parts(view.place)  # own[i]: the part that ends at the host i before this one
    for hop in range(1, count):
        program.send(view.beyond(1), own[hop])
        part = own[(hop + 1) % count]
        program.receive(view.beyond(-1), part, part, final=hop == count - 1)
    for hop in range(count - 1):
        program.send(view.beyond(1), own[hop])
        program.receive(view.beyond(-1), own[hop + 1])
    for part in own:
        for step in range(1, locals_):
            program.send(view.next_to(step), part)
    for step in range(1, locals_):
        if (shard := view.shard_at(-step)) is not None:
            for part in parts(shard):
                program.receive(view.next_to(-step), part)
    return program.schedule()


def reduce_scatter(world_size: int, rank: int, hosts: Hosts) -> RankSchedule:
    """Partial sums lie in scratch, the input is the caller's."""
    view = _View.of(hosts, rank)
    locals_, count = len(view.local), len(view.ranks)
    program = Program(input_chunks=world_size, output_chunks=1)
    if world_size == 1:
        program.combine(output_chunk(0), input_chunk(0), final=True)
        return program.schedule()

    def owners(shard: int) -> list[int]:
        return [owner for host in view.hosts_back() for owner in view.owners(shard, host)]

    source = {owner: input_chunk(owner) for owner in range(world_size)}

    def add(peer: int, owner: int, *, last: bool) -> None:
        """Adds what comes to what is here; the last sum of this rank's part is its result."""
        target = output_chunk(0) if last and owner == rank else program.scratch(input_chunk(owner))
        program.receive(peer, target, source[owner], final=last)
        source[owner] = target

    for hop in range(1, locals_):
        if (shard := view.shard_at(-hop)) is not None:
            for owner in owners(shard):
                program.send(view.next_to(1), source[owner])
        if (shard := view.shard_at(-hop - 1)) is not None:
            for owner in owners(shard):
                add(view.next_to(-1), owner, last=hop == locals_ - 1 and count == 1)
    if view.place >= view.shards:
        program.receive(view.local[view.place % view.shards], output_chunk(0))
        return program.schedule()

    for hop in range(1, count):
        for owner in view.owners(view.place, (view.host - hop) % count):
            program.send(view.beyond(1), source[owner])
        for owner in view.owners(view.place, (view.host - hop - 1) % count):
            add(view.beyond(-1), owner, last=hop == count - 1)
    for owner in view.owners(view.place, view.host):
        if owner != rank:
            program.send(owner, source[owner])
    return program.schedule()


def all_gather(world_size: int, rank: int, hosts: Hosts) -> RankSchedule:
    """Every part crosses to each host once."""
    view = _View.of(hosts, rank)
    locals_, count = len(view.local), len(view.ranks)
    program = Program(input_chunks=1, output_chunks=world_size)
    source = {owner: input_chunk(0) if owner == rank else output_chunk(owner) for owner in range(world_size)}

    if view.place >= view.shards:
        program.send(view.local[view.place % view.shards], input_chunk(0))
    else:
        for owner in view.owners(view.place, view.host):
            if owner != rank:
                program.receive(owner, output_chunk(owner))
        for hop in range(1, count):
            for owner in view.owners(view.place, (view.host - hop + 1) % count):
                program.send(view.beyond(1), source[owner])
            for owner in view.owners(view.place, (view.host - hop) % count):
                program.receive(view.beyond(-1), output_chunk(owner))
        for host in view.hosts_back():
            for owner in view.owners(view.place, host):
                for step in range(1, locals_):
                    if view.next_to(step) != owner:
                        program.send(view.next_to(step), source[owner])
    for step in range(1, locals_):
        if (shard := view.shard_at(-step)) is not None:
            for host in view.hosts_back():
                for owner in view.owners(shard, host):
                    if owner != rank:
                        program.receive(view.next_to(-step), output_chunk(owner))
    program.combine(output_chunk(rank), input_chunk(0))
    return program.schedule()
