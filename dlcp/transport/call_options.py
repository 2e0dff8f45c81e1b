"""What a call of a group says besides its memory: the keyword arguments that every operation has."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

from dlcp.checks import boolean, integer, known, refusal, timeout
from dlcp.errors import ArgumentError, TrafficClassError

TRAFFIC_CLASS_MAX = 6
_SEQUENCE_MAX = 2**63 - 1


class CallOptions(NamedTuple):
    """How one operation is to run. Made by `call_options`; native code reads it whole."""

    timeout_s: float | None = None
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


def call_options(given: dict[str, Any], timeout_s: float | None, traffic_class: int = 0) -> CallOptions:
    """The options that keyword arguments say. None for a timeout or class stands for the defaults passed here.

    Changes `given`. Raises ArgumentError: an unknown name, or a value that is out of range.
    """
    # Every collective passes here, so plain values of Python are looked at first.
    own_s = given.get("timeout_s")
    if own_s is None:
        given["timeout_s"] = timeout_s
    elif own_s.__class__ is not float or not 0.0 <= own_s < _LONGEST_S:
        given["timeout_s"] = timeout("timeout_s", own_s)
    class_ = given.get("traffic_class")
    if class_ is None:
        given["traffic_class"] = traffic_class
    elif class_.__class__ is not int or not 0 <= class_ <= TRAFFIC_CLASS_MAX:
        given["traffic_class"] = integer(
            "traffic_class", class_, 0, TRAFFIC_CLASS_MAX, error=TrafficClassError
        )
    try:
        options = CallOptions(**given)
    except TypeError:
        known("argument", given, CallOptions._fields)
        raise
    if options.wait_follows.__class__ is not bool:
        boolean("wait_follows", options.wait_follows)
    if options.label is not None and not isinstance(options.label, str):
        raise ArgumentError(refusal("label", options.label, "a text, or None"))
    if options.sequence is not None:
        return options._replace(sequence=integer("sequence", options.sequence, 0, _SEQUENCE_MAX))
    return options


# A float below this is finite.
_LONGEST_S = 1e300


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
