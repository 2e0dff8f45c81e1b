"""Checks of what a caller gives: each returns the value in its plain type, or raises one sentence.

The sentence names the value and what is accepted: "port is 70000; accepted: an integer from 0 to 65535". NumPy's
numbers pass as Python's do. True, False, NaN and infinity are refused as numbers; only a timeout may be infinite.
Nothing here loads NumPy.
"""

from __future__ import annotations

import argparse
import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import NoReturn

from dlcp.errors import ArgumentError

# Of a value in an error: a whole tensor or file would hide the sentence.
_SHOWN_CHARACTERS_MAX = 100
# Beside the nearest one: more names than these hide it.
_LISTED_MAX = 20


def integer(
    name: str,
    value: object,
    low: int,
    high: int | None = None,
    *,
    error: type[Exception] = ArgumentError,
) -> int:
    """`value` as an int from `low` to `high`, both included; None: no upper end."""
    if not is_integer(value, low, high):
        raise error(refusal(name, value, integer_range(low, high)))
    return int(value)  # type: ignore[call-overload, no-any-return]


def number(
    name: str,
    value: object,
    low: float,
    high: float | None = None,
    *,
    above: bool = False,
    below: bool = False,
    unit: str = "",
    error: type[Exception] = ArgumentError,
) -> float:
    """`value` as a finite float from `low` to `high`; `above`, `below`: without `low`, without `high` itself.

    `unit`: what it counts, in the plural, for the sentence: "seconds".
    """
    if not is_number(value, low, high, above=above, below=below):
        raise error(refusal(name, value, number_range(low, high, above=above, below=below, unit=unit)))
    return float(value)  # type: ignore[arg-type]


def timeout(name: str, value: object, *, error: type[Exception] = ArgumentError) -> float | None:
    """`value` as seconds from 0; None or infinity: no limit, which None stands for."""
    if value is None:
        return None
    seconds = _as_float(value)
    if seconds is None or not seconds >= 0:
        raise error(refusal(name, value, "a number of seconds from 0, or None: no limit"))
    return None if math.isinf(seconds) else seconds


def boolean(name: str, value: object, *, error: type[Exception] = ArgumentError) -> bool:
    """`value`, which is True or False."""
    if not isinstance(value, bool):
        raise error(refusal(name, value, "True or False"))
    return value


def text(
    name: str,
    value: object,
    accepted: str = "a text",
    *,
    empty: bool = True,
    error: type[Exception] = ArgumentError,
) -> str:
    """`value`, which is a str. `accepted`: what the sentence asks for. `empty`: "" is fine."""
    if not isinstance(value, str) or not (value or empty):
        raise error(refusal(name, value, accepted))
    return value


def folder(name: str, value: object) -> Path:
    """`value`, which is the path of a folder, there or not: a str that is not empty, or a PathLike."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ArgumentError(refusal(name, value, "the path of a folder"))
    return Path(value)


def choice(
    name: str, value: object, accepted: Iterable[str], *, error: type[Exception] = ArgumentError
) -> str:
    """`value`, which is one of the words `accepted`; the sentence names the nearest one."""
    words = list(accepted)
    if not isinstance(value, str) or value not in words:
        hint = did_you_mean(value, words) if isinstance(value, str) else ""
        raise error(f"{name} is {shown(value)}; {hint}accepted: {', '.join(words)}")
    return value


def known(
    what: str, names: Iterable[str], accepted: Iterable[str], *, error: type[Exception] = ArgumentError
) -> None:
    """That each of `names` is one of `accepted`. `what`: "setting", "key in [transport] of /etc/dlcp.toml"."""
    words = list(accepted)
    for name in names:
        if name not in words:
            near = did_you_mean(name, words)
            listed = "" if near and len(words) > _LISTED_MAX else f"accepted: {', '.join(words)}"
            raise error(f"unknown {what} {name!r}; {near}{listed}".rstrip())


# ---- for sentences made elsewhere ----


def refusal(name: str, value: object, accepted: str) -> str:
    """The sentence about a value that is not accepted."""
    return f"{name} is {shown(value)}; accepted: {accepted}"


def did_you_mean(word: str, accepted: Iterable[str], *, cutoff: float = 0.5) -> str:
    """The question that names the nearest word, and a space; "" if nothing is near.

    `cutoff`: how alike it must be, from 0 (anything) to 1.
    """
    near = difflib.get_close_matches(word, list(accepted), n=1, cutoff=cutoff)
    return f"did you mean {near[0]}? " if near else ""


def shown(value: object) -> str:
    """The value in an error, cut off where it is long."""
    whole = repr(value)
    return whole if len(whole) <= _SHOWN_CHARACTERS_MAX else f"{whole[:_SHOWN_CHARACTERS_MAX]}…"


def is_integer(value: object, low: int | None = None, high: int | None = None) -> bool:
    """Whether it is a whole number (never a bool) within its ends, both included."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return False
    whole = int(value)
    return (low is None or whole >= low) and (high is None or whole <= high)


def is_number(
    value: object,
    low: float | None = None,
    high: float | None = None,
    *,
    above: bool = False,
    below: bool = False,
) -> bool:
    """Whether it is a finite number (never a bool) within its ends; `above`, `below`: without the end itself."""
    plain = _as_float(value)
    if plain is None or not math.isfinite(plain):
        return False
    if low is not None and not (plain > low if above else plain >= low):
        return False
    return high is None or (plain < high if below else plain <= high)


def _as_float(value: object) -> float | None:
    """None: it is no real number. An int beyond all floats counts as infinite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def integer_range(low: int, high: int | None) -> str:
    """The range in words, such as: an integer from 0 to 65535."""
    return f"an integer from {low}" if high is None else f"an integer from {low} to {high}"


def number_range(
    low: float, high: float | None, *, above: bool = False, below: bool = False, unit: str = ""
) -> str:
    """The range in words, such as: a number of seconds above 0; a number from 0 to less than 1."""
    begin = f"a number{f' of {unit}' if unit else ''} {'above' if above else 'from'} {low:g}"
    if high is None:
        return begin
    return f"{begin} {'to less than' if below else 'up to' if above else 'to'} {high:g}"


def not_copied(thing: object) -> NoReturn:
    """The `__getstate__` of what holds more than its state_dict(). Raises TypeError."""
    raise TypeError(f"a {type(thing).__name__} cannot be copied or pickled; accepted: its state_dict()")


# ---- of command lines ----


def option(low: int, high: int) -> Callable[[str], int]:
    """The `type` of an option of argparse that takes an integer from `low` to `high`."""

    def read(given: str) -> int:
        if not re.fullmatch(r"-?[0-9]+", given) or not low <= int(given) <= high:
            raise argparse.ArgumentTypeError(f"{given!r} is not accepted; accepted: {low} to {high}")
        return int(given)

    return read


# ---- of tables from files ----


def table(
    name: str, value: object, accepted: Iterable[str], *, error: type[Exception] = ArgumentError
) -> Mapping[str, object]:
    """`value`, which is a table whose keys are all among `accepted`."""
    if not isinstance(value, Mapping):
        raise error(refusal(name, value, f"a table [{name}]"))
    known(f"key in [{name}]:", value, accepted, error=error)
    return value
