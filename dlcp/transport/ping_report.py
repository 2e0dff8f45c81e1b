"""What ping measured, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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


def report(
    endpoint: Endpoint,
    rank: int,
    before: EndpointStatistics,
    samples: Sequence[PingSample],
    held_packets: int = 0,
) -> Iterator[str]:
    """Goodput, latency and losses of a run, then a table of classes and one of paths.

    `held_packets`: what the listener dropped since it had no room for it.
    """
    if not samples:
        yield "no message ended"
        return
    yield from _summary(endpoint, before, samples)
    if held_packets:
        yield f"held           {held_packets} packets dropped by the listener, which had no room for them; sent again"
    yield ""
    yield from _class_table(samples)
    yield ""
    yield from _path_table(endpoint, rank)


def _summary(endpoint: Endpoint, before: EndpointStatistics, samples: Sequence[PingSample]) -> Iterator[str]:
    engine, old = endpoint.stats().engine, before.engine
    elapsed_s = max(sample.ended_s for sample in samples)
    delivered_bytes = sum(sample.outcome.delivered_bytes for sample in samples)
    packets = engine.data_packets_sent - old.data_packets_sent
    sent_bytes = engine.data_bytes_sent - old.data_bytes_sent
    repair_bytes = engine.repair_bytes_sent - old.repair_bytes_sent
    message_bytes = sum(sample.outcome.message_bytes for sample in samples)
    abandoned_bytes = sum(sample.outcome.abandoned_bytes for sample in samples)
    yield f"messages       {len(samples)} in {_seconds(elapsed_s)}"
    rate = delivered_bytes / elapsed_s
    yield f"goodput        {_bytes(rate)}/s ({rate * 8e-9:.3g} Gbit/s)"
    times = _latency_s(samples)
    yield "latency        " + "  ".join(
        f"{name} {_seconds(np.percentile(times, q))}" for name, q in QUANTILES.items()
    )
    # Both are of packets declared lost; what came late was not.
    late = engine.spurious_losses - old.spurious_losses
    lost = max(0, engine.lost_packets - old.lost_packets - late)
    yield f"lost           {lost} of {packets} packets ({_percent(lost, packets)}), {late} more came late"
    yield f"retransmitted  {_bytes(repair_bytes)} ({_percent(repair_bytes, sent_bytes)} of what was sent)"
    yield f"abandoned      {_bytes(abandoned_bytes)} ({_percent(abandoned_bytes, message_bytes)} of the messages)"


def _class_table(samples: Sequence[PingSample]) -> Iterator[str]:
    yield "class  messages     goodput        p50        p99  abandoned"
    for traffic_class in sorted({sample.traffic_class for sample in samples}):
        own = [sample for sample in samples if sample.traffic_class == traffic_class]
        delivered_bytes = sum(sample.outcome.delivered_bytes for sample in own)
        message_bytes = sum(sample.outcome.message_bytes for sample in own)
        abandoned_bytes = sum(sample.outcome.abandoned_bytes for sample in own)
        times = _latency_s(own)
        rate = _bytes(delivered_bytes / max(sample.ended_s for sample in samples)) + "/s"
        yield (
            f"{traffic_class:5}  {len(own):8}  {rate:>10}  {_seconds(np.percentile(times, 50)):>9}"
            f"  {_seconds(np.percentile(times, 99)):>9}  {_percent(abandoned_bytes, message_bytes):>9}"
        )


def _path_table(endpoint: Endpoint, rank: int) -> Iterator[str]:
    yield " path      sent     acked      lost    marked        rtt  state"
    for path in endpoint.path_stats(rank):
        yield (
            f"{path.path:5}  {path.packets_sent:8}  {path.packets_acked:8}  {path.packets_lost:8}  {path.ce_packets:8}"
            f"  {_seconds(path.rtt_s):>9}  {'up' if path.up else 'down'}"
        )


def _latency_s(samples: Sequence[PingSample]) -> npt.NDArray[np.float64]:
    return np.array([sample.outcome.waited_s for sample in samples])


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
