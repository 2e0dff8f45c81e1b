"""What dlcp needs that may be missing, and what mends it. Loads nothing: it is read where torch is being imported."""

from __future__ import annotations

import re

OLDEST_TORCH = "2.11"
"""pyproject.toml accepts none before it. 2.4 and 2.6 let go of a work's half in Python: functional collectives hang."""
UPGRADE_TORCH = "pip install -U torch"
INSTALL_TORCH = "pip install torch"
REBUILD = "in a checkout of dlcp, pip install --no-deps --force-reinstall --no-cache-dir ."
"""What builds dlcp again, with the drivers whose libraries are found then: no other package changes, and no wheel that
was built before is taken."""
_COMPILED = {"dlcp._native": "engine", "dlcp_sim": "simulator", "dlcp_sim._core": "simulator"}


def missing(error: ImportError) -> str | None:
    """What is not installed and what mends it, in a sentence. None: nothing that a user could mend."""
    found = re.match(r"cannot import name '(\w+)'", error.msg or "")
    name = f"{error.name}.{found[1]}" if found else error.name or ""
    if name in _COMPILED:
        return f"the compiled {_COMPILED[name]} does not load: {error}; install dlcp again; {REBUILD}"
    if name == "torch" and isinstance(error, ModuleNotFoundError):
        return f"this needs torch, which is not installed: {INSTALL_TORCH}"
    return None
