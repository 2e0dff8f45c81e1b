"""Communication hooks for DistributedDataParallel.

torch's Python hooks work over dlcp as they are. Its built-in C++ hook that compresses
(BuiltinCommHookType.FP16_COMPRESS) expects a future that C++ has completed: DDP registers the one here in its place
(patches.py).
"""

# No `from __future__ import annotations`: register_comm_hook looks at the annotations themselves.

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket


def fp16_compress_hook(
    group: dist.ProcessGroup | None, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages gradients as float16: half the bytes. `model.register_comm_hook(None, fp16_compress_hook)`.

    The average is taken over `group` (None: the default group). A gradient above 65504 becomes infinite.
    """
    return _compressed(group, bucket, torch.float16)


# torch refuses hooks called bf16_compress_hook wherever the backend is not NCCL.
def bfloat16_compress_hook(
    group: dist.ProcessGroup | None, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages gradients as bfloat16: half the bytes, 8 bits of precision, the range of float32."""
    return _compressed(group, bucket, torch.bfloat16)


def _compressed(
    group: dist.ProcessGroup | None, bucket: GradBucket, dtype: torch.dtype
) -> torch.futures.Future[torch.Tensor]:
    group = dist.group.WORLD if group is None else group
    gradients: torch.Tensor = bucket.buffer()
    # Divided before the sum, which could leave the type's range.
    compressed = gradients.to(dtype).div_(dist.get_world_size(group))
    work = dist.all_reduce(compressed, group=group, async_op=True)

    def decompress(future: torch.futures.Future[Any]) -> torch.Tensor:
        return gradients.copy_(future.value()[0])

    future: torch.futures.Future[torch.Tensor] = work.get_future().then(decompress)
    return future
