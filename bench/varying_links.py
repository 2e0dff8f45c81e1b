"""Links that vary: a transformer trained until it is as good as dense, in fixed precisions and as the network chooses.

The network chooses who adds (owners="by_link"), not how many bits: of those the table shows what more and fewer cost.

Four hosts with a rank and a link of 200 Mbit/s each; a fifth host is a neighbour. Four networks: the neighbour's TCP
takes 80 % of one link, both ways, on and off as recorded (neighbour.py); one link has a quarter of the rate; one loses
1 % of the packets, both ways; and all three, each at a link of its own. How many windows a rank reads makes
communication about five times as long as computation over Gloo and whole links, on a quiet machine.

The mark is a dense run's loss of that seed at its end, plus what seeds differ. That run is over shared memory: its loss
depends on no network, so Gloo and exact dlcp only take some steps here, and their time to the mark is those steps over
and over. All others train to the mark. In no percentile are the first steps, in which DDP lays out its buckets, and of
those that train the first 40: 20 have 8 bits, and the network's choice begins then. They do count until the mark.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.collectives.world import DLCP, DLCP_SHM, GLOO, Place, Ranks
from bench.neighbour import Neighbour
from bench.report import Figure, Report, in_turn, percentile, progress, ratios, spread
from bench.transformer import (
    EVALUATE_EVERY,
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
from dlcp.lab import Lab, Link, Loss, tcp_fill
from dlcp.lab.namespaces import INTERFACE
from dlcp.lab.tcp_fill import TcpFill

SUMMARY = "a transformer until it is as good as dense, beside TCP, a slow and a lossy link: 8, 4, 2 bits, and who adds"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
# What two cores can forward for four hosts without being the limit themselves.
WORLD, RATE_BPS = 4, 2 * 10**8
SHARED_HOST, SLOW_HOST, LOSSY_HOST, NEIGHBOUR = 1, 2, 3, WORLD
# 80 % of the link, less what of a full frame is not TCP's payload.
NEIGHBOUR_BPS = int(0.8 * RATE_BPS * 1448 / 1514)
WIDTH, WINDOWS, TEST_WINDOWS = 128, 3, 96
STEPS, QUICK_STEPS, TIMED_STEPS = 120, 75, 30
SETTLE_STEPS = {True: 40, False: 3}
"""In no percentile, by whether the way trains to the mark."""
OVER_FIXED, TAIL_AT_MOST, NEIGHBOUR_KEEPS = 1.15, 1.3, 0.9


@dataclass(frozen=True)
class Case:
    """One network."""

    links: Mapping[int, Link] = field(default_factory=dict)
    has_neighbour: bool = False


SLOW = {SLOW_HOST: Link(rate_bps=RATE_BPS // 4)}
LOSSY = {LOSSY_HOST: Link(loss=Loss(0.01))}
ALL = "all three"
CASES = {
    "cross traffic": Case(has_neighbour=True),
    "slow link": Case(SLOW),
    "lossy": Case(LOSSY),
    ALL: Case(SLOW | LOSSY, has_neighbour=True),
}

BASE = TrainingVariant("Gloo", GLOO)
DENSE = (BASE, TrainingVariant("exact", DLCP))
FIXED = tuple(
    TrainingVariant(codec, DLCP, "low_bit", options={"codec": codec}) for codec in ("int8", "int4", "int2")
)
CHOICE = TrainingVariant("int4, by link", DLCP, "low_bit", options={"owners": "by_link"})
VARIANTS = (*DENSE, *FIXED, CHOICE)


@dataclass(frozen=True)
class Run:
    """One way in one network, of one seed."""

    ranks: list[Trained]
    neighbour_bps: float | None = None
    """What the neighbour's TCP got while it was on, both directions together; None: there was none."""
    is_whole: bool = True
    """False: it only took some steps, as its loss depends on no network."""

    @property
    def settled_s(self) -> list[float]:
        """Its steps, without the first."""
        return step_times_s(self.ranks)[SETTLE_STEPS[self.is_whole] :]


Found = dict[tuple[str, str], list[Run]]


def run(*, quick: bool) -> Report:
    seeds, steps = (1, QUICK_STEPS) if quick else (2, STEPS)
    cases = {ALL: CASES[ALL]} if quick else CASES
    found: Found = {}
    fills: dict[str, TcpFill] = {}
    with TemporaryDirectory() as folder, Ranks() as ranks:
        from dlcp.train.data import prepare

        data, running = prepare("language", Path(folder)), Path(folder, "running")
        plans = [
            TransformerPlan(WINDOWS, steps, seed, width=WIDTH, test_windows=TEST_WINDOWS)
            for seed in range(seeds)
        ]
        dense: list[Trained] = []
        for plan in plans:
            progress(f"dense, seed {plan.seed}")
            here = Place.loopback(WORLD)
            dense.append(
                ranks.run(
                    train, here, DLCP_SHM, str(data), TrainingVariant("dense", DLCP_SHM), plan, timeout_s=600
                )[0]
            )
        at = marks([final_loss(each.losses, steps) for each in dense])
        plans = [replace(plan, mark=mark) for plan, mark in zip(plans, at, strict=True)]
        for words, case in cases.items():
            with Lab(hosts=WORLD + 1, rate_bps=RATE_BPS, links=case.links) as lab:
                # Their links are whole, and the neighbour still silent.
                fills[words] = tcp_fill.measure(lab, 0, NEIGHBOUR)
                hosts = tuple(lab.namespace(host) for host in range(WORLD))
                place = Place(hosts, lab.addresses[0], INTERFACE)
                for plan in plans:

                    def measure(
                        variant: TrainingVariant,
                        plan: TransformerPlan = plan,
                        case: Case = case,
                        lab: Lab = lab,
                        place: Place = place,
                    ) -> Run:
                        is_whole = variant not in DENSE
                        if not is_whole:
                            plan = replace(plan, longest=TIMED_STEPS / plan.steps)
                        beside = None
                        if case.has_neighbour:
                            beside = Neighbour(lab, SHARED_HOST, NEIGHBOUR, NEIGHBOUR_BPS, running)
                        words = (str(data), variant, plan, running)
                        trained = ranks.run(train, place, variant.backend, *words, timeout_s=600)
                        return Run(trained, None if beside is None else beside.moved().rate_bps, is_whole)

                    for key, runs in in_turn(
                        1, {(words, variant.label): variant for variant in VARIANTS}, measure
                    ).items():
                        found.setdefault(key, []).extend(runs)
    settings = {
        "seeds": seeds,
        "steps": steps,
        "rate": f"{RATE_BPS / 1e6:g} Mbit/s a link",
        "neighbour": f"{NEIGHBOUR_BPS / 1e6:.0f} Mbit/s of payload each way",
    }
    return judge(found, dense, settings, fills)


# --- what comes of it -------------------------------------------------------------------------------------------


def judge(
    found: Found, dense: Sequence[Trained], settings: dict[str, object], fills: dict[str, TcpFill]
) -> Report:
    """What was found, by network and way: a run per seed. `dense`: of each seed, the run that sets the mark."""
    steps = int(str(settings["steps"]))
    at = marks([final_loss(each.losses, steps) for each in dense])
    parameters = dense[0].parameters
    report = Report(
        "varying_links", settings | {"parameters": f"{parameters / 1e6:.2f} million"}, fills=fills
    )
    steps_table = report.table(
        "steps, slowest rank: median (lowest–highest) over seeds, p99 of all seeds' steps; neighbour's TCP while on",
        [
            "",
            "p50 ms",
            "p99 ms",
            "p99/p50",
            "communication / computation",
            "neighbour's Mbit/s",
            "of Gloo's",
        ],
    )
    mark_table = report.table(
        "until the loss is a dense run's final one: median (lowest–highest) over seeds",
        ["", "final loss", "steps to the mark", "s to the mark", "best fixed / this"],
    )
    for words in dict.fromkeys(words for words, _ in found):
        runs = {label: them for (of_words, label), them in found.items() if of_words == words}
        reached = {
            label: [_reach(one, other, mark) for one, other, mark in zip(them, dense, at, strict=True)]
            for label, them in runs.items()
        }
        best = _best_fixed(reached)
        for label, them in runs.items():
            times_s = [time_s for one in them for time_s in one.settled_s]
            losses = [_losses(one, other) for one, other in zip(them, dense, strict=True)]
            known = [each for each in reached[label] if each is not None]
            gain, kept = _times(reached, best, label), _kept(runs, label)
            heard = [one.neighbour_bps / 1e6 for one in them if one.neighbour_bps is not None]
            steps_table.add(
                f"{words}, {label}",
                spread((1e3 * statistics.median(one.settled_s) for one in them), 1),
                f"{1e3 * percentile(times_s, 99):.1f}",
                f"{_tail(them):.2f}",
                spread((communication(one.ranks) for one in them), 2),
                spread(heard, 1) if heard else "",
                "" if kept is None else kept.show(2),
            )
            mark_table.add(
                f"{words}, {label}",
                spread((final_loss(each, steps) for each in losses), 3),
                spread((each[0] for each in known), 0) if known else "never",
                spread((each[1] for each in known), 2)
                if len(known) == len(them)
                else f"{len(known)} of {len(them)}",
                "" if gain is None else gain.show(2),
            )
            if any(len({rank.digest for rank in one.ranks}) > 1 for one in them):
                report.notes.append(f"WRONG: {words}, {label}: ranks ended with different weights")
        _note_best(report, words, best, runs, reached)
        if CHOICE.label in runs:
            _compare(report, words, best, runs, reached)
    return report


Reached = dict[str, list[tuple[int, float] | None]]


def _losses(one: Run, dense: Trained) -> list[float]:
    return one.ranks[0].losses if one.is_whole else dense.losses


def _reach(one: Run, dense: Trained, mark: float) -> tuple[int, float] | None:
    losses, times_s = _losses(one, dense), step_times_s(one.ranks)
    if not one.is_whole:
        times_s = list(islice(cycle(one.settled_s), len(losses) * EVALUATE_EVERY))
    return reach(times_s, losses, mark)


def _seconds(reached: Reached, label: str) -> list[float] | None:
    """By seed; None: with one of them the mark was not reached, or there is no such way."""
    found = [each[1] for each in reached.get(label, []) if each is not None]
    return found if found and len(found) == len(reached[label]) else None


def _best_fixed(reached: Reached) -> str | None:
    """Of the ways with a precision that stays, by the median over seeds; None: none of them reached the mark."""
    labels = [variant.label for variant in (*DENSE[1:], *FIXED)]
    medians = {
        label: statistics.median(them) for label in labels if (them := _seconds(reached, label)) is not None
    }
    return min(medians, key=lambda label: medians[label], default=None)


def _times(reached: Reached, over: str | None, under: str) -> Figure | None:
    """Seed by seed, how many times as long one takes as the other."""
    if over is None:
        return None
    above, below = _seconds(reached, over), _seconds(reached, under)
    return None if above is None or below is None else ratios(above, below)


def _tail(runs: Sequence[Run]) -> float:
    """p99 over p50, of all seeds' steps."""
    times_s = [time_s for one in runs for time_s in one.settled_s]
    return percentile(times_s, 99) / percentile(times_s, 50)


def _kept(runs: Mapping[str, list[Run]], label: str) -> Figure | None:
    """Seed by seed, what the neighbour's TCP got beside this way, of what it got beside Gloo."""
    pairs = zip(runs[label], runs[BASE.label], strict=True)
    both = [(own.neighbour_bps, base.neighbour_bps) for own, base in pairs]
    known = [(own, base) for own, base in both if own is not None and base is not None]
    return Figure.of(own / base for own, base in known) if known else None


def _note_best(
    report: Report, words: str, best: str | None, runs: Mapping[str, list[Run]], reached: Reached
) -> None:
    """How much a choice could win at most: as many steps without communication."""
    if best is None:
        report.notes.append(f"{words}: no fixed precision reached the mark with every seed")
        return
    bounds = [
        each[1] / (each[0] * max(rank.alone_s for rank in one.ranks))
        for each, one in zip(reached[best], runs[best], strict=True)
        if each is not None
    ]
    report.notes.append(
        f"{words}: best fixed precision {best}; were there no communication at all, as many steps would be "
        f"{Figure.of(bounds).show(2)} times as quick"
    )


def _compare(
    report: Report,
    words: str,
    best: str | None,
    runs: Mapping[str, list[Run]],
    reached: Reached,
) -> None:
    label = CHOICE.label
    what = f"{words}: time to loss, best fixed precision ({best}) / {label}"
    if (figure := _times(reached, best, label)) is None:
        report.notes.append(f"{what}: one of them did not reach the mark with every seed")
    else:
        report.at_least(OVER_FIXED, what, figure)
    report.at_most(TAIL_AT_MOST, f"{words}: p99 / p50 of a step, {label}", Figure.of([_tail(runs[label])]))
    if (kept := _kept(runs, label)) is not None:
        report.at_least(NEIGHBOUR_KEEPS, f"{words}: neighbour's TCP beside {label} / beside Gloo", kept)
