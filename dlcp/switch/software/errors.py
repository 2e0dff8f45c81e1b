"""What the software switch raises."""

from __future__ import annotations

from dlcp.errors import DlcpError
from dlcp.switch.port_names import PortNameError as PortNameError


class SwitchError(DlcpError):
    """A switch that does not start, does not answer, or refuses; the text is its own."""
