"""Checks of a LayerwiseOptimizer's arguments, before anything is sent."""

from __future__ import annotations

import torch
from torch import nn

from dlcp import checks
from dlcp.torch.gradient.rules.names import inner
from dlcp.torch.gradient.state import GradientState
from dlcp.transport.schedule import algorithms


def check_arguments(
    optimizer: object, model: object, order: object, algorithm: object, gradients: object
) -> None:
    """Raises TypeError or ValueError for arguments that a LayerwiseOptimizer cannot work with."""
    if isinstance(optimizer, nn.Module) and isinstance(model, torch.optim.Optimizer):
        raise TypeError("optimizer and model are swapped; accepted: LayerwiseOptimizer(optimizer, model)")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}; accepted: a torch.optim.Optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError(
            "optimizer is an LBFGS, whose update of a parameter depends on all others; accepted: SGD, Adam, AdamW and "
            "others that update each parameter by itself"
        )
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; accepted: a torch.nn.Module")
    if not callable(order):
        raise TypeError(f"order is {checks.shown(order)}; accepted: a class of dlcp.transport.layer_order")
    if algorithm is not None:
        checks.choice("algorithm", algorithm, algorithms("all_reduce"))
    if not isinstance(gradients, GradientState | None):
        raise TypeError(f"gradients is a {type(gradients).__name__}; accepted: a GradientState, or None")
    if gradients is not None and gradients.names.model not in (None, inner(model)):
        raise ValueError("gradients is the GradientState of another model; accepted: one of this model")
