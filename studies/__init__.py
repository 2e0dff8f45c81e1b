"""Research on what dlcp does: the studies of `dlcp study`, run from a checkout. The wheel does without them.

`training`: what loss does to training and to one tensor, in one process, without a network. `network`: how transports
do on simulated networks. The two do not use each other; the command lists both.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """`dlcp study NAME …`. Returns the exit status."""
    from studies import network, training

    simulated = network.studies()
    if arguments and arguments[0] in simulated:
        return network.main(arguments)
    return training.main(arguments, others={study.name: study.summary for study in simulated.values()})
