"""What an operating system of switches can do of a policy, as data that check.py compares with what is asked.

One System per language; the module that writes the language holds it. Nothing here decides anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dlcp.switch.policy import MAX_BYTES


@dataclass(frozen=True)
class System:
    """An operating system and the language of its configuration."""

    name: str
    """As `--os` takes it."""
    title: str
    comment: str | None
    """What a line of comment begins with; None: the language has none, and the notes are a text of their own."""
    suffix: str
    """Of a file in that language."""

    port_pattern: str
    """Regular expression of the whole name of a port."""
    port_example: str
    needs_ports: bool
    """Whether its configuration names ports one by one; others apply to all ports when none are named."""
    queues: int = 8

    marks_below_drops: bool = False
    """Whether ECN-capable packets can be marked from a smaller depth than the others are dropped from."""
    marks_without_drops: bool = False
    """Whether ECN-capable packets can be marked and the others left alone."""
    any_ratio: bool = False
    """Whether a mark ratio may be any number; others take whole percent."""
    limits_queue: bool = False
    """Whether a queue can have a limit of its own above which everything is dropped."""
    limits_port: bool = False
    trims: bool = False
    alpha_log2: range | None = None
    """Dynamic thresholds of the shared buffer that it takes, by their logarithm; None: not rendered."""
    shapes: bool = False
    """Whether a port's rate can be held below the speed of its link."""
    threshold_bytes: range = range(1, MAX_BYTES + 1)
    """Thresholds that it takes."""

    hashing: str = ""
    """How it takes a path by hash over addresses and UDP ports."""
    spraying: str = ""
    """What is known of its per-packet choice of a path, which is not rendered."""
    pausing: str = ""
    """What is known of its priority flow control, which is not rendered."""

    install: tuple[str, ...] = ()
    """What a person types to bring the configuration onto the switch."""
    look: tuple[str, ...] = ()
    """… and to see that it is there and does what it should."""
    sources: tuple[str, ...] = ()
    """Which lines were checked against which document, and what is unchecked."""
    notes: tuple[str, ...] = ()
    """What is true of it under any policy."""

    def has_port(self, name: str) -> bool:
        """Whether a port of this system could be called so."""
        return re.fullmatch(self.port_pattern, name) is not None

    def threshold(self, depth_bytes: int) -> int:
        """The nearest threshold that it takes; what is above all of them has been refused before."""
        return max(depth_bytes, self.threshold_bytes.start)
