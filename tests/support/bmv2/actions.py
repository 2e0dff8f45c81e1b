"""Actions: a name, parameters with widths, and steps in order, which may jump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .expressions import Step
from .packet import Packet
from .primitives import Externs, build


@dataclass(frozen=True)
class Parameter:
    """Of an action: its name and width."""

    name: str
    bits: int


class Action:
    """One action of a program."""

    def __init__(self, externs: Externs, json: dict[str, Any]) -> None:
        self.name: str = json["name"]
        self.parameters = [Parameter(each["name"], each["bitwidth"]) for each in json["runtime_data"]]
        self._steps: list[Step] = [build(externs, each) for each in json["primitives"]]
        self._jumps = any(each["op"].startswith("_jump") for each in json["primitives"])

    def run(self, packet: Packet, data: Sequence[int]) -> None:
        """Does all of it to the packet."""
        if not self._jumps:
            for step in self._steps:
                step(packet, data)
            return
        at = 0
        while at < len(self._steps):
            target = self._steps[at](packet, data)
            at = at + 1 if target is None else target
