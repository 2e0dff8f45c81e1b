"""Whether a setting is of the type that its annotation says, and a sentence if it is not.

Scenarios come from files and command lines as well as from typed Python. So what a fabric or a workload is given is
held against its own annotations, and its code need not ask again. Ranges are its own business. What an annotation says
that is not understood here is not checked.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, Union, get_args, get_origin, get_type_hints

from dlcp.errors import ArgumentError

MAX_WHOLE = 2**63 - 1


def hints_of(maker: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations of a function's arguments, or of a dataclass's fields; empty if they cannot be found out."""
    try:
        return get_type_hints(maker)
    except NameError:  # names that only a type checker imports
        return {}


def fits(value: Any, annotation: Any) -> bool:
    """Whether `value` is what `annotation` says; lists are as good as tuples, whole numbers as good as floats."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inside)
    if annotation in (None, type(None)):
        return value is None
    if annotation is bool:
        return isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_WHOLE
    if annotation is float:
        return fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    if origin is tuple and (len(inside) < 2 or inside[1] is not Ellipsis):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(inside)
            and all(fits(one, kind) for one, kind in zip(value, inside, strict=True))
        )
    if origin in (tuple, list, Sequence):
        return isinstance(value, list | tuple) and all(fits(one, inside[0]) for one in value)
    if origin is Mapping or origin is dict:
        return isinstance(value, Mapping) and all(
            _is_key(key, inside[0]) and fits(one, inside[1]) for key, one in value.items()
        )
    return annotation is Any or not inspect.isclass(annotation) or isinstance(value, annotation)


def _is_key(key: Any, annotation: Any) -> bool:
    """As `fits`; the keys of a file's tables are text even where numbers are meant."""
    return fits(key, annotation) or (annotation is int and isinstance(key, str) and key.isdecimal())


def in_words(annotation: Any) -> str:
    """What an annotation accepts."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return ", or ".join(in_words(one) for one in inside)
    if origin is tuple and (len(inside) < 2 or inside[1] is not Ellipsis):
        return f"a list of {len(inside)}: {', '.join(in_words(one) for one in inside)}"
    if origin in (tuple, list, Sequence):
        return f"a list, each {in_words(inside[0])}"
    if origin is Mapping or origin is dict:
        return f"a table, each {in_words(inside[1])}"
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "none"}
    return names.get(annotation) or f"a {getattr(annotation, '__name__', annotation)}"


def check(name: str, value: Any, annotation: Any) -> None:
    """Raises ArgumentError that names the value and what is accepted, if it does not fit."""
    if not fits(value, annotation):
        raise ArgumentError(f"{name} is {value!r}; accepted: {in_words(annotation)}")


def check_fields(owner: str, thing: Any) -> None:
    """Checks all fields of a dataclass's instance, and of those inside it; anything else is left alone."""
    if isinstance(thing, list | tuple):
        for one in thing:
            check_fields(owner, one)
    if not dataclasses.is_dataclass(thing) or isinstance(thing, type):
        return
    hints = hints_of(type(thing))
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if field.name in hints:
            annotation = hints[field.name]
            check(f"{owner}.{field.name}", as_whole(value) if annotation is int else value, annotation)
        check_fields(owner, value)


def as_whole(value: Any) -> Any:
    """Where only a whole number is meant: NumPy's, or a float that is one (bytes=2e6), as Python's; else as it is."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
