"""Reduction kernels: GB/s of result of a += b, against memcpy and torch.add_ on as much memory.

One core, processor time. Blocks are what packets carry, 1392 and 9072 bytes, one call each, as when they arrive.
"""

from __future__ import annotations

import time

from bench import programs
from bench.report import Report, spread

SUMMARY = "GB/s of the reduction kernels, beside memcpy and torch"
NEEDS_LAB = False
# Both operands: in the second-level cache, and far beyond every cache of most processors.
SIZES = {"512 KiB": 512 * 1024, "64 MiB": 64 * 1024 * 1024}
TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32"}


def run(*, quick: bool) -> Report:
    repeats, turns = (2, 5) if quick else (5, 11)
    report = Report("reduce", {"repeats": repeats, "turns": turns})
    variants: list[str] = []
    for title, size in SIZES.items():
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(repeats):
            for kind in TYPES:
                for way, block_bytes in {"": 0, ", blocks of 1392": 1392, ", blocks of 9072": 9072}.items():
                    answer = programs.ask(
                        "reduce_bench",
                        bytes=size,
                        block_bytes=block_bytes,
                        turns=turns,
                        type=kind,
                        operation="sum",
                    )
                    for row in answer["rows"]:
                        name = row["name"].removesuffix(f" {kind} sum")
                        if name not in variants:
                            variants.append(name)
                        found.setdefault((kind + way, name), []).append(row["gigabytes_per_s"])
                found.setdefault((kind, "torch"), []).append(_torch_gigabytes_per_s(TYPES[kind], size, turns))
        columns = [*variants, "torch"]
        table = report.table(f"{title} per operand: GB/s, median (lowest–highest)", ["a += b", *columns])
        for row_name in dict.fromkeys(row for row, _ in found):
            cells = [found.get((row_name, column)) for column in columns]
            table.add(row_name, *(spread(cell, 1) if cell else "" for cell in cells))
    return report


def _torch_gigabytes_per_s(dtype: str, size: int, turns: int) -> float:
    """The best of `turns` runs of torch.add_ on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        kind = getattr(torch, dtype)
        a, b = (torch.zeros(size // kind.itemsize, dtype=kind) for _ in range(2))
        per_turn = max(1, 16 * 1024 * 1024 // size)
        best_s = float("inf")
        for _ in range(turns + 1):
            start_s = time.thread_time()
            for _ in range(per_turn):
                a.add_(b)
            best_s = min(best_s, time.thread_time() - start_s)
    finally:
        torch.set_num_threads(threads)
    return size * per_turn / best_s * 1e-9
