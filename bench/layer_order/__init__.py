"""Layer order across steps: a step of DistributedDataParallel beside LayerwiseOptimizer with each order, over dlcp.

The link between the two ranks is shaped so that the gradients of a step take about as long as its computation, which is
measured first: there an order has most to win. Two kinds of computation:

- *processor*: the layers are multiplied by the same two processors that also run the transport, so that what looks like
  waiting may be arithmetic that the transport has delayed;
- *accelerator*: a stand-in for one: each layer takes its time without the processor, as when a GPU is at work.

All ways run in turn in the same processes (A B C … A B C …), a few steps each. A step's time is from the beginning of
one forward to that of the next, of the slower rank; the first step of a turn, with nothing left over from one before,
is not counted. DDP has its choice of buckets: as they come, and one per layer; what is required counts against the
faster. The picture has two steps of DDP and of ours, one row per layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import programs
from bench.collectives.limited_link import DATAGRAM_BYTES, OWN_BYTES
from bench.collectives.world import DLCP, Place, Ranks
from bench.layer_order.training import DDP_WAYS, OURS, WAYS, Account, Setting, compute, train
from bench.report import Figure, Report, progress, ratios, spread
from dlcp.lab import Lab

SUMMARY = "steps of DDP beside layer orders on a link that takes as long as the computation; a picture"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
SHORTER_AT_LEAST = 0.15
PICTURE = programs.ROOT / "build" / "layer_order.png"
# Much arithmetic per byte on the processors, so that the transport takes a small share of them.
SETTINGS = {
    "processor": Setting(layers=16, width=384, batch=2048),
    "accelerator": Setting(layers=16, width=724, batch=4, forward_s=0.015),
}
# Bytes on the wire per byte of the gradients.
WIRE_RATIO = (DATAGRAM_BYTES + 28 + 14) / (DATAGRAM_BYTES - OWN_BYTES)


def run(*, quick: bool) -> Report:
    turns, steps = (2, 4) if quick else (4, 5)
    report = Report("layer_order", {"turns": turns, "steps each": steps})
    timelines: dict[str, dict[str, Any]] = {}
    with Ranks() as ranks:
        for kind, setting in SETTINGS.items():
            progress(f"{kind}: computation alone")
            alone_s = max(ranks.run(compute, Place.loopback(2), DLCP, setting, 3.0))
            rate_bps = round(8 * setting.gradient_bytes * WIRE_RATIO / alone_s / 1e6) * 10**6
            with Lab(rate_bps=rate_bps) as lab:
                progress(f"{kind}: {rate_bps / 1e6:.0f} Mbit/s")
                accounts = ranks.run(train, Place.of_lab(lab, 2), DLCP, setting, turns, steps, timeout_s=900)
                drops = lab.queue_drops()
            judge(report, kind, setting, alone_s, rate_bps, accounts)
            report.notes.append(f"{kind}: dropped at full queues of the link: {drops} packets")
            timelines[kind] = {way: accounts[0].timelines[way] for way in (DDP_WAYS[-1], OURS)}
    progress("")
    report.notes.append(_draw(timelines))
    return report


def judge(
    report: Report, kind: str, setting: Setting, alone_s: float, rate_bps: int, accounts: list[Account]
) -> None:
    """Adds what one kind of computation showed."""
    wire_s = 8 * setting.gradient_bytes * WIRE_RATIO / rate_bps
    table = report.table(
        f"{kind}: {setting.layers} layers, {setting.gradient_bytes / 1e6:.1f} MB of gradients; computation alone"
        f" {alone_s * 1e3:.0f} ms, gradients alone at least {wire_s * 1e3:.0f} ms at {rate_bps / 1e6:.0f} Mbit/s",
        ["", "steps", "ms per step", "longest", "over DDP", "processors busy"],
    )
    best = [
        min(_turn_s(accounts, way, turn) for way in DDP_WAYS) for turn in range(len(accounts[0].turns[OURS]))
    ]
    for way in WAYS:
        steps = _each(accounts, way, lambda turn: turn.times_s)
        medians = [_turn_s(accounts, way, turn) for turn in range(len(best))]
        busy = [sum(account.turns[way][turn].cpu_s for account in accounts) for turn in range(len(best))]
        walls = [max(account.turns[way][turn].wall_s for account in accounts) for turn in range(len(best))]
        table.add(
            way,
            str(sum(len(times) for times in steps)),
            spread((1e3 * median for median in medians), 0),
            f"{1e3 * max(max(times) for times in steps):.0f}",
            ratios(medians, best),
            f"{ratios(busy, walls).show(2)} of {os.cpu_count()}",
        )
        if way == OURS:
            saved = Figure.of(1 - own / ddp for own, ddp in zip(medians, best, strict=True))
            report.at_least(SHORTER_AT_LEAST, f"{kind}: share of a DDP step that {OURS} saves", saved)
    if len({account.checksum for account in accounts}) > 1:
        report.notes.append(f"WRONG: {kind}: ranks ended with different parameters")


def _each(accounts: list[Account], way: str, of: Callable[[Any], list[float]]) -> list[list[float]]:
    """By turn, the larger of the ranks' values."""
    turns = zip(*(account.turns[way] for account in accounts), strict=True)
    return [[max(values) for values in zip(*(of(turn) for turn in ranks), strict=True)] for ranks in turns]


def _turn_s(accounts: list[Account], way: str, turn: int) -> float:
    """The median step of one turn."""
    return Figure.of(_each(accounts, way, lambda one: one.times_s)[turn]).median


def _draw(timelines: dict[str, dict[str, Any]]) -> str:
    try:
        from bench.layer_order.figure import draw
    except ImportError as error:
        return f"no picture: {error}"
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    draw(timelines, PICTURE)
    return f"picture: {Path(PICTURE).relative_to(programs.ROOT)}"
