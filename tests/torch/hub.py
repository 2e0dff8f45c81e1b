"""A hub on loopback for ranks of the backend, and the environment that sends them there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlcp.hub.service import HubService

MIB = 1 << 20


@contextmanager
def environment_of_hub(
    folder: Path, *, memory_bytes: int, root: int | None = None
) -> Iterator[dict[str, str]]:
    """`memory_bytes`: of the hub; a job has a quarter. `root`: Adam's square roots (HubService.vml_square_root)."""
    key = bytes(range(32))
    path = folder / "key"
    path.touch(0o600)
    path.write_text(key.hex())
    with HubService(
        "127.0.0.1",
        0,
        {"job": key},
        cores=2,
        memory_bytes=memory_bytes,
        job_memory_bytes=memory_bytes // 4,
        vml_square_root=root,
    ) as hub:
        yield {"DLCP_HUB": hub.address, "DLCP_KEY_FILE": str(path)}
