"""The keyword arguments that every operation of a group has: how it is to run, not what it does."""

from __future__ import annotations

from typing import Any, TypedDict


class How(TypedDict, total=False):
    """Keyword arguments that every operation has."""

    keep: Any
    """Any object, kept alive until the operation is over, such as the owner of the memory."""
    timeout_s: float | None
    """After which a collective, and with it the group, fails on all ranks, or a single message fails alone; None: the
    group's."""
    traffic_class: int | None
    """0 to 6, 6 leaves first; None: 0."""
    label: str | None
    """A name for errors and logs."""
    wait_follows: bool
    """The caller waits at once, so nobody else need be woken to send."""


class CollectiveHow(How, total=False):
    """Keyword arguments that every collective has."""

    sequence: int | None
    """One of the numbers that Communicator.reserve took; None: the next one. A number stands for one collective on all
    ranks, and may be used in any order."""
