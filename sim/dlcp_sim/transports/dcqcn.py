"""DCQCN over a fabric that loses nothing (Zhu et al., SIGCOMM 2015): what RDMA over Ethernet mostly runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcp_sim.transports.base import Transport, setting

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@dataclass(frozen=True)
class Dcqcn(Transport):
    """Each flow paced by a rate: cut when a receiver saw marks, recovered in stages; go-back-N; priority flow control.

    Defaults are the paper's (table 14), but for `clamp_target`, which cards leave off: with it on, the target falls
    with each cut, and a flow needs milliseconds to come back from a long queue.
    """

    name = "dcqcn"

    payload_bytes: int = setting(4096, minimum=1, maximum=60_000, help="payload of a full packet")
    header_bytes: int = setting(64, minimum=24, maximum=1000, help="on the wire beside the payload")
    gain: float = setting(1 / 256, minimum=1e-9, maximum=1, help="g: how fast alpha follows the marks")
    notification_s: float = setting(
        50e-6, minimum=0, maximum=1, help="least time between two notifications of a flow"
    )
    alpha_timer_s: float = setting(
        55e-6, minimum=1e-9, maximum=1, help="alpha decays once in it without a notification"
    )
    increase_timer_s: float = setting(55e-6, minimum=1e-9, maximum=1, help="T: a stage of increase by time")
    increase_bytes: float = setting(10e6, minimum=1, maximum=1e15, help="B: a stage of increase by bytes")
    fast_recovery_stages: int = setting(
        5, minimum=0, maximum=1000, help="F: stages that only halve the distance to the target"
    )
    additive_increase_bps: float = setting(
        40e6, minimum=0, maximum=1e12, help="R_AI: what the target rises by after those"
    )
    hyper_increase_bps: float = setting(
        400e6, minimum=0, maximum=1e12, help="R_HAI: and once both counters are beyond them, times the stage"
    )
    min_rate_bps: float = setting(100e6, minimum=1, maximum=1e12, help="a rate is never cut below")
    clamp_target: bool = setting(
        False, help="the target follows every cut; otherwise only the first after a stage of increase"
    )
    ack_bytes: int = setting(
        65_536, minimum=0, maximum=2**30, help="received for one acknowledgement; 0: one for each packet"
    )
    rto_s: float = setting(
        16.777216e-3,
        minimum=1e-9,
        maximum=100,
        help="without progress until the sender goes back (InfiniBand's local ACK timeout 12)",
    )
    spray: bool = setting(
        False, help="a path per packet, and receivers that take them in any order; otherwise a path per flow"
    )

    def policy(self, fabric: Fabric) -> Policy:
        """Priority flow control; marks as in the paper, scaled with the rate. Paths by the id that the host writes."""
        from dlcp_sim import switches

        return switches.lossless(
            fabric, packet_bytes=self.payload_bytes + self.header_bytes, path_choice="path_id"
        )
