"""Updating some of an optimizer's parameters, with the settings that held when step() was called.

The optimizer's own step() does it, on parameter groups that hold only these parameters for the moment. So it serves
every optimizer whose update of a parameter depends on this parameter, its gradient, its state and the settings of its
group: torch's SGD, Adam, AdamW, and most others. It does not serve one that looks at all parameters together (LBFGS).
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

Settings = list[dict[str, Any]]
"""The options of the parameter groups, without their parameters."""


class DeferredUpdates:
    """The updates of one optimizer, parameter by parameter."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def settings(self) -> Settings:
        """A copy of the present learning rates and other options; later changes do not affect it."""
        return [
            {name: _kept(value) for name, value in group.items() if name != "params"}
            for group in self.optimizer.param_groups
        ]

    def apply(self, parameters: Collection[nn.Parameter], settings: Settings) -> None:
        """Updates the parameters by their `grad`, which is there."""
        chosen = set(parameters)
        groups = self.optimizer.param_groups
        self.optimizer.param_groups = [
            {"params": here, **said}
            for group, said in zip(groups, settings, strict=True)
            if (here := [parameter for parameter in group["params"] if parameter in chosen])
        ]
        try:
            # State made in inference mode could never be changed again outside of it.
            with torch.inference_mode(False):
                self.optimizer.step()
        finally:
            self.optimizer.param_groups = groups


def _kept(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value if isinstance(value, int | float | str | bool | None) else copy.copy(value)
