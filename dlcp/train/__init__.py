"""`dlcp train`: real models on real data, data-parallel over a lossy network, beside Gloo without loss.

One driver process starts the ranks (ranks.py), gives them one run after another (run_plan.py), shows how they fare
(view.py) and reports in the end (table.py, figure.py, page.py). The driver does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command, by its words without the program's name; None: the program's own. Returns the exit status."""
    from dlcp.exit_status import exit_status
    from dlcp.train.command import run

    return exit_status("dlcp train", lambda: run(arguments))
