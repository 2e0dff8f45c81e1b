"""A policy read from TOML and written to it.

A text may give thresholds once for several classes, and for eight levels as a range:

    [thresholds.data]                                   # for all classes that name it
    critical = {mark_from_bytes = 64000, drop_above_bytes = 112000}
    droppable = {drop_from_bytes = 32000, drop_to_bytes = 64000}    # eight levels of importance, in equal steps

    [[class]]
    number = 1
    dscp = [8]
    thresholds = "data"

`policy_text` writes thresholds that classes have in common in this way. Reading is strict: a PolicyError names whatever
is unknown, malformed or out of range. What Policy checks is not checked here.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from dlcp.switch.toml_lines import nearest_line, toml_lines
from dlcp.switch.traffic_class import (
    DROPPABLE_LEVELS,
    MAX_BYTES,
    TRAFFIC_CLASSES,
    PolicyError,
    Port,
    Thresholds,
    TrafficClass,
    check_integer,
    importance_levels,
    refuse,
)
from dlcp.toml_text import toml_key, toml_value

_RAMPS = {"drop": "drop_above_bytes", "trim": "trim_above_bytes"}
"""What may be written as `drop_from_bytes` and `drop_to_bytes`: thresholds in equal steps of importance."""


def table_of(text: str) -> dict[str, Any]:
    """The tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"not TOML: {error}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, as many brackets
        raise PolicyError(f"not TOML that can be read: {error}") from None


def in_file(error: PolicyError, text: str, path: Path | str) -> PolicyError:
    """The error with file and line, and with the number of the class, which is not its index."""
    words = str(error)
    if not error.field:
        found = re.search(r"\(at line (\d+),", words)  # of tomllib
        return PolicyError(f"{path}:{found[1]}: {words}" if found else f"{path}: {words}")
    line = nearest_line(toml_lines(text), error.field)
    number = _number_of(error.field, tomllib.loads(text))
    if number is not None and words.startswith(error.field):
        words = f"{error.field} (class number {number}){words.removeprefix(error.field)}"
    return PolicyError(f"{path}:{line}: {words}" if line else f"{path}: {words}", error.field)


def _number_of(field: str, table: Mapping[str, Any]) -> int | None:
    """The number of the class that a field is in: of class[2].dscp, what class[2].number says."""
    found = re.match(r"(?:port\[(\d+)\]\.)?class\[(\d+)\]\.(?!number)", field)
    if found is None:
        return None
    try:
        holder = table if found[1] is None else table["port"][int(found[1])]
        number = holder["class"][int(found[2])]["number"]
    except (LookupError, TypeError):
        return None
    return number if isinstance(number, int) else None


def values_from(table: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """The values of a policy's fields in tables as `tomllib` gives them. `names`: of all its fields."""
    values = dict(table)
    known = {"class", "port", "thresholds"} | names - {"classes", "ports"}
    _check_keys(values, known, "")
    shared = _shared_from(values.pop("thresholds", {}))
    values["classes"] = tuple(_classes_from(values.pop("class", []), "class", shared))
    values["ports"] = tuple(_ports_from(values.pop("port", []), shared))
    groups = values.get("path_groups", {})
    _check_type("path_groups", groups, Mapping, "a table")
    for name, members in groups.items():
        _check_strings(f"path_groups.{name}", members)
    values["path_groups"] = {name: tuple(members) for name, members in groups.items()}
    _check_type("name", values.get("name", ""), str, "a text")
    return values


# ---- reading ----


_Shared = Mapping[str, Mapping[str, Any]]
"""Name of a set of thresholds → the keyword arguments that TrafficClass takes."""


def _shared_from(tables: object) -> _Shared:
    _check_type("thresholds", tables, Mapping, "tables of thresholds by name")
    assert isinstance(tables, Mapping)
    found = {}
    for name, table in tables.items():
        where = f"thresholds.{name}"
        _check_type(where, table, Mapping, "a table")
        _check_keys(table, {"critical", "droppable"}, f"{where}.")
        found[name] = _both_from(table, where)
        # Checked where they are written down, not in the first class that names them.
        TrafficClass(0, **found[name]).validate(where)
    return found


def _check_keys(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            accepted = ", ".join(sorted(known))
            raise PolicyError(f"{where}{key} is unknown; accepted: {accepted}", f"{where}{key}")


def _missing(name: str, accepted: str) -> NoReturn:
    raise PolicyError(f"{name} is missing; accepted: {accepted}", name)


def _tables(name: str, value: object) -> Sequence[Any]:
    """Several tables of one name. `[class]` instead of `[[class]]` is a common slip."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        heading = re.sub(r"\[\d+\]", "", name)
        refuse(name, value, f"tables, each headed [[{heading}]]")
    return value


def _check_type(name: str, value: object, accepted: type | tuple[type, ...], words: str) -> None:
    if not isinstance(value, accepted):
        refuse(name, value, words)


def _check_strings(name: str, value: object) -> None:
    if not isinstance(value, list) or not all(isinstance(member, str) for member in value):
        refuse(name, value, "a list of names")


_NAMES = {f.name for f in fields(Thresholds)}


def _thresholds_from(table: object, where: str) -> Thresholds:
    if not isinstance(table, Mapping):
        refuse(where, table, "a table of thresholds")
    _check_keys(table, _NAMES, f"{where}.")
    return Thresholds(**table)


def _droppable_from(value: object, where: str) -> tuple[Thresholds, ...]:
    """One for all levels, a list of them, or equal steps from the least to the most important."""
    if isinstance(value, list):
        return tuple(_thresholds_from(level, f"{where}[{i}]") for i, level in enumerate(value))
    if not isinstance(value, Mapping):
        refuse(where, value, "a table of thresholds, or a list of them")
    values = dict(value)
    ramp_ends = {f"{fate}_{end}_bytes" for fate in _RAMPS for end in ("from", "to")}
    _check_keys(values, _NAMES | ramp_ends, f"{where}.")
    for fate, name in _RAMPS.items():
        ends = (f"{fate}_from_bytes", f"{fate}_to_bytes")
        given = [end for end in ends if end in values]
        if not given:
            continue
        if len(given) == 1:
            missing = next(end for end in ends if end not in given)
            _missing(f"{where}.{missing}", f"both of {' and '.join(ends)}")
        low, high = (values.pop(end) for end in ends)
        check_integer(f"{where}.{ends[0]}", low, 0, MAX_BYTES)
        check_integer(f"{where}.{ends[1]}", high, 0, MAX_BYTES)
        if high < low:
            refuse(f"{where}.{ends[1]}", high, f"at least {ends[0]}, {low}")
        for other in (name, *sorted(ramp_ends)):
            if other in values:
                refuse(f"{where}.{other}", values[other], f"none, when {' and '.join(ends)} are set")
        others = _thresholds_from(values, where)
        return importance_levels(name, low, high, **dict(changed(others)))
    return (_thresholds_from(values, where),)


def _both_from(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What a table says of critical and of droppable packets, as TrafficClass takes it."""
    values: dict[str, Any] = {}
    if "critical" in table:
        values["critical"] = _thresholds_from(table["critical"], f"{where}.critical")
    if "droppable" in table:
        values["droppable"] = _droppable_from(table["droppable"], f"{where}.droppable")
    return values


def _classes_from(tables: object, where: str, shared: _Shared) -> Iterator[TrafficClass]:
    for index, table in enumerate(_tables(where, tables)):
        name = f"{where}[{index}]"
        _check_type(name, table, Mapping, "a table")
        values = dict(table)
        _check_keys(values, {"thresholds"} | {f.name for f in fields(TrafficClass)}, f"{name}.")
        if "number" not in values:
            _missing(f"{name}.number", f"an integer from 0 to {TRAFFIC_CLASSES - 1}")
        _check_type(f"{name}.name", values.get("name", ""), str, "a text")
        _check_type(f"{name}.dscp", values.get("dscp", []), list, "a list of integers")
        values["dscp"] = tuple(values.get("dscp", ()))
        own = _both_from(values, name)
        if "thresholds" in values:
            named = values.pop("thresholds")
            if not isinstance(named, str) or named not in shared:
                accepted = f"a name under [thresholds]: {', '.join(sorted(shared)) or 'there is none'}"
                refuse(f"{name}.thresholds", named, accepted)
            own = {**shared[named], **own}
        yield TrafficClass(**{**values, **own})


def _ports_from(tables: object, shared: _Shared) -> Iterator[Port]:
    for index, table in enumerate(_tables("port", tables)):
        name = f"port[{index}]"
        _check_type(name, table, Mapping, "a table")
        _check_keys(table, {"name", "rate_bps", "class"}, f"{name}.")
        for key, accepted in (("name", "the port's name"), ("rate_bps", "bits per second")):
            if key not in table:
                _missing(f"{name}.{key}", accepted)
        _check_type(f"{name}.name", table["name"], str, "a text")
        classes = tuple(_classes_from(table.get("class", []), f"{name}.class", shared))
        yield Port(table["name"], table["rate_bps"], classes)


# ---- writing ----

_Both = tuple[Thresholds, tuple[Thresholds, ...]]


def policy_text(
    settings: Iterable[tuple[str, Any]],
    path_groups: Mapping[str, tuple[str, ...]],
    classes: Sequence[TrafficClass],
    ports: Sequence[Port],
) -> str:
    """A TOML text of which `values_from` makes the same fields. `settings`: the others."""
    lines = [f"{k} = {toml_value(v)}" for k, v in settings]
    if path_groups:
        lines += ["", "[path_groups]"]
        lines += [f"{toml_key(name)} = {toml_value(members)}" for name, members in path_groups.items()]
    shared = _shared_by([*classes, *(each for port in ports for each in port.classes)])
    for both, name in shared.items():
        lines += ["", f"[thresholds.{name}]", *_both_lines(both)]
    for traffic_class in classes:
        lines += ["", "[[class]]", *_class_lines(traffic_class, shared)]
    for port in ports:
        lines += ["", "[[port]]", f"name = {toml_value(port.name)}", f"rate_bps = {port.rate_bps}"]
        for traffic_class in port.classes:
            lines += ["", "[[port.class]]", *_class_lines(traffic_class, shared)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _both(traffic_class: TrafficClass) -> _Both:
    return traffic_class.critical, traffic_class.droppable


def _shared_by(classes: Iterable[TrafficClass]) -> dict[_Both, str]:
    """Thresholds that several classes have, and their names: "data", as in most policies there is one such set."""
    counts = Counter(_both(c) for c in classes)
    several = [both for both, n in counts.items() if n > 1 and both != _both(TrafficClass(0))]
    return {both: "data" if i == 0 else f"data{i + 1}" for i, both in enumerate(several)}


def changed(thing: Any, skip: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Fields and values of a dataclass that are not their defaults."""
    for f in fields(thing):
        value = getattr(thing, f.name)
        if f.name not in skip and value is not None and value != f.default:
            yield f.name, value


def _toml(thresholds: Thresholds) -> str:
    return toml_value(dict(changed(thresholds)))


def _droppable_text(droppable: tuple[Thresholds, ...]) -> str:
    """The shortest form."""
    if len(droppable) == 1:
        return _toml(droppable[0])
    for fate, name in _RAMPS.items():
        low, high = (getattr(droppable[i], name) for i in (0, DROPPABLE_LEVELS - 1))
        if low is None or high is None or high <= low:
            continue
        others = dict(changed(droppable[0], skip={name}))
        if droppable == importance_levels(name, low, high, **others):
            return toml_value({f"{fate}_from_bytes": low, f"{fate}_to_bytes": high, **others})
    return f"[{', '.join(map(_toml, droppable))}]"


def _both_lines(both: _Both) -> Iterator[str]:
    critical, droppable = both
    if critical != Thresholds():
        yield f"critical = {_toml(critical)}"
    if droppable != (Thresholds(),):
        yield f"droppable = {_droppable_text(droppable)}"


def _class_lines(traffic_class: TrafficClass, shared: Mapping[_Both, str]) -> Iterator[str]:
    yield f"number = {traffic_class.number}"
    for key, value in changed(traffic_class, skip={"number", "critical", "droppable"}):
        yield f"{key} = {toml_value(value)}"
    if (name := shared.get(_both(traffic_class))) is not None:
        yield f'thresholds = "{name}"'
    else:
        yield from _both_lines(_both(traffic_class))
