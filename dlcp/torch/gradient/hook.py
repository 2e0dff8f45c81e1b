"""The communication hook of DistributedDataParallel.

    state = dlcp.torch.GradientState(model)
    model.register_comm_hook(state, dlcp.torch.gradient_hook)

DDP copies results out of what the hook returns, with gradient_as_bucket_view and without, so results out of place cost
no further copy. no_sync() never comes here. Sparse gradients, and types that cannot be lost in part, travel as plain
collectives.

Under find_unused_parameters DDP discards the result of a parameter that no rank has used, and knows that only when all
buckets are over. So a rank that has no gradient of a parameter keeps what it kept; and when DDP is done, watched.py
sees which gradients it has left alone.
"""

# No `from __future__ import annotations`: register_comm_hook looks at the annotations themselves.

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import GradientExchange, exchange_of
from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.torch.gradient.state import GradientState
from dlcp.torch.tensors import FLOATING_DTYPES


def gradient_hook(state: GradientState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket over the state's group, by its recipe. `model.register_comm_hook(state, this)`.

    All ranks end with the same bits. Raises TypeError: a state that is none, or a group of another backend than dlcp;
    ValueError: a parameter that is not the model's. The future raises the collective's errors, from backward().
    """
    if not isinstance(state, GradientState):
        raise TypeError(f"the hook's state is a {type(state).__name__}; accepted: dlcp.torch.GradientState")
    exchange, buffer = exchange_of(state), bucket.buffer()
    if buffer.layout is not torch.strided or buffer.dtype not in FLOATING_DTYPES:
        future = _plain(exchange, buffer)
        if bucket.is_last():
            state.mark_last()
    else:
        layout = layout_of(state, bucket)
        call = BufferCall(average=True, last_of_step=bucket.is_last(), unused=state.watched.unused(layout))
        future = exchange.all_reduce(buffer, layout, call)
        state.watched.add(layout, buffer)
    state.watched.when_over(bucket, state.end_backward)
    return future


def layout_of(state: GradientState, bucket: GradBucket) -> Layout:
    """Where parameters lie in a bucket. In the order of memory: that of a channels_last parameter is its own."""
    buffer = bucket.buffer()
    start, itemsize = buffer.data_ptr(), buffer.element_size()
    segments = [
        Segment(state.names.of(parameter), 0, (gradient.data_ptr() - start) // itemsize, gradient.numel())
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
        if gradient.numel()  # an empty one has no address
    ]
    return Layout(tuple(sorted(segments, key=lambda segment: segment.begin)), buffer.numel())


def _plain(exchange: GradientExchange, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp(dist.ReduceOp.AVG)
    options.asyncOp = True
    assert isinstance(exchange.group, dist.ProcessGroup)
    work = exchange.group.allreduce([buffer], options)
    future: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future
