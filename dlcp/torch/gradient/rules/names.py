"""The names of a model's parameters. They are stored in checkpoints, so they do not depend on what wraps the model.

A parameter is found by identity. Without a model, parameters are numbered in the order of their first use, which is the
same in every run of one program but means nothing to a reader.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ParameterNames:
    """Names of a model's parameters, as its own named_parameters() has them; those of a tied one: the first."""

    def __init__(self, model: nn.Module | None) -> None:
        self.model = inner(model)
        """What DistributedDataParallel wraps, or the model itself."""
        self._by_identity: dict[int, str] = {}
        # Kept alive, so that no other object gets their identity.
        self._parameters: dict[str, torch.Tensor] = {}
        self._by_gradient: dict[int, str] = {}
        self.read()

    @property
    def parameters(self) -> Mapping[str, torch.Tensor]:
        """All that are known, by name, in the order of registration; of FSDP: sharded ones."""
        return self._parameters

    def of(self, parameter: torch.Tensor) -> str:
        """The name of a parameter. Raises ValueError: the model has no such parameter."""
        name = self._by_identity.get(id(parameter))
        if name is not None:
            return name
        if self.model is None:
            return self._add(f"parameter {len(self._parameters)}", parameter)
        # Replaced since: to(), load_state_dict(assign=True), fully_shard.
        self.read()
        if id(parameter) not in self._by_identity:
            raise ValueError(
                f"a gradient of shape {tuple(parameter.shape)} belongs to no parameter of the model that GradientState "
                "was given; accepted: the model that is trained, or None"
            )
        return self._by_identity[id(parameter)]

    def of_gradient(self, tensor: torch.Tensor) -> str | None:
        """The name of the parameter whose .grad this tensor is, or shares its memory; None: of none."""
        if tensor.numel() == 0:
            return None
        name = self._by_gradient.get(tensor.data_ptr())
        if name is None or not _is_gradient_of(tensor, self._parameters[name]):
            # Gradients that zero_grad() gave up come back elsewhere.
            self._by_gradient = {
                parameter.grad.data_ptr(): name
                for name, parameter in self._parameters.items()
                if parameter.grad is not None and type(parameter.grad) is torch.Tensor
            }
            name = self._by_gradient.get(tensor.data_ptr())
        return name if name is not None and _is_gradient_of(tensor, self._parameters[name]) else None

    def owned_by(self, module: nn.Module, attribute: str) -> str:
        """The name of a module's own parameter. Raises ValueError: the model has no such module."""
        if self.model is None:
            raise ValueError(
                "GradientState was given no model; accepted under FSDP: the model that is trained"
            )
        for prefix, each in self.model.named_modules():
            if each is module:
                return f"{prefix}.{attribute}" if prefix else attribute
        raise ValueError(
            f"a {type(module).__name__} belongs to no module of the model that GradientState was given; accepted: "
            "the model that is trained"
        )

    def read(self) -> None:
        """Looks at the model again: parameters have been replaced, and those that are gone need not be kept."""
        if self.model is None:
            return
        self._by_identity, self._parameters = {}, {}
        for name, parameter in self.model.named_parameters():
            self._add(name, parameter)

    def _add(self, name: str, parameter: torch.Tensor) -> str:
        self._by_identity[id(parameter)] = name
        self._parameters[name] = parameter
        return name


def inner(model: nn.Module | None) -> nn.Module | None:
    """The model itself, whatever wraps it."""
    while isinstance(model, DistributedDataParallel):
        model = model.module
    # torch.compile's wrapper; its class needs dynamo.
    return getattr(model, "_orig_mod", model)


def _is_gradient_of(tensor: torch.Tensor, parameter: torch.Tensor) -> bool:
    gradient = parameter.grad
    return (
        gradient is not None
        and gradient.data_ptr() == tensor.data_ptr()
        and gradient.numel() == tensor.numel()
    )
