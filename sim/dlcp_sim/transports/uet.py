"""A reliable transport after Ultra Ethernet (UET 1.0, mode RUD with NSCC): the honest baseline.

Packets are sprayed over entropies, good ones are used again, switches trim what they cannot keep, a trimmed packet is
asked for at once, a window follows marks and delay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlcp_sim.transports.base import Transport, native

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@native
class Uet(Transport):
    """Spraying, trimming, selective repeat and NSCC's window; unordered and reliable.

    Defaults are those of the specification and of the consortium's reference model. Without `trimming` packets that
    find no room are lost, and found missing by later ones.
    """

    name = "uet"

    def policy(self, fabric: Fabric) -> Policy:
        """Marks from 0.2 to 0.8 bandwidth-delay products; above one, trimming, or loss where the buffer ends."""
        from dlcp_sim import switches

        trimming = switches.trimming(fabric, packet_bytes=self.payload_bytes + self.header_bytes)
        if self.trimming:
            return trimming
        classes = tuple(
            replace(
                one,
                critical=replace(one.critical, trim_above_bytes=None),
                droppable=tuple(replace(level, trim_above_bytes=None) for level in one.droppable),
            )
            for one in trimming.classes
        )
        return replace(
            trimming, name="marking", classes=classes, port_bytes=switches.port_buffer_bytes(fabric)
        )
