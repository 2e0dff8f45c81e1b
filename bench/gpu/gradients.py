"""Gradients on CUDA: exact, and coded on the host or on the device; 64 MB, all ranks on one GPU.

An exchange is one buffer of float32 from the device back to it, in the order of its stream: exact values through pinned
memory; recipe low_bit (int4) with its codec in native code on the host, so that float32 crosses; and with the codec in
torch operations on the device, so that codes cross. It takes as long as in its slowest rank. Bytes that cross are
counted, where torch copies between device and host.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from bench.collectives.compare import MIB
from bench.collectives.world import DLCP, DLCP_SHM, Place, Ranks
from bench.report import Figure, Report, in_turn, ratios, slowest

NBYTES = 64 * MIB
WORLDS = (2, 4)
NETWORKS = (DLCP, DLCP_SHM)
WARMUP = 3
LOW: dict[str, Any] = {"recipe": "low_bit", "codec": "int4", "small_numel": 0, "warmup_steps": 0}


@dataclass(frozen=True)
class ExchangeVariant:
    """How gradients are exchanged."""

    label: str
    options: dict[str, Any]
    on_device: bool


VARIANTS = (
    ExchangeVariant("exact", {"recipe": "exact"}, False),
    ExchangeVariant("low_bit, host", LOW, False),
    ExchangeVariant("low_bit, device", LOW, True),
)


@dataclass(frozen=True)
class Exchanges:
    """One rank's exchanges."""

    times_s: list[float]
    crossed_bytes: int
    """Between device and host, of one exchange."""


Found = dict[tuple[str, str, str], list[list[Exchanges]]]
"""By ranks, network and variant."""


def measure(ranks: Ranks, repeats: int, iterations: int) -> Found:
    """By ranks, network and variant a list of worlds of ranks. Raises WorldError."""
    cases = {
        (str(size), network.label, variant.label): (size, network, variant)
        for size in WORLDS
        for network in NETWORKS
        for variant in VARIANTS
    }
    return in_turn(
        repeats,
        cases,
        lambda case: ranks.run(exchanges, Place.loopback(case[0]), case[1], case[2], iterations),
    )


def judge(report: Report, found: Found) -> None:
    table = report.table(
        "an exchange of 64 MB, slowest rank; medians of a world: median (lowest–highest)",
        ["ranks, network, variant", "ms", "of exact", "MB crossing, a rank"],
    )
    exact = VARIANTS[0].label
    for (size, network, variant), several in found.items():
        times = [_median_s(world) for world in several]
        whole = [_median_s(world) for world in found[size, network, exact]]
        table.add(
            f"{size} ranks, {network}, {variant}",
            Figure.of(1e3 * time_s for time_s in times),
            ratios(times, whole),
            f"{several[0][0].crossed_bytes / MIB:.1f}",
        )


def _median_s(ranks: list[Exchanges]) -> float:
    return statistics.median(slowest(rank.times_s for rank in ranks))


# --- on a rank -------------------------------------------------------------------------------------------------


def exchanges(variant: ExchangeVariant, iterations: int) -> Exchanges:
    """What runs on every rank."""
    import torch
    import torch.distributed as dist

    import dlcp.torch
    from dlcp.torch.gradient.buffer import crossing
    from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
    from dlcp.torch.gradient.exchange import exchange_of
    from dlcp.torch.gradient.layout import Layout

    crossing._forced = variant.on_device
    numel = NBYTES // 4
    state = dlcp.torch.GradientState(**variant.options)
    exchange, layout = exchange_of(state), Layout.of([("weight", numel)])
    generator = torch.Generator("cuda").manual_seed(dist.get_rank())
    source = torch.randn(numel, generator=generator, device="cuda")
    buffer = torch.empty_like(source)

    def once() -> None:
        pending = exchange.start_all_reduce(buffer, layout, BufferCall(average=True))
        pending.wait()
        pending.prepared.back.make_streams_wait()
        torch.cuda.synchronize()

    times_s, crossed_bytes = [], 0
    for iteration in range(WARMUP + iterations):
        buffer.copy_(source)
        torch.cuda.synchronize()
        dist.barrier()
        start_s = time.perf_counter()
        if iteration == WARMUP - 1:
            with _counter() as counter:
                once()
            crossed_bytes = counter.crossed_bytes
        else:
            once()
        if iteration >= WARMUP:
            times_s.append(time.perf_counter() - start_s)
        state.end_step(applied=True)
    return Exchanges(times_s, crossed_bytes)


def _counter() -> Any:
    """Counts what torch copies between devices on this thread, from `with` to its end."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        crossed_bytes = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default):
                source = args[0] if func is torch.ops.aten._to_copy.default else args[1]
                if source.is_cuda != result.is_cuda:
                    self.crossed_bytes += source.nbytes
            return result

    return Counter()  # type: ignore[no-untyped-call]
