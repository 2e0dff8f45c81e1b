"""DCQCN over a fabric that loses nothing (Zhu et al., SIGCOMM 2015): what RDMA over Ethernet mostly runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcp_sim.transports.base import Transport, native

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric


@native
class Dcqcn(Transport):
    """Each flow paced by a rate: cut when a receiver saw marks, recovered in stages; go-back-N; priority flow control.

    Defaults are the paper's (table 14), but for `clamp_target`, which cards leave off: with it on, the target falls
    with each cut, and a flow needs milliseconds to come back from a long queue.
    """

    name = "dcqcn"

    def policy(self, fabric: Fabric) -> Policy:
        """Priority flow control; marks as in the paper, scaled with the rate. Paths by the id that the host writes."""
        from dlcp_sim import switches

        return switches.lossless(
            fabric, packet_bytes=self.payload_bytes + self.header_bytes, path_choice="path_id"
        )
