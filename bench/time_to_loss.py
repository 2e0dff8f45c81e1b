"""Time to equal loss: a transformer trained over 1 Gbit/s links, by hooks and recipes side by side.

Four hosts with a rank each and a link of 1 Gbit/s each; the task is the demo's language model. How many windows a rank
reads in a step decides how long it computes. So communication takes about half, twice and five times as long as that.
What it really is stands in the table: Gloo's step over a step without communication. Every way trains from the same
seeds with the same rate; held-out loss is counted between steps, off the clock. The mark is the loss of that seed at
the end of a dense run over shared memory, plus what seeds differ; a way's time is the sum of its steps until its loss
is at the mark. The last way is what a user gets who names no recipe: its first steps are a trial. It is
judged beside exact, and beside 8 bits from the first step on.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.collectives.world import DLCP, DLCP_SHM, GLOO, Place, Ranks
from bench.report import Figure, Report, in_turn, progress, spread
from bench.transformer import (
    Trained,
    TrainingVariant,
    TransformerPlan,
    communication,
    final_loss,
    marks,
    reach,
    step_times_s,
    train,
)
from dlcp.lab import Lab, tcp_fill
from dlcp.lab.tcp_fill import TcpFill

SUMMARY = (
    "a transformer at 1 Gbit/s until it is as good as dense: Gloo, fp16, PowerSGD, dlcp exact, dlcp low_bit"
)
NEEDS_LAB = True
NEEDS_PROGRAMS = False
WORLD, RATE_BPS = 4, 10**9
# Windows per rank and step, for communication of about half, twice and five times the computation.
WINDOWS = {"five times": 2, "twice": 8, "half": 28}
STEPS = 300
OVER_GLOO, OVER_FP16, OVER_POWERSGD = 2.2, 1.5, 1.2
# The least time of the other over that of what is chosen.
EXACT_OVER_AUTO, EIGHT_BITS_OVER_AUTO = 0.97, 0.95


VARIANTS = (
    TrainingVariant("Gloo", GLOO),
    TrainingVariant("Gloo, fp16 hook", GLOO, "fp16"),
    # With several buckets it hangs (torch 2.13): its callbacks wait for each other's collectives on Gloo's threads.
    TrainingVariant("Gloo, PowerSGD rank 2", GLOO, "powersgd", bucket_mb=1000.0),
    TrainingVariant("dlcp exact", DLCP),
    TrainingVariant("dlcp, PowerSGD rank 2", DLCP, "powersgd"),
    TrainingVariant("dlcp low_bit, int4", DLCP, "low_bit"),
    TrainingVariant("dlcp low_bit, int8", DLCP, "low_bit", options={"codec": "int8"}),
    TrainingVariant("dlcp, no recipe named", DLCP, "auto"),
)
BASE, FP16, POWER_GLOO, EXACT, POWER_DLCP, LOW_BIT, EIGHT_BITS, AUTO = (variant.label for variant in VARIANTS)

Found = dict[tuple[str, str], list[list[Trained]]]
"""By case and way: a run per seed, a rank's account per rank."""


def run(*, quick: bool) -> Report:
    if quick:
        return measure({"twice": WINDOWS["twice"]}, seeds=1, steps=60)
    return measure(WINDOWS, seeds=3, steps=STEPS)


def measure(windows: Mapping[str, int], seeds: int, steps: int) -> Report:
    """The cases of so many windows per rank and step."""
    found: Found = {}
    at: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder, Ranks() as ranks, Lab(hosts=WORLD, rate_bps=RATE_BPS) as lab:
        from dlcp.train.data import prepare

        fill = tcp_fill.measure(lab)
        data, place = prepare("language", Path(folder)), Place.of_lab(lab, WORLD)
        for share, count in windows.items():
            plans = [TransformerPlan(windows=count, steps=steps, seed=seed) for seed in range(seeds)]
            ends = []
            for plan in plans:
                progress(f"{share}, dense, seed {plan.seed}")
                here, dense = Place.loopback(WORLD), TrainingVariant("dense", DLCP_SHM)
                (first, *_) = ranks.run(train, here, DLCP_SHM, str(data), dense, plan, timeout_s=900)
                ends.append(final_loss(first.losses, steps))
            at[share] = marks(ends)
            for plan, mark in zip(plans, at[share], strict=True):
                plan = replace(plan, mark=mark)

                def one(variant: TrainingVariant, plan: TransformerPlan = plan) -> list[Trained]:
                    return ranks.run(train, place, variant.backend, str(data), variant, plan, timeout_s=900)

                for label, trained in in_turn(
                    1, {(share, variant.label): variant for variant in VARIANTS}, one
                ).items():
                    found.setdefault(label, []).extend(trained)
    return _judge(found, at, {"seeds": seeds, "steps": steps, "rate": "1 Gbit/s a link"}, fill)


# --- what comes of it -------------------------------------------------------------------------------------------


def _judge(found: Found, at: Mapping[str, list[float]], settings: dict[str, object], fill: TcpFill) -> Report:
    """`at`: by case, the mark of each seed."""
    parameters = next(iter(found.values()))[0][0].parameters
    settings |= {"parameters": f"{parameters / 1e6:.2f} million"}
    report = Report("time_to_loss", settings, fills={"": fill})
    table = report.table(
        "held-out loss; time until it is a dense run's final one, slowest rank: median (lowest–highest) over seeds",
        [
            "",
            "ms per step",
            "communication / computation",
            "final loss",
            "steps to the mark",
            "s to the mark",
        ],
    )
    steps = int(str(settings["steps"]))
    for share in dict.fromkeys(share for share, _ in found):
        reached: dict[str, list[tuple[int, float] | None]] = {}
        for (of_share, label), runs in found.items():
            if of_share != share:
                continue
            reached[label] = [
                reach(step_times_s(ranks), ranks[0].losses, mark)
                for ranks, mark in zip(runs, at[share], strict=True)
            ]
            known = [each for each in reached[label] if each is not None]
            table.add(
                f"{share}, {label}",
                spread((1e3 * statistics.median(step_times_s(ranks)) for ranks in runs), 1),
                spread((communication(ranks) for ranks in runs), 2),
                spread((final_loss(ranks[0].losses, steps) for ranks in runs), 3),
                spread((each[0] for each in known), 0) if known else "never",
                spread((each[1] for each in known), 2)
                if len(known) == len(runs)
                else f"{len(known)} of {len(runs)}",
            )
        _compare(report, share, reached)
    return report


def _compare(report: Report, share: str, reached: dict[str, list[tuple[int, float] | None]]) -> None:
    """Seed by seed, how many times as long another way takes as low_bit, and as what is chosen."""

    def times(label: str, own: str) -> Figure | None:
        pairs = zip(reached[label], reached[own], strict=True)
        found = [over[1] / one[1] for over, one in pairs if over is not None and one is not None]
        return Figure.of(found) if len(found) == len(reached[own]) else None

    for label, own, limit in (
        (BASE, LOW_BIT, OVER_GLOO),
        (FP16, LOW_BIT, OVER_FP16),
        (POWER_GLOO, LOW_BIT, OVER_POWERSGD),
        (POWER_DLCP, LOW_BIT, OVER_POWERSGD),
        (EXACT, LOW_BIT, None),
        (EXACT, AUTO, EXACT_OVER_AUTO),
        (EIGHT_BITS, AUTO, EIGHT_BITS_OVER_AUTO),
    ):
        figure = times(label, own)
        what = f"communication {share} of computation: time to loss, {label} / {own}"
        if figure is None:
            report.notes.append(f"{what}: one of them did not reach the mark with every seed")
        elif limit is None or (share == "half" and own == LOW_BIT):
            report.notes.append(f"{what}: {figure.show()}")
        else:
            report.at_least(limit, what, figure)
