"""The order in which forward needs the parameters, and the traffic classes that follow from it.

A step's gradients come last layer first and are needed first layer first: so front layers leave in higher classes.
Hooks trace the order in the first forward that records gradients, and are then removed; names say nothing about it. A
module used twice counts where it is used first. A parameter whose module was never called (its parent uses the weight
itself, as MultiheadAttention does) comes right behind the one registered before it. Without a trace, as under
torch.compile, or before it, the order of registration takes its place.

Each rank traces for itself: classes order the packets that this rank sends, and may differ between ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

CLASSES = 7
"""Traffic classes of gradients: 0 to 6, 6 leaves first."""


class ForwardOrder:
    """Traces one model. None: there is nothing to trace, and all parameters are alike."""

    def __init__(self, model: nn.Module | None) -> None:
        self._model = model
        # Modules with parameters of their own, in the order of first use and of last use.
        self._first: dict[nn.Module, None] = {}
        self._last: dict[nn.Module, None] = {}
        self._handles: list[Any] = []
        self.traced = False
        """Whether the order is that of a forward; else of registration."""
        if model is not None:
            for module in model.modules():
                if next(module.parameters(recurse=False), None) is not None:
                    self._handles.append(module.register_forward_pre_hook(self._used))
            self._handles.append(model.register_forward_hook(self._forward_is_over))

    def finish(self) -> None:
        """Ends the trace with what was seen so far. Again: nothing."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.traced = self.traced or bool(self._first)

    def names(self) -> Sequence[str]:
        """All parameters, those first that forward needs first."""
        if self._model is None:
            return ()
        position = {module: index for index, module in enumerate(self._first)}
        ranked, before = [], -1
        for index, (name, owner) in enumerate(_owners(self._model)):
            before = position.get(owner, before)
            ranked.append((before, index, name))
        return [name for _, _, name in sorted(ranked)]

    def output_layer(self) -> frozenset[str]:
        """Parameters of the module that forward uses last, of those with a parameter of two dimensions or more.

        A norm behind the last such module has parameters of one dimension, which are critical anyway. A weight that is
        tied to the embedding is the output layer's too, under whatever name it has.
        """
        if self._model is None:
            return frozenset()
        modules = list(self._last) if self._last else list(self._model.modules())
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        for module in reversed(modules):
            own = list(module.parameters(recurse=False))
            if any(parameter.dim() >= 2 for parameter in own):
                return frozenset(names[id(parameter)] for parameter in own if id(parameter) in names)
        return frozenset()

    def classes(self) -> Mapping[str, int]:
        """Traffic class by parameter: 6 for the front, each class about as many bytes."""
        if self._model is None:
            return {}
        nbytes = {
            name: parameter.numel() * parameter.element_size()
            for name, parameter in self._model.named_parameters()
        }
        total, at, classes = max(1, sum(nbytes.values())), 0, {}
        for name in self.names():
            # By the middle of it: a large layer at the front is not cut into the class of those behind.
            middle = at + nbytes[name] / 2
            classes[name] = CLASSES - 1 - min(CLASSES - 1, int(CLASSES * middle / total))
            at += nbytes[name]
        return classes

    def _used(self, module: nn.Module, _: Any) -> None:
        # A forward without gradients, such as a first validation, may use other modules.
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        self._first.setdefault(module)
        self._last.pop(module, None)
        self._last[module] = None

    def _forward_is_over(self, *_: Any) -> None:
        # Here, since recomputation of checkpointed activations would use modules again, in backward.
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            self.finish()


def _owners(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Parameters with the module that registered them first, in the order of named_parameters()."""
    seen, found = set(), []
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                found.append((f"{prefix}.{name}" if prefix else name, module))
    return found
