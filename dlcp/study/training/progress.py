"""How far a study is, for who looks."""

from __future__ import annotations

import sys


def progress(words: str) -> None:
    """One line that is overwritten, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r{words[:100]:<100}\r", end="", file=sys.stderr, flush=True)
