"""What simulated hosts are beside the ones that ship, in words: the head of every result.

What packets cost hosts is said in sim/core/host_costs.cpp alone. Of dlcp's hosts every setting of the engine is held
against the library's default. What may differ without a scenario's saying so has its reason in `REASONS`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlcp_sim.transports.base import Transport

WIDTH = 80
COSTS = {
    "free": "packets cost them no time",
    "sockets": "packets cost them what the kernel's UDP or TCP and a program's engine cost",
    "xdp": "packets cost them what a driver below the kernel and a program's engine cost",
}
"""By `Scenario.hosts`."""

RUNS = "by what packets cost, single ones where longer runs save nothing, as below the kernel"
CLOCK = "simulated timers are never late"
PACKETS = "packets as others have them, those of jumbo frames"
FABRIC = "set to the fabric, as a deployer would"
MEMORY = "without these bounds: the application has asked for all that comes"
PAYLOAD = "payload is counted, not carried"
FLOWS = "flows are received when they are announced"
REASONS: Mapping[str, str] = {
    "run_packets": RUNS,
    "timer_granularity_s": CLOCK,
    "max_datagram_bytes": PACKETS,
    **dict.fromkeys(("target_delay_s", "initial_rtt_s", "max_ack_delay_s"), FABRIC),
    **dict.fromkeys(("initial_window_bytes", "max_window_bytes", "eager_bytes", "line_rate_bps"), FABRIC),
    **dict.fromkeys(("receive_buffer_bytes", "max_unexpected_bytes", "max_unexpected_message_bytes"), MEMORY),
    **dict.fromkeys(("max_messages_per_peer", "max_peers"), MEMORY),
    "announce_unexpected": FLOWS,
    "virtual_payload": PAYLOAD,
}
"""Why a setting of dlcp's simulated hosts differs from the library's default, by the library's name."""


def beside_shipped(transport: Transport) -> dict[str, tuple[Any, Any]]:
    """By name, the settings in which dlcp's simulated hosts differ: theirs and the library's. None: by the fabric.

    Empty for transports that do not ship.
    """
    from dlcp_sim import _core

    if transport.name != "dlcp":
        return {}
    found = {}
    for name, (simulated, shipped) in _core.engine_settings(transport.parameters()).items():
        if name == "line_rate_bps" or getattr(transport, name, shipped) is None:
            simulated = None
        if simulated != shipped:
            found[name] = (simulated, shipped)
    return found


def host_lines(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Which hosts a result holds for, from its metadata; nothing for one that was saved before this was kept."""
    hosts = metadata["scenario"].get("hosts")
    if hosts is None:
        return
    yield f"hosts: {hosts}, {COSTS.get(hosts, '')}"
    groups: dict[str, list[str]] = {"": [], FABRIC: [], RUNS: [], MEMORY: []}
    for name, (simulated, shipped) in (metadata.get("beside_shipped") or {}).items():
        reason = REASONS.get(name)
        if reason == MEMORY or simulated is None:
            groups[reason or FABRIC].append(name)
        else:
            groups[""].append(f"{name} {simulated} ({shipped})")
    words = [
        f"{reason}{': ' if reason else ''}{', '.join(names)}" for reason, names in groups.items() if names
    ]
    if words:
        text = f"dlcp's hosts beside the shipped ones (in brackets): {'; '.join(words)}"
        yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ")
