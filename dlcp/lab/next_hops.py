"""Which spines a leaf sends by when cables are cut: what a fabric's routing protocol settles on, as a pure function.

A leaf sees its own cables; that another leaf's is cut, only routing tells it. `around` names the cut links that routing
knows of. Switches that route choose by destination, so exactly; those that bridge have one group of spines for all
other leaves, and leave out a spine that misses one of them, as long as another reaches all. Invariant: a leaf always
has a next hop that its own cables allow, if there is one, even where some leaf cannot be reached by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dlcp.lab.fabric import Fabric


def next_hops(fabric: Fabric, leaf: str, others: Collection[str], around: Collection[str]) -> tuple[str, ...]:
    """The spines by which `leaf` sends to all of `others`."""
    spines = tuple(fabric.spine_names)
    own = tuple(s for s in spines if f"{leaf}-{s}" not in around)
    return tuple(s for s in own if all(f"{other}-{s}" not in around for other in others)) or own or spines


def shared_next_hops(fabric: Fabric, leaf: str, around: Collection[str]) -> tuple[str, ...]:
    """The same of a leaf that has one group of spines for whatever lies beyond."""
    return next_hops(fabric, leaf, [other for other in fabric.leaf_names if other != leaf], around)


def left_out(fabric: Fabric, leaf: str, around: Collection[str]) -> frozenset[str]:
    """The spines that such a leaf does not send by; none for a switch that is no leaf."""
    if not leaf.startswith("l"):
        return frozenset()
    return frozenset(fabric.spine_names) - set(shared_next_hops(fabric, leaf, around))


def lost_next_hops(
    fabric: Fabric, cut: Collection[str], around: Collection[str], *, routed: bool, sees_own: bool
) -> Iterator[tuple[str, str, str]]:
    """(leaf, other leaf, spine) for every next hop in use that leads nowhere. `sees_own`: leaves see their cables."""
    for leaf in fabric.leaf_names:
        known = {*around, *(link for link in cut if sees_own and link.startswith(f"{leaf}-"))}
        for other in fabric.leaf_names:
            if other == leaf:
                continue
            chosen = (
                next_hops(fabric, leaf, [other], known) if routed else shared_next_hops(fabric, leaf, known)
            )
            for spine in chosen:
                if f"{leaf}-{spine}" in cut or f"{other}-{spine}" in cut:
                    yield leaf, other, spine
