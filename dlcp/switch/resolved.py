"""A policy as the integers that every target takes: P4 tables, the software switch, the simulator, a Tofino.

Pure data, made by `Policy.resolved()`. It is the one place that says what stands for "never", what a ratio is rounded
to, and what trimmed packets are marked with. What a target adds (numbers of ports, cells, widths) is the target's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NEVER_BYTES = 2**32 - 1
"""A threshold that is never met, a buffer without end; `never` in native/switch/policy.hpp."""
MARK_STEPS = 16
"""In how many steps the ratio rises between two thresholds; `mark_steps` in native/switch/decision.hpp."""
RATIO_ONE = 2**16
"""What ratios are counted in."""
RATIO_MAX = RATIO_ONE - 1
"""The nearest to "always" that sixteen bits hold."""


class ResolvedThresholds(NamedTuple):
    """`Thresholds` of one level of one class, in the order in which the C++ policies take them."""

    mark_from_bytes: int
    mark_full_bytes: int
    mark_ratio: int
    """Of RATIO_ONE, 0 to RATIO_MAX, rounded to the nearest."""
    trim_above_bytes: int
    drop_above_bytes: int


@dataclass(frozen=True)
class ResolvedPolicy:
    """What holds at one port."""

    thresholds: tuple[tuple[ResolvedThresholds, ...], ...]
    """By class 0 to 7, then by level: eight droppable ones, least important first, then the critical one."""
    port_bytes: int
    """What may wait at the port; NEVER_BYTES: no limit of the port's own."""
    shared_bytes: int
    """The buffer of the whole switch; 0: none is shared."""
    trimmed_dscp: int | None
    """Written into trimmed packets: the first DSCP value of the class they go on in. None: theirs stays."""


def resolved_ratio(ratio: float) -> int:
    """A ratio of 0 to 1 in parts of RATIO_ONE."""
    return min(round(ratio * RATIO_ONE), RATIO_MAX)
