"""Results as text: the table, what follows from it, and the files that are left in the folder.

Nothing is trained here. The same lines are printed and written as markdown, so that they cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

from dlcp.study.training.precision.arm import CAPACITIES, Arm
from dlcp.study.training.precision.capacity import CROSS_TRAFFIC, SIGMA, SLOW, SPELL_STEPS, mean_times
from dlcp.study.training.precision.plan import (
    AS_INT4,
    CHOSEN,
    EXACT,
    FEEDBACK,
    FEW,
    FEW_MORE,
    FEWER_ROUNDS,
    MAIN,
    SHOWN,
    THREE_BITS,
)
from dlcp.study.training.precision.problems import EXACT_BELOW, FIRST, coded_groups, open_problem
from dlcp.study.training.precision.quality import Results
from dlcp.study.training.report import Rows, bullets, pipes, plain
from dlcp_sim.cosimulation.tasks import WORKERS

INT4, INT2 = Arm("int4"), Arm("int2")
LEGEND = (
    "Figures: held-out loss at the end less that of the dense exchange (fp32) of the same seed, mean ± standard "
    "deviation over seeds, each at its own best learning rate of those tried. Dense ends are means of repetitions.",
    "In brackets: the share of a dense run's rounds after which a dense run ends as well; <0.50: fewer than half.",
    "Bits: of a coded value, its part of the scale included, mean of both halves of the exchange, as counted.",
    "Bytes: as a share of fp32's, of coded values.",
)
CAPACITY_LEGEND = (
    f"Log-normal: the capacity of each rank, step and half varies with sigma {SIGMA:g}. Slow rank: one rank has "
    f"{SLOW:g} of the others' capacity. Cross traffic: takes {CROSS_TRAFFIC:.0%} of a rank's link half of the time, "
    f"in spells of {SPELL_STEPS} steps in the mean. Mean bytes are those of the fixed share. By capacity: the sender "
    f"uses the widest code that the step's capacity carries, which it knows beforehand."
)


FEW_TITLE = "Few bits on trainings of several kinds"
FEW_LEGEND = (
    "Mean ± standard error over seeds, each against the dense exchange of the same seed. At the end: held-out loss "
    "beyond dense's. Half-way: the same after half of the steps. Steps: those until it is as good as dense runs are "
    "half-way in the mean, over the dense run's. An empty place: not all of these runs noted how they went. Where "
    "there is no difference, one mean in six is still worse than dense by more than its standard error."
)


def text(results: Results, *, complete: bool) -> str:
    parts = ["\n".join(about(results, problem) for problem in results.problems()), "\n".join(LEGEND)]
    parts += [CAPACITY_LEGEND, plain(table(results))]
    if few := few_table(results):
        parts += [FEW_TITLE, FEW_LEGEND, plain(few)]
    if times := time_table(results):
        parts += [TIME_LEGEND, plain(times)]
    parts.append("\n".join(findings(results)))
    if not complete:
        parts.append("Some runs are missing: the same command without --draw goes on.")
    return "\n\n".join(parts)


def about(results: Results, problem: str) -> str:
    task = open_problem(problem)
    dense = list(results.ends(problem, EXACT).values())
    coded = 64 * len(coded_groups(task.model)) / task.model.numel
    return (
        f"{problem}: {task.title}; {task.model.numel} parameters, {coded:.1%} of them coded, {task.optimizer}, "
        f"{task.steps} steps of {WORKERS} x {task.share}; dense ends at {mean(dense):.4f} ± "
        f"{results.spread(problem):.4f} over {len(dense)} seeds at {results.best_rate(problem, EXACT):g} x rate"
        f"{_chance(results, problem)}{_cost(results, problem)}"
    )


def _chance(results: Results, problem: str) -> str:
    chance = results.chance(problem)
    return f"; runs of one seed differ by ± {chance:.4f}" if math.isfinite(chance) else ""


def _cost(results: Results, problem: str) -> str:
    fewer = max(FEWER_ROUNDS)
    cost = results.cost(problem, fewer)
    return f"; ending {1 - fewer:.0%} earlier costs {cost:.4f}" if cost is not None else ""


# --- the table ----------------------------------------------------------------------------------------------------


def table(results: Results) -> Rows:
    """A heading and a row per arm that has a run, in the plan's order; without trainings of few bits alone."""
    problems = [problem for problem in results.problems() if problem in FIRST]
    rows = []
    for arm in _known(results):
        found = [results.bits(problem, arm) for problem in problems if arm in results.arms(problem)]
        cells = [_cell(results, problem, arm) for problem in problems]
        if found:
            rows.append([arm.name, f"{mean(found):.2f}", f"{mean(found) / 32:.1%}", *cells])
    return [["exchange", "bits", "bytes", *problems], *rows]


def _known(results: Results) -> list[Arm]:
    known = {arm for problem in results.problems() for arm in results.arms(problem)}
    return [arm for arm in SHOWN if arm in known and arm != EXACT] + sorted(known - set(SHOWN), key=str)


def _cell(results: Results, problem: str, arm: Arm) -> str:
    found = results.excesses(problem, arm)
    if not found:
        return "-"
    if not math.isfinite(results.excess(problem, arm)):
        return "diverged"
    deviation = f" ± {results.deviation(problem, arm):.3f}" if len(found) > 1 else ""
    return f"{results.excess(problem, arm):+.3f}{deviation} ({_rounds(results, problem, arm)})"


def few_table(results: Results) -> Rows:
    """A heading and a row per training and exchange of few bits that has more seeds than one; empty: none has."""
    rows = []
    for problem in results.problems():
        for arm in (*FEW, *FEW_MORE):
            found = results.excesses(problem, arm)
            if len(found) > 1:
                bits = f"{results.bits(problem, arm):.2f}"
                halfway, later = (
                    with_error(values, digits)
                    for values, digits in (
                        (results.halfway(problem, arm), "+.4f"),
                        (results.later(problem, arm), ".3f"),
                    )
                )
                end = with_error(found, "+.4f")
                within = "yes" if results.excess(problem, arm) <= results.error(problem, arm) else "no"
                rows.append([problem, arm.name, bits, str(len(found)), end, within, halfway, later])
    heading = ["training", "exchange", "bits", "seeds", "at the end", "within one", "half-way", "steps"]
    return [heading, *rows] if rows else []


def with_error(values: Sequence[float], form: str) -> str:
    """The mean and its standard error; "": too few values, or one is not finite."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return ""
    return f"{mean(values):{form}} ± {stdev(values) / math.sqrt(len(values)):{form.lstrip('+')}}"


def _rounds(results: Results, problem: str, arm: Arm) -> str:
    found = results.rounds(problem, arm)
    return "-" if found is None else f"{found:.2f}" if found else "<0.50"


# --- time ---------------------------------------------------------------------------------------------------------

TIME_LEGEND = (
    "Time by arithmetic, where links vary: a half of the exchange ends when the last rank has sent; a layered one "
    "stops refining at a time limit but sends its base whole. A step: how many times longer flat int4 takes over the "
    "same links. As good an end: that times the share of rounds, divided by int4's, worst problem to best. No network "
    "was measured, and no compute hides communication."
)


def time_table(results: Results) -> Rows:
    """A heading and a row per arm whose capacity varies, after flat int2; empty: none was run."""
    rows = []
    for arm in _known(results):
        if arm.capacity != "fixed":
            own, (four,) = mean_times(arm, ("int4",))
            rows.append([arm.name, f"{four / own:.2f}", _over_rounds(results, arm, four / own)])
    ratio = INT4.bits / INT2.bits
    flat = [INT2.name, f"{ratio:.2f}", _over_rounds(results, INT2, ratio)]
    return [["exchange", "a step", "as good an end"], flat, *rows] if rows else []


def _over_rounds(results: Results, arm: Arm, gain: float) -> str:
    gains = []
    for problem in results.problems():
        own, four = results.rounds(problem, arm), results.rounds(problem, INT4)
        if own is not None and four is not None:
            gains.append(gain * own / four)
    if not gains:
        return "-"
    low = f"{min(gains):.2f}" if min(gains) else f"less than {gain / 2:.2f}"
    return f"{low} to {max(gains):.2f}"


# --- findings -----------------------------------------------------------------------------------------------------


def findings(results: Results) -> list[str]:
    """What the numbers say, in sentences that hold for any numbers."""
    found = [_against_dense(results, arm) for arm in MAIN if not arm.layers]
    fine, network = replace(AS_INT4, block_groups=4), replace(AS_INT4, capacity="log-normal")
    pairs = [
        (INT4, FEEDBACK[0], "int4 with both residuals, against the sender's alone"),
        (INT4, FEEDBACK[1], "int4 with both residuals, against none"),
        (AS_INT4, INT4, "two bits refined to the bytes of flat int4, against flat int4"),
        (fine, INT4, "the same in blocks of 4 groups, against flat int4"),
        (THREE_BITS, INT4, "two bits refined to 3.25, against flat int4"),
        (THREE_BITS, INT2, "two bits refined to 3.25, against flat int2"),
        (AS_INT4, replace(AS_INT4, order="random"), "refinement by importance, against random order"),
        (THREE_BITS, replace(THREE_BITS, order="random"), "the same at 3.25 bits"),
        (
            CHOSEN[0],
            network,
            "flat codes by capacity, log-normal, against layers of which the network decides",
        ),
    ]
    for base in (AS_INT4, THREE_BITS):
        for capacity in CAPACITIES[1:]:
            network = replace(base, capacity=capacity)
            pairs.append(
                (network, base, f"{network.name}: the network decides, against the same share fixed")
            )
    found += [_few_bits(results, arm) for arm in (*FEW, *FEW_MORE)]
    found += [_compared(results, one, other, words) for one, other, words in pairs]
    return [sentence for sentence in found if sentence]


def _against_dense(results: Results, arm: Arm) -> str:
    problems = [problem for problem in results.problems() if results.excesses(problem, arm)]
    if not problems:
        return ""
    within = [p for p in problems if results.excess(p, arm) <= results.spread(p)]
    shares = [share for p in problems if (share := results.rounds(p, arm)) is not None]
    words = (
        f"{arm.name}: within the dense runs' spread over seeds on {len(within)} of {len(problems)} problems"
    )
    if not shares:
        return words + "."
    low = f"{min(shares):.2f}" if min(shares) else "fewer than 0.50"
    return f"{words}; {low} to {max(shares):.2f} of the rounds."


def _few_bits(results: Results, arm: Arm) -> str:
    """Where an arm of few bits is behind dense by more than a standard error; "": run with fewer seeds than two."""
    problems = [problem for problem in results.problems() if len(results.excesses(problem, arm)) > 1]
    behind = [
        f"{problem} ({with_error(results.excesses(problem, arm), '+.4f')})"
        for problem in problems
        if not results.excess(problem, arm) <= results.error(problem, arm)
    ]
    if not problems:
        return ""
    together = mean(results.excess(problem, arm) for problem in problems)
    error = math.hypot(*(results.error(problem, arm) for problem in problems)) / len(problems)
    words = (
        f"{arm.name}: ends within one standard error of dense, or before it, in {len(problems) - len(behind)} of "
        f"{len(problems)} trainings, in the mean of them {together:+.4f} ± {error:.4f} beyond it"
    )
    return f"{words}; behind in {', '.join(behind)}." if behind else f"{words}."


def _compared(results: Results, one: Arm, other: Arm, words: str) -> str:
    """By problem how much better the first ends, pairs of one seed, with the standard error of the mean."""
    cells, averages, errors = [], [], []
    for problem in results.problems():
        first, second = results.ends(problem, one), results.ends(problem, other)
        both = sorted(first.keys() & second.keys())
        gains = [second[seed] - first[seed] for seed in both]
        if len(gains) > 1 and all(map(math.isfinite, gains)):
            averages.append(mean(gains))
            errors.append(stdev(gains) / math.sqrt(len(gains)))
            cells.append(f"{problem} {averages[-1]:+.3f} ± {errors[-1]:.3f}")
    if not cells:
        return ""
    together = f"{mean(averages):+.4f} ± {math.hypot(*errors) / len(errors):.4f}"
    return f"{words} (better by, ± standard error): {together} in the mean; {', '.join(cells)}."


# --- files --------------------------------------------------------------------------------------------------------


def as_dict(results: Results, *, complete: bool) -> dict[str, Any]:
    """All numbers of the report, by problem and arm; infinite ones as null."""
    problems = {}
    for problem in results.problems():
        arms = [
            {
                "arm": arm.name,
                "bits": round(results.bits(problem, arm), 4),
                "share_of_fp32": round(results.bits(problem, arm) / 32, 4),
                "rate": results.best_rate(problem, arm),
                "rates_tried": results.rates(problem, arm),
                "seeds": len(results.ends(problem, arm)),
                "excess": _number(results.excess(problem, arm)),
                "deviation": _number(results.deviation(problem, arm)),
                "error": _number(results.error(problem, arm)),
                "halfway": _mean_and_error(results.halfway(problem, arm)),
                "steps_to_mark": _mean_and_error(results.later(problem, arm)),
                "rounds": _number(results.rounds(problem, arm)),
            }
            for arm in SHOWN
            if results.ends(problem, arm)
        ]
        problems[problem] = {
            "about": about(results, problem),
            "spread": _number(results.spread(problem)),
            "chance": _number(results.chance(problem)),
            "cost_of_a_tenth_fewer_rounds": _number(results.cost(problem, max(FEWER_ROUNDS))),
            "arms": arms,
        }
    return {"complete": complete, "runs": len(results), "problems": problems, "findings": findings(results)}


def markdown(results: Results, *, complete: bool) -> Iterator[str]:
    yield "# How many bits a gradient needs, and who should decide"
    yield (
        f"`dlcp study precision`: {len(results)} runs of {WORKERS} workers each in one process, without a network. "
        f"Groups of 64 values have a scale each, residuals are kept at the sender and at the owner unless a row says "
        f"otherwise, and parameters of one dimension or fewer than {EXACT_BELOW} values are exchanged exactly. A "
        f"refinement codes what the base leaves, and is sent in blocks of {AS_INT4.block_groups} groups. All runs are "
        f"in precision-runs.csv."
    )
    if not complete:
        yield "**Some runs of the plan are missing.**"
    yield bullets(about(results, problem) for problem in results.problems())
    yield " ".join((*LEGEND, CAPACITY_LEGEND))
    yield pipes(table(results))
    if few := few_table(results):
        yield f"## {FEW_TITLE}"
        yield FEW_LEGEND
        yield pipes(few)
    if times := time_table(results):
        yield "## Time where links vary"
        yield TIME_LEGEND
        yield pipes(times)
    yield "## What the numbers say"
    yield bullets(findings(results))


def _mean_and_error(values: Sequence[float]) -> list[float | None] | None:
    """None: too few values."""
    if len(values) < 2:
        return None
    return [_number(mean(values)), _number(stdev(values) / math.sqrt(len(values)))]


def _number(value: float | None) -> float | None:
    return round(value, 5) if value is not None and math.isfinite(value) else None
