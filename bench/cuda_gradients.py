"""Gradients on CUDA: exact, and coded on the host or on the device; 64 MB, all ranks on one GPU.

An exchange is one buffer of float32 from the device back to it, in the order of its stream: exact values through pinned
memory; recipe low_bit (int4) with its codec in native code on the host, so that float32 crosses; and with the codec in
torch operations on the device, so that codes cross. It takes as long as in its slowest rank. Bytes that cross are
counted, where torch copies between device and host.

Apart, on one rank: the codec itself, beside a copy within the device, copies to and from pinned memory, and the native
kernel on one core of the host. GB/s are of float32 values: 64 MB over the time, for the copy within the device too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.collectives.compare import MIB
from bench.collectives.world import DLCP, DLCP_SHM, Place, Ranks
from bench.report import Figure, Report, in_turn, ratios, slowest, spread

SUMMARY = "64 MB of gradients on CUDA: exact, coded on the host, coded on the device"
NEEDS_LAB = False
NEEDS_PROGRAMS = False
NBYTES = 64 * MIB
WORLDS = (2, 4)
NETWORKS = (DLCP, DLCP_SHM)
WARMUP = 3
CODECS = ("int4", "int8", "fp8_e4m3", "bf16")
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


def run(*, quick: bool) -> Report:
    import torch

    if not torch.cuda.is_available():
        report = Report("cuda_gradients", {})
        report.notes.append("skipped: there is no CUDA device, or torch is built without CUDA")
        return report
    worlds, iterations = (3, 6) if quick else (5, 15)
    with Ranks() as ranks:
        kernels = ranks.run(codec_times, Place.loopback(1), DLCP, iterations)[0]
        cases = {
            (str(size), network.label, variant.label): (size, network, variant)
            for size in WORLDS
            for network in NETWORKS
            for variant in VARIANTS
        }
        found = in_turn(
            worlds,
            cases,
            lambda case: ranks.run(exchanges, Place.loopback(case[0]), case[1], case[2], iterations),
        )
    return judge(kernels, found, {"device": torch.cuda.get_device_name(0), "torch": torch.__version__})


def judge(
    kernels: dict[str, list[float]],
    found: dict[tuple[str, str, str], list[list[Exchanges]]],
    settings: dict[str, object],
) -> Report:
    """What was found: times of the codec by name; by ranks, network and way a list of worlds of ranks."""
    any_world = next(iter(found.values()))
    report = Report(
        "cuda_gradients",
        settings
        | {
            "buffer": f"{NBYTES / MIB:.0f} MB of f32",
            "worlds": len(any_world),
            "iterations each": len(any_world[0][0].times_s),
        },
    )
    table = report.table(
        "an exchange, slowest rank; medians of a world: median (lowest–highest)",
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
    apart = report.table(
        "one rank alone: median (lowest–highest)", ["", "ms", "GB/s of f32", "of the device's copy"]
    )
    copy_s = statistics.median(kernels["copy within the device"])
    for name, times_s in kernels.items():
        apart.add(
            name,
            spread(1e3 * time_s for time_s in times_s),
            spread((NBYTES / time_s / 1e9 for time_s in times_s), 1),
            spread(copy_s / time_s for time_s in times_s),
        )
    return report


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


def codec_times(iterations: int) -> dict[str, list[float]]:
    """Seconds, by what was done to 64 MB; runs on one rank."""
    import numpy as np
    import torch

    from dlcp.torch import codec
    from dlcp.transport.coded import CODECS as TRAITS
    from dlcp.transport.coded import encode_runs

    numel = NBYTES // 4
    source = torch.randn(numel, generator=torch.Generator("cuda").manual_seed(0), device="cuda")
    values, pinned = source.clone(), torch.empty(numel, pin_memory=True)
    found: dict[str, list[float]] = {}

    def on_device(name: str, work: Callable[[], object]) -> None:
        times_s = []
        for _ in range(WARMUP + 2 * iterations):
            values.copy_(source)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            times_s.append(begin.elapsed_time(end) / 1e3)
        found[name] = times_s[WARMUP:]

    copy = torch.empty_like(source)
    on_device("copy within the device", lambda: copy.copy_(source))
    on_device("copy to pinned memory", lambda: pinned.copy_(source, non_blocking=True))
    on_device("copy from pinned memory", lambda: values.copy_(pinned, non_blocking=True))
    for name in CODECS:
        coded = codec.encode(source, name)
        on_device(f"{name}: encode, keep the rest", lambda name=name: codec.encode_in_place(values, name))
        on_device(f"{name}: decode", lambda name=name, coded=coded: codec.decode(coded, name, numel))

    host, kind = source.cpu(), TRAITS["int4"]
    kept, coded = torch.zeros(numel), torch.empty(numel // 64 * kind.group_bytes, dtype=torch.uint8)
    after, runs = torch.empty(numel), np.array([[0, numel, 0]], np.int64)
    times_s = []
    for _ in range(WARMUP + iterations):
        start_s = time.perf_counter()
        encode_runs(
            kind.codec, host.data_ptr(), runs, coded.data_ptr(), kept.data_ptr(), after.data_ptr(), 1.0
        )
        times_s.append(time.perf_counter() - start_s)
    found["int4: encode, keep the rest, one core of the host"] = times_s[WARMUP:]
    return found
