"""The other transports: the policy that each one's authors would give switches. Settings come from native tables.

Two more are in tcp.py, and the engine that ships in dlcp.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlcp.switch.policy import Thresholds, TrafficClass
from dlcp_sim import switches
from dlcp_sim.transports.base import Transport, native

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@native
class LineRate(Transport):
    """Every flow at its host's line rate, no acknowledgements: for closed forms, bounds and speed.

    It repairs nothing, so a packet that is lost stays lost and its flow is never delivered.
    """

    name = "line_rate"

    def policy(self, fabric: Fabric) -> Policy:
        """Queues without bounds: what is sent arrives."""
        return switches.unbounded()


@native
class PFabric(Transport):
    """Networks serve what has least left, hosts do next to nothing (Alizadeh et al., SIGCOMM 2013).

    Flows start at line rate with a window of one bandwidth-delay product; a small timeout notices losses. Every
    packet's rank is what its flow has left; ports send the least and drop the most. After some timeouts in a row a
    flow probes with packets without payload, one per timeout, until one is answered.
    """

    name = "pfabric"
    discipline = "least_rank"

    def policy(self, fabric: Fabric) -> Policy:
        """Two bandwidth-delay products of buffer per port, packets sprayed."""
        return switches.pfabric(fabric, packet_bytes=self.payload_bytes + self.header_bytes)


@native
class Ndp(Transport):
    """Blind first windows, switches that trim to headers, receivers that pull (Handley et al., SIGCOMM 2017).

    A full first window leaves at line rate, its packets sprayed; then receivers pull, each at the pace of its own
    link. Receivers pull the flows of all traffic classes in turn, so that classes differ in switches only. What a
    switch trims is answered with a NACK and sent again when it is pulled; the timeout is for faults. A pull that is
    due as its packet arrives rides in the answer.
    """

    name = "ndp"
    serves_classes = False

    def policy(self, fabric: Fabric) -> Policy:
        """Queues of `queue_packets`, then trimming; headers and control ahead of data."""
        packet_bytes = self.payload_bytes + self.header_bytes
        policy = switches.ndp(fabric, packet_bytes=packet_bytes, queue_packets=self.queue_packets)
        headers = Thresholds(drop_above_bytes=self.header_queue_bytes)
        control = TrafficClass(switches.CONTROL_CLASS, critical=headers, droppable=(headers,))
        data = (one for one in policy.classes if one.number != switches.CONTROL_CLASS)
        return replace(policy, classes=(*data, control))


@native
class Dcqcn(Transport):
    """DCQCN over a fabric that loses nothing (Zhu et al., SIGCOMM 2015): what RDMA over Ethernet mostly runs on.

    Each flow is paced by a rate: cut when a receiver saw marks, recovered in stages. Go-back-N, priority flow
    control. Defaults are the paper's (table 14), but for `clamp_target`, which cards leave off: with it on, the
    target falls with each cut, and a flow needs milliseconds to come back from a long queue.
    """

    name = "dcqcn"

    def policy(self, fabric: Fabric) -> Policy:
        """Priority flow control; marks as in the paper, scaled with the rate. Paths by the id that the host writes."""
        return switches.lossless(
            fabric, packet_bytes=self.payload_bytes + self.header_bytes, path_choice="path_id"
        )


@native
class Uet(Transport):
    """A reliable transport after Ultra Ethernet (UET 1.0, mode RUD with NSCC): the honest baseline.

    Packets are sprayed over entropies, and good ones are used again. Switches trim what they cannot keep, a trimmed
    packet is asked for at once, and a window follows marks and delay. Messages are unordered and reliable. Defaults
    are those of the specification and of the consortium's reference model. Without `trimming` packets that find no
    room are lost, and found missing by later ones.
    """

    name = "uet"

    def policy(self, fabric: Fabric) -> Policy:
        """Marks from 0.2 to 0.8 bandwidth-delay products; above one, trimming, or loss where the buffer ends."""
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
