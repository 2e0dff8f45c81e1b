"""What an endpoint has counted, as frozen values. Fields carry the engine's names (native/engine/counters.hpp)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Packets, bytes of payload and messages since the endpoint opened. All only grow."""

    data_packets_sent: int
    data_bytes_sent: int
    header_bytes_sent: int
    control_packets_sent: int
    control_bytes_sent: int
    repair_packets_sent: int
    repair_bytes_sent: int
    acked_packets: int
    lost_packets: int
    """Declared lost by this sender."""
    spurious_losses: int
    """Declared lost, acknowledged later."""
    probes_sent: int
    datagrams_shrunk: int
    """A path stopped to carry datagrams of the size in use."""
    data_packets_received: int
    data_bytes_received: int
    data_bytes_placed: int
    """First copies: what the application got."""
    control_packets_received: int
    duplicate_blocks: int
    late_blocks: int
    ce_packets_received: int
    trimmed_packets_received: int
    held_packets: int
    """Dropped: no room for a message that nobody had asked for."""
    messages_sent: int
    messages_received: int
    messages_failed: int
    abandoned_blocks: int
    """As receiver."""
    abandoned_bytes: int
    abandoned_by_peer_blocks: int
    """As sender: what the peers reported."""
    abandoned_by_peer_bytes: int
    foreign_job: int
    stale_session: int
    bad_tag: int
    """Forged, damaged, or signed with another job key."""
    unauthenticated: int
    """Without a tag though there is a key here, or the reverse."""
    no_common_cipher: int
    """Of peers that do not have the cipher that setting `cipher` asks for, here or there."""
    replayed: int
    malformed_frames: int
    inconsistent: int
    malformed: dict[str, int]
    """Datagrams that are not dlcp's, by reason."""


@dataclass(frozen=True, slots=True)
class IoCounters:
    """What the driver moved, in datagrams and bytes of UDP payload."""

    tx_packets: int
    tx_bytes: int
    tx_calls: int
    rx_packets: int
    rx_bytes: int
    rx_calls: int
    tx_dropped_packets: int
    """Refused by the kernel or the network card: lost on this host."""
    rx_dropped_datagrams: int
    """Dropped before they were read; a lower bound."""
    rx_truncated_packets: int
    ce_packets: int
    channel_tx_packets: int = 0
    """Of the above, through shared memory; what a full ring refused is in tx_dropped_packets."""
    channel_tx_bytes: int = 0
    channel_rx_packets: int = 0
    channel_rx_bytes: int = 0
    channels: int = 0
    """Open now: peers of this host that are reached through shared memory."""


@dataclass(frozen=True, slots=True)
class PeerStatistics:
    """The state of the connection with one peer, now."""

    rank: int
    established: bool
    silent_s: float | None
    """Since the last authentic packet from there, of this session or one that has ended; None: there was none."""
    rtt_s: float
    rtt_s_min: float
    queue_delay_s: float
    window_bytes: int
    in_flight_bytes: int
    credit_bytes: int
    max_datagram_bytes: int


@dataclass(frozen=True, slots=True)
class PathStatistics:
    """One path to one peer. `loss_ratio` is of recent packets, `rtt_s` now; the counts only grow."""

    path: int
    packets_sent: int
    packets_acked: int
    packets_lost: int
    ce_packets: int
    loss_ratio: float
    rtt_s: float
    up: bool


@dataclass(frozen=True, slots=True)
class EndpointStatistics:
    """Everything that one endpoint has counted."""

    engine: EngineCounters
    io: IoCounters
    outstanding_operations: int
    log_entries_dropped: int
    driver_waits: int
    """Times a thread that drives this endpoint slept."""
    role_changes: int
    """Times a waiting caller took over from the I/O thread or from another caller."""
    injected_lost_packets: int = 0
    """Arrived, and dropped on purpose: the setting inject_loss_ratio."""

    @classmethod
    def from_native(cls, counted: dict[str, Any]) -> EndpointStatistics:
        """From what the runtime answers."""
        return cls(
            **(counted | {"engine": EngineCounters(**counted["engine"]), "io": IoCounters(**counted["io"])})
        )


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Something that happened to an endpoint as a whole."""

    time_s: float
    """The driver's monotonic clock."""
    kind: str
    """peer_established, peer_down, path_down, path_up or bound_reached; of drivers below the kernel link_down, link_up,
    no_buffers, neighbour_lost, neighbour_found, address_taken or device_gone."""
    error: str | None
    """Why a peer is down."""
    rank: int | None
    value: int
    """A path's id, or which bound."""
    waited_s: float
    """How long a peer that is down had been silent."""
    text: str = ""
    """Of a driver's event: its sentence, which names port or neighbour."""
