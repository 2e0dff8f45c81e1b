"""What a call of a group says besides its memory: the keyword arguments that every operation has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from dlcp.checks import boolean, integer, known, refusal, timeout
from dlcp.errors import ArgumentError, TrafficClassError

TRAFFIC_CLASS_MAX = 6
_SEQUENCE_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How one operation is to run. Made by CallOptions.of; native code reads it whole."""

    timeout_s: float | None
    """After which a collective, and with it the group, fails on all ranks, or a single message fails alone."""
    keep: Any = None
    """Any object, kept alive until the operation is over, such as the owner of the memory."""
    traffic_class: int = 0
    """0 to 6, 6 leaves first."""
    label: str | None = None
    """A name for errors and logs."""
    wait_follows: bool = False
    """The caller waits at once, so nobody else need be woken to send."""
    sequence: int | None = None
    """Of a collective: one of the numbers that Communicator.reserve took, in any order; None: the next one. A number
    stands for one collective on all ranks."""

    @classmethod
    def of(cls, given: Mapping[str, Any], timeout_s: float | None, traffic_class: int = 0) -> CallOptions:
        """The options that `given` keyword arguments say; None among them stands for the defaults that are passed here.

        Raises ArgumentError: an unknown name, or a value that is out of range.
        """
        get = given.get
        class_ = get("traffic_class")
        if class_ is None:
            class_ = traffic_class
        elif class_.__class__ is not int or not 0 <= class_ <= TRAFFIC_CLASS_MAX:
            class_ = integer("traffic_class", class_, 0, TRAFFIC_CLASS_MAX, error=TrafficClassError)
        own_s, sequence = get("timeout_s"), get("sequence")
        if own_s is not None:
            timeout_s = timeout("timeout_s", own_s)
        if sequence is not None:
            sequence = integer("sequence", sequence, 0, _SEQUENCE_MAX)
        label = get("label")
        if label is not None and not isinstance(label, str):
            raise ArgumentError(refusal("label", label, "a text, or None"))
        if not _NAMES.issuperset(given):
            known("argument", given, sorted(_NAMES))
        follows = boolean("wait_follows", get("wait_follows", False))
        return cls(timeout_s, get("keep"), class_, label, follows, sequence)


_NAMES = frozenset(each.name for each in fields(CallOptions))


class MessageKeywords(TypedDict, total=False):
    """Keyword arguments of single messages: see CallOptions; None: its default."""

    keep: Any
    timeout_s: float | None
    traffic_class: int | None
    label: str | None
    wait_follows: bool


class CollectiveKeywords(MessageKeywords, total=False):
    """Keyword arguments of collectives: see CallOptions; None: its default."""

    sequence: int | None
