"""NDP: blind first windows, switches that trim to headers, receivers that pull (Handley et al., SIGCOMM 2017)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlcp.errors import ArgumentError
from dlcp_sim.transports.base import Transport, setting

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@dataclass(frozen=True)
class Ndp(Transport):
    """A full first window at line rate, packets sprayed; then receivers pull, each at the pace of its own link.

    What a switch trims is answered with a NACK and sent again when it is pulled; the timeout is for faults. A pull that
    is due as its packet arrives rides in the answer.
    """

    name = "ndp"

    payload_bytes: int = setting(4096, minimum=1, maximum=65_000, help="payload of a full packet")
    header_bytes: int = setting(
        64, minimum=1, maximum=1000, help="on the wire beside the payload; an ACK, NACK or PULL"
    )
    window_packets: int = setting(
        0,
        minimum=0,
        maximum=2**28 - 1,
        help="sent before the first pull; 0: a round trip's worth and an eighth",
    )
    paths: int = setting(
        64, minimum=1, maximum=65_536, help="path ids that a flow's packets take in turns; a power of two"
    )
    rto_s: float = setting(
        1e-3,
        minimum=1e-6,
        maximum=100,
        help="after which a packet without any answer is lost; three round trips at least",
    )
    queue_packets: int = setting(
        8, minimum=1, maximum=10_000, help="full packets that a switch's queue holds before it trims"
    )

    header_queue_bytes: int = setting(
        4_000_000,
        minimum=64,
        maximum=2**32 - 2,
        help="of headers and control that a switch's queue holds; where the authors return headers to their sender",
    )

    def check(self) -> None:
        """Paths are numbered by bits."""
        if self.paths & (self.paths - 1):
            raise ArgumentError(f"ndp.paths is {self.paths}; accepted: powers of two up to 65536")

    def parameters(self) -> dict[str, float]:
        """What the native transport is given; the queues are the switches'."""
        values = super().parameters()
        del values["queue_packets"], values["header_queue_bytes"]
        return values

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
