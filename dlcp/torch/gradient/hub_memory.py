"""What a hub keeps of the sums that it codes for this state's buffers: feedback at the owner, where no rank is one.

    memory = HubMemory()
    kept, factor = memory.open(key, layout, hub_group, loss_scale)     # for CodedRules
    memory.end_step(applied=True)

A row of sums goes on as long as its buffer has one layout. Where another takes its place, what the hub kept of the old
one is written off: half a code of each value at most. So it is where a state is loaded, and with parameters that no
rank used in a step: what is at the hub is not saved, and is not set aside by parameter.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field

from dlcp.torch.gradient.layout import Layout
from dlcp.transport.hub.coded import KeptAtHub
from dlcp.transport.hub.group import HubGroup


@dataclass(slots=True)
class _Row:
    """What is kept for one buffer."""

    layout: Layout
    group: HubGroup
    scale: float
    """The loss scale of the gradients that it is of."""
    kept: KeptAtHub = field(default_factory=KeptAtHub)
    opened: bool = True
    """Whether a buffer of this step has it."""


class HubMemory:
    """Of one state. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, _Row] = {}
        self._scale = 1.0
        # A recipe that is not chosen leaves nothing at the hub.
        weakref.finalize(self, _abandon, self._rows).atexit = False

    def open(self, key: Hashable, layout: Layout, group: HubGroup, scale: float) -> tuple[KeptAtHub, float]:
        """What is kept for a buffer, and what to multiply it by. `scale`: the loss scale of the step."""
        row = self._rows.get(key)
        if row is None or row.group is not group or row.layout != layout:
            names = set(layout.names())
            self._drop(
                lambda each: (
                    each is row or (not each.opened and bool(names.intersection(each.layout.names())))
                )
            )
            row = self._rows[key] = _Row(layout, group, scale)
        row.opened = True
        self._scale = scale
        return row.kept, scale / row.scale

    def end_step(self, *, applied: bool) -> None:
        """The optimizer has made its step; or skipped it: then what was kept before is kept again."""
        for row in self._rows.values():
            if row.opened:
                row.kept.end_step(applied=applied)
                row.scale = self._scale if applied else row.scale
            row.opened = False

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
