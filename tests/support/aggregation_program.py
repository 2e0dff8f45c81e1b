"""The compiled program of a switch that adds, in the interpreter of BMv2's JSON. It is used as the twin is."""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.switch.entries import Entry, MulticastGroup, TableEntry
from tests.support.aggregation_twin import keys_of, numbered
from tests.support.bmv2 import Program
from tests.support.bmv2.v1model import Replica


class InterpretedSwitch:
    """One switch: entries in, frames in, frames out."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def write(self, entries: Sequence[Entry]) -> None:
        """Adds entries and groups."""
        for entry in entries:
            if isinstance(entry, MulticastGroup):
                replicas = [Replica(port, instance) for port, instance in numbered(entry.ports)]
                self.program.set_group(entry.group_id, replicas)
            elif isinstance(entry, TableEntry):
                self.program.insert(entry.table, keys_of(entry), entry.action, dict(entry.params))

    def process(self, raw: bytes, port: int) -> list[tuple[int, bytes]]:
        """What leaves."""
        return self.program.process(raw, port)
