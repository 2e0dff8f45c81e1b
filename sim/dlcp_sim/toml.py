"""Scenarios as tables: read from TOML, written as TOML, and changed one setting at a time.

A table says what it is by `kind`, and then the arguments of what Python calls it; so everything that Python can say, a
file can say, in the same names and units. What is not known is an error that names what is near. Tables made from a
scenario hold every setting, also those that have their default, and no path to another file, so that they stand alone.
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dlcp.checks import did_you_mean
from dlcp.errors import ArgumentError, DlcpError
from dlcp.switch.policy import Policy
from dlcp.toml_text import toml_key, toml_value
from dlcp_sim import faults, switches, workloads
from dlcp_sim.annotations import as_whole, check, hints_of
from dlcp_sim.fabrics import Dumbbell, Fabric, FatTree, GraphFile, LeafSpine, Star, ThreeTier, TwoSites
from dlcp_sim.fabrics.graphs import graph_from_table
from dlcp_sim.plain import plain
from dlcp_sim.scenario_fields import Sample, ScenarioFields, Trace, refuse
from dlcp_sim.transports import TRANSPORTS, transport_named
from dlcp_sim.workloads.load import Workload

Tables = Mapping[str, Any]
Made = TypeVar("Made")

FABRICS: dict[str, Callable[..., Fabric]] = {
    "fat_tree": FatTree,
    "leaf_spine": LeafSpine,
    "star": Star,
    "three_tier": ThreeTier,
    "dumbbell": Dumbbell,
    "two_sites": TwoSites,
    "graph_file": GraphFile,
}
SWITCHES: dict[str, Any] = {"unbounded": switches.unbounded, **switches.BY_NAME}
FAULTS: dict[str, Callable[..., faults.Fault]] = {**faults.KINDS, "switch_down": faults.SwitchDown}

_KEYS = tuple(field.name for field in dataclasses.fields(ScenarioFields))


# --- tables to scenario ---------------------------------------------------------------------------------------


def values_from(tables: Tables, folder: Path | None = None) -> dict[str, Any]:
    """The fields of the scenario that tables describe; files that they name are looked for in `folder`.

    Raises ArgumentError.
    """
    _check_keys("the scenario", tables, _KEYS)
    for key in ("fabric", "transport", "workload"):
        if key not in tables:
            raise ArgumentError(f"the scenario has no [{key}]; it needs fabric, transport and workload")
    values = {
        key: tables[key]
        for key in ("name", "hosts", "seed", "threads", "until_s", "check_invariants")
        if key in tables
    }
    fabric = _fabric_from(_table("fabric", tables["fabric"]), folder)
    values |= {
        "fabric": fabric,
        "transport": _transport_from(_table("transport", tables["transport"])),
        "workload": _workload_from("workload", tables["workload"], folder),
    }
    if "switch" in tables:
        values["switch"] = _policy_from(_table("switch", tables["switch"]), fabric, folder)
    found = tables.get("faults", [])
    if not isinstance(found, list | tuple):
        refuse("faults", found, "tables, each under [[faults]]")
    values["faults"] = tuple(
        _construct(FAULTS, _table(f"faults[{i}]", fault), f"faults[{i}]", folder)
        for i, fault in enumerate(found)
    )
    for key, kind in (("sample", Sample), ("trace", Trace)):
        if key in tables:
            values[key] = _called(kind, _table(key, tables[key]), key, folder)
    return values


def _fabric_from(table: Tables, folder: Path | None) -> Fabric:
    if table.get("kind") == "graph":
        values = {key: value for key, value in table.items() if key != "kind"}
        return _made("fabric (graph)", lambda: graph_from_table(values))
    known = FABRICS | {"graph": graph_from_table}
    fabric: Fabric = _construct(known, table, "fabric", folder)
    return fabric


def _transport_from(table: Tables) -> Any:
    values = dict(table)
    kind = values.pop("kind", None)
    if not isinstance(kind, str):
        refuse("transport.kind", kind, ", ".join(TRANSPORTS))
    return transport_named(kind, values)


def _policy_from(table: Tables, fabric: Fabric, folder: Path | None) -> Policy:
    """`kind` names one that is made for the fabric, `path` a policy's own file; else the table is a policy."""
    if "kind" in table:
        maker = SWITCHES.get(table["kind"]) if isinstance(table["kind"], str) else None
        given = {"fabric": fabric} if maker and "fabric" in inspect.signature(maker).parameters else {}
        policy: Policy = _construct(SWITCHES, table, "switch", folder, **given)
        return policy
    if "path" in table:
        loaded: Policy = _called(Policy.load, table, "switch", folder)
        return loaded
    return _made("switch", lambda: Policy.from_table(table))


def _workload_from(where: str, table: object, folder: Path | None) -> Workload:
    """The workload of a table; of several, `[[workload]]`, all of them together."""
    if isinstance(table, list | tuple):
        return workloads.together(
            *(_workload_from(f"{where}[{i}]", one, folder) for i, one in enumerate(table))
        )
    workload: Workload = _construct(workload_kinds(), _table(where, table), where, folder)
    return workload


def workload_kinds() -> dict[str, type[Workload]]:
    """All workloads by kind: those of dlcp_sim.workloads, and whatever else has been derived from Workload."""
    found: dict[str, type[Workload]] = {}
    classes: list[type[Workload]] = list(Workload.__subclasses__())
    for one in classes:
        classes += one.__subclasses__()
        if one.kind and not inspect.isabstract(one):
            found[one.kind] = one
    return found


# --- any table to what it describes ---


def _construct(
    makers: Mapping[str, Callable[..., Any]], table: Tables, where: str, folder: Path | None, **given: Any
) -> Any:
    """What the maker named by `kind` makes of the other keys, and of what is `given`."""
    values = dict(table)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in makers:
        if kind is None:
            raise ArgumentError(f"{where} has no kind; accepted: {', '.join(makers)}")
        own = ", or one of your own, by --import MODULE" if where.startswith("workload") else ""
        raise ArgumentError(
            f"{where}.kind is {kind!r}; {did_you_mean(str(kind), makers)}accepted: {', '.join(makers)}{own}"
        )
    return _called(makers[kind], values, f"{where} ({kind})", folder, **given)


def _called(maker: Callable[..., Any], table: Tables, where: str, folder: Path | None, **given: Any) -> Any:
    """`maker` called with the keys of a table as its arguments."""
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(maker).parameters.items()
        if name not in given
    }
    _check_keys(where, table, parameters)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in table:
            raise ArgumentError(f"{where} needs {name}")
    hints = hints_of(maker)
    values = {}
    for name, value in table.items():
        values[name] = _argument(f"{where}.{name}", name, value, folder)
        if name in hints:
            if hints[name] is int:
                values[name] = as_whole(values[name])
            check(f"{where}: {name}", values[name], hints[name])
    return _made(where, lambda: maker(**values, **given))


def _made(where: str, maker: Callable[[], Made]) -> Made:
    """What `maker` makes; its complaints as ArgumentError, and with the place in front."""
    try:
        return maker()
    except DlcpError as error:
        raise ArgumentError(f"{where}: {error}") from None
    except (TypeError, ValueError, OSError) as error:
        # The makers check what they are given; this is for what one of them forgot.
        raise ArgumentError(f"{where}: {type(error).__name__}: {error}") from error


def _argument(where: str, name: str, value: Any, folder: Path | None) -> Any:
    """A value of a table as Python would be given it."""
    if name == "path" or name.endswith("_path"):
        return _file(where, value, folder)
    if isinstance(value, Mapping) and "kind" in value:
        return _workload_from(where, value, folder)
    if isinstance(value, list):
        return tuple(_argument(f"{where}[{i}]", "", item, folder) for i, item in enumerate(value))
    return value


def _file(where: str, value: object, folder: Path | None) -> Path:
    """A file that a table names, looked for in `folder`."""
    if not isinstance(value, str | Path):
        refuse(where, value, "the name of a file")
    path = (folder or Path()) / value
    if not path.exists():
        raise ArgumentError(f"{where}: there is no file {path}")
    return path


def _table(where: str, value: object) -> Tables:
    if not isinstance(value, Mapping):
        refuse(where, value, "a table")
    return value


def _check_keys(where: str, table: Tables, known: Iterable[str]) -> None:
    known = list(known)
    for key in table:
        if key not in known:
            accepted = ", ".join(known) or "nothing else"
            raise ArgumentError(
                f"{where} has no setting {key!r}; {did_you_mean(str(key), known)}accepted: {accepted}"
            )


# --- scenario to tables ---------------------------------------------------------------------------------------


def tables_of(scenario: ScenarioFields) -> dict[str, Any]:
    """A scenario as tables that hold every setting, in plain data: text, numbers, true and false, lists, tables."""
    tables: dict[str, Any] = {"name": scenario.name} if scenario.name else {}
    tables |= {
        "hosts": scenario.hosts,
        "seed": scenario.seed,
        "threads": scenario.threads,
        "check_invariants": scenario.check_invariants,
    }
    if scenario.until_s is not None:
        tables["until_s"] = scenario.until_s
    tables["fabric"] = scenario.fabric.as_dict()
    tables["transport"] = scenario.transport.as_dict()
    if scenario.switch is not None:
        tables["switch"] = tomllib.loads(scenario.switch.to_toml())
    tables["workload"] = scenario.workload.as_dict()
    if scenario.faults:
        tables["faults"] = [fault.as_dict() for fault in scenario.faults]
    for key in ("sample", "trace"):
        if (value := getattr(scenario, key)) is not None:
            tables[key] = plain(value)
    return tables


# --- text -----------------------------------------------------------------------------------------------------


def read_file(path: Path | str) -> dict[str, Any]:
    """The tables in a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"{path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ArgumentError(f"{path}: not TOML: {error}") from None


def read_value(text: str) -> Any:
    """A value as the command line says it: as TOML has it, or else the text itself."""
    text = text.strip()
    try:
        tables = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    # A line break in it would be TOML of its own.
    return tables["value"] if list(tables) == ["value"] else text


def with_setting(tables: Tables, name: str, value: Any) -> dict[str, Any]:
    """`tables` with one setting changed, by its dotted name; `faults.0.ratio` for one of several tables.

    Another `kind` takes the other settings of its table away: they were the former kind's.
    """
    words = name.split(".")
    if not all(words):
        refuse("setting", name, "a dotted name, such as transport.window_packets")
    return _with(dict(tables), words, value, name)


def _with(tables: dict[str, Any], words: list[str], value: Any, name: str) -> dict[str, Any]:
    word, rest = words[0], words[1:]
    if not rest:
        if word == "kind" and tables.get("kind") != value:
            tables = {}
        return tables | {word: value}
    inner = tables.get(word, {})
    if isinstance(inner, list | tuple):
        if (
            not rest[0].isdecimal()
            or int(rest[0]) >= len(inner)
            or not isinstance(inner[int(rest[0])], Mapping)
        ):
            refuse(
                "setting",
                name,
                f"{word}.0 to {word}.{len(inner) - 1} and a name" if inner else f"nothing in {word}",
            )
        items = list(inner)
        items[int(rest[0])] = _with(dict(items[int(rest[0])]), rest[1:] or [""], value, name)
        return tables | {word: items}
    if not isinstance(inner, Mapping):
        refuse("setting", name, f"{word} is no table")
    return tables | {word: _with(dict(inner), rest, value, name)}


def to_text(tables: Tables) -> str:
    """Tables as TOML."""
    return "\n".join(_lines(tables, "")).strip("\n") + "\n"


def _lines(tables: Tables, prefix: str) -> Iterator[str]:
    """Values first, then tables, as TOML needs it."""
    inner = {k: v for k, v in tables.items() if isinstance(v, Mapping) or _is_tables(v)}
    for key, value in tables.items():
        if key not in inner:
            yield f"{toml_key(key)} = {toml_value(value)}"
    for key, value in inner.items():
        name = f"{prefix}{toml_key(key)}"
        for table in [value] if isinstance(value, Mapping) else value:
            yield ""
            yield f"[{name}]" if isinstance(value, Mapping) else f"[[{name}]]"
            yield from _lines(table, f"{name}.")


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
