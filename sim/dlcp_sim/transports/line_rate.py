"""The leanest transport: hosts send at line rate and never listen. For closed forms, bounds and speed.

It repairs nothing, so a packet that is lost stays lost and its flow is never delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcp_sim.transports.base import Transport, native

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@native
class LineRate(Transport):
    """Every flow at its host's line rate, no acknowledgements, no repair."""

    name = "line_rate"

    def policy(self, fabric: Fabric) -> Policy:
        """Queues without bounds: what is sent arrives."""
        from dlcp_sim import switches

        return switches.unbounded()
