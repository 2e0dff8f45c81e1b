"""What one rank does with 64 MB on CUDA: copies, encodes, decodes, and selects the largest values.

A codec's share of the memory bandwidth is of the bytes that it has to read and write, beside those of a copy within the
device, of the same turn. Selectors stand beside torch.topk of the magnitudes, and int4 beside its
native kernel on one core of the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.collectives.compare import MIB
from bench.collectives.world import DLCP, Place, Ranks
from bench.report import Report, in_turn, ratios, spread
from dlcp.transport.coded import CODECS as TRAITS
from dlcp.transport.coded import GROUP_VALUES, encode_runs

NBYTES = 64 * MIB
NUMEL = NBYTES // 4
WARMUP = 3
CODECS = ("int4", "int8", "fp8_e4m3", "bf16")
JUDGED = ("int4", "int8")
HOST_CODEC = "int4"
BANDWIDTH_SHARE = 0.7
"""Of a copy's, which encoding and decoding keep at least."""
DENSITY = 0.01
COPY, TOPK = "copy within the device", "torch.topk"
SELECTORS = ("largest", "mstopk", "trimmed", "binary", "sampled_threshold")
ENCODE, DECODE = "encode, keep the rest", "decode"

Times = dict[str, list[float]]
"""Seconds by what was done, by turn."""


def measure(ranks: Ranks, turns: int) -> Times:
    """Raises WorldError."""
    found: Times = ranks.run(times, Place.loopback(1), DLCP, turns)[0]
    return found


def moved_bytes(codec: str, work: str) -> int:
    """What it has to read and write: values and codes, and where it encodes also what the codes leave of the values."""
    coded = NUMEL // GROUP_VALUES * TRAITS[codec].group_bytes
    return coded + (2 if work == ENCODE else 1) * NBYTES


def judge(report: Report, found: Times) -> None:
    passes = report.table(
        "one rank, 64 MB of f32: median (lowest–highest)",
        ["", "ms", "GB/s of f32", "of the copy's bandwidth"],
    )
    selected = report.table(
        f"{DENSITY:.0%} of 64 MB selected: median (lowest–highest)", ["", "ms", "torch.topk over it"]
    )
    for name, times_s in found.items():
        ms = spread(1e3 * time_s for time_s in times_s)
        if name in (TOPK, *SELECTORS):
            selected.add(name, ms, ratios(found[TOPK], times_s))
            continue
        codec, _, work = name.partition(": ")
        share = ""
        if work in (ENCODE, DECODE):
            nbytes = moved_bytes(codec, work)
            rates = [nbytes / time_s for time_s in times_s]
            bandwidth = ratios(rates, [2 * NBYTES / time_s for time_s in found[COPY]])
            share = bandwidth.show()
            if codec in JUDGED:
                report.at_least(BANDWIDTH_SHARE, f"{name}: of the copy's bandwidth", bandwidth)
        passes.add(name, ms, spread((NBYTES / time_s / 1e9 for time_s in times_s), 1), share)


# --- on the rank -----------------------------------------------------------------------------------------------


def times(turns: int) -> Times:
    import torch

    from dlcp.torch import codec, selectors

    source = torch.randn(NUMEL, generator=torch.Generator("cuda").manual_seed(0), device="cuda")
    values, copy, pinned = source.clone(), torch.empty_like(source), torch.empty(NUMEL, pin_memory=True)

    def on_device(work: Callable[[], object]) -> float:
        values.copy_(source)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    cases: dict[str, Callable[[], object]] = {
        COPY: lambda: copy.copy_(source),
        "copy to pinned memory": lambda: pinned.copy_(source, non_blocking=True),
        "copy from pinned memory": lambda: values.copy_(pinned, non_blocking=True),
    }
    for name in CODECS:
        coded = codec.encode(source, name)
        cases[f"{name}: {ENCODE}"] = partial(codec.encode_in_place, values, name)
        cases[f"{name}: {DECODE}"] = partial(codec.decode, coded, name, NUMEL)
    k = int(DENSITY * NUMEL)
    cases[TOPK] = lambda: source.abs().topk(k, sorted=False)
    for name in SELECTORS:
        cases[name] = partial(selectors.SELECTORS[name]().select, source, k)
    found = in_turn(WARMUP + turns, cases, on_device)
    host = source.cpu()
    found[f"{HOST_CODEC}: encode, keep the rest, one core of the host"] = [
        _encode_on_host(host) for _ in range(WARMUP + turns)
    ]
    return {name: several[WARMUP:] for name, several in found.items()}


def _encode_on_host(values: Any) -> float:
    """Seconds of the native kernel."""
    import numpy as np
    import torch

    kind = TRAITS[HOST_CODEC]
    kept, after = torch.zeros(NUMEL), torch.empty(NUMEL)
    coded = torch.empty(NUMEL // GROUP_VALUES * kind.group_bytes, dtype=torch.uint8)
    runs = np.array([[0, NUMEL, 0]], np.int64)
    start_s = time.perf_counter()
    encode_runs(kind.codec, values.data_ptr(), runs, coded.data_ptr(), kept.data_ptr(), after.data_ptr(), 1.0)
    return time.perf_counter() - start_s
