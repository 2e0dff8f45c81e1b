"""All-reduces of two hosts with four ranks each over 1 Gbit/s: by hosts, round a ring, and Gloo's; and by recipe.

Ranks are numbered host by host, as launchers do, and in turn. Judged: what a host's link carries beside the formula (by
the interface's counter), and the time beside that of the flat ring. Recipes: gradients of one buffer, between hosts
and among all ranks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bench.collectives.compare import MIB, Comparison, alternate
from bench.collectives.world import GLOO, Backend, Place, Ranks
from bench.report import Figure, Report, in_turn, ratios, slowest, spread
from dlcp.lab import Lab, tcp_fill
from dlcp.lab.namespaces import INTERFACE, interface_bytes

SUMMARY = "2 hosts with 4 ranks each over 1 Gbit/s, 64 MB: by hosts beside a flat ring and Gloo"
NEEDS_LAB = True
NEEDS_PROGRAMS = False

HOSTS, RANKS_PER_HOST = 2, 4
RATE_BPS = 1_000_000_000
SIZE = 64 * MIB
CHOSEN = Backend("dlcp", "dlcp")
RING = Backend("dlcp, flat ring", "dlcp", {"DLCP_ALGORITHM": "ring"})
# Ethernet, IP, UDP, dlcp and tag: 42 + 32 + 16 of 1514 bytes; the rest is long headers and control packets.
WIRE_RATIO = 1.08
# Frames are short messages; their last packets are not full.
WIRE_RATIO_RECIPES = 1.12

# Options, steps before the first that is timed, and what of the tensor a host sends by the formula; None: not judged.
RECIPES: Mapping[str, tuple[Mapping[str, Any], int, float | None]] = {
    "exact": ({"recipe": "exact"}, 3, 2 * (HOSTS - 1) / HOSTS),
    "low_bit, among all": ({"recipe": "low_bit", "by_hosts": False}, 22, None),
    # 34 bytes for 64 values.
    "low_bit": ({"recipe": "low_bit"}, 22, 2 * (HOSTS - 1) / HOSTS * 34 / 256),
    "mstopk": ({"recipe": "mstopk", "selector": "largest"}, 3, None),
    # 1 % of the values, 8 bytes each.
    "hitopk": ({"recipe": "hitopk", "selector": "largest"}, 3, (HOSTS - 1) * 0.01 * 8 / 4),
}


def run(*, quick: bool) -> Report:
    world = HOSTS * RANKS_PER_HOST
    repeats, seconds = (1, 3.0) if quick else (5, 5.0)
    with Ranks() as ranks, Lab(hosts=HOSTS, rate_bps=RATE_BPS) as lab:
        fill = tcp_fill.measure(lab)
        by_turns = tuple(lab.namespace(rank % HOSTS) for rank in range(world))
        places = {
            "host by host": Place.of_lab(lab, world),
            "in turn": Place(by_turns, lab.addresses[0], INTERFACE),
        }
        backends = (GLOO, RING, CHOSEN)
        found = alternate(Comparison(), ranks, places, backends, [SIZE], repeats=repeats, seconds=seconds)
        place = places["host by host"]

        def measure(name: str) -> tuple[list[float], float]:
            options, warmup, _ = RECIPES[name]
            timed = ranks.run(
                time_recipe, place, CHOSEN, options, warmup, 5 if quick else 15, place.interface
            )
            return slowest(one[0] for one in timed), timed[0][1]

        by_recipe = in_turn(repeats, {name: name for name in RECIPES}, measure)
    report = found.report(
        "several_hosts",
        {"repeats": repeats, "seconds each": seconds, "rate": "1 Gbit/s"},
        "all-reduce of f32, slowest rank: median (lowest–highest); wire: sent by a host per byte of the tensor",
    )
    report.fills[""] = fill
    least = 2 * (HOSTS - 1) / HOSTS
    # Most that a ring could lose to it, if links decided alone: what it carries over what the formula says.
    for words, most in (("host by host", 2 * (world - 1) / world / least), ("in turn", 3.5)):
        wire = found.figure(CHOSEN, words, SIZE, lambda sample: sample.wire_ratio / least)
        report.at_most(WIRE_RATIO, f"{words}: bytes on the link / formula", wire)
        for other in (RING, GLOO):
            faster = found.ratio(CHOSEN, other, words, SIZE, lambda sample: sample.bandwidth_bps)
            report.at_least(0.9 * most, f"{words}: bandwidth, dlcp / {other.label}", faster)
    _judge_recipes(report, by_recipe)
    return report


def _judge_recipes(report: Report, found: Mapping[str, list[tuple[list[float], float]]]) -> None:
    table = report.table("one buffer of 64 MB of gradients, host by host", ["", "p50 ms", "wire"])
    medians = {
        name: [sorted(times)[len(times) // 2] for times, _ in worlds] for name, worlds in found.items()
    }
    for name, worlds in found.items():
        table.add(
            name, spread((one * 1e3 for one in medians[name]), 1), spread((wire for _, wire in worlds), 4)
        )
        if (formula := RECIPES[name][2]) is not None:
            wire = Figure.of(each / formula for _, each in worlds)
            report.at_most(WIRE_RATIO_RECIPES, f"{name}: bytes on the link / formula", wire)
    for flat, by_hosts in (("low_bit, among all", "low_bit"), ("mstopk", "hitopk")):
        report.at_least(1.2, f"time, {flat} / {by_hosts}", ratios(medians[flat], medians[by_hosts]))


def time_recipe(
    options: Mapping[str, Any], warmup: int, count: int, interface: str
) -> tuple[list[float], float]:
    """On a rank: seconds of each step of one buffer, and bytes that its host sent per byte of the tensor."""
    import torch
    import torch.distributed as dist

    import dlcp.torch
    from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
    from dlcp.torch.gradient.exchange import exchange_of
    from dlcp.torch.gradient.layout import Layout

    changes = {} if options["recipe"] == "exact" else {"small_numel": 0}
    exchange = exchange_of(dlcp.torch.GradientState(**options, **changes))
    numel = SIZE // 4
    gradient = torch.randn(numel, generator=torch.Generator().manual_seed(dist.get_rank()))
    buffer, layout = torch.empty_like(gradient), Layout.of([("weight", numel)])

    def step() -> float:
        buffer.copy_(gradient)
        start_s = time.perf_counter()
        exchange.all_reduce(buffer, layout, BufferCall(average=True, last_of_step=True)).wait()
        return time.perf_counter() - start_s

    for _ in range(warmup):
        step()
    dist.barrier()
    sent = interface_bytes(interface)
    times_s = [step() for _ in range(count)]
    dist.barrier()
    return times_s, (interface_bytes(interface) - sent) / (count * SIZE)
