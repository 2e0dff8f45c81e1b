"""Memory for results, reused in every step, so that no step pays for fresh pages.

A result is out of place: the sender may have to keep parts of the input, so it stays unchanged until the bounded
collective is over. A taken tensor belongs to the caller until the end of the step. The pool holds as much as the
largest step has used.
"""

from __future__ import annotations

import torch

from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.tensors import CopyBack


class BufferPool:
    """Flat tensors by size, type and device. Not thread-safe."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, torch.dtype, torch.device, bool], list[torch.Tensor]] = {}
        self._taken: list[tuple[tuple[int, torch.dtype, torch.device, bool], torch.Tensor]] = []

    def take(
        self, numel: int, dtype: torch.dtype, device: torch.device, *, pinned: bool = False
    ) -> torch.Tensor:
        """A tensor of this step, 1-D, with whatever values it last had."""
        key = (numel, dtype, device, pinned)
        free = self._free.get(key)
        tensor = free.pop() if free else torch.empty(numel, dtype=dtype, device=device, pin_memory=pinned)
        self._taken.append((key, tensor))
        return tensor

    def output(self, buffer: GradientBuffer) -> tuple[torch.Tensor, torch.Tensor, CopyBack]:
        """What a pipeline fills (on the CPU), what the caller gets, and the copy from one to the other."""
        numel, dtype, device = buffer.output_numel, buffer.values.dtype, buffer.values.device
        on_cpu, back, into = device.type == "cpu", CopyBack(), buffer.call.into
        output = self.take(numel, dtype, torch.device("cpu"), pinned=not on_cpu)
        if into is None:
            into = output if on_cpu else self.take(numel, dtype, device)
        if into is not output:
            back.add(into, output.view(into.shape), "gradients")
        return output, into, back

    def recycle(self) -> None:
        """Ends the step: taken tensors are free again, and tensors that the step did not use are released."""
        self._free = {}
        for key, tensor in self._taken:
            self._free.setdefault(key, []).append(tensor)
        self._taken = []
