"""`dlcp study`: what loss does to training and to a tensor, on one machine, without a network.

`tolerance` trains many small models at once (training.py; tasks and models are those of dlcp_sim.cosimulation) while a
simulated network loses their gradients (network.py) and a fill makes up for it (fills.py). It asks for the largest loss
that costs no extra round. `mse` aggregates one tensor under equal drops, by several topologies. Tests hold the batched
twins of shipped parts that both use to those parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None, others: Mapping[str, str] | None = None) -> int:
    """The command, by its words without the program's name; None: the program's own. Returns the exit status.

    `others`: studies that somebody else makes, name and summary, to be listed with ours.
    """
    from studies.training.command import run

    return run(arguments, others or {})
