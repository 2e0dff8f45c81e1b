"""TCP with NewReno or CUBIC, and DCTCP: the baselines of every flow-completion study, as Linux runs them.

Both have selective acknowledgements, loss detection by time with tail probes (RACK-TLP, RFC 8985), proportional rate
reduction (RFC 6937), and undo recoveries that timestamps prove spurious (RFC 4015). Congestion windows are counted in
segments of `mtu_bytes` less 52 bytes of headers; Ethernet adds 38 on the wire. A flow is one connection on one path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcp.errors import ArgumentError
from dlcp_sim.transports.base import Transport, setting

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric

ETHERNET_BYTES = 38


@dataclass(frozen=True)
class Segments(Transport):
    """What TCP and DCTCP have in common: segments, acknowledgements, timers."""

    mtu_bytes: int = setting(1500, minimum=576, maximum=65_000, help="of an IP packet")
    min_rto_s: float = setting(
        0.2,
        minimum=1e-6,
        maximum=60,
        help="the least retransmission timeout above the round trip; Linux: 0.2",
    )
    max_rto_s: float = setting(120.0, minimum=1e-6, maximum=3600, help="its doublings end here")
    initial_window_packets: float = setting(
        10.0, minimum=1, maximum=10_000, help="of a new connection (RFC 6928)"
    )
    max_window_packets: float = setting(2.0**20, minimum=2, maximum=2**26, help="the receiver's buffer")
    ack_every: int = setting(2, minimum=1, maximum=1000, help="segments that share an acknowledgement")
    ack_delay_s: float | None = setting(
        None, minimum=0, maximum=1, help="the longest wait for them; none: 0.04, or half of min_rto_s if less"
    )
    tail_probe: bool = setting(True, help="whether a lost tail is probed after two round trips (TLP)")
    min_probe_s: float = setting(
        0.0, minimum=0, maximum=1, help="the least delay of a tail probe; Linux: 0.002"
    )
    proportional_reduction: bool = setting(True, help="whether recovery sends in proportion (PRR)")
    pacing: bool = setting(False, help="whether a window is spread over the round trip, as with Linux's fq")
    persistent: bool = setting(
        False, help="whether a flow goes on with the window of the last one of the same two hosts"
    )
    handshake: bool = setting(
        False, help="whether a new connection costs a round trip before its first segment"
    )

    def check(self) -> None:
        """Timeouts have an order."""
        if self.max_rto_s < self.min_rto_s:
            raise ArgumentError(
                f"{self.name}.max_rto_s is {self.max_rto_s}; accepted: from min_rto_s, {self.min_rto_s}"
            )


@dataclass(frozen=True)
class Tcp(Segments):
    """TCP over queues that drop at the tail."""

    name = "tcp"

    congestion: str = setting(
        "cubic", choices={"newreno": 0, "cubic": 1}, native="cubic", help="RFC 5681 and 6582, or RFC 9438"
    )
    ecn: bool = setting(False, help="whether marks count as losses, once a round trip (RFC 3168)")
    cubic_c: float = setting(0.4, minimum=1e-6, maximum=1e9, help="CUBIC's C, segments per second cubed")
    cubic_beta: float = setting(0.7, minimum=0.01, maximum=0.99, help="what CUBIC keeps at a loss")
    fast_convergence: bool = setting(True, help="CUBIC's, for newcomers")
    reno_friendly: bool = setting(True, help="whether CUBIC is never slower than Reno")
    hystart: bool = setting(False, help="whether slow start ends when delay rises (HyStart++, RFC 9406)")
    hystart_min_s: float = setting(
        4e-3, minimum=0, maximum=10, help="the least rise; longer than most fabrics"
    )
    hystart_max_s: float = setting(16e-3, minimum=0, maximum=10, help="the most that is waited for")

    def policy(self, fabric: Fabric) -> Policy:
        """Drop-tail queues; with `ecn`, a step of marks as DCTCP has it."""
        from dlcp_sim import switches

        if self.ecn:
            return switches.dctcp(fabric, packet_bytes=self.mtu_bytes + ETHERNET_BYTES)
        return switches.drop_tail(fabric)


@dataclass(frozen=True)
class Dctcp(Segments):
    """DCTCP (RFC 8257): a window that shrinks by the fraction of marks, over switches that mark above a step."""

    name = "dctcp"

    min_rto_s: float = setting(
        0.01, minimum=1e-6, maximum=60, help="as in TCP; the authors ran 0.01 (SIGCOMM 2010, section 4)"
    )
    gain: float = setting(
        0.0625, minimum=1e-4, maximum=1, help="g, the weight of the last round trip's marks"
    )

    def policy(self, fabric: Fabric) -> Policy:
        """Marks above K: a seventh of a bandwidth-delay product, 20 packets at least."""
        from dlcp_sim import switches

        return switches.dctcp(fabric, packet_bytes=self.mtu_bytes + ETHERNET_BYTES)
