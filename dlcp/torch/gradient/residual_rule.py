"""How a sender keeps what was given up: the options of the residual memory. The same on all ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResidualRule:
    """How the sender keeps what was given up, under fill="residual".

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
        if not 0.0 <= self.decay <= 1.0:
            raise ValueError(f"decay is {self.decay}; accepted: 0 to 1")
        if self.age_max is not None and self.age_max < 1:
            raise ValueError(f"age_max is {self.age_max}; accepted: 1 or more steps, or None")
        if self.momentum is not None and not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum is {self.momentum}; accepted: 0 up to 1, 1 excluded, or None")
