"""Text of others, made fit for an error's single line: a terminal is told nothing, and a log gets no second line."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text, with what cannot be printed written as its escape."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
