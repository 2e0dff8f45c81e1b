"""A warning for users whose GradientState never gets a gradient, because nothing registered its hook.

Some frameworks register communication hooks on some devices only, and say nothing. Training then goes on, with exact
collectives.
"""

from __future__ import annotations

import functools
import logging
import weakref
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

logger = logging.getLogger("dlcp")


class Used(Protocol):
    """What is asked of a GradientState."""

    @property
    def used(self) -> bool:
        """Whether a gradient has ever come."""


# States that have seen no step of an optimizer yet, with their models.
_watched: weakref.WeakKeyDictionary[Used, weakref.ref[nn.Module]] = weakref.WeakKeyDictionary()


def warn_if_unused(state: Used, model: nn.Module) -> None:
    """Logs a warning after the first step of the model's optimizer, if no gradient has come to the state by then."""
    _install()
    _watched[state] = weakref.ref(model)


@functools.cache
def _install() -> None:
    # For good: torch's hooks cannot be removed while they are called.
    register_optimizer_step_post_hook(_stepped)


def _stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for state, reference in list(_watched.items()):
        model = reference()
        own = set() if model is None else set(model.parameters())
        if model is not None and not any(
            one in own for group in optimizer.param_groups for one in group["params"]
        ):
            continue
        # torch's distributed checkpoints fill an optimizer's state by such a step, without a backward.
        if all(group.get("lr") == 0 for group in optimizer.param_groups):
            continue
        del _watched[state]
        if model is not None and not state.used:
            logger.warning(
                "a GradientState has seen no gradient in the first step of its model's %s: its collectives are exact. "
                "Is the hook registered, as by model.register_comm_hook(state, dlcp.torch.gradient_hook)?",
                type(optimizer).__name__,
            )
