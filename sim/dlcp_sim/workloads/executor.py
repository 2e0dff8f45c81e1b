"""Collectives by the executor that ships, or by switches that add.

    index = add_collective(simulation, Collective("all_reduce", "ring", hosts=(0, 1, 2), bytes=25_000_000))

hands a whole collective to the simulated hosts' executors, before the first run. It starts at a rank with the task
whose kind is `collective`, on host `hosts[rank]`, with the value `(index << 32) | rank`; that task is finished when
the rank's part is over. `_core.collective_results(simulation, index)` has, by rank, when that was, what was sent again
and what was abandoned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from dlcp import _native
from dlcp.errors import ArgumentError
from dlcp.transport.schedule import Hosts, RankSchedule, build
from dlcp.transport.schedule.hub import Hub, all_reduce, hub_of, key_count
from dlcp.transport.schedule_memory import compile_schedule

if TYPE_CHECKING:
    from dlcp_sim import _core

ELEMENT_BYTES = 4
"""Collectives are of float32."""


@dataclass(frozen=True)
class SwitchJob:
    """What switches and ranks are told of a sum that switches add: the library's words for it (p4/aggregation.md)."""

    slots: int
    """Of the job, at each switch that adds."""
    lanes: int
    """Words of 32 bits in a packet."""
    bits: int
    """Of a value."""


@dataclass(frozen=True)
class Collective:
    """A collective that the transport runs itself: what is the same on all ranks."""

    collective: str
    algorithm: str
    hosts: tuple[int, ...]
    """Rank i is on host hosts[i]."""
    bytes: int
    """Of the whole tensor."""
    traffic_class: int = 0
    loss_ratio: float = 0.0
    critical_ratio: float = 1.0
    patience_s: float | None = None
    root: int = 0
    placement: Hosts | None = None
    """Per rank the number of its group, for algorithms that ask which ranks share a host."""
    racks: Hosts | None = None
    """Over a hub: per worker the number of its rack; the hosts after the workers' are cores, as many for each rack."""
    by_switches: SwitchJob | None = None
    """Switches add; `algorithm` is without effect then."""


def add_collective(simulation: _core.Simulation, one: Collective) -> int:
    """The number of a collective that the hosts' executors will run on virtual memory, or that switches will add.

    Its bytes are those of the tensor; of all parts together where ranks hold parts. Whole float32 elements, rounded up.
    For the bounded collectives, `loss_ratio` of each lossy message's bytes may be abandoned; `critical_ratio` of its
    blocks are not among them, the others' importance is drawn. Raises ArgumentError for what the schedules refuse.
    """
    from dlcp_sim import _core

    if one.bytes < 0:
        raise ArgumentError(f"bytes is {one.bytes}; accepted: 0 or more")
    if (job := one.by_switches) is not None:
        return _core.add_switch_sum(
            simulation, one.hosts, nbytes=one.bytes, slots=job.slots, lanes=job.lanes, bits=job.bits
        )
    size = len(one.hosts)
    inputs, outputs = [], []
    if one.racks is not None:
        hub, key_bytes = hub_for(one.racks, size, one.bytes)
        schedules = [compiled_over_hub(rank, hub) for rank in range(size)]
        inputs = [(0, 0)] * size
        outputs = [
            (0, key_bytes * len(hub.owners if rank < hub.workers else hub.keys_of(rank)))
            for rank in range(size)
        ]
    else:
        for rank in range(size):
            plan = build(one.collective, one.algorithm, size, rank, one.root, one.placement)
            into, out = memory_bytes(one.collective, plan, size, rank, one.bytes)
            inputs.append((0, into))
            outputs.append((0, out))
        schedules = [
            compiled(one.collective, one.algorithm, size, rank, one.root, one.placement)
            for rank in range(size)
        ]
    return _core.add_collective(
        simulation,
        one.hosts,
        schedules,
        inputs,
        outputs,
        traffic_class=one.traffic_class,
        loss=_native.LossRules(one.loss_ratio, patience_s=one.patience_s),
        critical_ratio=one.critical_ratio,
    )


def part_bytes(nbytes: int, parts: int) -> list[int]:
    """Bytes of each part of memory of float32, as native/collective/partition.hpp partitions it."""
    return _native.part_bytes(nbytes, parts, _native.DataType.f32)


def memory_bytes(
    collective: str, plan: RankSchedule, world_size: int, rank: int, nbytes: int
) -> tuple[int, int]:
    """Bytes of input and output that `rank` brings to a collective of `nbytes`."""
    nbytes = -(-nbytes // ELEMENT_BYTES) * ELEMENT_BYTES
    if collective == "all_to_all":
        part = -(-nbytes // (world_size * world_size * ELEMENT_BYTES)) * ELEMENT_BYTES
        return part * plan.input_chunks, part * plan.output_chunks
    # A chunk that stands alone where others have one per rank is this rank's part.
    of_inputs = collective in ("all_gather", "gather")
    of_outputs = collective in ("reduce_scatter", "bounded_reduce_scatter", "coded_reduce_scatter", "scatter")
    own = part_bytes(nbytes, world_size)[rank] if of_inputs or of_outputs else nbytes
    into, out = own if of_inputs else nbytes, own if of_outputs else nbytes
    return into if plan.input_chunks else 0, out if plan.output_chunks else 0


def hub_for(racks: Hosts, size: int, nbytes: int) -> tuple[Hub, int]:
    """Who adds what for workers on these racks, of `size` hosts with the cores; and the bytes of a key.

    Keys are equal here, so a tensor is rounded up to whole keys of cache lines.
    """
    cores, left = divmod(size - len(racks), max(racks) + 1)
    if left or cores < 1:
        raise ArgumentError(
            f"{size - len(racks)} servers for {max(racks) + 1} racks; accepted: as many for each rack"
        )
    keys = key_count(max(1, nbytes), cores)
    key_bytes = -(-max(1, nbytes) // (keys * 64)) * 64
    return hub_of(racks, cores, (key_bytes,) * keys), key_bytes


@lru_cache(maxsize=8192)
def compiled_over_hub(rank: int, hub: Hub) -> _native.Schedule:
    """What a worker or core does, as the core runs it."""
    return compile_schedule(all_reduce(rank, hub), hub.world_size, rank)


@lru_cache(maxsize=8192)
def compiled(
    collective: str, algorithm: str, world_size: int, rank: int, root: int = 0, placement: Hosts | None = None
) -> _native.Schedule:
    """What a rank does, as the core runs it; the same object for the same arguments while it is cached."""
    return compile_schedule(build(collective, algorithm, world_size, rank, root, placement), world_size, rank)
