"""What the chunks that a caller brings hold, before and after each collective: the meaning that schedules must keep.

A *part* names what a chunk holds a version of: part i of an all-reduced tensor, say. Chunks of one part have one size
on all ranks; nothing is assumed of the sizes of different parts.
"""

from __future__ import annotations

from typing import NamedTuple

from dlcp.errors import ArgumentError

CODED = frozenset({"coded_all_reduce", "coded_reduce_scatter"})
"""Collectives of coded values: whoever adds codes the sum, once it has all of it, so they never add in passing."""

BOUNDED = frozenset({"bounded_all_reduce", "bounded_reduce_scatter"}) | CODED
"""Collectives whose messages to the rank that adds may be lossy: what was abandoned is missing from the sum."""

SCATTERED = frozenset({"reduce_scatter", "bounded_reduce_scatter", "coded_reduce_scatter"})
"""Collectives of which each rank gets its part of the sum."""

REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"}) | BOUNDED
"""Collectives that add up; all others move what one rank contributes."""


class Role(NamedTuple):
    """What one of the caller's chunks is for."""

    part: int
    holds: int | None
    """The rank whose contribution it holds at the start; None: nothing."""
    wants: int
    """Bit mask of the ranks whose contributions it holds at the end, each once; or not at all where abandoned.
    0: of an output that may hold anything."""


class Layout(NamedTuple):
    """The caller's chunks on one rank."""

    inputs: list[Role]
    outputs: list[Role]
    in_place: tuple[tuple[int, int], ...]
    """Input and output chunks that may be the same memory, pair by pair."""


def layout(collective: str, world_size: int, rank: int, root: int, output_chunks: int) -> Layout:
    """What `rank` brings. `output_chunks`: how many parts an all-reduce is cut into; nothing else asks."""
    ranks = range(world_size)
    everyone = (1 << world_size) - 1
    at_root = rank == root
    match collective:
        case "all_reduce":
            return Layout([], [Role(part, rank, everyone) for part in range(output_chunks)], ())
        case "bounded_all_reduce" | "coded_all_reduce":
            return Layout(
                [Role(part, rank, 0) for part in ranks], [Role(part, None, everyone) for part in ranks], ()
            )
        case "reduce_scatter" | "bounded_reduce_scatter" | "coded_reduce_scatter":
            return Layout([Role(part, rank, 0) for part in ranks], [Role(rank, None, everyone)], ((rank, 0),))
        case "all_gather":
            return Layout(
                [Role(rank, rank, 0)], [Role(part, None, 1 << part) for part in ranks], ((0, rank),)
            )
        case "broadcast":
            return Layout([], [Role(0, rank if at_root else None, 1 << root)], ())
        case "reduce":
            outputs = [Role(0, None, everyone)] if at_root else []
            return Layout([Role(0, rank, 0)], outputs, ((0, 0),) if at_root else ())
        case "gather":
            outputs = [Role(part, None, 1 << part) for part in ranks] if at_root else []
            return Layout([Role(rank, rank, 0)], outputs, ((0, rank),) if at_root else ())
        case "scatter":
            inputs = [Role(part, rank, 0) for part in ranks] if at_root else []
            return Layout(inputs, [Role(rank, None, 1 << root)], ((rank, 0),) if at_root else ())
        case "all_to_all":
            return Layout(
                [Role(rank * world_size + peer, rank, 0) for peer in ranks],
                [Role(peer * world_size + rank, None, 1 << peer) for peer in ranks],
                (),
            )
    raise ArgumentError(f"collective={collective!r} is unknown")
