"""States for another number of ranks than they were saved by.

Kept values belong to no rank in particular: they are part of a sum, so any rank may add them. A rank's statistics about
its own gradients (running mean squares, thresholds, phases) are copied unchanged from some rank, since all train the
same model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlcp.torch.gradient.recipes.by_hosts import BY_HOSTS
from dlcp.torch.gradient.residual import saved
from dlcp.torch.gradient.residual.feedback import FROM_OWNER, FROM_SENDER


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
    or none; another number of states by hosts, of which each is of a shard.
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
    match _kind(states[0])["recipe"]:
        case "dlcp":
            return _reshard_bounded(states, size, average, rename)
        case "low_bit":
            return _reshard_coded(states, size, average, rename)
        case "auto":
            # What fewer or more ranks take is measured anew.
            made = _reshard_coded(states, size, average, rename)
            return made if size == len(states) else [state | {"chosen": {}} for state in made]
        case "mstopk" | "hitopk" | "redsync" | "gradientflow":
            return _reshard_sparse(states, size, average, rename)
        case _:
            return [dict(states[rank % len(states)]) for rank in range(size)]


def _kind(state: Mapping[str, Any]) -> dict[str, Any]:
    """What states of one run have in common."""
    kind = {"version": state["version"], "step": state["step"], "recipe": state.get("recipe", "dlcp")}
    return kind | {name: state[name] for name in ("fill", "codec", BY_HOSTS) if name in state}


def _reshard_bounded(
    states: Sequence[Mapping[str, Any]], size: int, average: bool, rename: Callable[[str], str | None] | None
) -> list[dict[str, Any]]:
    kept = [state["residual"] for state in states if state["residual"] is not None]
    residuals: Sequence[Any] = (
        saved.reshard(kept, size, average=average, rename=rename) if kept else [None] * size
    )
    made = []
    for rank, residual in enumerate(residuals):
        state = dict(states[rank % len(states)]) | {"residual": residual}
        if rename is not None:
            marker = state["marker"]
            named = {rename(name): value for name, value in marker["mean_squares"].items()}
            named.pop(None, None)
            state["marker"] = marker | {"mean_squares": named}
        made.append(state)
    return made


def _reshard_coded(
    states: Sequence[Mapping[str, Any]], size: int, average: bool, rename: Callable[[str], str | None] | None
) -> list[dict[str, Any]]:
    """What owners kept is part of the sum too: senders take it over."""

    def of(side: str) -> list[dict[str, Any]]:
        kept = [state["residual"][side] for state in states]
        return saved.reshard(kept, size, average=average, rename=rename)

    made = []
    for rank, (sender, owner) in enumerate(zip(of(FROM_SENDER), of(FROM_OWNER), strict=True)):
        sender["batches"] += owner["batches"]
        residual = {FROM_SENDER: sender, FROM_OWNER: owner | {"batches": []}}
        made.append(dict(states[rank % len(states)]) | {"residual": residual})
    return made


def _reshard_sparse(
    states: Sequence[Mapping[str, Any]], size: int, average: bool, rename: Callable[[str], str | None] | None
) -> list[dict[str, Any]]:
    """Only senders kept something; velocities are part of it."""
    sides = {
        side: saved.reshard(
            [state["residual"][side] for state in states], size, average=average, rename=rename
        )
        for side in states[0]["residual"]
    }
    common = _renamed_rules(states[0], rename) if rename is not None else {}
    return [
        dict(states[rank % len(states)])
        | common
        | {"residual": {side: made[rank] for side, made in sides.items()}}
        for rank in range(size)
    ]


def _renamed_rules(state: Mapping[str, Any], rename: Callable[[str], str | None]) -> dict[str, Any]:
    """What a state knows of parameters besides what is kept, under their new names."""
    made: dict[str, Any] = {}
    if "thresholds" in state:
        named = [(rename(name), *rest) for name, *rest in state["thresholds"]]
        made["thresholds"] = [each for each in named if each[0] is not None]
    if "chunks" in state:
        segments = [one | {"name": rename(one["name"])} for one in state["chunks"]["segments"]]
        made["chunks"] = state["chunks"] | {"segments": [one for one in segments if one["name"] is not None]}
    return made
