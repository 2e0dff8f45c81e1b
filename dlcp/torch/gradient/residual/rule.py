"""How a sender keeps abandoned values: the options of the residual memory. The same on all ranks."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp import checks


@dataclass(frozen=True, slots=True)
class ResidualRule:
    """How the sender keeps abandoned values, under fill="residual".

    `decay`: what is kept is multiplied by this each step that it waits, 0 to 1; 1: kept whole. `age_max`: what has
    waited so many steps and would have to wait on is written off; None: never. `momentum`: that the training should
    have, of which the optimizer then has none; the sender accumulates momentum itself for what waits, and clears it
    where a value was delivered (momentum correction and factor masking, Deep Gradient Compression, Lin et al., ICLR
    2018, section 3); None: no masking.
    """

    decay: float = 0.9
    age_max: int | None = None
    momentum: float | None = None

    def __post_init__(self) -> None:
        checks.number("decay", self.decay, 0, 1)
        if self.age_max is not None:
            checks.integer("age_max", self.age_max, 1)
        if self.momentum is not None:
            checks.number("momentum", self.momentum, 0, 1, below=True)
