"""A program as P4Runtime knows it: P4Info and device configuration, and the names, ids and widths in its P4Info.

Two pipelines are the same if their contents are; the cookie only makes that cheap to see. The messages are finsy's,
so that everything that deploys speaks one set of protocol buffers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from finsy.proto import p4i
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from dlcp.switch.deploy.errors import ProgramError
from dlcp.switch.printable import printable
from dlcp.switch.programs import Program


@dataclass(frozen=True)
class Pipeline:
    """A program with its interface."""

    p4info: bytes
    """A serialised p4.config.v1.P4Info."""
    device_config: bytes
    """What the target runs; of BMv2, its JSON."""
    cookie: int = 0
    """What the controller that set it gave it; 0 if none."""

    @classmethod
    def of(cls, program: Program) -> Pipeline:
        """One of our programs. Its cookie is a hash of it, so that another version has another one."""
        p4info = text_format.Parse(program.p4info, p4i.P4Info()).SerializeToString(deterministic=True)
        digest = hashlib.sha256(p4info + b"\0" + program.json).digest()
        return cls(p4info, program.json, int.from_bytes(digest[:8], "big"))

    def is_same(self, other: Pipeline) -> bool:
        """Whether both are the same program, whatever their cookies."""
        return self.device_config == other.device_config and self._info == other._info

    @cached_property
    def _info(self) -> p4i.P4Info:
        try:
            info: p4i.P4Info = p4i.P4Info.FromString(self.p4info)
            return info
        except DecodeError:
            raise ProgramError("the switch's P4Info cannot be read") from None

    @cached_property
    def schema(self) -> Schema:
        return Schema.of(self._info)

    def title(self) -> str:
        """A few words for people: name and version if the program gives them, else its tables."""
        package = self._info.pkg_info
        if package.name:
            return printable(f"{package.name} {package.version}".strip())
        tables = [table.preamble.alias for table in self._info.tables]
        if not tables:
            return "a program without tables"
        shown = ", ".join(tables[:4])
        return printable(f"a program with the tables {shown}{', …' if len(tables) > 4 else ''}")


@dataclass(frozen=True)
class TableSchema:
    """A table of a P4Info, with its match fields and actions by name."""

    info: p4i.Table
    fields: Mapping[str, p4i.MatchField]
    actions: Mapping[str, p4i.Action]

    @property
    def id(self) -> int:
        return int(self.info.preamble.id)

    @property
    def needs_priority(self) -> bool:
        kinds = (p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL)
        return any(field.match_type in kinds for field in self.fields.values())


@dataclass(frozen=True)
class Schema:
    """What stands behind the names of a P4Info, which are as short as they are unique in it."""

    tables: Mapping[str, TableSchema]
    counters: Mapping[str, int]
    """Name → id."""

    @classmethod
    def of(cls, info: p4i.P4Info) -> Schema:
        actions = {action.preamble.id: action for action in info.actions}
        tables = {}
        for table in info.tables:
            found = [actions[reference.id] for reference in table.action_refs if reference.id in actions]
            tables[table.preamble.alias] = TableSchema(
                table,
                {field.name: field for field in table.match_fields},
                {action.preamble.alias: action for action in found},
            )
        return cls(tables, {c.preamble.alias: c.preamble.id for c in info.counters})

    def table(self, name: str) -> TableSchema:
        """ProgramError if the program has no such table."""
        if name not in self.tables:
            raise ProgramError(f"the program has no table {name!r}; it has {', '.join(self.tables)}")
        return self.tables[name]

    def action(self, table: str, name: str) -> p4i.Action:
        """ProgramError if the table has no such action."""
        actions = self.table(table).actions
        if name not in actions:
            raise ProgramError(f"table {table!r} has no action {name!r}; it has {', '.join(actions)}")
        return actions[name]
