"""Gradients that travel together, and where they are between backward and the update.

A large gradient travels alone, in its own memory, which nothing copies. The small ones of a module share one flat
memory. A bucket is in one of four states:

    OPEN ──sent──▶ SENT ──step()──▶ DUE ──updated──▶ OPEN
                    └─looked at─▶ DELIVERED ──step()──▶ OPEN (updated at once)

While a bucket is SENT or DUE its gradients belong to the network: no other code reads or writes them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from dlcp.torch.tensors import data_type
from dlcp.transport.communicator import Reduction

# A gradient of so many bytes travels alone: copying this much costs as long as starting one more collective.
ALONE_BYTES = 256 * 1024


class BucketState(enum.Enum):
    """Where the gradients of a bucket are."""

    OPEN = enum.auto()
    """Owned by the program: backward may add to them."""
    SENT = enum.auto()
    """On the network; step() has not been called."""
    DELIVERED = enum.auto()
    """Averaged, and owned by the program, because it read them before step()."""
    DUE = enum.auto()
    """On the network or just arrived; the update is made when the parameters are needed."""


class Bucket:
    """Parameters of one module, of one type and device."""

    def __init__(self, names: Sequence[str], parameters: Sequence[nn.Parameter]) -> None:
        self.names = tuple(names)
        """As model.named_parameters() has them."""
        self.parameters = tuple(parameters)
        self.state = BucketState.OPEN
        self.layer = -1
        """Its place in the order of forward, the same on all ranks; -1: not known yet."""
        self.arrived: set[int] = set()
        """Which of the parameters, by place, have got the gradient of this backward."""
        self.sent: tuple[torch.Tensor, ...] = ()
        """The `grad` of each parameter since it was sent, until it is cleared."""
        self.given: tuple[bool, ...] = ()
        """Which of the parameters had a gradient of this rank when they were sent."""
        self.forgotten = False
        """Whether the program has asked for `grad` to be None since."""
        self.zeroed = False
        """Whether the program has asked for `grad` to be zero since."""
        first = parameters[0]
        self.dtype = data_type(first.dtype, Reduction.AVG, "LayerwiseOptimizer")
        self.nbytes = sum(parameter.numel() for parameter in parameters) * first.element_size()
        self._on_cpu = first.device.type == "cpu"
        # What is sent: one gradient's own memory, or the flat one.
        self._memory: torch.Tensor | None = None
        self._flat: torch.Tensor | None = None

    @property
    def label(self) -> str:
        """A name for errors, logs and pictures."""
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"{self.names[0]}{more}"

    @property
    def complete(self) -> bool:
        """Whether every parameter has got its gradient."""
        return len(self.arrived) == len(self.parameters)

    def pack(self) -> torch.Tensor:
        """Contiguous memory of the CPU with all gradients, one after the other; where there is none, zeros.

        Raises TypeError: a sparse gradient.
        """
        gradients = [parameter.grad for parameter in self.parameters]
        for name, gradient in zip(self.names, gradients, strict=True):
            if gradient is not None and gradient.layout is not torch.strided:
                raise TypeError(
                    f"the gradient of {name} has layout {gradient.layout}; accepted: torch.strided"
                )
        self.given = tuple(gradient is not None for gradient in gradients)
        only = gradients[0]
        if len(gradients) == 1 and self._on_cpu and only is not None and only.is_contiguous():
            self.sent = (only,)
            self._memory = only.detach().view(-1)
            return self._memory
        flat = self._flat
        if flat is None:
            count = sum(parameter.numel() for parameter in self.parameters)
            flat = torch.empty(count, dtype=self.parameters[0].dtype, pin_memory=not self._on_cpu)
            self._flat = flat
        sent = []
        for parameter, gradient, place in zip(self.parameters, gradients, self._places(flat), strict=True):
            if gradient is None:
                place.zero_()
                gradient = parameter.grad = place if self._on_cpu else torch.zeros_like(parameter)
            else:
                place.copy_(gradient.detach(), non_blocking=True)
            sent.append(gradient)
        if not self._on_cpu:
            torch.cuda.current_stream(self.parameters[0].device).synchronize()
        self.sent = tuple(sent)
        self._memory = flat
        return flat

    def averages(self) -> list[torch.Tensor]:
        """The averaged gradients, by parameter, when they are in. They may lie in the memory of the next `pack`."""
        if self._memory is not self._flat:
            return list(self.sent)
        assert self._flat is not None
        places = list(self._places(self._flat))
        if self._on_cpu:
            return places
        for gradient, place in zip(self.sent, places, strict=True):
            gradient.copy_(place, non_blocking=True)
        # The host may fill the flat memory again once the copies are made.
        torch.cuda.current_stream(self.parameters[0].device).synchronize()
        return list(self.sent)

    def reopen(self) -> None:
        """Gives the gradients back to the program, for the next backward."""
        self.state = BucketState.OPEN
        self.arrived.clear()
        self.sent, self.given = (), ()
        self.forgotten = self.zeroed = False
        self._memory = None

    def _places(self, flat: torch.Tensor) -> Iterator[torch.Tensor]:
        at = 0
        for parameter in self.parameters:
            yield flat[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()


def buckets_of(model: nn.Module, trained: Sequence[nn.Parameter]) -> list[Bucket]:
    """Buckets of the model's parameters that are trained, module by module as they are registered.

    A parameter that several modules have belongs to the first. The same on all ranks if the models are.
    Raises ValueError: one that is trained is not the model's; TypeError: of a type that cannot be averaged, or of a
    model that averages its gradients itself.
    """
    for module in model.modules():
        # By name: importing them costs seconds.
        if type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
            raise TypeError(
                f"the model has a {type(module).__name__} in it; accepted: the module inside that"
            )
    left = {parameter: None for parameter in trained if parameter.requires_grad}
    found: list[Bucket] = []
    for prefix, module in model.named_modules():
        small: dict[Any, list[tuple[str, nn.Parameter]]] = {}
        for own, parameter in module.named_parameters(prefix, recurse=False):
            if parameter not in left:
                continue
            del left[parameter]
            if type(parameter.data) is not torch.Tensor:
                raise TypeError(f"{own} is a {type(parameter.data).__name__}; accepted: plain tensors")
            if parameter.numel() == 0:
                continue
            if parameter.nbytes >= ALONE_BYTES:
                found.append(Bucket([own], [parameter]))
            else:
                small.setdefault((parameter.dtype, parameter.device), []).append((own, parameter))
        found += [Bucket(*zip(*together, strict=True)) for together in small.values()]
    if left:
        shapes = ", ".join(str(tuple(parameter.shape)) for parameter in left)
        raise ValueError(
            f"the optimizer has {len(left)} parameters that the model does not have, of shape {shapes}; accepted: an "
            "optimizer of the model's parameters"
        )
    if not found:
        raise ValueError("the optimizer has no parameter that requires a gradient; accepted: one or more")
    return found
