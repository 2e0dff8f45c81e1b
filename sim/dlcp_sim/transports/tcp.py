"""TCP with NewReno or CUBIC, and DCTCP: the baselines of every flow-completion study, as Linux runs them.

Both have selective acknowledgements, loss detection by time with tail probes (RACK-TLP, RFC 8985), proportional rate
reduction (RFC 6937), and undo recoveries that timestamps prove spurious (RFC 4015). Congestion windows are counted in
segments of `mtu_bytes` less 52 bytes of headers, by default the 4096 bytes of payload that the others have; Ethernet
adds 38 on the wire. A flow takes one path. By default flows of collectives and training are messages on connections
that are kept, as such jobs keep them. A flow that starts by the clock is a new connection, as studies of flows have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcp.errors import ArgumentError
from dlcp_sim import switches
from dlcp_sim.transports.base import Transport, native

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric
    from dlcp_sim.workloads.load import Load

ETHERNET_BYTES = 38


class Segments(Transport):
    """What TCP and DCTCP have in common: segments, acknowledgements, timers."""

    def check(self) -> None:
        """Timeouts have an order."""
        super().check()
        if self.max_rto_s < self.min_rto_s:
            raise ArgumentError(
                f"{self.name}.max_rto_s is {self.max_rto_s}; accepted: from min_rto_s, {self.min_rto_s}"
            )

    def connections(self, load: Load) -> str:
        """By `persistent`, or by flow: those without a start of their own belong to a job."""
        of_jobs = load.flows["start_ps"] < 0
        if self.persistent is None and of_jobs.any() and not of_jobs.all():
            return "kept by jobs"
        return "kept" if self.persistent or (self.persistent is None and of_jobs.any()) else "new"


@native
class Tcp(Segments):
    """TCP over queues that drop at the tail."""

    name = "tcp"

    def policy(self, fabric: Fabric) -> Policy:
        """Drop-tail queues; with `ecn`, a step of marks as DCTCP has it."""
        if self.ecn:
            return switches.dctcp(fabric, packet_bytes=self.mtu_bytes + ETHERNET_BYTES)
        return switches.drop_tail(fabric)


@native
class Dctcp(Segments):
    """DCTCP (RFC 8257): a window that shrinks by the fraction of marks, over switches that mark above a step."""

    name = "dctcp"

    def policy(self, fabric: Fabric) -> Policy:
        """Marks above K: a seventh of a bandwidth-delay product, 20 packets at least."""
        return switches.dctcp(fabric, packet_bytes=self.mtu_bytes + ETHERNET_BYTES)
