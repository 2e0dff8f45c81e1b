"""How long a message of gradients may take before its sender abandons unsent blocks within the budget.

A link that is slower than the others holds up every rank, and its sender cannot see that the others are faster. So the
ranks exchange, once a step, how long the fastest message of each buffer took; the least of these is what the buffer
takes on a free network. A message that takes longer than that by PATIENCE_FACTOR is on a network short of capacity: its
least important unsent blocks are abandoned within the budget, and wait for the next step like all abandoned values. On
a network with equal links, no sender runs out of patience.

The exchange runs beside the next step's buffers and counts from the step after: no step waits for it.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Literal

import torch

from dlcp.torch.tensors import span
from dlcp.transport.communicator import DataType, Reduction

if TYPE_CHECKING:
    from dlcp.transport.communicator import Communicator
    from dlcp.transport.work import Work

PatienceRule = float | Literal["auto"] | None
"""Seconds; "auto": by what the fastest messages of all ranks take; None: without end."""

PATIENCE_FACTOR = 1.5
"""Half a link's rate, the mildest of what a bad cable negotiates down to, takes twice as long. With 1.25, ranks whose
links were alike abandoned 2.2 % of 5 (bench gradient_lab, a busy host)."""
SLACK_S = 1e-3
"""Added to it: the scheduling delay of threads, so that a slow wake-up does not cost a small buffer its blocks."""
STEPS = 8
"""The median over so many steps counts."""
LEAST_RANKS = 3
"""Between two ranks there is one link: nothing to compare it with."""


Key = tuple[str, int, int]
"""Of a buffer: Layout.place."""


class Patience:
    """The time that each buffer of a step may take, learned from earlier steps. Not thread-safe."""

    def __init__(self, rule: PatienceRule) -> None:
        self.rule = rule
        self._groups: dict[Hashable, _Account] = {}

    def asks(self, size: int) -> bool:
        """Whether the ranks of a group of this size exchange how long messages took."""
        return self.rule == "auto" and size >= LEAST_RANKS

    def of(self, group: Hashable, key: Key) -> float | None:
        """Patience for a buffer of a group, seconds from its start; None: without end."""
        if self.rule != "auto":
            return self.rule
        account = self._groups.get(group)
        usual = None if account is None else account.usual.get(key)
        return statistics.median(usual) * PATIENCE_FACTOR + SLACK_S if usual else None

    def note(self, group: Hashable, key: Key, fastest_s: float) -> None:
        """Records how long the fastest message of a buffer of this step took; 0: there was none."""
        if group in self._groups:
            self._groups[group].took[key] = fastest_s

    def begin_step(self, group: Hashable, communicator: Communicator) -> None:
        """Sends the other ranks the times of the step that has ended, and receives theirs of the step before it.

        `communicator`: of the group's ranks, for nothing else. All ranks call it before the group's first buffer of a
        step, where `asks` says so. Blocks if the collective that was started a step ago is still pending. Raises the
        collective's errors.
        """
        account = self._groups.setdefault(group, _Account())
        if account.under_way is not None:
            work, shared, keys = account.under_way
            account.under_way = None
            work.wait()
            account.learn(keys, shared.tolist())
        took, account.took = account.took, {}
        if took:
            # Ranks may start their buffers in different orders.
            keys = sorted(took)
            # A buffer without messages has no time.
            shared = torch.tensor(
                [took[key] if took[key] > 0 else math.inf for key in keys], dtype=torch.float32
            )
            work = communicator.all_reduce(span(shared), DataType.f32, Reduction.MIN, keep=shared)
            account.under_way = work, shared, keys


class _Account:
    """What is known of one group's buffers."""

    def __init__(self) -> None:
        self.took: dict[Key, float] = {}
        self.usual: dict[Key, deque[float]] = {}
        self.under_way: tuple[Work, torch.Tensor, list[Key]] | None = None

    def learn(self, keys: list[Key], least: list[float]) -> None:
        # Buckets that torch has cut anew since are forgotten.
        self.usual = {key: self.usual.get(key) or deque(maxlen=STEPS) for key in keys}
        for key, each in zip(keys, least, strict=True):
            if each < math.inf:
                self.usual[key].append(each)
