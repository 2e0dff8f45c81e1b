"""Written by `python -m dlcp_sim.transports`: the transports and their settings, typed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlcp_sim.transports.base import Transport as Transport
from dlcp_sim.transports.base import native as native
from dlcp_sim.transports.base import setting as setting
from dlcp_sim.transports.tcp import Segments as Segments

TRANSPORTS: dict[str, type[Transport]]
CLASSES: dict[str, type[Transport]]

def transport_named(name: str, settings: Mapping[str, Any] | None = None) -> Transport: ...

@dataclass(frozen=True, kw_only=True)
class LineRate(Transport):
    payload_bytes: int = 4096
    header_bytes: int = 64
    ecn_capable: bool = True

@dataclass(frozen=True, kw_only=True)
class PFabric(Transport):
    payload_bytes: int = 1460
    header_bytes: int = 40
    window_packets: int = 0
    rto_s: float = 0.0
    probe_after_timeouts: int = 5
    paths: int = 64

@dataclass(frozen=True, kw_only=True)
class Ndp(Transport):
    payload_bytes: int = 4096
    header_bytes: int = 64
    window_packets: int = 0
    paths: int = 64
    rto_s: float = 0.001
    queue_packets: int = 8
    header_queue_bytes: int = 4000000

@dataclass(frozen=True, kw_only=True)
class Dcqcn(Transport):
    payload_bytes: int = 4096
    header_bytes: int = 64
    gain: float = 0.00390625
    notification_s: float = 5e-05
    alpha_timer_s: float = 5.5e-05
    increase_timer_s: float = 5.5e-05
    increase_bytes: float = 10000000.0
    fast_recovery_stages: int = 5
    additive_increase_bps: float = 40000000.0
    hyper_increase_bps: float = 400000000.0
    min_rate_bps: float = 100000000.0
    clamp_target: bool = False
    ack_bytes: int = 65536
    rto_s: float = 0.016777216
    spray: bool = False

@dataclass(frozen=True, kw_only=True)
class Uet(Transport):
    payload_bytes: int = 4096
    header_bytes: int = 64
    entropies: int = 256
    recycle: bool = True
    trimming: bool = True
    probe: bool = True
    ack_bytes: int = 16384
    max_window_bdp: float = 1.5
    target_delay_rtt: float | None = None
    base_rtt_s: float | None = None
    min_rto_s: float | None = None
    reorder_rtt: float | None = None
    delay_gain: float = 0.0125

@dataclass(frozen=True, kw_only=True)
class Dlcp(Transport):
    @property
    def packet_bytes(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    datagram_bytes: int = 4160
    lower_layer_bytes: int = 66
    paths: int = 64
    run_packets: int | None = None
    min_run_packets: int = 1
    switches_spray: str = "auto"
    congestion: str = "auto"
    target_delay_s: float | None = None
    initial_window_bytes: int | None = None
    max_window_bytes: int | None = None
    eager_bytes: int | None = None
    peer_timeout_s: float = 30.0
    initial_rtt_s: float | None = None
    min_rto_s: float = 0.0002
    max_rto_s: float = 1.0
    max_ack_delay_s: float | None = None
    timer_granularity_s: float = 0.0
    warm_sessions: bool = True
    trim: bool = True
    trim_critical: bool = True

@dataclass(frozen=True, kw_only=True)
class Tcp(Segments):
    mtu_bytes: int = 4148
    min_rto_s: float = 0.2
    max_rto_s: float = 120.0
    initial_window_packets: float = 10.0
    max_window_packets: float = 1048576.0
    ack_every: int = 2
    ack_delay_s: float | None = None
    tail_probe: bool = True
    min_probe_s: float = 0.0
    proportional_reduction: bool = True
    pacing: bool = False
    persistent: bool | None = None
    handshake: bool = False
    congestion: str = "cubic"
    ecn: bool = False
    cubic_c: float = 0.4
    cubic_beta: float = 0.7
    fast_convergence: bool = True
    reno_friendly: bool = True
    hystart: bool = False
    hystart_min_s: float = 0.004
    hystart_max_s: float = 0.016

@dataclass(frozen=True, kw_only=True)
class Dctcp(Segments):
    mtu_bytes: int = 4148
    min_rto_s: float = 0.01
    max_rto_s: float = 120.0
    initial_window_packets: float = 10.0
    max_window_packets: float = 1048576.0
    ack_every: int = 2
    ack_delay_s: float | None = None
    tail_probe: bool = True
    min_probe_s: float = 0.0
    proportional_reduction: bool = True
    pacing: bool = False
    persistent: bool | None = None
    handshake: bool = False
    gain: float = 0.0625

__all__ = [
    "CLASSES",
    "TRANSPORTS",
    "Dcqcn",
    "Dctcp",
    "Dlcp",
    "LineRate",
    "Ndp",
    "PFabric",
    "Tcp",
    "Transport",
    "Uet",
    "native",
    "setting",
    "transport_named",
]
