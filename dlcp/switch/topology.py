"""The switches of a deployment: how each is reached, the names of its ports, and where addresses are.

Pure data, written once per fabric, beside the policy, in TOML or Python. A Topology is checked when it is made;
TopologyError names the field, its value and what is accepted. A port has the policy's name for it and the number by
which the switch's program knows it. Nothing here talks to a switch.

A *path group* is a set of equal next hops: the policy says which of its ports a packet takes. A switch has those
groups of the policy whose ports it has, or its own instead.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

from dlcp.checks import integer, refusal, text
from dlcp.errors import SettingsError
from dlcp.switch.policy import Policy
from dlcp.switch.printable import printable
from dlcp.toml_text import toml_value

PROGRAMS = ("v1model",)
MAX_PORT = 63  # the programs keep depths and counters of so many ports
MAX_ELECTION_ID = 2**128 - 1  # P4Runtime 1.3, 5.2: an unsigned integer of 128 bits
DEFAULT_ELECTION_ID = 1  # the least that can be primary: any other controller of the switch outranks it

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class TopologyError(SettingsError):
    """An impossible topology; the text names the field, its value and what is accepted."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


def _refuse(name: str, value: object, accepted: str) -> NoReturn:
    raise TopologyError(refusal(name, value, accepted))


def mac_number(name: str, text: object) -> int:
    """A unicast MAC address as a number; TopologyError names `name` if it is none."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        _refuse(name, text, "a MAC address as 02:00:00:00:00:01")
    number = int(text.replace(":", ""), 16)
    if number >> 40 & 1 or not number:
        _refuse(name, text, "a MAC address of one host: its first byte is even, and it is not all zeros")
    return number


@dataclass(frozen=True)
class BridgeEntry:
    """A MAC address, and the port or the path group behind which it is."""

    mac: str
    port: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class Route:
    """An IP prefix and the next hop to it, or the equal next hops behind a path group."""

    prefix: str
    """IPv4 or IPv6, as 10.0.1.0/24 or fd00:1::/64."""
    port: str | None = None
    next_hop: str | None = None
    """MAC address of the next hop behind `port`."""
    group: str | None = None
    next_hops: Mapping[str, str] = field(default_factory=dict)
    """Port of `group` → MAC address of the next hop behind it."""

    @property
    def network(self) -> IPNetwork:
        return ipaddress.ip_network(self.prefix)


@dataclass(frozen=True)
class SwitchTarget:
    """One switch: its address, its program, its ports, and where MAC and IP addresses are as it sees them."""

    name: str
    address: str
    """HOST:PORT of its P4Runtime server, or unix:/PATH of one on this host."""
    ports: Mapping[str, int]
    """Name, as the policy uses it → number, as the program knows it."""
    device_id: int = 0
    program: str = "v1model"
    election_id: int = DEFAULT_ELECTION_ID
    """Among connected controllers, the one with the highest id may write. Deployment takes that right from another
    controller only if told to."""
    salt: int | None = None
    """Varies the choice of paths from switch to switch. None: from the name."""
    path_groups: Mapping[str, tuple[str, ...]] | None = None
    """Instead of the policy's. None: those of the policy, as far as this switch has their ports."""
    router_macs: tuple[str, ...] = ()
    """Frames to these are routed. The first one is the source address of what has been routed."""
    bridge: tuple[BridgeEntry, ...] = ()
    routes: tuple[Route, ...] = ()

    @property
    def where(self) -> str:
        """The switch in reports and errors: name and address."""
        return f"{self.name} ({self.address})"

    @property
    def path_salt(self) -> int:
        """`salt`, or the CRC-32 of the name: the same at each deployment, another one at each switch."""
        return zlib.crc32(self.name.encode()) if self.salt is None else self.salt

    def groups_under(self, policy: Policy) -> dict[str, tuple[str, ...]]:
        """The path groups of this switch. TopologyError: it has some, but not all ports of one of the policy's."""
        if self.path_groups is not None:
            return dict(self.path_groups)
        groups = {}
        for name, members in policy.path_groups.items():
            here = [port for port in members if port in self.ports]
            if here and len(here) != len(members):
                missing = ", ".join(port for port in members if port not in self.ports)
                raise TopologyError(
                    f"{self.name} has {', '.join(here)} of the policy's path group {name!r}, but not {missing}; "
                    "accepted: all of its ports or none, or path_groups of the switch's own"
                )
            if here:
                groups[name] = tuple(members)
        return groups

    # ---- checks ----

    def validate(self, where: str) -> None:
        """TopologyError unless all fields are in range and fit each other."""
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", self.name):
            _refuse(f"{where}.name", self.name, "1 to 64 letters, digits, dots, hyphens and underscores")
        _check_address(f"{where}.address", self.address)
        integer(f"{where}.device_id", self.device_id, 0, 2**64 - 1, error=TopologyError)
        if self.program not in PROGRAMS:
            _refuse(f"{where}.program", self.program, ", ".join(PROGRAMS))
        integer(f"{where}.election_id", self.election_id, 1, MAX_ELECTION_ID, error=TopologyError)
        if self.salt is not None:
            integer(f"{where}.salt", self.salt, 0, 2**32 - 1, error=TopologyError)
        self._validate_ports(where)
        for index, mac in enumerate(self.router_macs):
            mac_number(f"{where}.router_macs[{index}]", mac)
        _check_distinct(f"{where}.router_macs", [mac.lower() for mac in self.router_macs])
        if self.path_groups is not None:  # else they are the policy's: check_policy()
            self._validate_groups(where, self.path_groups)
            self._validate_places(where, self.path_groups)
        for index, entry in enumerate(self.bridge):
            mac_number(f"{where}.bridge[{index}].mac", entry.mac)
        _check_distinct(f"{where}.bridge", [entry.mac.lower() for entry in self.bridge])
        self._validate_routes(where)

    def _validate_ports(self, where: str) -> None:
        if not self.ports:
            _refuse(f"{where}.ports", dict(self.ports), "at least one port")
        owner: dict[int, str] = {}
        for name, number in self.ports.items():
            integer(f"{where}.ports.{name}", number, 0, MAX_PORT, error=TopologyError)
            if number in owner:
                _refuse(
                    f"{where}.ports.{name}",
                    number,
                    f"a number that no other port has; {owner[number]} has it",
                )
            owner[number] = name

    def _validate_groups(self, where: str, groups: Mapping[str, tuple[str, ...]]) -> None:
        owner: dict[str, str] = {}
        for group, members in groups.items():
            if not members:
                _refuse(f"{where}.path_groups.{group}", list(members), "at least one port")
            for port in members:
                if port not in self.ports:
                    _refuse(f"{where}.path_groups.{group}", port, _ports_of(self))
                # A flooded frame goes to one port of each group; a port in two groups would get it twice.
                if port in owner:
                    accepted = f"a port of no other group; {owner[port]} has it"
                    _refuse(f"{where}.path_groups.{group}", port, accepted)
                owner[port] = group

    def _validate_places(self, where: str, groups: Mapping[str, tuple[str, ...]]) -> None:
        """Bridge entries and routes lead to groups that exist; a route has a next hop for each port of its group."""
        for index, entry in enumerate(self.bridge):
            self._check_group(f"{where}.bridge[{index}]", entry.group, groups)
        for index, route in enumerate(self.routes):
            name = f"{where}.route[{index}]"
            self._check_group(name, route.group, groups)
            if route.group is not None and set(route.next_hops) != set(groups[route.group]):
                accepted = f"one MAC address for each port of {route.group}: {', '.join(groups[route.group])}"
                _refuse(f"{name}.next_hops", dict(route.next_hops), accepted)

    @staticmethod
    def _check_group(name: str, group: str | None, groups: Mapping[str, tuple[str, ...]]) -> None:
        if group is not None and group not in groups:
            accepted = f"a path group of the switch: {', '.join(groups)}"
            if not groups:
                accepted = (
                    "a path group, of which neither the switch nor the policy has any; give the switch one: "
                    f"path_groups = {{{group} = [...]}}"
                )
            _refuse(f"{name}.group", group, accepted)

    def _validate_routes(self, where: str) -> None:
        networks: dict[IPNetwork, int] = {}
        for index, entry in enumerate(self.bridge):
            self._check_place(f"{where}.bridge[{index}]", entry)
        for index, route in enumerate(self.routes):
            name = f"{where}.route[{index}]"
            self._check_place(name, route)
            try:
                network = route.network
            except ValueError as error:
                _refuse(f"{name}.prefix", route.prefix, f"a prefix as 10.0.1.0/24 or fd00:1::/64 ({error})")
            if network in networks:
                accepted = f"a prefix that no other route has; route[{networks[network]}] has it"
                _refuse(f"{name}.prefix", route.prefix, accepted)
            networks[network] = index
            if (route.port is None) != (route.next_hop is None):
                _refuse(f"{name}.next_hop", route.next_hop, "the next hop's MAC address with port, else none")
            if route.next_hop is not None:
                mac_number(f"{name}.next_hop", route.next_hop)
            for port, mac in route.next_hops.items():
                mac_number(f"{name}.next_hops.{port}", mac)
            if route.next_hops and route.group is None:
                _refuse(f"{name}.next_hops", dict(route.next_hops), "none, unless group is set")
        if self.routes and not self.router_macs:
            _refuse(f"{where}.router_macs", [], "at least one MAC address, since there are routes")

    def _check_place(self, name: str, thing: BridgeEntry | Route) -> None:
        if (thing.port is None) == (thing.group is None):
            _refuse(name, {"port": thing.port, "group": thing.group}, "either a port or a group")
        if thing.port is not None and thing.port not in self.ports:
            _refuse(f"{name}.port", thing.port, _ports_of(self))


@dataclass(frozen=True)
class Topology:
    """The switches of a fabric. Immutable, and checked when it is made."""

    switches: tuple[SwitchTarget, ...]

    def __post_init__(self) -> None:
        if not self.switches:
            _refuse("switch", [], "at least one switch")
        for index, target in enumerate(self.switches):
            target.validate(f"switch[{index}]")
        names: dict[str, int] = {}
        places: dict[tuple[str, int], str] = {}
        for index, target in enumerate(self.switches):
            if target.name in names:
                accepted = f"a name that no other switch has; switch[{names[target.name]}] has it"
                _refuse(f"switch[{index}].name", target.name, accepted)
            names[target.name] = index
            place = (target.address, target.device_id)
            if place in places:
                accepted = f"an address and device_id that no other switch has; {places[place]!r} has them"
                _refuse(f"switch[{index}].address", f"{target.address}, device {target.device_id}", accepted)
            places[place] = target.name

    def only(self, names: Sequence[str]) -> Self:
        """The switches of these names, in the topology's order; all of them if there are no names."""
        known = {target.name for target in self.switches}
        for name in names:
            if name not in known:
                _refuse("--only", name, f"a switch of the topology: {', '.join(sorted(known))}")
        return type(self)(tuple(t for t in self.switches if not names or t.name in names))

    def check_policy(self, policy: Policy) -> None:
        """TopologyError unless each port that the policy names belongs to a switch, and its groups fit the switches."""
        known = {port for target in self.switches for port in target.ports}
        named = [(f"port[{i}].name", port.name) for i, port in enumerate(policy.ports)]
        named += [
            (f"path_groups.{group}", port) for group, ports in policy.path_groups.items() for port in ports
        ]
        for where, port in named:
            if port not in known:
                raise TopologyError(
                    f"the policy's {where} is {port!r}, which no switch has; accepted: {', '.join(sorted(known))}"
                )
        for index, target in enumerate(self.switches):
            groups = target.groups_under(policy)
            target._validate_groups(f"switch[{index}]", groups)
            target._validate_places(f"switch[{index}]", groups)

    # ---- TOML ----

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """The topology that a TOML text tells; TopologyError names what is unknown, malformed or out of range."""
        try:
            table = tomllib.loads(text)
            _check_keys(table, {"switch"}, "")
            return cls(tuple(_switches_from(table.get("switch", []))))
        except TopologyError:
            raise
        except tomllib.TOMLDecodeError as error:
            raise TopologyError(f"not TOML: {error}") from None
        except (ValueError, RecursionError) as error:
            # Numbers of thousands of digits, thousands of brackets: Python's own limits, also when they are shown.
            raise TopologyError(f"not a topology: {error}") from None

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The topology in a TOML file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise TopologyError(f"{path}: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise TopologyError(f"{path}: not UTF-8: {error}") from None
        except TopologyError as error:
            raise TopologyError(f"{path}: {error}") from None

    def to_toml(self) -> str:
        """A TOML text of which `from_toml` makes the same topology. What has its default is left out."""
        return "\n\n".join("\n".join(_switch_lines(target)) for target in self.switches) + "\n"

    def save(self, path: Path | str) -> None:
        """Writes `to_toml()` to a file."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")


# ---- checks ----


def _check_address(name: str, address: str) -> None:
    if re.fullmatch(r"unix:/[^\x00-\x20]+", address):
        return
    host, colon, port = address.rpartition(":")
    bracketed = re.fullmatch(r"\[[0-9a-fA-F:.]+(%\w+)?\]", host)
    if not colon or not (bracketed or re.fullmatch(r"[A-Za-z0-9._-]+", host)):
        _refuse(name, address, "HOST:PORT, as 10.0.0.1:9559 or [fd00::1]:9559, or unix:/PATH")
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        _refuse(name, address, "HOST:PORT with a port from 1 to 65535, or unix:/PATH")


def _check_distinct(name: str, values: Iterable[str]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            _refuse(name, value, "each address once")
        seen.add(value)


def _ports_of(target: SwitchTarget) -> str:
    return f"a port of the switch: {', '.join(target.ports)}"


# ---- reading ----

_text = partial(text, error=TopologyError)


def _check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in table:
        if key not in set(known):
            raise TopologyError(f"{where}{key} is unknown; accepted: {', '.join(sorted(known))}")


def _table(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(name, value, "a table")
    return value


def _tables(name: str, value: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, list):
        _refuse(name, value, "tables")
    for index, table in enumerate(value):
        yield f"{name}[{index}]", _table(f"{name}[{index}]", table)


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        _refuse(name, value, "a list of texts")
    return tuple(_text(f"{name}[{index}]", item) for index, item in enumerate(value))


def _switches_from(tables: object) -> Iterator[SwitchTarget]:
    for where, table in _tables("switch", tables):
        values = dict(table)
        known = {f.name for f in fields(SwitchTarget)} - {"routes"} | {"route"}
        _check_keys(values, known, f"{where}.")
        for key in ("name", "address", "ports"):
            if key not in values:
                raise TopologyError(f"{where}.{key} is missing")
        for key in ("name", "address", "program"):
            _text(f"{where}.{key}", values.get(key, ""))
        values["ports"] = dict(_table(f"{where}.ports", values["ports"]))
        if "path_groups" in values:
            groups = _table(f"{where}.path_groups", values["path_groups"])
            values["path_groups"] = {n: _texts(f"{where}.path_groups.{n}", g) for n, g in groups.items()}
        values["router_macs"] = _texts(f"{where}.router_macs", values.get("router_macs", []))
        values["bridge"] = tuple(
            BridgeEntry(**_places(name, entry, BridgeEntry, "mac"))
            for name, entry in _tables(f"{where}.bridge", values.get("bridge", []))
        )
        values["routes"] = tuple(
            Route(**_places(name, entry, Route, "prefix"))
            for name, entry in _tables(f"{where}.route", values.pop("route", []))
        )
        yield SwitchTarget(**values)


def _places(name: str, table: Mapping[str, Any], kind: type, needed: str) -> dict[str, Any]:
    """The fields of a BridgeEntry or a Route."""
    _check_keys(table, [f.name for f in fields(kind)], f"{name}.")
    if needed not in table:
        raise TopologyError(f"{name}.{needed} is missing")
    values = dict(table)
    for key, value in values.items():
        if key == "next_hops":
            hops = _table(f"{name}.{key}", value)
            values[key] = {port: _text(f"{name}.{key}.{port}", mac) for port, mac in hops.items()}
        else:
            _text(f"{name}.{key}", value)
    return values


# ---- writing ----


def _switch_lines(target: SwitchTarget) -> Iterator[str]:
    yield "[[switch]]"
    for f in fields(SwitchTarget):
        value = getattr(target, f.name)
        if f.name in ("bridge", "routes") or value is None or value == f.default:
            continue
        yield f"{f.name} = {toml_value(value)}"
    for heading, things in (("bridge", target.bridge), ("route", target.routes)):
        for thing in things:
            yield f"[[switch.{heading}]]"
            yield from (f"{f.name} = {toml_value(v)}" for f in fields(thing) if (v := getattr(thing, f.name)))
