"""States for another number of ranks than they were saved by.

Kept values belong to no rank in particular: they are part of a sum, so any rank may add them. A rank's statistics about
its own gradients (running mean squares, thresholds, phases) are copied unchanged from some rank, since all train the
same model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlcp import checks
from dlcp.torch.gradient.recipes.by_hosts import BY_HOSTS
from dlcp.torch.gradient.recipes.table import RECIPES


def reshard(
    states: Sequence[Mapping[str, Any]],
    size: int,
    *,
    average: bool = True,
    rename: Callable[[str], str | None] | None = None,
) -> list[dict[str, Any]]:
    """What GradientState.state_dict() of `size` ranks would say, made of what len(states) ranks said, in rank order.

    `average`, `rename`: see saved.reshard: gradients are averaged over the ranks, and kept values are scaled
    for the new number; a parameter's new name, None: it is gone. Raises ValueError: states of several steps or recipes,
    or none; no such recipe; another number of states by hosts, of which each is of a shard.
    """
    if not states:
        raise ValueError("no states are given; accepted: one or more, in the order of ranks")
    if len({tuple(_kind(state).values()) for state in states}) > 1:
        raise ValueError(
            f"states differ in {', '.join(_kind(states[0]))}: "
            + "; ".join(", ".join(map(str, _kind(state).values())) for state in states[:4])
            + "; accepted: those of one moment of one run"
        )
    if states[0].get(BY_HOSTS) and size != len(states):
        raise ValueError(
            f"size is {size}; accepted for states by hosts: {len(states)}, their number, since each is of a shard"
        )
    name = checks.choice("the states' recipe", _kind(states[0])["recipe"], RECIPES)
    make = RECIPES[name].reshard
    if make is None:
        return [dict(states[rank % len(states)]) for rank in range(size)]
    return make(states, size, average, rename or (lambda name: name))


def _kind(state: Mapping[str, Any]) -> dict[str, Any]:
    """What states of one run have in common."""
    kind = {"version": state["version"], "step": state["step"], "recipe": state.get("recipe", "dlcp")}
    return kind | {name: state[name] for name in ("fill", "codec", BY_HOSTS) if name in state}
