"""What a HubOptimizer sends together, and how torch's optimizers and their state are said to a hub."""

from __future__ import annotations

from typing import Any

import torch

from dlcp.errors import ArgumentError
from dlcp.transport.hub.rule import OptimizerRule
from dlcp.transport.work import Work

SUPPORTED = "torch.optim.SGD, Adam or AdamW"


class HubBuffer:
    """Parameters of one group that travel together. `number`: of their weights at the hub."""

    def __init__(self, number: int, group: int, parameters: list[torch.Tensor]) -> None:
        self.number = number
        self.group = group
        self.parameters = parameters
        self.flat = torch.empty(sum(each.numel() for each in parameters), dtype=torch.float32)
        self._numels = [each.numel() for each in parameters]
        self.ready: set[int] = set()
        """Identities of those of which backward has made the gradient since the last step."""
        self.work: Work | None = None
        """Of this step, once it is under way."""

    def take_work(self) -> Work:
        """The step's work; the buffer is ready for the next one."""
        work, self.work = self.work, None
        self.ready.clear()
        assert work is not None
        return work

    def pieces_of(self, flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Per parameter its part of a buffer."""
        return torch.split(flat, self._numels)

    def check_gradients(self) -> None:
        """Raises ArgumentError: a parameter has none, or one that is not dense."""
        for place, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                raise ArgumentError(
                    f"parameter {place} of buffer {self.number}, of shape {tuple(parameter.shape)}, has no gradient;"
                    " a hub steps all of them: freeze it (requires_grad_(False)) before the optimizer is made"
                )
            if parameter.grad.layout != torch.strided:
                raise ArgumentError(
                    f"the gradient of parameter {place} of buffer {self.number}, of shape {tuple(parameter.shape)}, is"
                    f" {parameter.grad.layout}; accepted: dense gradients"
                )

    @torch.no_grad()
    def gather(self, tensors: list[Any], flat: torch.Tensor | None = None) -> None:
        """Copies one tensor per parameter into a buffer; None: its own."""
        for piece, tensor in zip(self.pieces_of(self.flat if flat is None else flat), tensors, strict=True):
            piece.view(tensor.shape).copy_(tensor)

    @torch.no_grad()
    def scatter(self, flat: torch.Tensor | None = None) -> None:
        """Copies a buffer into the parameters; None: its own."""
        pieces = self.pieces_of(self.flat if flat is None else flat)
        for piece, parameter in zip(pieces, self.parameters, strict=True):
            parameter.copy_(piece.view(parameter.shape))


def rule_of(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> OptimizerRule:
    """The hyperparameters of a group now. Raises ArgumentError: not an optimizer that a hub has."""
    kind = type(optimizer)
    if kind is torch.optim.SGD:
        return OptimizerRule.sgd(
            float(group["lr"]),
            momentum=float(group["momentum"]),
            dampening=float(group["dampening"]),
            weight_decay=float(group["weight_decay"]),
            nesterov=bool(group["nesterov"]),
            maximize=bool(group["maximize"]),
        )
    if kind in (torch.optim.Adam, torch.optim.AdamW):
        beta1, beta2 = group["betas"]
        return OptimizerRule.adam(
            float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            epsilon=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            decoupled=kind is torch.optim.AdamW or bool(group.get("decoupled_weight_decay")),
            amsgrad=bool(group["amsgrad"]),
            maximize=bool(group["maximize"]),
        )
    raise ArgumentError(
        f"optimizer is {kind.__module__}.{kind.__name__}, which a hub cannot step; accepted: {SUPPORTED}. For others"
        " average gradients over the hub: DDP or all_reduce"
    )


def state_names(rule: OptimizerRule) -> list[str]:
    """Torch's names of the arrays that the hub keeps, in its order."""
    if rule.is_sgd:
        return ["momentum_buffer"][: rule.states]
    return ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"][: rule.states]


def steps_of(state: dict[str, Any] | None) -> int:
    """How many steps a parameter has made, as its state says; of SGD whether there was one."""
    if not state:
        return 0
    if "step" in state:
        return int(state["step"])
    return int(state.get("momentum_buffer") is not None)
