"""pFabric: networks serve what has least left, hosts do next to nothing (Alizadeh et al., SIGCOMM 2013)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcp_sim.transports.base import Transport, native

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@native
class PFabric(Transport):
    """Flows start at line rate with a window of one bandwidth-delay product; losses are noticed by a small timeout.

    Every packet's rank is what its flow has left; ports send the least and drop the most. After some timeouts in a row
    a flow probes with packets without payload, one per timeout, until one is answered.
    """

    name = "pfabric"
    discipline = "least_rank"

    def policy(self, fabric: Fabric) -> Policy:
        """Two bandwidth-delay products of buffer per port, packets sprayed."""
        from dlcp_sim import switches

        return switches.pfabric(fabric, packet_bytes=self.payload_bytes + self.header_bytes)
