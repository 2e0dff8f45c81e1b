"""The report of a residual memory: how much it keeps and how much was written off."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class WrittenOff:
    """Kept values that no step will get, by reason. Bytes are those that the values had in their buffers.

    A norm is the L2 norm of all single losses, unscaled. What decay takes is a share of values that stay kept: it has a
    norm and no bytes. What is not finite has bytes and no norm.
    """

    nbytes: int
    """Expired, not finite, and dropped."""
    expired_elements: int
    """Waited too long, or decay is 0."""
    not_finite_elements: int
    dropped_elements: int
    """By reset() and retain(): of no step, so in totals alone."""
    norm: float
    """Of all that follow."""
    expired_norm: float
    decayed_norm: float
    dropped_norm: float


@dataclass(frozen=True, slots=True)
class ResidualReport:
    """A residual memory at one moment."""

    nbytes: int
    """Kept, in bytes that the values had in their buffers."""
    elements: int
    norm: float | None
    """L2, of all kept values, unscaled; None: not counted."""
    age: int
    """Steps that the oldest kept value has waited."""
    step: WrittenOff
    """In the step that ended last; nothing if that was skipped."""
    total: WrittenOff
    """Since the memory was made or loaded."""
    skipped: int
    """Steps that were taken back."""


@dataclass(slots=True)
class WriteOffs:
    """Counts behind WrittenOff. Energies are sums of squares."""

    nbytes: int = 0
    expired_elements: int = 0
    not_finite_elements: int = 0
    dropped_elements: int = 0
    expired_energy: float = 0.0
    decayed_energy: float = 0.0
    dropped_energy: float = 0.0

    def __iadd__(self, other: WriteOffs) -> WriteOffs:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def note_expired(self, elements: int, nbytes: int, energy: float) -> None:
        """These have waited too long."""
        self.expired_elements += elements
        self.nbytes += nbytes
        self.expired_energy += energy

    def note_decayed(self, energy: float) -> None:
        """Decay took a share of values with this energy."""
        self.decayed_energy += energy

    def note_not_finite(self, elements: int, nbytes: int) -> None:
        """These were infinite or no numbers."""
        self.not_finite_elements += elements
        self.nbytes += nbytes

    def note_dropped(self, elements: int, nbytes: int, energy: float) -> None:
        """The user dropped these."""
        self.dropped_elements += elements
        self.nbytes += nbytes
        self.dropped_energy += energy

    def written_off(self) -> WrittenOff:
        """The same with norms."""
        return WrittenOff(
            nbytes=self.nbytes,
            expired_elements=self.expired_elements,
            not_finite_elements=self.not_finite_elements,
            dropped_elements=self.dropped_elements,
            norm=math.sqrt(self.expired_energy + self.decayed_energy + self.dropped_energy),
            expired_norm=math.sqrt(self.expired_energy),
            decayed_norm=math.sqrt(self.decayed_energy),
            dropped_norm=math.sqrt(self.dropped_energy),
        )
