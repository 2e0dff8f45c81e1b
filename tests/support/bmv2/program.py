"""A compiled program with its state: tables and entries, registers, counters, groups; packets in, packets out.

Names may be short where one thing only ends so: `classify` for `IngressC.classify`. It has no time and no queues:
`process` runs egress at once; `Switch` puts queues between.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .actions import Action
from .calculations import Calculation, Checksum
from .expressions import Expressions
from .layout import Layout, UnsupportedError
from .packet import Packet
from .parser import Deparser, Parser
from .primitives import CounterArray, Externs, RandomSource, Seeded
from .tables import Entry, Match, Table, TableError, by_name
from .v1model import MOST_ROUNDS, Control, Depths, Hook, Queued, Replica, V1Model

FORMAT = 2


class Program:
    """One program, loaded."""

    def __init__(self, json: dict[str, Any], seed: int = 0) -> None:
        version = json.get("__meta__", {}).get("version", [0])
        if version[0] != FORMAT:
            raise UnsupportedError(f"version {version} of the JSON format")
        for kind in ("meter_arrays", "learn_lists"):
            if json.get(kind):
                raise UnsupportedError(f"{kind} {json[kind][0]['name']}")
        self.layout = Layout(json)
        self.registers: dict[str, list[int]] = {
            each["name"]: [0] * each["size"] for each in json["register_arrays"]
        }
        # Per array its counters; a direct one's are its table's entries'.
        self.counters: dict[str, CounterArray] = {
            each["name"]: CounterArray(each["size"])
            for each in json["counter_arrays"]
            if not each["is_direct"]
        }
        expressions = Expressions(self.layout, self.registers)
        calculations = {each["name"]: Calculation(self.layout, each) for each in json["calculations"]}
        self._externs = Externs(
            self.layout,
            expressions,
            calculations,
            self.registers,
            {each["name"]: each["bitwidth"] for each in json["register_arrays"]},
            self.counters,
            Seeded(seed),
        )
        self.actions = {each["id"]: Action(self._externs, each) for each in json["actions"]}
        self.tables: dict[str, Table] = {
            each["name"]: Table(self.layout, self.actions, each)
            for pipeline in json["pipelines"]
            for each in pipeline["tables"]
        }
        for each in json["counter_arrays"]:
            if each["is_direct"]:
                self.tables[each["binding"]].counter_names.append(each["name"])
        checksums = [Checksum(self.layout, expressions, calculations, each) for each in json["checksums"]]
        parser = Parser(self._externs, checksums, json)
        self.value_sets = parser.value_sets
        self.model = V1Model(self._externs, parser, Deparser(self._externs, checksums, json), json)
        for each in json["pipelines"]:
            self.model.controls[each["name"]] = Control(self._externs, self.tables, each)

    @classmethod
    def load(cls, path: str | Path, seed: int = 0) -> Program:
        """From a file that p4c-bm2-ss wrote."""
        return cls(json_text.loads(Path(path).read_text()), seed)

    # ---- what a test or a control plane changes ----

    @property
    def random(self) -> RandomSource:
        """Where `random()` gets its words; assign Words([...]) to give them."""
        return self._externs.random

    @random.setter
    def random(self, source: RandomSource) -> None:
        self._externs.random = source

    @property
    def messages(self) -> list[str]:
        """What log_msg wrote."""
        return self._externs.messages

    def table(self, name: str) -> Table:
        """By its full name or the end of it."""
        return self.tables[by_name(self.tables, name, "table")]

    def register(self, name: str) -> list[int]:
        """The cells, to read and to write."""
        return self.registers[by_name(self.registers, name, "register")]

    def counter(self, name: str) -> CounterArray:
        """The counters of an array."""
        return self.counters[by_name(self.counters, name, "counter")]

    def insert(
        self,
        table: str,
        match: Mapping[str, Match],
        action: str,
        data: Mapping[str, int] | Sequence[int] = (),
        priority: int = 0,
    ) -> Entry:
        """An entry by names; fields that are left out match anything."""
        at = self.table(table)
        name = by_name(at.actions, action, f"action of {at.name}")
        return at.insert(self._matches(at, match), name, _values(at.actions[name], data), priority)

    def delete(self, table: str, match: Mapping[str, Match], priority: int = 0) -> None:
        """Takes an entry out."""
        at = self.table(table)
        at.delete(self._matches(at, match), priority)

    def set_default(self, table: str, action: str, data: Mapping[str, int] | Sequence[int] = ()) -> None:
        """What the table does on a miss."""
        at = self.table(table)
        name = by_name(at.actions, action, f"action of {at.name}")
        at.set_default(name, _values(at.actions[name], data))

    def set_group(self, group: int, ports: Sequence[int | Replica]) -> None:
        """A multicast group; an empty one is taken away."""
        self.model.groups[group] = [Replica(port) if isinstance(port, int) else port for port in ports]
        if not ports:
            del self.model.groups[group]

    def set_mirror(self, session: int, port: int) -> None:
        """Where clones of a session go."""
        self.model.mirrors[session] = Replica(port)

    def before(self, control: str, hook: Hook | None) -> None:
        """Calls `hook(packet)` before a control ("ingress", "egress") runs: it may set fields by name."""
        if control not in self.model.before:
            raise KeyError(f"no control {control!r}: ingress, egress")
        self.model.before[control] = hook

    @staticmethod
    def _matches(table: Table, match: Mapping[str, Match]) -> list[Match | None]:
        names = [key.name for key in table.keys]
        given = {by_name(names, name, f"key of {table.name}"): value for name, value in match.items()}
        return [given.get(name) for name in names]

    # ---- packets ----

    def ingress(self, data: bytes, port: int, now_us: int = 0) -> list[Queued]:
        """What ingress puts into queues: nothing if it drops the packet."""
        return self.model.ingress(data, port, now_us)

    def egress(self, queued: Queued, depths: Depths | None = None) -> tuple[int, bytes] | None:
        """What leaves when a queued packet's turn comes: port and bytes, None if egress drops or recirculates it."""
        return self.model.egress(queued, depths or Depths()).sent

    def process(self, data: bytes, port: int, now_us: int = 0) -> list[tuple[int, bytes]]:
        """All that leaves for a packet that comes in, if no queue ever fills: port and bytes."""
        waiting = self.model.ingress(data, port, now_us)
        sent: list[tuple[int, bytes]] = []
        for _ in range(1024 * MOST_ROUNDS):
            if not waiting:
                return sent
            left = self.model.egress(waiting.pop(0), Depths(now_us, now_us))
            waiting += left.queued
            if left.recirculated is not None:
                waiting += self.model.reenter(left.recirculated, now_us)
            if left.sent is not None:
                sent.append(left.sent)
        raise RuntimeError("the packet goes round for ever")

    def parse(self, data: bytes, port: int = 0) -> Packet:
        """The packet after parser and checksums, before any control."""
        packet = Packet(self.layout, data)
        packet["standard_metadata.ingress_port"] = port
        self.model._parse(packet)
        return packet


def _values(action: Action, data: Mapping[str, int] | Sequence[int]) -> list[int]:
    if not isinstance(data, Mapping):
        return list(data)
    names = [parameter.name for parameter in action.parameters]
    if set(data) != set(names):
        raise TableError(f"{action.name} takes {', '.join(names)}, not {', '.join(data)}")
    return [data[name] for name in names]
