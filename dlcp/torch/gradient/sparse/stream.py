"""The stream of a buffer: those of its elements of which some may be left out of a step.

One parameter's elements after the other, as float32, in the order of the buffer; of a reduce-scatter cut at the ranks'
parts. What else is in the buffer travels exactly (exact_part.py).
"""

from __future__ import annotations

from torch import Tensor

from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.exact_part import is_exact
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.coding.plan import CodePlan, plan_of
from dlcp.torch.tensors import CODED_DTYPES

STREAM_MAX = 2**31 - 1
"""Elements of a parameter: an index is an int32."""


def stream_plan(account: Account, buffer: GradientBuffer) -> CodePlan:
    """Where the elements of buffers of this layout lie; a group is one element of the stream."""
    may_lack = buffer.values.dtype in CODED_DTYPES and buffer.group.size() > 1
    return plan_of(
        buffer.layout,
        lambda segment: may_lack and segment.count <= STREAM_MAX and not is_exact(segment, account),
        buffer.parts,
        scattered=buffer.scattered,
        group_values=1,
    )


def put_stream(buffer: GradientBuffer, plan: CodePlan, total: Tensor, output: Tensor) -> None:
    """Puts a sum in its places in the buffer's result. `total`: of the stream; of a reduce-scatter: of its own part."""
    origin = buffer.own[0] if buffer.scattered else 0
    for begin, count, at in (plan.part_runs(buffer.rank) if buffer.scattered else plan.runs).tolist():
        output[begin - origin : begin - origin + count] = total[at : at + count]
