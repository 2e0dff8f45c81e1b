"""A reliable transport after Ultra Ethernet (UET 1.0, mode RUD with NSCC): the honest baseline.

Packets are sprayed over entropies, good ones are used again, switches trim what they cannot keep, a trimmed packet is
asked for at once, a window follows marks and delay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlcp.errors import ArgumentError
from dlcp_sim.transports.base import Transport, setting

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@dataclass(frozen=True)
class Uet(Transport):
    """Spraying, trimming, selective repeat and NSCC's window; unordered and reliable.

    Defaults are those of the specification and of the consortium's reference model. Without `trimming` packets that
    find no room are lost, and found missing by later ones.
    """

    name = "uet"

    payload_bytes: int = setting(4096, minimum=1, maximum=60_000, help="payload of a full packet")
    header_bytes: int = setting(64, minimum=24, maximum=1000, help="on the wire beside the payload")
    entropies: int = setting(
        256, minimum=1, maximum=256, help="path ids that packets are sprayed over; a power of two"
    )
    recycle: bool = setting(True, help="an entropy that came back without a mark is used again next (REPS)")
    trimming: bool = setting(True, help="switches may cut payloads off; otherwise they drop")
    probe: bool = setting(
        True, help="who hears nothing for some round trips asks what has come, before it times out"
    )
    ack_bytes: int = setting(
        16_384, minimum=0, maximum=2**30, help="received for one acknowledgement; 0: one for each packet"
    )
    max_window_bdp: float = setting(
        1.5, minimum=0.01, maximum=1000, help="the greatest window, in bandwidth-delay products"
    )
    target_delay_rtt: float | None = setting(
        None,
        minimum=0.01,
        maximum=100,
        help="queueing delay aimed at, in round trips; 0.75 with trimming, 1 without",
    )
    base_rtt_s: float | None = setting(
        None,
        minimum=1e-9,
        maximum=10,
        help="the network's round trip, which delays are judged by; the longest of the flows'",
    )
    min_rto_s: float | None = setting(
        None, minimum=1e-9, maximum=10, help="the timeout before it backs off; 8 round trips"
    )
    reorder_rtt: float | None = setting(
        None,
        minimum=0.01,
        maximum=100,
        help="a packet is lost when one sent so many round trips later has come; 2 with trimming, 1 without",
    )
    delay_gain: float = setting(
        0.0125, minimum=1e-6, maximum=1, help="of the moving average of delays that a decrease goes by"
    )

    def check(self) -> None:
        """Entropies are numbered by bits."""
        if self.entropies & (self.entropies - 1):
            raise ArgumentError(f"uet.entropies is {self.entropies}; accepted: powers of two up to 256")

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
