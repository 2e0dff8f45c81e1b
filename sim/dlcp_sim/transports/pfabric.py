"""pFabric: networks serve what has least left, hosts do next to nothing (Alizadeh et al., SIGCOMM 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcp.errors import ArgumentError
from dlcp_sim.transports.base import Transport, setting

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@dataclass(frozen=True)
class PFabric(Transport):
    """Flows start at line rate with a window of one bandwidth-delay product; losses are noticed by a small timeout.

    Every packet's rank is what its flow has left; ports send the least and drop the most. After some timeouts in a row
    a flow probes with packets without payload, one per timeout, until one is answered.
    """

    name = "pfabric"
    discipline = "least_rank"

    payload_bytes: int = setting(1460, minimum=1, maximum=65_000, help="payload of a full packet")
    header_bytes: int = setting(
        40, minimum=1, maximum=1000, help="on the wire beside the payload; an acknowledgement, a probe"
    )
    window_packets: int = setting(
        0, minimum=0, maximum=2**28 - 1, help="the largest window, and the first; 0: a round trip's worth"
    )
    rto_s: float = setting(
        0.0,
        minimum=0,
        maximum=100,
        help="fixed retransmission timeout; 0: three round trips, as the paper's 45 µs",
    )
    probe_after_timeouts: int = setting(5, minimum=1, maximum=10**6, help="in a row; the paper's five")
    paths: int = setting(
        64, minimum=1, maximum=65_536, help="path ids that a flow's packets take in turns; a power of two"
    )

    def check(self) -> None:
        """Paths are numbered by bits."""
        if self.paths & (self.paths - 1):
            raise ArgumentError(f"pfabric.paths is {self.paths}; accepted: powers of two up to 65536")

    def policy(self, fabric: Fabric) -> Policy:
        """Two bandwidth-delay products of buffer per port, packets sprayed."""
        from dlcp_sim import switches

        return switches.pfabric(fabric, packet_bytes=self.payload_bytes + self.header_bytes)
