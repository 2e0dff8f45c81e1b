"""Keeps what codes leave of values, on both sides of a sum, and adds it to the next one (error feedback).

    kept = memory.open(FROM_SENDER, key, layout)   # before the collective: what the last code left, room for the next
    …                                              # the encoder reads kept.before and writes kept.after
    memory.end_step(applied=True)                  # after the optimizer's step: what was written counts from now on

A *stream* is a flat float32 tensor of all coded values of one buffer, with a layout that says which parameter lies
where. There are two copies of it: a step that the optimizer skips never was, so what was kept before it is not
overwritten. That is 8 bytes per coded value, and per value that this rank adds. A stream is dissolved by name and
offset, and what lies in a new stream's place goes into it: when its key has another layout (its rank owns another
part), or when no buffer asks for it and another stream has its parameters (torch has cut its buckets anew).

Invariant, per element and rank: v = value + kept before, rounded once, is what the code says + kept after, as an
equality of floats, but for what is not finite: that is written off, uncounted, and the values beside it stay whole.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.torch.gradient.residual.memory import ResidualMemory
from dlcp.torch.gradient.residual.report import ResidualReport, WriteOffs
from dlcp.torch.gradient.residual.rule import ResidualRule

FROM_SENDER = "sender"
"""What a contribution's code left, in the unit of the buffer."""
FROM_OWNER = "owner"
"""What the sum's code left, in the unit of the result."""
SIDES = (FROM_SENDER, FROM_OWNER)
_WHOLE = ResidualRule(decay=1.0)
_CPU = torch.device("cpu")


@dataclass(slots=True)
class KeptStream:
    """What is kept of one stream."""

    layout: Layout
    before: torch.Tensor
    """float32 [layout.numel], on the device of its buffer or on the host: kept when the step began."""
    after: torch.Tensor
    """As `before`: kept once the step was applied; defined if the stream was opened in this step."""
    scale: float
    """The loss scale of the gradients that `before` is of."""
    factor: float = 1.0
    """What `before` is multiplied by, to be in the unit of this step's gradients."""
    opened: bool = False
    """Whether a buffer of this step has it."""
    waiting: list[tuple[Segment, torch.Tensor]] = field(default_factory=list)
    """What `before` had of unused parameters, where it has 0 in this step."""
    unit: int = 1
    """What one of its values is worth as a contribution: the number of ranks, of a mean that an owner made."""

    def end_waiting(self) -> None:
        """What waits is kept again, and with it what the step left of its parameters."""
        for segment, values in self.waiting:
            place = slice(segment.begin, segment.end)
            self.before[place] = values
            self.after[place].add_(values, alpha=self.factor)
        self.waiting.clear()


class FeedbackMemory:
    """The streams of one rank. Not thread-safe, but for what encoders do to the memory of opened streams.

    `sides`: the names of what is kept; a stream is of one.
    """

    def __init__(self, sides: Sequence[str] = SIDES) -> None:
        self._sides = tuple(sides)
        self._scale = 1.0
        self._streams: dict[tuple[str, Hashable], KeptStream] = {}
        # Of no stream: loaded, or dissolved.
        self._loose = {side: ResidualMemory(_WHOLE) for side in self._sides}
        self._dropped = WriteOffs()
        self._skipped = 0
        self.has_owners = True
        """Whether ranks own sums; else a hub does, and what was loaded for owners is the sender's."""

    # --- a step ---------------------------------------------------------------------------------------------

    @property
    def scale(self) -> float:
        """The loss scale of the step's gradients."""
        return self._scale

    def begin_step(self, loss_scale: float) -> None:
        """A step begins, whose gradients are multiplied by `loss_scale`."""
        self._scale = loss_scale

    def open(
        self,
        side: str,
        key: Hashable,
        layout: Layout,
        unit: int = 1,
        device: torch.device = _CPU,
        unused: Collection[str] = (),
    ) -> KeptStream:
        """The stream of a buffer for this step.

        `key`: the same in every step for what follows on each other. `unit`: see Stream. `device`: where it is kept
        from now on. `unused`: what is kept of these parameters waits; what the step leaves of them is added to it.
        """
        stream = self._streams.get((side, key))
        if stream is not None and stream.layout is not layout and stream.layout != layout:
            self._release(side, key)
            stream = None
        if stream is None:
            self._dissolve(side, layout)
            before, after = (torch.zeros(layout.numel, device=device) for _ in range(2))
            stream = self._streams[side, key] = KeptStream(layout, before, after, self._scale, unit=unit)
            self._adopt(side, stream)
        elif side == FROM_SENDER and self._loose[side].report().elements:
            # What an owner kept of elements that another rank owns now.
            self._adopt(side, stream)
        if stream.before.device != device:
            stream.before, stream.after = stream.before.to(device), torch.zeros(layout.numel, device=device)
        stream.factor = self._scale / stream.scale
        stream.opened = True
        for segment in layout.segments if unused else ():
            if segment.name in unused:
                values = stream.before[segment.begin : segment.end]
                stream.waiting.append((segment, values.clone()))
                values.zero_()
        return stream

    def close_owner(self, key: Hashable) -> None:
        """A hub owns the buffer's sums from now on: what this rank kept of them is its sender's. Before that opens."""
        self.has_owners = False
        if (FROM_OWNER, key) in self._streams:
            self._release(FROM_OWNER, key)

    def discard(self, names: Collection[str]) -> None:
        """The optimizer does not get what came of these parameters: for them the step never was. Before its end."""
        for stream in self._streams.values():
            stream.end_waiting()
            for segment in stream.layout.segments if stream.opened else ():
                if segment.name in names:
                    place = slice(segment.begin, segment.end)
                    torch.mul(stream.before[place], stream.factor, out=stream.after[place])

    def end_step(self, *, applied: bool) -> ResidualReport:
        """The optimizer has made its step; or skipped it: then what was kept before is kept again."""
        for stream in self._streams.values():
            stream.end_waiting()
            if stream.opened and applied:
                stream.before, stream.after = stream.after, stream.before
                stream.scale = self._scale
            stream.opened = False
        self._skipped += not applied
        self._pass_on()
        return self.report()

    def report(self) -> ResidualReport:
        """What is kept; without its norm, which would read all of it."""
        elements = sum(segment.count for one in self._streams.values() for segment in one.layout.segments)
        loose = [each.report() for each in self._loose.values()]
        return ResidualReport(
            nbytes=4 * elements + sum(each.nbytes for each in loose),
            elements=elements + sum(each.elements for each in loose),
            norm=None,
            age=max([1 if elements else 0, *(each.age for each in loose)]),
            step=WriteOffs().written_off(),
            total=self._dropped.written_off(),
            skipped=self._skipped,
        )

    # --- what outlives the run ------------------------------------------------------------------------------

    def reset(self, names: Iterable[str] | None) -> None:
        """Writes off what is kept of these parameters; None: of all. Between steps."""
        chosen = None if names is None else frozenset(names)
        for stream in self._streams.values():
            for segment in stream.layout.segments:
                if chosen is None or segment.name in chosen:
                    values = stream.before[segment.begin : segment.end]
                    norm = float(torch.linalg.vector_norm(values, dtype=torch.float64)) / stream.scale
                    self._dropped.note_dropped(segment.count, 4 * segment.count, norm**2)
                    values.zero_()
        for loose in self._loose.values():
            before = loose.report()
            loose.reset(chosen)
            now = loose.report()
            self._dropped.note_dropped(
                before.elements - now.elements,
                before.nbytes - now.nbytes,
                max(0.0, (before.norm or 0.0) ** 2 - (now.norm or 0.0) ** 2),
            )

    def state_dict(self) -> dict[str, Any]:
        """By side, what ResidualMemory.state_dict() says, all in the unit of contributions. Between steps."""
        states = {}
        for side in self._sides:
            copy = ResidualMemory(_WHOLE)
            copy.load_state_dict(self._loose[side].state_dict())
            for (of_side, _), stream in self._streams.items():
                if of_side == side:
                    _put(copy, stream)
            states[side] = copy.state_dict()
        return states

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces all that is kept. Raises ValueError."""
        loose = {side: ResidualMemory(_WHOLE) for side in self._sides}
        for side in self._sides:
            loose[side].load_state_dict(state[side])
        self._loose, self._streams, self._dropped, self._skipped = loose, {}, WriteOffs(), 0

    def _dissolve(self, side: str, layout: Layout) -> None:
        """Streams that no buffer of this step has, and that hold parameters of `layout`, become loose values.

        Owners' become the sender's: their elements may have another owner now, and any rank may add to a sum.
        """
        names = set(layout.names())
        sides = SIDES if side == FROM_SENDER else (side,)
        for (of_side, key), stream in list(self._streams.items()):
            if of_side in sides and not stream.opened and names.intersection(stream.layout.names()):
                self._release(of_side, key)

    def _release(self, side: str, key: Hashable) -> None:
        """A stream's values become loose ones; an owner's become the sender's."""
        _put(self._loose[FROM_SENDER if side == FROM_OWNER else side], self._streams.pop((side, key)))

    def _adopt(self, side: str, stream: KeptStream) -> None:
        """Loose values of a stream's elements become the stream's."""
        loose = self._loose[side]
        loose.scale = stream.scale / stream.unit
        # Loose values are on the host, whatever a stream's device: it is rare, and the state is saved from there.
        values = stream.before.cpu()
        loose.add_to(values, stream.layout)
        loose.end_step()
        if values is not stream.before:
            stream.before.copy_(values)

    def _pass_on(self) -> None:
        """What was loaded for an owner, and belongs to no part that this rank adds: its sender's from now on."""
        if FROM_OWNER not in self._loose or not self._loose[FROM_OWNER].report().elements:
            return
        if self.has_owners and not any(side == FROM_OWNER for side, _ in self._streams):
            return
        left, kept = self._loose[FROM_OWNER].state_dict(), self._loose[FROM_SENDER].state_dict()
        self._loose[FROM_SENDER].load_state_dict(kept | {"batches": kept["batches"] + left["batches"]})
        self._loose[FROM_OWNER] = ResidualMemory(_WHOLE)


def _put(memory: ResidualMemory, stream: KeptStream) -> None:
    """Values of no stream are in the unit of contributions, whoever kept them."""
    memory.scale = stream.scale / stream.unit
    memory.keep(stream.before.cpu(), stream.layout, [(one.begin, one.end) for one in stream.layout.segments])
    memory.end_step()
