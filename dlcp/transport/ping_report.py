"""What ping measured, as numbers and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlcp.transport.endpoint import Endpoint
from dlcp.transport.outcome import Outcome
from dlcp.transport.statistics import EndpointStatistics

QUANTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}


@dataclass(frozen=True)
class PingSample:
    """One message that ended."""

    traffic_class: int
    ended_s: float
    """Since the run began."""
    outcome: Outcome


def figures(
    endpoint: Endpoint,
    rank: int,
    before: EndpointStatistics,
    samples: Sequence[PingSample],
    held_packets: int = 0,
) -> dict[str, Any]:
    """What a run measured, as plain numbers, by class and by path too.

    `held_packets`: what the listener dropped since it had no room for it.
    """
    if not samples:
        return {"messages": 0}
    engine, old = endpoint.stats().engine, before.engine
    elapsed_s = max(sample.ended_s for sample in samples)
    # Both are of packets declared lost; what came late was not.
    late = engine.spurious_losses - old.spurious_losses
    return {
        **_of_messages(samples, elapsed_s),
        "elapsed_s": elapsed_s,
        "packets": engine.data_packets_sent - old.data_packets_sent,
        "lost_packets": max(0, engine.lost_packets - old.lost_packets - late),
        "late_packets": late,
        "sent_bytes": engine.data_bytes_sent - old.data_bytes_sent,
        "repair_bytes": engine.repair_bytes_sent - old.repair_bytes_sent,
        "held_packets": held_packets,
        "classes": [
            {"class": number}
            | _of_messages([sample for sample in samples if sample.traffic_class == number], elapsed_s)
            for number in sorted({sample.traffic_class for sample in samples})
        ],
        "paths": [
            {
                "path": path.path,
                "packets_sent": path.packets_sent,
                "packets_acked": path.packets_acked,
                "packets_lost": path.packets_lost,
                "ce_packets": path.ce_packets,
                "rtt_s": path.rtt_s,
                "up": path.up,
            }
            for path in endpoint.path_stats(rank)
        ],
    }


def _of_messages(samples: Sequence[PingSample], elapsed_s: float) -> dict[str, Any]:
    outcomes = [sample.outcome for sample in samples]
    times_s = np.array([outcome.waited_s for outcome in outcomes])
    return {
        "messages": len(outcomes),
        "message_bytes": sum(outcome.message_bytes for outcome in outcomes),
        "abandoned_bytes": sum(outcome.abandoned_bytes for outcome in outcomes),
        "goodput_bps": 8 * sum(outcome.delivered_bytes for outcome in outcomes) / elapsed_s,
        "latency_s": {name: float(np.percentile(times_s, q)) for name, q in QUANTILES.items()},
    }


def report(found: Mapping[str, Any]) -> Iterator[str]:
    """Goodput, latency and losses of a run's figures, then a table of classes and one of paths."""
    if not found["messages"]:
        yield "no message ended"
        return
    yield from _summary(found)
    if found["held_packets"]:
        packets = f"{found['held_packets']} packets"
        yield f"held           {packets} dropped by the listener, which had no room for them; sent again"
    yield ""
    yield "class  messages     goodput        p50        p99  abandoned"
    for one in found["classes"]:
        times_s = one["latency_s"]
        yield (
            f"{one['class']:5}  {one['messages']:8}  {_bytes(one['goodput_bps'] / 8) + '/s':>10}"
            f"  {_seconds(times_s['p50']):>9}  {_seconds(times_s['p99']):>9}"
            f"  {_percent(one['abandoned_bytes'], one['message_bytes']):>9}"
        )
    yield ""
    yield " path      sent     acked      lost    marked        rtt  state"
    for path in found["paths"]:
        counts = (path[name] for name in ("packets_sent", "packets_acked", "packets_lost", "ce_packets"))
        yield (
            f"{path['path']:5}  {'  '.join(f'{count:8}' for count in counts)}"
            f"  {_seconds(path['rtt_s']):>9}  {'up' if path['up'] else 'down'}"
        )


def _summary(found: Mapping[str, Any]) -> Iterator[str]:
    lost, packets, rate = found["lost_packets"], found["packets"], found["goodput_bps"] / 8
    repair_bytes, abandoned_bytes = found["repair_bytes"], found["abandoned_bytes"]
    yield f"messages       {found['messages']} in {_seconds(found['elapsed_s'])}"
    yield f"goodput        {_bytes(rate)}/s ({rate * 8e-9:.3g} Gbit/s)"
    yield "latency        " + "  ".join(
        f"{name} {_seconds(value)}" for name, value in found["latency_s"].items()
    )
    late = found["late_packets"]
    yield f"lost           {lost} of {packets} packets ({_percent(lost, packets)}), {late} more came late"
    share = _percent(repair_bytes, found["sent_bytes"])
    yield f"retransmitted  {_bytes(repair_bytes)} ({share} of what was sent)"
    share = _percent(abandoned_bytes, found["message_bytes"])
    yield f"abandoned      {_bytes(abandoned_bytes)} ({share} of the messages)"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _seconds(time_s: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if time_s >= size:
            return f"{time_s / size:.3g} {unit}"
    return f"{time_s * 1e6:.3g} us"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3g} %" if whole else "0 %"
