"""Which groups may answer for a group of torch's: itself, and those that serve some of its devices (backend.py).

Apart from the process group, so that what that group loads can look for it too.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch.distributed as dist


def groups_within(group: object) -> Iterator[object]:
    """The group first, then what serves its devices, of dlcp or not; of another object only that."""
    yield group
    if isinstance(group, dist.ProcessGroup):
        for device in group._device_types:
            yield getattr(group._get_backend(device), "group", None)
