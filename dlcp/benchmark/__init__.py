"""`dlcp bench`: times collectives between ranks, in the manner of nccl-tests, and checks every result.

It starts ranks by itself, or is every rank of a launcher, where rank 0 prints. Exit status: 0; 1 if a value was wrong;
2 for bad input and for a rank that failed; 128 + n for one that signal n ended; 130 after Ctrl-C, with what is done
printed. Only measure.py loads torch, in
the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """The command. Returns the exit status. Raises DlcpError."""
    from dlcp.benchmark.command import run

    return run(arguments)
