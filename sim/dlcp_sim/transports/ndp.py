"""NDP: blind first windows, switches that trim to headers, receivers that pull (Handley et al., SIGCOMM 2017)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlcp_sim.transports.base import Transport, native

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@native
class Ndp(Transport):
    """A full first window at line rate, packets sprayed; then receivers pull, each at the pace of its own link.

    Receivers pull the flows of all traffic classes in turn, so that classes differ in switches only. What a switch
    trims is answered with a NACK and sent again when it is pulled; the timeout is for faults. A pull that is due as
    its packet arrives rides in the answer.
    """

    name = "ndp"
    serves_classes = False

    def policy(self, fabric: Fabric) -> Policy:
        """Queues of `queue_packets`, then trimming; headers and control ahead of data."""
        from dlcp.switch.policy import Thresholds, TrafficClass
        from dlcp_sim import switches

        packet_bytes = self.payload_bytes + self.header_bytes
        policy = switches.ndp(fabric, packet_bytes=packet_bytes, queue_packets=self.queue_packets)
        headers = Thresholds(drop_above_bytes=self.header_queue_bytes)
        control = TrafficClass(switches.CONTROL_CLASS, critical=headers, droppable=(headers,))
        data = (one for one in policy.classes if one.number != switches.CONTROL_CLASS)
        return replace(policy, classes=(*data, control))
