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
Scale = Literal["largest", "least squares"]
"""Of a group: the least that its largest value's code reaches, or, of those codes, the one that leaves least (L2)."""
Capacity = Literal["fixed", "log-normal", "slow rank", "cross traffic"]
"""What decides how much a rank sends in a step beyond the base: see capacity.py."""
CAPACITIES: tuple[Capacity, ...] = get_args(Capacity)

WARMUP_CODEC = "int8"
SCALE_BITS = 16
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
    returned: str = ""
    """The codec of the sum; "": as of contributions. This and what follows: of a flat code alone."""
    warmup_steps: int = 0
    """The first ones, in which all travels in WARMUP_CODEC."""
    scale_values: int = GROUP_VALUES
    """Values that share a scale: a divisor of GROUP_VALUES."""
    scale: Scale = "largest"
    turned: bool = False
    """Whether groups of GROUP_VALUES are turned by Hadamard's matrix before they are coded, and back afterwards."""

    @property
    def name(self) -> str:
        """For people: "int2 + 47 % of int4, random"."""
        words = f"{self.codec} up, {self.returned} down" if self.returned else self.codec
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
        if self.warmup_steps:
            words += f", {WARMUP_CODEC} in the first {self.warmup_steps} steps"
        if self.scale_values != GROUP_VALUES:
            words += f", groups of {self.scale_values}"
        if self.scale != "largest":
            words += f", scales by {self.scale}"
        return words + ", turned" if self.turned else words

    @property
    def bits(self) -> float:
        """Of a value, in the mean, by the formula; what was really sent is counted. Without the first steps' more."""
        if self.codec == DENSE:
            return 32.0
        if self.wider:
            return self.wider_bits
        up, down = (bits_of(codec, self.scale_values) for codec in (self.codec, self.returned or self.codec))
        return (up + down) / 2 + (self.share * self.layers * bits_of(self.refinement) if self.layers else 0.0)


def bits_of(codec: str, scale_values: int = GROUP_VALUES) -> float:
    """Bits that a value takes, its part of the scale included, which so many values share."""
    scales = SCALE_BITS * (1 / scale_values - 1 / GROUP_VALUES) if CODECS[codec].is_scaled else 0.0
    return 8 * CODECS[codec].group_bytes / GROUP_VALUES + scales
