"""As zero, behind a randomised Hadamard transform: a loss is spread over many values (OptiReduce, NSDI 2025)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch

from dlcp.torch.gradient.fills.fill import BufferPlan, Fill, FillOptions, Rules
from dlcp.torch.gradient.fills.hadamard_transform import Hadamard
from dlcp.torch.gradient.layout import Layout, Range


class HadamardFill(Fill):
    """Transforms what may be lost of a buffer, and transforms the sum back."""

    def __init__(self, options: FillOptions) -> None:
        self._transform = Hadamard(options.seed)

    def before(self, buffer: torch.Tensor, plan: BufferPlan) -> Sequence[Range]:
        ranges = droppable_ranges(plan.layout, plan.critical, plan.parts)
        for begin, end in ranges:
            self._transform.forward_(buffer[begin:end], plan.step)
        return ranges

    def rules(self, transformed: Sequence[Range], step: int) -> Rules:
        if not transformed:
            return Rules()
        # The ranks transform alike or not at all. Not the whole number of the step: plans are kept by this text.
        return Rules(agree=f"Hadamard {step % 256} {zlib.crc32(repr(transformed).encode()):08x}")

    def after(self, output: torch.Tensor, transformed: Sequence[Range], origin: int, step: int) -> None:
        for begin, end in transformed:
            if begin >= origin and end - origin <= output.numel():
                self._transform.inverse_(output[begin - origin : end - origin], step)


def droppable_ranges(layout: Layout, critical: frozenset[str], parts: Sequence[Range]) -> list[Range]:
    """Elements in a row that may be lost, cut where parts meet: each range is transformed by itself."""
    ranges: list[Range] = []
    for first, last in parts:
        begin = None
        end = first
        for piece in layout.pieces(first, last):
            if piece.segment.name in critical:
                continue
            if begin is not None and piece.begin == end:
                end = piece.end
                continue
            if begin is not None:
                ranges.append((begin, end))
            begin, end = piece.begin, piece.end
        if begin is not None:
            ranges.append((begin, end))
    return ranges
