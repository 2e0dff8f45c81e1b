"""The torch.distributed backend: init_process_group("dlcp").

    import torch.distributed as dist

    dist.init_process_group("dlcp")

An installed dlcp registers itself when torch is imported (entry point of the group torch.backends). Where that is
switched off (TORCH_DEVICE_BACKEND_AUTOLOAD=0), importing this package or calling `register()` does the same, as
often as one likes. `Options` are what `pg_options` takes; every setting of it has a DLCP_ variable too.

The process group itself, and with it the engine, loads when the first group is made: importing this package costs
torch programs that do not use dlcp nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlcp.torch.registration import BACKEND_NAME, register

if TYPE_CHECKING:
    from dlcp.torch.barriers import monitored_barrier
    from dlcp.torch.gradient.context import gradients
    from dlcp.torch.gradient.fsdp import BoundedReduceScatter, shard_gradients
    from dlcp.torch.gradient.hook import gradient_hook
    from dlcp.torch.gradient.options import GradientOptions, ResidualRule
    from dlcp.torch.gradient.phase import PhaseRule
    from dlcp.torch.gradient.replicas import ReplicaError
    from dlcp.torch.gradient.state import GradientState
    from dlcp.torch.hooks import bfloat16_compress_hook, fp16_compress_hook
    from dlcp.torch.layerwise import LayerwiseOptimizer
    from dlcp.torch.options import Options
    from dlcp.torch.process_group import ProcessGroup

__all__ = [
    "BACKEND_NAME",
    "BoundedReduceScatter",
    "GradientOptions",
    "GradientState",
    "LayerwiseOptimizer",
    "Options",
    "PhaseRule",
    "ProcessGroup",
    "ReplicaError",
    "ResidualRule",
    "bfloat16_compress_hook",
    "fp16_compress_hook",
    "gradient_hook",
    "gradients",
    "monitored_barrier",
    "register",
    "shard_gradients",
]

# Where the names live that are loaded when they are asked for.
_LATER = {
    "BoundedReduceScatter": "gradient.fsdp",
    "GradientOptions": "gradient.options",
    "GradientState": "gradient.state",
    "LayerwiseOptimizer": "layerwise",
    "Options": "options",
    "PhaseRule": "gradient.phase",
    "ProcessGroup": "process_group",
    "ReplicaError": "gradient.replicas",
    "ResidualRule": "gradient.options",
    "bfloat16_compress_hook": "hooks",
    "fp16_compress_hook": "hooks",
    "gradient_hook": "gradient.hook",
    "gradients": "gradient.context",
    "monitored_barrier": "barriers",
    "shard_gradients": "gradient.fsdp",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


register()
