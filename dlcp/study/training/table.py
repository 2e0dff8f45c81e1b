"""Results as text: tables, what follows from them, and the files that are left in the folder.

Nothing is measured here. The same lines are printed and written as markdown, so that they cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import Any

from dlcp.study.training.arm import Arm
from dlcp.study.training.network import BURST_BLOCKS, PROCESSES, UNEVEN_LOSS_MAX
from dlcp.study.training.plan import ARMS, CANDIDATES
from dlcp.study.training.report import Rows, bullets, pipes, plain
from dlcp.study.training.tolerance import EXTRA_ROUNDS, Results
from dlcp.study.training.training import Run
from dlcp_sim.cosimulation.models import BLOCK
from dlcp_sim.cosimulation.tasks import WORKERS, open_task


def doing(runs: Sequence[Run]) -> str:
    first = runs[0]
    return f"{first.task}, {first.arm.name if first.loss else 'loss-free'}, {first.arm.process}"


def text(results: Results, *, complete: bool) -> str:
    shown = [*findings(results)]
    if not complete:
        shown.append("Some runs are missing: the same command without --draw goes on.")
    parts = ["\n".join(about(results, task) for task in results.tasks()), "\n".join(LEGEND)]
    parts += [f"Losses {process}:\n{plain(rows, words=2)}" for process, rows in tables(results)]
    return "\n\n".join([*parts, "\n".join(shown)])


LEGEND = (
    "Tolerance is the largest share of lost gradient blocks at which training ends no worse than a loss-free run that",
    "ends one round in twenty earlier. Figures: at the loss-free run's learning rate / at the best of those tried.",
    "Where there is one figure, other rates were not tried.",
    "For the transport it is the budget; with bursty or uneven losses less than that is abandoned (tolerance.json).",
)


def about(results: Results, task: str) -> str:
    one = open_task(task)
    clean = results.clean(task)
    return (
        f"{task}: {one.title}; {one.model.numel} parameters, {one.optimizer}, {one.steps} steps of "
        f"{WORKERS} x {one.share}; "
        f"ends at {mean(clean):.4f} +- {stdev(clean):.4f} over "
        f"{len(clean)} seeds; ending {EXTRA_ROUNDS:.0%} earlier costs {results.allowance(task):.4f}"
    )


def tables(results: Results) -> Iterator[tuple[str, Rows]]:
    """By process what is known of it: a heading and a row per arm, in the plan's order."""
    tasks = results.tasks()
    order = {arm: place for place, arm in enumerate(ARMS)}
    for process in PROCESSES:
        known = {arm: None for task in tasks for arm in results.arms(task) if arm.process == process}
        rows = []
        for arm in sorted(known, key=lambda arm: order.get(arm, len(order))):
            who, _, fill = arm.name.rpartition(", ")
            cells = [_cell(results, task, arm) for task in tasks]
            rows.append([who, fill, *cells, _ratio_cell(results, arm)])
        rows.sort(key=lambda row: (not row[0].startswith("at"), not row[0].startswith("least"), row[0]))
        if rows:
            yield process, [["dropped", "fill", *tasks, "x zero at random"], *rows]


def ratio(results: Results, task: str, arm: Arm, *, tuned: bool) -> float | None:
    """Its tolerance over the baseline's under the same process, or a lower bound of it. None: not known."""
    own = results.tolerance(task, arm, tuned=tuned)
    zero = results.tolerance(task, Arm("random", "zero", process=arm.process), tuned=tuned)
    if own is None or zero is None or own.at_most or zero.at_least:
        return None
    # Where larger losses were not run yet, less than the baseline's says nothing.
    return None if own.at_least and own.loss < zero.loss else own.loss / zero.loss


def worse_than_zero(results: Results, arm: Arm) -> tuple[list[str], int]:
    """Where its excess is above the baseline's beyond allowance and chance; and how many pairs were compared."""
    worse, compared = [], 0
    baseline = Arm("random", "zero", process=arm.process)
    for task in results.tasks():
        for loss in sorted(set(results.losses(task, arm)) & set(results.losses(task, baseline))):
            rates = set(results.rates(task, arm, loss)) & set(results.rates(task, baseline, loss))
            for rate in sorted(rates):
                compared += 1
                above = results.excess(task, arm, loss, rate) - results.excess(task, baseline, loss, rate)
                errors = (results.error(task, one, loss, rate) for one in (arm, baseline))
                if not above <= max(results.allowance(task), 2 * math.hypot(*errors)):
                    worse.append(
                        f"{task} at {_percent(loss)} and {rate:g} x rate by "
                        f"{above / results.allowance(task):.1f} allowances"
                    )
    return worse, compared


def findings(results: Results) -> list[str]:
    found = []
    for arm in CANDIDATES:
        for process in PROCESSES:
            one = arm.under(process)
            ratios = {
                task: value
                for task in results.tasks()
                if (value := ratio(results, task, one, tuned=False)) is not None
            }
            if ratios:
                words = ", ".join(f"{value:.1f}x for the {task}" for task, value in ratios.items())
                found.append(
                    f"{one.name}, losses {process}: tolerates, relative to zero fill at random, {words}."
                )
            worse, compared = worse_than_zero(results, one)
            if compared:
                found.append(
                    f"{one.name}, losses {process}: worse than zero fill at random beyond allowance and chance in "
                    f"{len(worse)} of {compared} pairs of loss and rate"
                    + (": " + "; ".join(worse) if worse else "")
                    + "."
                )
    return found


def as_dict(results: Results, *, complete: bool) -> dict[str, Any]:
    """All numbers of the report, by model and arm; infinite ones as null."""
    models = {}
    for task in results.tasks():
        arms = []
        for arm in results.arms(task):
            curves = [
                {
                    "loss": loss,
                    "abandoned": round(results.abandoned(task, arm, loss), 4),
                    "excess_by_rate": {
                        f"{rate:g}": _number(results.excess(task, arm, loss, rate))
                        for rate in results.rates(task, arm, loss)
                    },
                }
                for loss in results.losses(task, arm)
            ]
            tolerances = {
                name: None if (found := results.tolerance(task, arm, tuned=tuned)) is None else str(found)
                for name, tuned in (("at_loss_free_rate", False), ("tuned", True))
            }
            arms.append({"arm": arm.name, "process": arm.process, "tolerance": tolerances, "losses": curves})
        models[task] = {
            "about": about(results, task),
            "best_rate": results.best_rate(task),
            "spread": _number(stdev(results.clean(task))),
            "allowance": _number(results.allowance(task)),
            "arms": arms,
        }
    return {"complete": complete, "runs": len(results), "models": models, "findings": findings(results)}


def markdown(results: Results, *, complete: bool) -> Iterator[str]:
    yield "# How much gradient loss a training tolerates"
    yield (
        f"`dlcp study tolerance`: {len(results)} runs of {WORKERS} workers each in one process. Only contributions "
        f"to the owner of a gradient are lossy, and 1-D parameters are never lost. A block is {BLOCK} elements. "
        f"Bursty: a Gilbert-Elliott channel per worker with bursts of {BURST_BLOCKS} blocks in the mean. Uneven: one "
        f"worker's link loses up to {UNEVEN_LOSS_MAX:.0%}, then the next's. All runs are in runs.csv."
    )
    if not complete:
        yield "**Some runs are missing.**"
    yield bullets(about(results, task).replace("+-", "±") for task in results.tasks())
    yield " ".join(LEGEND)
    for process, rows in tables(results):
        yield f"## Losses {process}"
        yield pipes(rows)
    yield "## What it shows"
    yield bullets(findings(results))


# --- small things ---------------------------------------------------------------------------------------------


def _cell(results: Results, task: str, arm: Arm) -> str:
    fixed, tuned = (results.tolerance(task, arm, tuned=tuned) for tuned in (False, True))
    if fixed is None:
        return "-"
    if arm.process != "independent":
        return str(fixed)
    return f"{fixed} / {tuned}"


def _ratio_cell(results: Results, arm: Arm) -> str:
    """The least over models, at the loss-free rate."""
    if arm == Arm("random", "zero", process=arm.process):
        return "1"
    ratios = [
        value for task in results.tasks() if (value := ratio(results, task, arm, tuned=False)) is not None
    ]
    return f"{min(ratios):.1f} to {max(ratios):.1f}" if ratios else "-"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None
