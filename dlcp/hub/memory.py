"""Memory of keys at a core: of one collective, and what stays: weights with an optimizer's state, what codes left."""

from __future__ import annotations

import math

import numpy as np

from dlcp import _native
from dlcp.transport.hub.announcement import Announcement, AnnouncementKind
from dlcp.transport.hub.coded import CodedTerms
from dlcp.transport.hub.plan import KEY_ALIGNMENT_BYTES, OBJECT_BYTES
from dlcp.transport.span import Span


class Memory:
    """Memory for the keys of one collective, each on cache lines of its own."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        places = []
        at = 0
        for size in sizes:
            places.append(at)
            at += -(-size // KEY_ALIGNMENT_BYTES) * KEY_ALIGNMENT_BYTES
        self.sizes = sizes
        self._array = np.empty(at + KEY_ALIGNMENT_BYTES, np.uint8)
        self.nbytes = self._array.nbytes + OBJECT_BYTES
        start = -(-self._array.ctypes.data // KEY_ALIGNMENT_BYTES) * KEY_ALIGNMENT_BYTES
        self.spans = [Span(start + place, size) for place, size in zip(places, sizes, strict=True)]

    def clear(self) -> None:
        """All zeros."""
        self._array.fill(0)


class Weights:
    """Weights of a group's keys at this core, and an optimizer's state beside them."""

    def __init__(self, memory: Memory, states: int) -> None:
        self.memory = memory
        self.states = [Memory(memory.sizes) for _ in range(states)]
        for state in self.states:
            state.clear()
        self.nbytes = memory.nbytes * (1 + states)

    @property
    def arrays(self) -> tuple[Memory, ...]:
        """The memory as it is now, of the weights and of the state."""
        return (self.memory, *self.states)

    def replace_state(self, part: int, memory: Memory) -> None:
        """Another array for the state `part`, from 1. Raises ValueError: there is none."""
        if part > len(self.states):
            raise ValueError(f"part {part} of weights with {len(self.states)} states")
        self.states[part - 1] = memory

    def update(self, said: Announcement, vml_square_root: int | None) -> _native.UpdateRules:
        """The rules of a step, or of reading. Raises ValueError: another optimizer, or values out of range.

        `vml_square_root`: the address of torch's own square root; None: roots are rounded to nearest.
        """
        if said.kind is AnnouncementKind.FETCH:
            if said.part > len(self.states):
                raise ValueError(f"part {said.part} of weights with {len(self.states)} states")
            # w - 0 * 0 is w, whatever it is: a step that changes nothing sends what is there.
            read = self.states[said.part - 1] if said.part else self.memory
            return _native.UpdateRules(_native.Sgd(0.0), 1, 1, _addresses(read), [])
        assert said.rule is not None
        return _native.UpdateRules(
            said.rule.native(),
            said.step,
            max(1, said.average_over),
            _addresses(self.memory),
            [_addresses(state) for state in self.states],
            vml_square_root,
        )


class RowResidual:
    """What the codes of a row of sums leave of this core's keys: of two arrays a sum reads one, and writes one."""

    def __init__(self, values: int) -> None:
        self.values = values
        self.arrays = [np.zeros(values, np.float32) for _ in range(2)]
        self.nbytes = 8 * values + OBJECT_BYTES

    def rules(self, terms: CodedTerms) -> _native.CodedRules:
        """Of a sum. Raises ValueError: a factor that is no number."""
        if not math.isfinite(terms.factor):
            raise ValueError(f"factor {terms.factor}")
        after = self.arrays[terms.after - 1]
        if not terms.before:
            after.fill(0)
        before = self.arrays[terms.before - 1] if terms.before else after
        return _native.CodedRules(terms.codec, before.ctypes.data, after.ctypes.data, terms.factor)


def _addresses(memory: Memory) -> list[int]:
    return [span.address for span in memory.spans]
