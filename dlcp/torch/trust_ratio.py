"""LARS and LAMB: optimizers that scale each layer's update by a trust ratio, ‖weights‖ / ‖update‖.

Both ask for two norms of each layer in every step. With a process group the ranks share the work (layer_norms.py):
their weights must be alike, and the same layers have gradients, which are alike too, as under DDP. Without one each
computes all, to the same bits. Layers of one dimension (biases, normalisation) have the ratio 1, as the papers' authors
do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dlcp import checks
from dlcp.torch.layer_norms import LayerNorms


class _TrustRatioOptimizer(torch.optim.Optimizer):
    """Steps in which all layers' updates are made, then their ratios, then the weights are changed."""

    def __init__(
        self, params: Iterable[Any], defaults: dict[str, Any], group: dist.ProcessGroup | None
    ) -> None:
        checks.number("lr", defaults["lr"], 0)
        checks.number("weight_decay", defaults["weight_decay"], 0)
        checks.number("eps", defaults["eps"], 0)
        super().__init__(params, defaults)
        self._group = group
        self._norms: LayerNorms | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes one step; returns the closure's loss. If the group has several ranks, a collective: all call it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        layers = [
            (weights, options)
            for options in self.param_groups
            for weights in options["params"]
            if weights.grad is not None
        ]
        trusted = [index for index, (weights, _) in enumerate(layers) if weights.dim() > 1]
        updates = [self._update(weights, options) for weights, options in layers]
        ratios = [1.0] * len(layers)
        if trusted:
            numels = tuple(layers[index][0].numel() for index in trusted)
            if self._norms is None or self._norms.numels != numels:
                self._norms = LayerNorms(numels, self._group)
            norms = self._norms.of(
                [layers[index][0] for index in trusted], [updates[index] for index in trusted]
            )
            for index, of_weights, of_update in zip(trusted, *norms.tolist(), strict=True):
                ratios[index] = self._ratio(of_weights, of_update, layers[index][1])
        for (weights, options), update, ratio in zip(layers, updates, ratios, strict=True):
            self._apply(weights, update, ratio, options)
        return loss

    def _update(self, weights: Tensor, options: dict[str, Any]) -> Tensor:
        """What is to be scaled; its norm is asked for."""
        raise NotImplementedError

    def _ratio(self, of_weights: float, of_update: float, options: dict[str, Any]) -> float:
        """The trust ratio, from the norms."""
        raise NotImplementedError

    def _apply(self, weights: Tensor, update: Tensor, ratio: float, options: dict[str, Any]) -> None:
        """Changes the weights."""
        raise NotImplementedError


class LARS(_TrustRatioOptimizer):
    """SGD with momentum and a learning rate per layer (You, Gitman, Ginsburg, arXiv 1708.03888, algorithm 1).

    `params`: as for torch.optim. `lr`: the global rate; `trust`: the paper's η. A layer's rate is lr · trust · ‖w‖ /
    (‖g‖ + weight_decay · ‖w‖ + eps), or lr where ‖w‖ or ‖g‖ is 0. `group`: whose ranks share the norms; None: the
    default group. Raises ArgumentError: an option out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        eps: float = 0.0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        checks.number("momentum", momentum, 0, 1, below=True)
        checks.number("trust", trust, 0, above=True)
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "eps": eps}
        super().__init__(params, defaults, group)

    def _update(self, weights: Tensor, options: dict[str, Any]) -> Tensor:
        assert weights.grad is not None
        return weights.grad

    def _ratio(self, of_weights: float, of_update: float, options: dict[str, Any]) -> float:
        if of_weights <= 0 or of_update <= 0:
            return 1.0
        trust, decay, eps = (float(options[name]) for name in ("trust", "weight_decay", "eps"))
        return trust * of_weights / (of_update + decay * of_weights + eps)

    def _apply(self, weights: Tensor, update: Tensor, ratio: float, options: dict[str, Any]) -> None:
        state = self.state[weights]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(weights)
        velocity = state["velocity"].mul_(options["momentum"])
        velocity.add_(update, alpha=options["lr"] * ratio)
        velocity.add_(weights, alpha=options["lr"] * ratio * options["weight_decay"])
        weights.sub_(velocity)


class LAMB(_TrustRatioOptimizer):
    """Adam with a learning rate per layer (You et al., ICLR 2020, arXiv 1904.00962, algorithm 2; φ(z) = z).

    `params`, `lr`, `betas`, `eps`, `weight_decay` (decoupled): as torch.optim.AdamW. A layer's rate is lr · ‖w‖ / ‖u‖,
    u being Adam's update with the decay; lr where a norm is 0. `group`: as for LARS. Raises ArgumentError.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        for place, beta in enumerate(betas):
            checks.number(f"betas[{place}]", beta, 0, 1, below=True)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, group)

    def _update(self, weights: Tensor, options: dict[str, Any]) -> Tensor:
        state, gradient = self.state[weights], weights.grad
        assert gradient is not None
        if not state:
            state["step"] = 0
            state["mean"], state["square"] = torch.zeros_like(weights), torch.zeros_like(weights)
        state["step"] += 1
        first, second = options["betas"]
        mean = state["mean"].lerp_(gradient, 1 - first)
        square = state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        root = (square / (1 - second ** state["step"])).sqrt_().add_(options["eps"])
        update: Tensor = (mean / (1 - first ** state["step"])).div_(root)
        return update.add_(weights, alpha=options["weight_decay"])

    def _ratio(self, of_weights: float, of_update: float, options: dict[str, Any]) -> float:
        return of_weights / of_update if of_weights > 0 and of_update > 0 else 1.0

    def _apply(self, weights: Tensor, update: Tensor, ratio: float, options: dict[str, Any]) -> None:
        weights.sub_(update, alpha=options["lr"] * ratio)
