"""The name under which torch.distributed knows the backend."""

from __future__ import annotations

BACKEND_NAME = "dlcp"
