"""What ends a training run early."""

from __future__ import annotations

from dlcp.errors import DlcpError


class TrainError(DlcpError, RuntimeError):
    """The run cannot start or go on; the message says why and what to do."""


class RankError(TrainError):
    """A rank ended with an error, or died."""
