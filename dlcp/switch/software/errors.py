"""What the software switch raises."""

from __future__ import annotations

from dlcp.errors import DlcpError, SettingsError


class SwitchError(DlcpError):
    """A switch that does not start, does not answer, or refuses; the text is its own."""


class PortNameError(SettingsError):
    """A port that is not there, is named twice, or is missing from where it has to be."""
