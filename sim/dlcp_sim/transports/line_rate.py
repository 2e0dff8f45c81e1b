"""The leanest transport: hosts send at line rate and never listen. For closed forms, bounds and speed.

It repairs nothing, so a packet that is lost stays lost and its flow is never delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcp_sim.transports.base import Transport, setting

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@dataclass(frozen=True)
class LineRate(Transport):
    """Every flow at its host's line rate, no acknowledgements, no repair."""

    name = "line_rate"

    payload_bytes: int = setting(4096, minimum=1, maximum=65_000, help="payload of a full packet")
    header_bytes: int = setting(64, minimum=1, maximum=1000, help="on the wire beside the payload")
    ecn_capable: bool = setting(True, help="packets are critical: switches mark them rather than drop them")

    def policy(self, fabric: Fabric) -> Policy:
        """Queues without bounds: what is sent arrives."""
        from dlcp_sim import switches

        return switches.unbounded()
