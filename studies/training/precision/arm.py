"""A way to exchange gradients: the code of every value, more bits where there is room, and what decides where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dlcp.transport.coded import CODECS, GROUP_VALUES

DENSE = "fp32"
"""The codec of an exchange without a code."""
Feedback = Literal["both", "sender", "none"]
"""Who keeps what a code leaves, and adds it to the next step's: sender and owner, the sender alone, nobody."""
Order = Literal["importance", "random"]
"""Which blocks of a refinement come first: those of which the layers before leave most (L2), or any."""
Capacity = Literal["fixed", "log-normal", "slow rank", "cross traffic"]
"""What decides how much a rank sends in a step beyond the base: see capacity.py."""
CAPACITIES: tuple[Capacity, ...] = get_args(Capacity)

PACKET_GROUPS = 40
"""Groups of a block: what a packet of 1500 bytes carries of 4-bit codes."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to exchange gradients."""

    codec: str
    """Of every value: a name in dlcp.transport.coded.CODECS, or DENSE."""
    feedback: Feedback = "both"
    refinement: str = ""
    """The codec of each refinement layer, which codes what the layers before leave; "": none."""
    layers: int = 0
    """Of refinement."""
    share: float = 0.0
    """Of the refinement's blocks that are sent, in the mean over ranks and steps."""
    wider: tuple[str, ...] = ()
    """In place of a refinement: codecs of more bits, of which a rank uses the widest that its capacity carries, for all
    values. The sender decides, and knows the step's capacity beforehand."""
    wider_bits: float = 0.0
    """Of a value, in the mean over ranks and steps; at least `codec`'s. Of `wider` alone."""
    order: Order = "importance"
    capacity: Capacity = "fixed"
    block_groups: int = PACKET_GROUPS
    """Groups of a block of the refinement."""

    @property
    def name(self) -> str:
        """For people: "int2 + 47 % of int4, random"."""
        words = self.codec
        if self.layers:
            times = f"{self.layers} x " if self.layers > 1 else ""
            words += f" + {100 * self.share:.0f} % of {times}{self.refinement}"
        if self.wider:
            words += f" or {' or '.join(self.wider)} by capacity"
        if self.feedback != "both":
            words += {"sender": ", residual at the sender", "none": ", no residual"}[self.feedback]
        if self.order != "importance":
            words += f", {self.order} order"
        if self.capacity != "fixed":
            words += f", {self.capacity}"
        if self.layers and self.block_groups != PACKET_GROUPS:
            words += f", blocks of {self.block_groups} groups"
        return words

    @property
    def bits(self) -> float:
        """Of a value, in the mean, by the formula; what was really sent is counted."""
        if self.codec == DENSE:
            return 32.0
        if self.wider:
            return self.wider_bits
        return bits_of(self.codec) + (
            self.share * self.layers * bits_of(self.refinement) if self.layers else 0.0
        )


def bits_of(codec: str) -> float:
    """Bits that a value takes, its part of the scale included."""
    return 8 * CODECS[codec].group_bytes / GROUP_VALUES
