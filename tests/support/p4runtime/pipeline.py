"""A forwarding pipeline: the program that runs, its P4Info, and the names that lead from one to the other.

What is pushed is checked here: that both halves parse, and that every table, action, field and counter the P4Info
promises is in the program with the same widths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from finsy.proto import p4i, p4r

from tests.support.bmv2 import Program, Table, UnsupportedError

from .status import INVALID_ARGUMENT, Refused

MATCH_KINDS = {
    p4i.MatchField.EXACT: "exact",
    p4i.MatchField.LPM: "lpm",
    p4i.MatchField.TERNARY: "ternary",
    p4i.MatchField.RANGE: "range",
    p4i.MatchField.OPTIONAL: "optional",
}


def _index(items: Iterable[Any]) -> dict[int, Any]:
    return {item.preamble.id: item for item in items}


class Pipeline:
    """A configuration that was accepted, with the state it has gathered."""

    def __init__(self, config: p4r.ForwardingPipelineConfig, seed: int = 0) -> None:
        self.config = p4r.ForwardingPipelineConfig()
        self.config.CopyFrom(config)
        info = self.config.p4info
        self.tables: dict[int, p4i.Table] = _index(info.tables)
        self.actions: dict[int, p4i.Action] = _index(info.actions)
        self.counters: dict[int, p4i.Counter] = _index(info.counters)
        self.direct_counters: dict[int, p4i.DirectCounter] = {
            c.direct_table_id: c for c in info.direct_counters
        }
        # Groups and sessions as the controller wrote them; the program has what they come to.
        self.groups: dict[int, p4r.MulticastGroupEntry] = {}
        self.sessions: dict[int, p4r.CloneSessionEntry] = {}
        self.program = self._load(seed)
        self._check()

    @staticmethod
    def match_kind(field: p4i.MatchField, in_table: bool = False) -> str:
        """How a field is matched. The compiler makes of an optional match a ternary one."""
        kind = MATCH_KINDS.get(field.match_type, "unspecified")
        return "ternary" if in_table and kind == "optional" else kind

    def table(self, info: p4i.Table) -> Table:
        """The table that a P4Info's is."""
        return self.program.tables[info.preamble.name]

    def _load(self, seed: int) -> Program:
        try:
            return Program(json.loads(self.config.p4_device_config), seed)
        except UnsupportedError as error:
            raise Refused(INVALID_ARGUMENT, f"the program cannot be realised: {error}") from error
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise Refused(INVALID_ARGUMENT, f"not a BMv2 program: {error!r}") from error

    def _check(self) -> None:
        ids = [*self.tables, *self.actions, *self.counters]
        if len(ids) != len(set(ids)) or 0 in ids:
            raise Refused(INVALID_ARGUMENT, "the P4Info has an id twice, or 0")
        if not self.tables and len(self.program.tables) > 0 and not self.config.p4info.HasField("pkg_info"):
            raise Refused(INVALID_ARGUMENT, "no P4Info")
        for info in self.tables.values():
            table = self.program.tables.get(info.preamble.name)
            if table is None:
                raise Refused(INVALID_ARGUMENT, f"the program has no table {info.preamble.name}")
            promised = [(f.name, self.match_kind(f, in_table=True), f.bitwidth) for f in info.match_fields]
            if promised != [(key.name, key.kind, key.bits) for key in table.keys]:
                raise Refused(
                    INVALID_ARGUMENT, f"the program's table {table.name} has other keys: {promised}"
                )
            for ref in info.action_refs:
                self._check_action(info, table, self.actions.get(ref.id))
        for counter in self.counters.values():
            cells = self.program.counters.get(counter.preamble.name)
            if cells is None or len(cells) != counter.size:
                raise Refused(INVALID_ARGUMENT, f"the program's counter {counter.preamble.name} is another")

    @staticmethod
    def _check_action(info: p4i.Table, table: Table, action: p4i.Action | None) -> None:
        if action is None or action.preamble.name not in table.actions:
            raise Refused(INVALID_ARGUMENT, f"the program's table {info.preamble.name} lacks an action")
        promised = [(p.name, p.bitwidth) for p in action.params]
        if promised != [(p.name, p.bits) for p in table.actions[action.preamble.name].parameters]:
            raise Refused(
                INVALID_ARGUMENT, f"the program's action {action.preamble.name} has other parameters"
            )
