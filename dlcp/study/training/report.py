"""How both studies of training report: text on the terminal, STEM.json, STEM.md and STEM.png in the folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dlcp.units import aligned

Rows = Sequence[Sequence[str]]
"""A table; the first row is its heading."""


def leave(
    stem: Path,
    text: str,
    numbers: object,
    markdown: Iterable[str],
    draw: Callable[[Path], object] | None,
    *,
    as_json: bool = False,
) -> None:
    """Prints the text, writes the numbers as JSON and the paragraphs as Markdown, and draws.

    `as_json`: prints the numbers in place of the text. Without matplotlib a sentence takes the picture's place.
    """
    print(json.dumps(numbers) if as_json else text)
    said = sys.stderr if as_json else sys.stdout
    stem.with_suffix(".json").write_text(json.dumps(numbers) + "\n")
    stem.with_suffix(".md").write_text("\n\n".join(markdown) + "\n")
    if draw is None:
        return
    try:
        draw(stem.with_suffix(".png"))
        print(f"\npicture: {stem.with_suffix('.png')}", file=said)
    except ImportError as error:
        print(f"\nno picture: {error}; pip install matplotlib", file=said)


def plain(rows: Rows, words: int = 1) -> str:
    """`words`: how many columns hold words, which stand to the left."""
    return "\n".join(f"  {line}" for line in aligned(rows, left=words))


def pipes(rows: Rows) -> str:
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
