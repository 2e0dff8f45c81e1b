"""What ends a study early."""

from __future__ import annotations

from dlcp.errors import DlcpError


class StudyError(DlcpError, RuntimeError):
    """The study cannot start or go on; the message says why and what to do."""
