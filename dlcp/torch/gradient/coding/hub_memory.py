"""What a hub keeps of the sums that it codes for this state's buffers: feedback at the owner, where no rank is one.

    memory = HubMemory()
    found = memory.open(key, layout, hub_group, Sums("int8", groups, False), scale)    # kept, factor: for CodedRules
    memory.end_step(applied=True)

A row of sums goes on as long as its buffer has one layout. Where another takes its place, what the hub kept of the old
one is written off: half a code of each value at most. So it is where a state is loaded, and with parameters that no
rank used in a step: what is at the hub is not saved, and is not set aside by parameter.

A row for which the hub has no memory when it begins stays with the ranks. All ranks decide so alike, from what the hub
keeps at that place among their collectives. Buffers with numbers may come in another order on each rank: ranks make
their first sums, and the step's end decides about all of them, in the order of the numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from dlcp.torch.gradient.layout import Layout
from dlcp.transport.hub.coded import KeptAtHub
from dlcp.transport.hub.group import HubGroup


class Sums(NamedTuple):
    """Of one row."""

    codec: str
    """The one with the most bits."""
    groups: int
    """How many groups of values."""
    scattered: bool
    """Whether each rank gets a part of the sum."""


@dataclass(slots=True)
class _Row:
    """What is kept for one buffer."""

    layout: Layout
    group: HubGroup
    sums: Sums
    scale: float
    """The loss scale of the gradients that it is of."""
    number: int | None
    """By which the step's end decides about it, in this order; None: it is decided."""
    kept: KeptAtHub = field(default_factory=KeptAtHub)
    is_there: bool = False
    """Whether the hub makes its sums; else ranks do."""
    opened: bool = True
    """Whether a buffer of this step has it."""

    def decide(self) -> None:
        """Asks the group for the memory."""
        self.number, self.is_there = None, self.group.keep(self.kept, *self.sums)


class HubMemory:
    """Of one state. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, _Row] = {}
        self._scale = 1.0
        # A recipe that is not chosen leaves nothing at the hub.
        weakref.finalize(self, _abandon, self._rows).atexit = False

    def open(
        self,
        key: Hashable,
        layout: Layout,
        group: HubGroup,
        sums: Sums,
        scale: float,
        number: int | None = None,
    ) -> tuple[KeptAtHub, float] | None:
        """What is kept for a buffer, and what to multiply it by; None: ranks make this sum, and keep what it leaves.

        `scale`: the loss scale of the step. `number`: of the sum, if ranks may start sums in different orders.
        """
        row = self._rows.get(key)
        if row is None or row.group is not group or row.layout != layout:
            names = set(layout.names())
            self._drop(
                lambda each: (
                    each is row or (not each.opened and bool(names.intersection(each.layout.names())))
                )
            )
            row = self._rows[key] = _Row(layout, group, sums, scale, number)
            if number is None:
                row.decide()
        row.opened = True
        self._scale = scale
        if not row.is_there:
            return None
        return row.kept, scale / row.scale

    def end_step(self, *, applied: bool) -> None:
        """The optimizer has made its step; or skipped it: then what was kept before is kept again."""
        for row in self._rows.values():
            if row.opened:
                row.kept.end_step(applied=applied)
                row.scale = self._scale if applied else row.scale
            row.opened = False
        undecided = [row for row in self._rows.values() if row.number is not None]
        for row in sorted(undecided, key=lambda row: row.number or 0):
            row.decide()

    def reset(self, names: Collection[str] | None) -> None:
        """Writes off what is kept of buffers that have one of these parameters; None: of all. Between steps."""
        self._drop(lambda row: names is None or not set(row.layout.names()).isdisjoint(names))

    def _drop(self, is_gone: Callable[[_Row], bool]) -> None:
        gone = {key: row for key, row in self._rows.items() if is_gone(row)}
        for key, row in gone.items():
            row.group.forget(row.kept)
            del self._rows[key]


def _abandon(rows: dict[Hashable, _Row]) -> None:
    for row in rows.values():
        row.group.abandon(row.kept)
