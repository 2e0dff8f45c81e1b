"""Collective algorithms as data: for each rank a list of operations on named chunks, which native code runs.

    from dlcp.transport.schedule import build

    build("all_reduce", "ring", world_size=4, rank=0)

The chunks that a caller brings, per collective (n ranks):

| collective     | input                | output                                                          |
|----------------|----------------------|-----------------------------------------------------------------|
| all_reduce     | none                 | the tensor, in `output_chunks` parts: contribution, then result |
| reduce_scatter | n parts              | 1: the sum of part `rank`; may be that part of the input        |
| all_gather     | 1                    | n: part i from rank i; part `rank` may be the input             |
| broadcast      | none                 | 1: the root's                                                   |
| reduce         | 1                    | at the root 1: the sum; may be its input. Elsewhere none        |
| gather         | 1                    | at the root n; part `rank` may be its input. Elsewhere none     |
| scatter        | at the root n        | 1; at the root it may be part `rank` of its input               |
| all_to_all     | n: part j for rank j | n: part i from rank i; apart from the input                     |

`bounded_all_reduce` has n parts of input and n of output, apart from it; `bounded_reduce_scatter` has chunks as
reduce_scatter. Messages to the rank that adds are lossy there. `coded_all_reduce` and `coded_reduce_scatter` are the
same for coded values (native/collective/codec.hpp).

Input is never written, but where an output lies there. Parts may differ in size; one without bytes moves nothing. A
barrier is an all-reduce of one byte. `checker.check` proves what is claimed here; it is slow, and nobody runs it
but tests and who writes schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from dlcp.errors import ArgumentError
from dlcp.transport.schedule import direct, halving_doubling, hierarchical, one_shot, pairwise, ring, tree
from dlcp.transport.schedule.hierarchical import Hosts
from dlcp.transport.schedule.operations import Chunk, Combine, Operation, RankSchedule, Receive, Send, Space
from dlcp.transport.schedule.program import MAX_MESSAGES

# (world_size, rank); with root for what has one; with hosts for what asks for them.
Writer = Callable[..., RankSchedule]

ALGORITHMS: Mapping[str, dict[str, Writer]] = MappingProxyType(
    {
        "all_reduce": {
            "one_shot": one_shot.all_reduce,
            "direct": direct.all_reduce,
            "halving_doubling": halving_doubling.all_reduce,
            "ring": ring.all_reduce,
            "hierarchical": hierarchical.all_reduce,
            "tree": tree.all_reduce,
        },
        "reduce_scatter": {
            "direct": direct.reduce_scatter,
            "halving_doubling": halving_doubling.reduce_scatter,
            "ring": ring.reduce_scatter,
            "hierarchical": hierarchical.reduce_scatter,
        },
        "all_gather": {
            "direct": direct.all_gather,
            "halving_doubling": halving_doubling.all_gather,
            "ring": ring.all_gather,
            "hierarchical": hierarchical.all_gather,
        },
        "broadcast": {"direct": direct.broadcast, "tree": tree.broadcast, "ring": ring.broadcast},
        "reduce": {"direct": direct.reduce, "tree": tree.reduce, "ring": ring.reduce},
        "gather": {"direct": direct.gather},
        "scatter": {"direct": direct.scatter},
        "all_to_all": {"pairwise": pairwise.all_to_all},
        "bounded_all_reduce": {"direct": direct.bounded_all_reduce},
        "bounded_reduce_scatter": {"direct": direct.bounded_reduce_scatter},
        "coded_all_reduce": {"direct": direct.coded_all_reduce},
        "coded_reduce_scatter": {"direct": direct.coded_reduce_scatter},
    }
)
"""Which algorithms serve which collective. A program may add its own, on every rank, before it opens a group."""

ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
"""Collectives with a root."""

PLACED = frozenset({"hierarchical"})
"""Algorithms that ask which ranks are on one host."""

MAX_WORLD_SIZE = MAX_MESSAGES // 2
"""A ring all-reduce sends 2 (n - 1) messages to the next rank."""


@lru_cache(maxsize=1024)
def build(
    collective: str, algorithm: str, world_size: int, rank: int, root: int = 0, hosts: Hosts | None = None
) -> RankSchedule:
    """What `rank` of `world_size` does; the same object for the same arguments while it is cached.

    `root` counts for the collectives in `ROOTED` only, `hosts` for the algorithms in `PLACED`: per rank the number of
    its host, the same on all ranks; None: each rank has one of its own. Raises ArgumentError, naming what is accepted.
    """
    writer = algorithms(collective).get(algorithm)
    if writer is None:
        raise ArgumentError(
            f"algorithm={algorithm!r} does not serve {collective}: use one of {', '.join(algorithms(collective))}"
        )
    if not 1 <= world_size <= MAX_WORLD_SIZE:
        raise ArgumentError(f"world_size={world_size} is out of range: 1 to {MAX_WORLD_SIZE}")
    if not 0 <= rank < world_size:
        raise ArgumentError(f"rank={rank} is out of range: 0 to {world_size - 1}")
    if not 0 <= root < world_size:
        raise ArgumentError(f"root={root} is out of range: 0 to {world_size - 1}")
    if algorithm in PLACED:
        hosts = tuple(range(world_size)) if hosts is None else hosts
        if len(hosts) != world_size:
            raise ArgumentError(f"hosts has {len(hosts)} entries; accepted: one per rank, {world_size}")
        return writer(world_size, rank, hosts)
    return writer(world_size, rank, root) if collective in ROOTED else writer(world_size, rank)


def algorithms(collective: str) -> Mapping[str, Writer]:
    """The algorithms that serve `collective`; ArgumentError if there is no such collective."""
    found = ALGORITHMS.get(collective)
    if found is None:
        raise ArgumentError(f"collective={collective!r} is unknown: use one of {', '.join(ALGORITHMS)}")
    return found


__all__ = [
    "ALGORITHMS",
    "MAX_MESSAGES",
    "MAX_WORLD_SIZE",
    "PLACED",
    "ROOTED",
    "Chunk",
    "Combine",
    "Hosts",
    "Operation",
    "RankSchedule",
    "Receive",
    "Send",
    "Space",
    "algorithms",
    "build",
]
