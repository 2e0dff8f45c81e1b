"""States for another number of ranks than they were saved by.

Kept values belong to no rank in particular: they are part of a sum, so any rank may add them. A rank's statistics about
its own gradients (running mean squares, thresholds, phases) are copied unchanged from some rank, since all train the
same model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlcp.torch.gradient import residual_state


def reshard(
    states: Sequence[Mapping[str, Any]],
    size: int,
    *,
    average: bool = True,
    rename: Callable[[str], str | None] | None = None,
) -> list[dict[str, Any]]:
    """What GradientState.state_dict() of `size` ranks would say, made of what len(states) ranks said, in rank order.

    `average`, `rename`: see residual_state.reshard: gradients are averaged over the ranks, and kept values are scaled
    for the new number; a parameter's new name, None: it is gone. Raises ValueError: states of several steps or fills,
    or none.
    """
    if not states:
        raise ValueError("no states are given; accepted: one or more, in the order of ranks")
    if len({(state["version"], state["step"], state["fill"]) for state in states}) > 1:
        raise ValueError(
            "states differ in version, step or fill: "
            + ", ".join(f"{state['version']}, {state['step']}, {state['fill']}" for state in states[:4])
            + "; accepted: those of one moment of one run"
        )
    kept = [state["residual"] for state in states if state["residual"] is not None]
    residuals: Sequence[Any] = (
        residual_state.reshard(kept, size, average=average, rename=rename) if kept else [None] * size
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
