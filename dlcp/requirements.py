"""What dlcp needs that may be missing, and what mends it. Loads nothing: it is read where torch is being imported."""

from __future__ import annotations

OLDEST_TORCH = "2.11"
"""pyproject.toml accepts none before it. 2.4 and 2.6 let go of a work's half in Python: functional collectives hang."""
UPGRADE_TORCH = "pip install -U torch"
