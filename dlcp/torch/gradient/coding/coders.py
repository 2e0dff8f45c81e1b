"""How a buffer's values become codes and codes values: by the native kernels on the host, or on the buffer's device.

Both give the same bits. On a device the residual stays there, and codes alone cross: down before the collective, the
sum's up after it (crossing.py). What a sum is made of is decoded, added and coded by its owner's host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from dlcp.torch import codec as codecs
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.crossing import Crossing, crossing_of, where_wanted
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.coding.plan import CodePlan, Runs
from dlcp.torch.gradient.layout import Range
from dlcp.torch.gradient.residual.feedback import KeptStream
from dlcp.torch.tensors import CopyBack, is_memory, readable
from dlcp.transport.coded import GROUP_VALUES, CodecTraits, add_groups, decode_runs, encode_runs

_CPU = torch.device("cpu")
Opened = tuple[Tensor, Tensor, CopyBack]


class Coder(Protocol):
    """What is done with one buffer."""

    @property
    def device(self) -> torch.device:
        """Where the sender's residual is kept."""

    @property
    def memory(self) -> Tensor:
        """The buffer, where it is read."""

    @property
    def crossing(self) -> Crossing | None:
        """Of a device; None: nothing crosses, or as CopyBack does it."""

    def output(self, account: Account, buffer: GradientBuffer) -> Opened:
        """As BufferPool.output; the output is where values are decoded. With the state's lock held."""

    def encode(self, codec: CodecTraits, plan: CodePlan, sender: KeptStream, coded: Tensor) -> None:
        """Codes the buffer with what was kept into `coded`, host memory; what that leaves is kept."""

    def ready(self) -> None:
        """Blocks until `coded`, and the exact part, are on the host."""

    def returning(self) -> contextlib.AbstractContextManager[None]:
        """`with` around the methods below, and what else is done to the output."""

    def put_back(
        self, codec: CodecTraits, coded: Tensor, ranges: Sequence[Range], sender: KeptStream
    ) -> None:
        """Adds to what is kept groups of a coded contribution, first and end, which have not arrived."""

    def decode(self, codec: CodecTraits, runs: Runs, summed: Tensor, output: Tensor) -> None:
        """Puts the coded values of a sum in their places in the output: runs as of CodePlan."""

    def place(self, runs: list[list[int]], origin: int, values: Tensor, output: Tensor) -> None:
        """Puts values that are not coded, of host memory, in their places: runs as of CodePlan.part_runs."""


def coder_of(buffer: GradientBuffer) -> Coder:
    """By where the buffer is."""
    crossing = crossing_of(buffer)
    return HostCoder(buffer.values) if crossing is None else DeviceCoder(buffer.values, crossing)


class HostCoder:
    """The native kernels, on host memory; see Coder."""

    device = _CPU
    crossing = None

    def __init__(self, values: Tensor) -> None:
        self.memory = readable(values, "gradients")

    def output(self, account: Account, buffer: GradientBuffer) -> Opened:
        # Values are decoded once all is over, so they go where they are wanted at once.
        into = where_wanted(buffer)
        if into is None or not is_memory(into):
            return account.buffers.output(buffer)
        return into.detach().view(-1), into, CopyBack()

    def encode(self, codec: CodecTraits, plan: CodePlan, sender: KeptStream, coded: Tensor) -> None:
        wide = self.memory if self.memory.dtype == torch.float32 else self.memory.float()
        encode_runs(
            codec.codec,
            wide.data_ptr(),
            plan.runs,
            coded.data_ptr(),
            sender.before.data_ptr(),
            sender.after.data_ptr(),
            sender.factor,
        )

    def ready(self) -> None:
        pass

    def returning(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def put_back(
        self, codec: CodecTraits, coded: Tensor, ranges: Sequence[Range], sender: KeptStream
    ) -> None:
        for begin, end in ranges:
            add_groups(
                codec.codec,
                coded.data_ptr() + begin * codec.group_bytes,
                end - begin,
                sender.after.data_ptr() + begin * GROUP_VALUES * 4,
            )

    def decode(self, codec: CodecTraits, runs: Runs, summed: Tensor, output: Tensor) -> None:
        wide = output if output.dtype == torch.float32 else torch.empty(output.numel())
        decode_runs(codec.codec, summed.data_ptr(), runs, wide.data_ptr())
        if wide is not output:
            for begin, count, _ in runs.tolist():
                output[begin : begin + count] = wide[begin : begin + count]

    def place(self, runs: list[list[int]], origin: int, values: Tensor, output: Tensor) -> None:
        _place(runs, origin, values, output)


class DeviceCoder:
    """The same in torch operations, on the buffer's device; see Coder."""

    def __init__(self, values: Tensor, crossing: Crossing) -> None:
        self.memory = values
        self.device = values.device
        self.crossing = crossing

    def output(self, account: Account, buffer: GradientBuffer) -> Opened:
        return self.crossing.output(account, buffer)

    def encode(self, codec: CodecTraits, plan: CodePlan, sender: KeptStream, coded: Tensor) -> None:
        after, runs = sender.after, plan.runs.tolist()
        torch._foreach_copy_(
            [after[group * GROUP_VALUES : group * GROUP_VALUES + count] for _, count, group in runs],
            [self.memory[begin : begin + count] for begin, count, _ in runs],
        )
        # In two operations, as one may round once.
        after += sender.before if sender.factor == 1.0 else sender.before * sender.factor
        self.crossing.down(codecs.encode_in_place(after, codec.name), coded)

    def ready(self) -> None:
        self.crossing.wait()

    def returning(self) -> contextlib.AbstractContextManager[None]:
        return self.crossing.up()

    def put_back(
        self, codec: CodecTraits, coded: Tensor, ranges: Sequence[Range], sender: KeptStream
    ) -> None:
        unit, after = codec.group_bytes, sender.after.view(-1, GROUP_VALUES)
        for begin, end in ranges:
            lost = coded[begin * unit : end * unit].to(self.device)
            values = codecs.decode(lost, codec.name, (end - begin) * GROUP_VALUES)
            after[begin:end] += values.view(-1, GROUP_VALUES)
        # The next step reads it on another stream, or the host does.
        self.crossing.finish()

    def decode(self, codec: CodecTraits, runs: Runs, summed: Tensor, output: Tensor) -> None:
        coded = summed.to(self.device, non_blocking=True)
        values = codecs.decode(coded, codec.name, summed.numel() // codec.group_bytes * GROUP_VALUES)
        _place(runs.tolist(), 0, values, output)

    def place(self, runs: list[list[int]], origin: int, values: Tensor, output: Tensor) -> None:
        _place(runs, origin, values.to(self.device, non_blocking=True), output)


def _place(runs: list[list[int]], origin: int, values: Tensor, output: Tensor) -> None:
    """Runs: first element in the buffer, count, and first group of `values`. `output` begins with element `origin`."""
    if not runs:  # a part may have no coded value, which torch refuses
        return
    torch._foreach_copy_(
        [output[begin - origin : begin - origin + count] for begin, count, _ in runs],
        [values[group * GROUP_VALUES : group * GROUP_VALUES + count] for _, count, group in runs],
    )
