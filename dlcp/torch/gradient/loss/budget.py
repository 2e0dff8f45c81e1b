"""How the loss budget of a step is spread over its buffers.

Each buffer brings an allowance: its bytes times the budget of its parameters. Under scope "buffer" it may spend that.
Under "step" early buffers spend less, since backward still runs while they are repaired. Later buffers may spend what
is left, the last one most, because the end of the step waits for it. The number of bytes still to come is estimated
from the previous step. It is only a guess, since torch rebuilds its buckets after the first step, and the invariant
does not depend on it:

    at every moment of a step, what was spent or may still be spent <= the allowances of the buffers so far

No buffer gets more than `loss_cap` of its bytes. The budget counts only bytes that this rank sends.
"""

from __future__ import annotations

from collections.abc import Hashable

# Weight of the first byte of a step against one in the middle; the last has 2 - this. So half of what backward hides
# anyway is repaired, and the rest of the step can still reach loss_cap.
EARLY_WEIGHT = 0.5


class StepBudget:
    """Spends the budget of one rank, step after step. Not thread-safe."""

    def __init__(self, *, loss_cap: float, whole_step: bool) -> None:
        self._loss_cap = loss_cap
        self._whole_step = whole_step
        # Bytes and allowance of all buffers of the previous step; None: there was none.
        self._expected: tuple[float, float] | None = None
        self._sent_bytes = 0.0
        self._allowed_bytes = 0.0
        # Spent by finished buffers, and assigned to pending ones.
        self._spent_bytes = 0.0
        self._given: dict[Hashable, float] = {}

    @property
    def committed_bytes(self) -> float:
        """What this step has lost, and what it may still lose with its pending buffers."""
        return self._spent_bytes + sum(self._given.values())

    def give(self, buffer: Hashable, sent_bytes: float, loss_ratio: float) -> float:
        """The fraction of its `sent_bytes` that a buffer may lose; its parameters' budget says `loss_ratio`."""
        if sent_bytes <= 0:
            return 0.0
        own_bytes = sent_bytes * loss_ratio
        before_bytes = self._sent_bytes
        self._sent_bytes += sent_bytes
        self._allowed_bytes += own_bytes
        limit_bytes = min(self._allowed_bytes - self.committed_bytes, self._loss_cap * sent_bytes)
        wanted_bytes = own_bytes
        if self._whole_step and self._expected is not None:
            wanted_bytes = self._share(before_bytes, sent_bytes)
        given_bytes = max(0.0, min(wanted_bytes, limit_bytes))
        self._given[buffer] = given_bytes
        return given_bytes / sent_bytes

    def settle(self, buffer: Hashable, abandoned_bytes: float) -> None:
        """Records what a finished buffer has lost; the rest of its share is available to other buffers."""
        if self._given.pop(buffer, None) is not None:
            self._spent_bytes += abandoned_bytes

    def end_step(self) -> None:
        """Ends the step; unspent budget is not carried over."""
        self._expected = (self._sent_bytes, self._allowed_bytes) if self._sent_bytes else self._expected
        self._sent_bytes = self._allowed_bytes = self._spent_bytes = 0.0
        self._given = {}

    def _share(self, before_bytes: float, sent_bytes: float) -> float:
        """A buffer's share of the step's remaining budget: by bytes, weighted more towards the end of the step."""
        assert self._expected is not None
        total_bytes, total_allowed_bytes = self._expected
        left_bytes = max(total_allowed_bytes, self._allowed_bytes) - self.committed_bytes
        own = _weight(before_bytes, before_bytes + sent_bytes, total_bytes)
        to_come = _weight(before_bytes, max(total_bytes, before_bytes + sent_bytes), total_bytes)
        return left_bytes * own / to_come


def _weight(begin: float, end: float, total: float) -> float:
    """The bytes from `begin` to `end` of a step of `total`, each weighted by where it is."""

    def integral(x: float) -> float:
        inside = min(x, total)
        slope = 2 * (1 - EARLY_WEIGHT) / total
        return EARLY_WEIGHT * inside + slope * inside * inside / 2 + (2 - EARLY_WEIGHT) * (x - inside)

    return integral(end) - integral(begin)
