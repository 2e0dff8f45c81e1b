"""The logger `dlcp`: the origin in every line, and the setting `log_level`.

Every message begins with the rank and, where there is one, the group. If `log_level` is set, messages from that level
on also go to standard error, unless the program has set up logging itself. If it is not set, Python prints warnings as
it does for any library.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

logger = logging.getLogger("dlcp")

LEVELS = ("debug", "info", "warning", "error")


class RankLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs for one rank of a job, or for a group of it."""

    def __init__(self, rank: int, group: str | None = None) -> None:
        super().__init__(logger)
        self._origin = f"rank {rank}" if group is None else f"rank {rank}, group {group}"

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        """The message behind its origin."""
        return f"{self._origin}: {msg}", kwargs


def set_level(level: str | None) -> None:
    """Obeys the setting `log_level`: one of LEVELS; None changes nothing. The last call wins."""
    if level is None:
        return
    logger.setLevel(level.upper())
    if not any(isinstance(handler, _LastResort) for handler in logger.handlers):
        logger.addHandler(_LastResort())


class _LastResort(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error as long as the program has not set up logging, which it may do later."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s dlcp %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)
