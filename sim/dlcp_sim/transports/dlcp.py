"""dlcp: the engine that ships, on every host, with virtual payload. Its collectives: workloads/executor.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcp_sim import switches
from dlcp_sim.transports.base import Transport, native

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric
    from dlcp_sim.workloads.load import Load

HEADER_BYTES = 64
"""Of dlcp's own header (native/engine/wire.hpp)."""


@native
class Dlcp(Transport):
    """The shipping protocol engine, packet by packet, tuned to the fabric as a deployer would.

    What is None follows from the fabric's longest unloaded round trip T between hosts that talk, and from each host's
    rate: a queueing delay of 0.75 T is aimed at, and up to one and a half bandwidth-delay products are in flight. The
    least timeout is 4 T and what drains a port's buffer; an acknowledgement waits T / 4. The engine's other settings
    are accepted too.
    """

    name = "dlcp"
    may_lose = True

    @property
    def packet_bytes(self) -> int:
        """A full packet on the wire."""
        return int(self.datagram_bytes + self.lower_layer_bytes)

    @property
    def block_bytes(self) -> int:
        """Payload of a full packet, in multiples of 16."""
        return int(self.datagram_bytes - HEADER_BYTES) // 16 * 16

    def connections(self, load: Load) -> str:
        """A session of two hosts outlives its messages."""
        return "kept"

    def policy(self, fabric: Fabric) -> Policy:
        """Critical packets are marked first; droppable ones make room before them, least important first."""
        return switches.dlcp(fabric, packet_bytes=self.packet_bytes, trim=self.trim)
