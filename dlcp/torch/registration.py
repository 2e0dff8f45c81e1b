"""Making the name "dlcp" known to torch.distributed.

torch calls `register` while it is being imported itself (entry point of the group torch.backends), so this module
imports nothing but what torch has loaded by then, and the engine only when a group is made. A registration must
never be the reason why `import torch` fails: without torch.distributed there is nothing to register, and that is all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlcp.torch.backend_name import BACKEND_NAME

if TYPE_CHECKING:
    from dlcp.torch.process_group import ProcessGroup


def register() -> None:
    """Makes init_process_group("dlcp") work. May be called any number of times."""
    import torch.distributed as dist

    if not dist.is_available() or BACKEND_NAME.upper() in dist.Backend._plugins:
        return
    # Naming the devices takes none of them over: torch gives "cpu" to Gloo and "cuda" to NCCL when no name is given.
    dist.Backend.register_backend(BACKEND_NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(backend_options: Any, pg_options: Any = None) -> ProcessGroup:
    """What torch calls for every group of this backend that this rank is in."""
    from dlcp.torch.process_group import ProcessGroup

    return ProcessGroup.create(backend_options, pg_options)
