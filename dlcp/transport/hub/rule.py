"""An optimizer's hyperparameters as workers announce them and a hub's cores apply them: 44 bytes.

    optimizer   u8     1: SGD, 2: Adam, AdamW
    flags       u8     Nesterov, maximize | decoupled, AMSGrad, maximize
    reserved    2      0
    values      5 f64  rate, momentum, dampening, weight decay | rate, beta1, beta2, epsilon, weight decay

What native code can do without knowing whole layers (native/collective/optimizer.hpp). Values are doubles as in Python:
the core makes floats of them where torch does.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from dlcp import _native

LAYOUT = struct.Struct("<BB2x5d")
_SGD, _ADAM = 1, 2


class OptimizerRule(NamedTuple):
    """The hyperparameters of one step of one buffer. Made by `sgd` and `adam`."""

    optimizer: int
    flags: int
    values: tuple[float, float, float, float, float]

    @classmethod
    def sgd(
        cls,
        learning_rate: float,
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> Self:
        """Of torch.optim.SGD."""
        values = (learning_rate, momentum, dampening, weight_decay, 0.0)
        return cls(_SGD, nesterov | maximize << 1, values)

    @classmethod
    def adam(
        cls,
        learning_rate: float,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> Self:
        """Of torch.optim.Adam; `decoupled`: of AdamW."""
        values = (learning_rate, beta1, beta2, epsilon, weight_decay)
        return cls(_ADAM, decoupled | amsgrad << 1 | maximize << 2, values)

    def __str__(self) -> str:
        rate, first, second, third, fourth = (f"{value:g}" for value in self.values)
        if self.is_sgd:
            return f"SGD: rate {rate}, momentum {first}, dampening {second}, weight decay {third}, flags {self.flags}"
        betas = f"betas {first} and {second}"
        return f"Adam: rate {rate}, {betas}, epsilon {third}, weight decay {fourth}, flags {self.flags}"

    def native(self) -> _native.Sgd | _native.Adam:
        """As native code takes it. Raises ValueError: unknown, or a value that is out of range."""
        rate, first, second, third, fourth = self.values
        bit = [bool(self.flags >> place & 1) for place in range(3)]
        match self.optimizer:
            case 1:
                return _native.Sgd(
                    rate,
                    momentum=first,
                    dampening=second,
                    weight_decay=third,
                    nesterov=bit[0],
                    maximize=bit[1],
                )
            case 2:
                return _native.Adam(
                    rate,
                    beta1=first,
                    beta2=second,
                    epsilon=third,
                    weight_decay=fourth,
                    decoupled=bit[0],
                    amsgrad=bit[1],
                    maximize=bit[2],
                )
        raise ValueError(f"optimizer {self.optimizer} is unknown")

    @property
    def is_sgd(self) -> bool:
        """SGD, and not Adam."""
        return self.optimizer == _SGD

    @property
    def states(self) -> int:
        """How many arrays it keeps besides the weights, each as long. Raises ValueError as `native`."""
        return _native.optimizer_states(self.native())

    def pack(self) -> bytes:
        """As it travels."""
        return LAYOUT.pack(self.optimizer, self.flags, *self.values)

    @classmethod
    def read(cls, content: bytes) -> Self | None:
        """From an announcement; None: there is none."""
        optimizer, flags, *values = LAYOUT.unpack(content)
        return cls(optimizer, flags, tuple(values)) if optimizer else None
