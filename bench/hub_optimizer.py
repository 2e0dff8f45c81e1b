"""A hub's optimizer fused with the sum of contributions, against separate passes and a bare addition.

One thread, processor time. A model of 64 MiB in keys of 32 KiB; weights and states are beyond every cache, and packets
in one. What is judged is what a core does with them, by the same calls and in the same order, block by block of a
packet's length: contributions are added as they come, and the last is added, averaged and applied in one pass, and the
weights copied into the reply. Separate passes add the same packets to a sum of the whole model, and then average and
apply it; torch adds arrays of the model's size with its own kernels (foreach=False). A rate is of the bytes of weights
and states that are read and written, to be held against that of `sum += contribution`, which reads two arrays and
writes one. Rows take turns; a ratio is of one turn.

AVX2 and AVX-512 have bars. The portable variant on x86-64 imitates fused multiply-adds, and memory is not its limit.
"""

from __future__ import annotations

import time
from typing import Any

from bench import programs
from bench.report import Figure, Report, ratios, spread
from bench.select import processor

SUMMARY = "a hub's optimizer fused with the sum, against separate passes and a bare addition"
NEEDS_LAB = False
MODEL_BYTES = 64 << 20
KEY_BYTES = 32 << 10
OPTIMIZERS = ("nesterov", "adamw")
OVER_SEPARATE_AT_LEAST = 1.5
OF_ADD_RATE_AT_LEAST = 0.8


def run(*, quick: bool) -> Report:
    turns = 3 if quick else 15
    report = Report("hub_optimizer", {"processor": processor(), "model bytes": MODEL_BYTES, "turns": turns})
    for optimizer in OPTIMIZERS:
        table = report.table(
            f"{optimizer}: median (lowest–highest)",
            [
                "contributions",
                "add GB/s",
                "fused GB/s",
                "fused ms",
                "separate / fused",
                "torch / fused",
                "of add",
            ],
        )
        for contributions in (1, 2, 3, 4):
            answer = programs.ask(
                "optimizer_bench",
                bytes=MODEL_BYTES,
                key_bytes=KEY_BYTES,
                contributions=contributions,
                optimizer=optimizer,
                turns=turns,
            )
            rows: dict[str, dict[str, Any]] = {row["name"]: row for row in answer["rows"]}
            torch_s = _torch_times_s(optimizer, contributions, 3 if quick else 5)
            for variant in dict.fromkeys(name.split()[0] for name in rows):
                add, fused, separate = (rows[f"{variant} {kind}"] for kind in ("add", "fused", "separate"))
                over = ratios(separate["times_s"], fused["times_s"])
                of_add = ratios(_rates(fused), _rates(add))
                middle_s = Figure.of(fused["times_s"]).median
                table.add(
                    f"{variant}, {contributions}",
                    spread(_rates(add), 1),
                    spread(_rates(fused), 1),
                    spread((1e3 * time_s for time_s in fused["times_s"]), 1),
                    over,
                    spread((time_s / middle_s for time_s in torch_s), 1),
                    of_add,
                )
                if variant == "portable":
                    continue
                what = f"{optimizer}, {variant}, {contributions} contributions"
                if contributions > 1:  # of one there is nothing to add
                    report.at_least(OVER_SEPARATE_AT_LEAST, f"{what}: separate passes / fused", over)
                report.at_least(OF_ADD_RATE_AT_LEAST, f"{what}: rate of the bare addition", of_add)
    return report


def _rates(row: dict[str, Any]) -> list[float]:
    """GB/s of each turn."""
    return [row["bytes"] / time_s * 1e-9 for time_s in row["times_s"]]


def _torch_times_s(optimizer: str, contributions: int, turns: int) -> list[float]:
    """Sum, average and step with torch's kernels on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        weights = torch.zeros(MODEL_BYTES // 4, requires_grad=True)
        parts = [torch.full((MODEL_BYTES // 4,), 0.01) for _ in range(contributions)]
        made: torch.optim.Optimizer
        if optimizer == "nesterov":
            made = torch.optim.SGD(
                [weights], 1e-3, momentum=0.9, weight_decay=1e-4, nesterov=True, foreach=False
            )
        else:
            made = torch.optim.AdamW([weights], 1e-3, foreach=False, fused=False)
        total = torch.empty_like(parts[0])
        found = []
        for turn in range(turns + 1):  # the first makes the states
            start_s = time.thread_time()
            if contributions == 1:
                weights.grad = parts[0]
            else:
                torch.add(parts[0], parts[1], out=total)
                for part in parts[2:]:
                    total.add_(part)
                weights.grad = total.div_(contributions)
            made.step()
            if turn > 0:
                found.append(time.thread_time() - start_s)
    finally:
        torch.set_num_threads(threads)
    return found
