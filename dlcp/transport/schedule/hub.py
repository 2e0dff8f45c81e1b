"""Hub: members that contribute nothing add for the others, each its share of the buffer.

    workers of a rack        the rack's hub             other racks' hubs
    each key to its core  →  one core owns it: adds  ⇄  the key's home adds the racks' sums
    the sum               ←  and sends to all

The buffer is cut into *keys* of at most 32 KiB. A hub has *cores*; a core is one endpoint and takes its keys from the
first contribution to the reply, so nothing is locked. Keys are packed onto cores longest first. Contributions are added
in the order of ranks, straight from the packet where they come in that order.

A worker's link carries the tensor once up and once down, where a ring carries 2 (n - 1) / n of it each way. With
several racks, each with a hub of as many cores, a key has a *home* among its racks: the other racks' cores send it
their sums, and it sends them the result. A rack's up-link then carries 2 (r - 1) / r of the tensor each way over r
racks, however many workers there are. PHub (Luo et al., SoCC 2018, arXiv 1805.07891) has keys, cores, and the exchange
between racks.

Coded values are decoded and added once all contributions to a block are there, so a core keeps them apart until then.
Their sum is coded once, and with several racks twice: each rack's on its way to the home, and the sum of these there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from dlcp.errors import ArgumentError
from dlcp.transport.schedule.layout import SCATTERED, Layout, Role
from dlcp.transport.schedule.operations import Chunk, RankSchedule
from dlcp.transport.schedule.packing import longest_first
from dlcp.transport.schedule.program import Program, input_chunk, output_chunk

KEY_BYTES = 32 * 1024
"""Of a key, at most: PHub's, which stays in a core's nearest caches from the first contribution to the reply."""
KEYS_MAX = 1024
"""Of one collective on one core: a session bounds the messages under way, and collectives overlap."""


class Hub(NamedTuple):
    """Who adds what, the same on all members. Ranks: the workers, then rack by rank of rack the cores of its hub."""

    racks: tuple[int, ...]
    """Per worker the number of its rack, from 0 without gaps."""
    cores: int
    """Of each rack's hub."""
    owners: tuple[int, ...]
    """Per key its home rack times `cores`, plus the core of every rack that takes it."""
    wanted_by: tuple[int, ...] = ()
    """Of a reduce-scatter: per key the worker that gets its sum; others do not."""
    absent: tuple[int, ...] = ()
    """Of an all-reduce in one rack: workers without which a core makes the sums. It takes what they send and throws it
    away. Workers need not know of it."""

    @property
    def workers(self) -> int:
        """How many ranks contribute."""
        return len(self.racks)

    @property
    def rack_count(self) -> int:
        """How many racks there are."""
        return max(self.racks) + 1

    @property
    def world_size(self) -> int:
        """Workers and cores."""
        return self.workers + self.rack_count * self.cores

    def core_rank(self, rack: int, core: int) -> int:
        """The rank of a core."""
        return self.workers + rack * self.cores + core

    def place_of(self, rank: int) -> tuple[int, int]:
        """Rack and number of the core that has this rank."""
        return divmod(rank - self.workers, self.cores)

    def keys_of(self, rank: int) -> list[int]:
        """The keys that a core takes, in order."""
        _, core = self.place_of(rank)
        return [key for key, owner in enumerate(self.owners) if owner % self.cores == core]


def key_count(nbytes: int, cores: int) -> int:
    """Into how many keys a buffer is cut. One of more than KEYS_MAX times `cores` keys has longer ones."""
    return max(1, min(-(-nbytes // KEY_BYTES), cores * KEYS_MAX))


_Adding = Callable[[Program, Hub, int, int, Chunk], tuple[bool, int]]


@lru_cache(maxsize=16)
def hub_of(
    racks: tuple[int, ...], cores: int, sizes: tuple[int, ...], wanted_by: tuple[int, ...] = ()
) -> Hub:
    """Packs keys of these sizes onto the cores and homes. Raises ArgumentError, naming what is accepted.

    `wanted_by`: as in Hub; the home of such a key is the rack of the worker that gets its sum.
    """
    if not racks or set(racks) != set(range(max(racks) + 1)):
        raise ArgumentError(f"racks is {racks}; accepted: per worker a number from 0, without gaps")
    if cores < 1:
        raise ArgumentError(f"cores is {cores}; accepted: at least 1")
    if wanted_by:
        packed = zip(wanted_by, longest_first(sizes, cores), strict=True)
        return Hub(racks, cores, tuple(racks[worker] * cores + core for worker, core in packed), wanted_by)
    return Hub(racks, cores, tuple(longest_first(sizes, (max(racks) + 1) * cores)))


def all_reduce(rank: int, hub: Hub) -> RankSchedule:
    """In place. A worker brings all keys as output chunks, a core those that it takes."""
    if rank >= hub.workers:
        return _core(rank, hub, _add_at_core)
    program = Program(output_chunks=len(hub.owners))
    rack = hub.racks[rank]
    for core, key in _in_turn(hub, hub.racks[:rank].count(rack)):
        program.send(hub.core_rank(rack, core), output_chunk(key))
    for key, owner in enumerate(hub.owners):
        program.receive(hub.core_rank(rack, owner % hub.cores), output_chunk(key))
    return program.schedule()


def coded_all_reduce(rank: int, hub: Hub) -> RankSchedule:
    """Of coded values. A worker brings all keys as input and as output chunks, a core as output those it takes."""
    if rank >= hub.workers:
        return _core(rank, hub, _code_at_core)
    program = Program(input_chunks=len(hub.owners), output_chunks=len(hub.owners))
    rack = hub.racks[rank]
    for core, key in _in_turn(hub, hub.racks[:rank].count(rack)):
        program.send(hub.core_rank(rack, core), input_chunk(key))
    for key, owner in enumerate(hub.owners):
        program.receive(hub.core_rank(rack, owner % hub.cores), output_chunk(key))
    return program.schedule()


def reduce_scatter(rank: int, hub: Hub) -> RankSchedule:
    """A worker brings all keys as input chunks, and those that it wants as output, a core as output those it takes.

    An output chunk may be the input chunk of its key: nobody sends the sum before all contributions are there. Between
    racks a key's sum in each other rack goes to its home, and nothing comes back.
    """
    return _scatter(rank, hub, _add_at_core)


def coded_reduce_scatter(rank: int, hub: Hub) -> RankSchedule:
    """As reduce_scatter, of coded values: a worker gets the code of the sum."""
    return _scatter(rank, hub, _code_at_core)


def _scatter(rank: int, hub: Hub, add: _Adding) -> RankSchedule:
    if rank < hub.workers:
        rack = hub.racks[rank]
        wanted = [key for key, worker in enumerate(hub.wanted_by) if worker == rank]
        program = Program(input_chunks=len(hub.owners), output_chunks=len(wanted))
        for core, key in _in_turn(hub, hub.racks[:rank].count(rack)):
            program.send(hub.core_rank(rack, core), input_chunk(key))
        for index, key in enumerate(wanted):
            program.receive(hub.core_rank(rack, hub.owners[key] % hub.cores), output_chunk(index))
        return program.schedule()
    keys = hub.keys_of(rank)
    program = Program(output_chunks=len(keys))
    for sum_, key in zip(map(output_chunk, range(len(keys))), keys, strict=True):
        is_home, home_core = add(program, hub, rank, key, sum_)
        program.send(hub.wanted_by[key] if is_home else home_core, sum_)
    return program.schedule()


def _add_at_core(program: Program, hub: Hub, rank: int, key: int, sum_: Chunk) -> tuple[bool, int]:
    """Receives and adds what a core gets of a key. Whether it is the key's home, and the rank of the home's core."""
    for worker in hub.absent:
        program.receive(worker, program.scratch(sum_))
    sources, is_home, home_core = _sources(hub, rank, key)
    for source in sources:
        operand = None if source == sources[0] else sum_
        program.receive(source, sum_, operand, final=is_home and source == sources[-1])
    return is_home, home_core


def _code_at_core(program: Program, hub: Hub, rank: int, key: int, sum_: Chunk) -> tuple[bool, int]:
    """As _add_at_core, of coded values, which are coded anew."""
    sources, is_home, home_core = _sources(hub, rank, key)
    if not is_home and len(sources) == 1:
        program.receive(sources[0], sum_)  # goes on as it is: coded anew it would lose more
        return is_home, home_core
    contributions = [program.scratch(sum_) for _ in sources]
    for source, contribution in zip(sources, contributions, strict=True):
        program.receive(source, contribution)
    program.combine(sum_, *contributions, final=is_home)
    return is_home, home_core


def _sources(hub: Hub, rank: int, key: int) -> tuple[list[int], bool, int]:
    """Whom a core gets something of a key from, whether it is the key's home, and the rank of the home's core."""
    rack, core = hub.place_of(rank)
    home = hub.owners[key] // hub.cores
    sources = [worker for worker, place in enumerate(hub.racks) if place == rack and worker not in hub.absent]
    if home == rack:
        sources += [hub.core_rank(place, core) for place in range(hub.rack_count) if place != rack]
    return sources, home == rack, hub.core_rank(home, core)


def _in_turn(hub: Hub, place: int) -> Iterator[tuple[int, int]]:
    """Core and key in the order in which the worker at this place of its rack sends: a key to each core in turn.

    Each worker begins with another core. So workers do not all send to one core at a time, and yet bring a core the
    same keys at about the same time. Simulated at 25 Gb/s, 8 workers and 8 cores: 8 MB in 2.84 ms, and in 3.41 ms where
    all send in the order of keys.
    """
    keys: list[list[int]] = [[] for _ in range(hub.cores)]
    for key, owner in enumerate(hub.owners):
        keys[owner % hub.cores].append(key)
    for turn in range(max(map(len, keys))):
        for step in range(hub.cores):
            core = (place + step) % hub.cores
            if turn < len(keys[core]):
                yield core, keys[core][turn]


def _core(rank: int, hub: Hub, add: _Adding) -> RankSchedule:
    rack, core = hub.place_of(rank)
    keys = hub.keys_of(rank)
    own = [worker for worker, place in enumerate(hub.racks) if place == rack]
    others = [hub.core_rank(place, core) for place in range(hub.rack_count) if place != rack]
    program = Program(output_chunks=len(keys))
    for index, key in enumerate(keys):
        sum_ = output_chunk(index)
        is_home, home_core = add(program, hub, rank, key, sum_)
        if not is_home:
            program.send(home_core, sum_)
            program.receive(home_core, sum_)
        for peer in [*(others if is_home else ()), *own]:
            program.send(peer, sum_)
    return program.schedule()


def layouts(hub: Hub, collective: str = "all_reduce") -> list[Layout]:
    """What each rank's chunks hold before and after, as layout.layout says of other collectives.

    A core's chunks hold nothing at the start, and at the end the sum of all workers' contributions; of a reduce-scatter
    only the home's do, and others' whatever is left.
    """
    everyone, keys = (1 << hub.workers) - 1, range(len(hub.owners))
    scattered = collective in SCATTERED
    if collective == "coded_all_reduce":
        workers = [
            Layout([Role(key, rank, 0) for key in keys], [Role(key, None, everyone) for key in keys], ())
            for rank in range(hub.workers)
        ]
    elif scattered:
        workers = []
        for rank in range(hub.workers):
            wanted = [key for key in keys if hub.wanted_by[key] == rank]
            workers.append(
                Layout(
                    [Role(key, rank, 0) for key in keys],
                    [Role(key, None, everyone) for key in wanted],
                    tuple((key, index) for index, key in enumerate(wanted)),
                )
            )
    else:
        workers = [Layout([], [Role(key, rank, everyone) for key in keys], ()) for rank in range(hub.workers)]
    cores = []
    for rank in range(hub.workers, hub.world_size):
        rack, _ = hub.place_of(rank)
        roles = [
            Role(key, None, everyone if not scattered or hub.owners[key] // hub.cores == rack else 0)
            for key in hub.keys_of(rank)
        ]
        cores.append(Layout([], roles, ()))
    return workers + cores
