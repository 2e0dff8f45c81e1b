"""Text from elsewhere made fit for an error's single line: no terminal codes, no second line in a log."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with characters that cannot be printed written as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
