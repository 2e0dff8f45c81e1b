"""A fabric as data: hosts, switches, the links between them, and what each link carries.

    Fabric(leaves=2, spines=2, hosts_per_leaf=2)       h0 h1 on l0, h2 h3 on l1, both leaves on s0 and s1
    Fabric.preset("star")                              h0 h1 h2 h3 on one switch, l0

Links go by the names of what they join, the lower one first: h0-l0, l0-s1. A port of a switch is called by who is at
the other end, so port `s1` of `l0` sends into link l0-s1. A host's only interface is `eth-lab`. All hosts are in one
subnet, whatever the fabric: host i is 10.78.0.(i + 1) and fd78::(i + 1).

Invariant: a fabric that cannot be built does not come to be: FabricError names the field, its value and what is
accepted. Pure values and TOML; the switches' policy is named here by its file, and read elsewhere.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from dlcp.checks import integer
from dlcp.lab.fault import NO_FAULT, RATE_BPS_MAX, RATE_BPS_MIN, FabricError, Fault, refuse

SWITCHES = ("software", "kernel", "bmv2", "none")
LEAVES_MAX, SPINES_MAX, HOSTS_MAX = 16, 16, 64
MTU_MIN, MTU_MAX = 1280, 9000  # RFC 8200, 5; jumbo frames


@dataclass(frozen=True)
class Difference:
    """What one link has in place of the fabric's."""

    rate_bps: int | None = None
    fault: Fault = NO_FAULT
    """From the beginning."""


@dataclass(frozen=True)
class Link:
    """A link between two nodes: a host and its leaf, or a leaf and a spine. The same in both directions."""

    name: str
    lower: str
    upper: str
    rate_bps: int
    fault: Fault = NO_FAULT

    @property
    def ends(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Node and the name there of what is at the other end, of both ends."""
        return (self.lower, self.upper), (self.upper, self.lower)


@dataclass(frozen=True)
class Fabric:
    """What `dlcp lab` builds. Immutable; `replace(fabric, …)` gives another one, checked as well."""

    leaves: int = 2
    spines: int = 2
    """None: there is one leaf, and all hosts hang on it."""
    hosts_per_leaf: int = 2
    host_rate_bps: int = 10**8
    """Of a host's link, in each direction. Two cores forward about 1 Gbit/s over four hops, all links together."""
    fabric_rate_bps: int = 10**8
    """Of a link between leaf and spine."""
    mtu: int = 1500
    switch: str = "software"
    """software: dlcp's own. kernel: routes, strict-priority queues and a BPF program for the policy. bmv2: the P4
    program on simple_switch_grpc. none: routes and one queue per port, first in first out."""
    policy: Path | None = None
    """A policy file; None: dlcp's usual thresholds for the rates here."""
    links: Mapping[str, Difference] = field(default_factory=dict)
    """By name, those that differ."""

    def __post_init__(self) -> None:
        integer("leaves", self.leaves, 1, LEAVES_MAX, error=FabricError)
        integer("spines", self.spines, 0, SPINES_MAX, error=FabricError)
        if self.leaves > 1 and self.spines == 0:
            refuse("spines", self.spines, f"1 to {SPINES_MAX}, with {self.leaves} leaves to join")
        integer("hosts_per_leaf", self.hosts_per_leaf, 1, HOSTS_MAX, error=FabricError)
        if not 2 <= self.hosts <= HOSTS_MAX:
            refuse(
                "hosts_per_leaf", self.hosts_per_leaf, f"2 to {HOSTS_MAX} hosts in all, {self.leaves} leaves"
            )
        for name in ("host_rate_bps", "fabric_rate_bps"):
            integer(name, getattr(self, name), RATE_BPS_MIN, RATE_BPS_MAX, error=FabricError)
        integer("mtu", self.mtu, MTU_MIN, MTU_MAX, error=FabricError)
        if self.switch not in SWITCHES:
            refuse("switch", self.switch, ", ".join(SWITCHES))
        names = [link.name for link in self.each_link()]
        for name, difference in self.links.items():
            if name not in names:
                raise FabricError(f"link {name!r} is not there; accepted: {', '.join(names)}")
            if (rate_bps := difference.rate_bps) is not None:
                integer(f"link {name}: rate_bps", rate_bps, RATE_BPS_MIN, RATE_BPS_MAX, error=FabricError)

    # ---- what is in it ----

    @property
    def hosts(self) -> int:
        """How many; ranks are placed in this order, leaf by leaf."""
        return self.leaves * self.hosts_per_leaf

    @property
    def host_names(self) -> list[str]:
        """In order of rank: h0, h1 and so on."""
        return [f"h{i}" for i in range(self.hosts)]

    @property
    def leaf_names(self) -> list[str]:
        """l0, l1 and so on."""
        return [f"l{i}" for i in range(self.leaves)]

    @property
    def spine_names(self) -> list[str]:
        """s0, s1 and so on."""
        return [f"s{i}" for i in range(self.spines)]

    @property
    def switch_names(self) -> list[str]:
        """Leaves, then spines."""
        return self.leaf_names + self.spine_names

    def leaf_of(self, host: int) -> str:
        """The switch that this host hangs on."""
        return f"l{host // self.hosts_per_leaf}"

    def each_link(self) -> Iterator[Link]:
        """All links, those of hosts first."""
        pairs = [(f"h{i}", self.leaf_of(i), self.host_rate_bps) for i in range(self.hosts)]
        pairs += [(leaf, s, self.fabric_rate_bps) for leaf in self.leaf_names for s in self.spine_names]
        for lower, upper, rate_bps in pairs:
            name = f"{lower}-{upper}"
            own = self.links.get(name, Difference())
            yield Link(name, lower, upper, own.rate_bps or rate_bps, own.fault)

    def link(self, name: str) -> Link:
        """The link of this name, or of its ends in the other order. FabricError: there is none."""
        links = {link.name: link for link in self.each_link()}
        lower, _, upper = name.partition("-")
        if name not in links and (turned := f"{upper}-{lower}") in links:
            return links[turned]
        if name not in links:
            raise FabricError(f"link {name!r} is not there; accepted: {', '.join(links)}")
        return links[name]

    def ports(self, switch: str) -> dict[str, Link]:
        """The ports of a switch, by who is at the other end, and the links they send into."""
        return {peer: link for link in self.each_link() for node, peer in link.ends if node == switch}

    def path_groups(self, switch: str) -> dict[str, tuple[str, ...]]:
        """Ports of this switch to equal next hops: a leaf's to the spines."""
        if switch.startswith("l") and self.spines > 1:
            return {"spines": tuple(self.spine_names)}
        return {}

    # ---- addresses ----

    def address(self, host: int) -> str:
        """IPv4, in the subnet that all hosts share."""
        return f"10.78.0.{host + 1}"

    def address_v6(self, host: int) -> str:
        """IPv6, the same."""
        return f"fd78::{host + 1:x}"

    def mac(self, node: str, peer: str) -> str:
        """Of this node's interface towards `peer`. Locally administered, and the same in every lab."""
        kinds = {"h": 0, "l": 1, "s": 2}
        kind, number = kinds[node[0]], int(node[1:])
        far_kind, far_number = kinds[peer[0]], int(peer[1:])
        return f"02:78:{kind:02x}:{number:02x}:{far_kind:02x}:{far_number:02x}"

    # ---- TOML ----

    @classmethod
    def preset(cls, name: str) -> Self:
        """A fabric by name. FabricError: there is none."""
        if name not in PRESETS:
            raise FabricError(
                f"no fabric {name!r}; accepted: {', '.join(PRESETS)}, or a TOML file that describes one"
            )
        return cls(**PRESETS[name])

    @classmethod
    def named(cls, words: str) -> Self:
        """A preset's, or that of a TOML file, as people write it on a command line. FabricError."""
        return cls.load(words) if words.endswith(".toml") or "/" in words else cls.preset(words)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The fabric in a TOML file; a policy's path is relative to it."""
        path = Path(path)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise FabricError(f"{path}: {error.strerror}") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise FabricError(f"{path}: not TOML: {error}") from None
        try:
            fabric = cls.from_table(table)
        except FabricError as error:
            raise FabricError(f"{path}: {error}") from None
        if fabric.policy is not None:
            fabric = replace(fabric, policy=path.parent / fabric.policy)
        return fabric

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """The fabric in tables as `tomllib` gives them."""
        values = dict(table)
        known = {f.name for f in fields(cls)} - {"links"} | {"link"}
        for key in values:
            if key not in known:
                raise FabricError(f"{key} is unknown; accepted: {', '.join(sorted(known))}")
        if "policy" in values:
            if not isinstance(values["policy"], str):
                refuse("policy", values["policy"], "the path of a policy file")
            values["policy"] = Path(values["policy"])
        links = dict(_differences(values.pop("link", [])))
        return cls(**values, links=links)

    def to_table(self) -> dict[str, Any]:
        """What `from_table` takes, and TOML and JSON can hold."""
        table: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "links"}
        if self.policy is None:
            del table["policy"]
        else:
            table["policy"] = str(self.policy)
        table["link"] = [
            {"name": name}
            | ({} if one.rate_bps is None else {"rate_bps": one.rate_bps})
            | ({"fault": one.fault.to_table()} if one.fault else {})
            for name, one in self.links.items()
        ]
        return table


PRESETS: dict[str, dict[str, Any]] = {
    "leaf-spine": {},
    "star": {"leaves": 1, "spines": 0, "hosts_per_leaf": 4},
}


def _differences(tables: object) -> Iterator[tuple[str, Difference]]:
    if not isinstance(tables, list):
        refuse("link", tables, "tables")
    for index, table in enumerate(tables):
        where = f"link[{index}]"
        if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
            refuse(where, table, "a table with the link's name")
        for key in table:
            if key not in ("name", "rate_bps", "fault"):
                raise FabricError(f"{where}.{key} is unknown; accepted: name, rate_bps, fault")
        fault = table.get("fault", {})
        if not isinstance(fault, dict):
            refuse(f"{where}.fault", fault, "a table")
        yield table["name"], Difference(table.get("rate_bps"), Fault.from_table(fault, f"{where}.fault"))
