"""Making the name "dlcp" known to torch.distributed.

torch calls `register` while it is being imported itself (entry point of the group torch.backends). So this module
imports nothing but what torch has loaded by then, and the engine only when a group is made. A registration must never
be the reason why `import torch` fails: without torch.distributed there is nothing to register, and that is all.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dlcp.requirements import OLDEST_TORCH, UPGRADE_TORCH
from dlcp.torch.backend_name import BACKEND_NAME

if TYPE_CHECKING:
    from dlcp.torch.backend import Backend
    from dlcp.torch.process_group import ProcessGroup


def register() -> None:
    """Makes init_process_group("dlcp") work. May be called any number of times."""
    import torch.distributed as dist

    if not dist.is_available() or BACKEND_NAME.upper() in dist.Backend._plugins:
        return
    # The devices that this backend serves. Their default backends stay Gloo ("cpu") and NCCL ("cuda").
    dist.Backend.register_backend(BACKEND_NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(backend_options: Any, pg_options: Any = None) -> ProcessGroup | Backend:
    """What torch calls for every group of this backend that this rank is in."""
    import torch

    if torch.__version__ < OLDEST_TORCH:
        raise ImportError(
            f"torch is {torch.__version__}; accepted by the backend dlcp: {OLDEST_TORCH} or later: {UPGRADE_TORCH}"
        )
    from dlcp.torch.process_group import ProcessGroup

    if not _has_other_backends():
        return ProcessGroup.create(backend_options, pg_options)
    from dlcp.torch.backend import Backend

    return Backend(ProcessGroup.create(backend_options, pg_options))


def _has_other_backends() -> bool:
    """Whether the group's backends are "cpu:gloo,cuda:dlcp" or the like. Raises ValueError: so before torch 2.14.

    torch takes a group in Python for all devices, and drops the backends of the others without a word; a Backend in
    Python it takes from 2.14 on. It does not say which were asked for, but its frame that calls this has them.
    """
    import torch

    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back  # type: ignore[assignment]
    config = None if frame is None else frame.f_locals.get("backend_config")
    devices = {} if config is None else config.get_device_backend_map()
    others = {device: name for device, name in devices.items() if name != BACKEND_NAME}
    if others and torch.__version__ < "2.14":
        asked = ",".join(f"{device}:{name}" for device, name in devices.items())
        raise ValueError(
            f"the backend is {asked!r}, but before torch 2.14 (here {torch.__version__}) a group of dlcp serves all"
            f" devices, and torch would drop {', '.join(others.values())}; accepted: {BACKEND_NAME!r} alone, and a"
            f" group of the other beside it: dist.new_group(backend={next(iter(others.values()))!r})"
        )
    return bool(others)
