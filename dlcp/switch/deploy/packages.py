"""The optional packages that P4Runtime needs, asked for before anything of them is imported."""

from __future__ import annotations

import importlib.util

from dlcp.errors import DriverError


def require() -> None:
    """DriverError that says what to install, unless finsy and gRPC are there."""
    missing = [name for name in ("finsy", "grpc") if importlib.util.find_spec(name) is None]
    if missing:
        raise DriverError(
            f"P4Runtime needs the package {missing[0]}: pip install '.[p4]' in a checkout of dlcp"
        )
