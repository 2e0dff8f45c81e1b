"""What the study of tolerance runs, and in which order: the most telling first, so that a part says something too.

Of each arm (arm.py) and model a few losses are run at the loss-free run's best learning rate and several seeds, and at
its neighbours where that does not do; then losses between the last that was borne and the first that was not. The
planner looks at what is there and names what is missing: a study that was stopped goes on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dlcp.study.training.arm import Arm
from dlcp.study.training.network import PROCESSES
from dlcp.study.training.tolerance import Results
from dlcp.study.training.training import Run
from dlcp_sim.cosimulation.tasks import TASKS, open_task

# Times the task's own; the loss-free run is tried at all of them, an arm at the best of these and its neighbours.
STEP = 1.5
RATES = tuple(round(STEP**power, 4) for power in (-2, -1, 0, 1, 2))
NEIGHBOURS = (1.0, 1 / STEP, STEP)
# Of loss-free runs at the best rate: the yardstick, so it needs more of them.
REFERENCE_SEEDS = 8
# Of the loss-free run of each seed that lossy ones are held against: its luck would be in every comparison.
REPEATS = 4
# What fewer rounds cost the loss-free run is the allowance; more than that, so that it stands out from the noise.
FEWER_ROUNDS = 0.85
LOSSES_FIRST = (0.03, 0.1, 0.3, 0.5)
LOSSES_ABOVE = (0.7, 0.9)
LOSSES_BELOW = (0.01, 0.003)
# Between two losses whose ratio is above this, another is run.
GAP_MAX = 1.5
# Runs that train together; more do not fit the caches, fewer leave the cost of calls.
TOGETHER = 9


BASELINE = Arm("random", "zero")
"""What DLCP and MLT do to a gradient, without their switches."""

CANDIDATES = (
    Arm("transport", "residual", 0.9),
    Arm("transport", "residual", 1.0),
    Arm("transport", "residual", 0.5),
    Arm("transport", "zero"),
)
"""What the default is chosen among."""
EVERY_RATE = (BASELINE, *CANDIDATES[:3])
"""These residuals and what they must not be worse than are run at all neighbours in any case."""

_CHANCE = (
    Arm("random", "residual", 0.9),
    Arm("random", "residual", 1.0),
    Arm("random", "residual", 0.5),
    Arm("random", "rescale"),
    Arm("random", "hadamard"),
    Arm("random", "masked", 1.0),
)
_CHOICE = (
    Arm("least", "zero"),
    Arm("least", "residual", 0.9),
    Arm("transport", "residual", 0.9, pressure=2.0),
    Arm("transport", "residual", 0.9, critical_share=0.0),
    Arm("transport", "residual", 0.9, critical_share=0.3),
    Arm("transport", "zero", pressure=2.0),
    Arm("least", "residual", 0.5),
    Arm("least", "residual", 1.0),
    Arm("transport", "rescale"),
)
ARMS: tuple[Arm, ...] = (BASELINE, *CANDIDATES, *_CHANCE, *_CHOICE)
"""With independent losses, in the order of the report."""

# Bursty and uneven losses, at the loss-free rate alone.
_OTHERWISE = tuple(
    replace(arm, process=process)
    for arm in (BASELINE, CANDIDATES[0], CANDIDATES[2])
    for process in PROCESSES
    if process != "independent"
)


ORDER = (BASELINE, *CANDIDATES, *_CHANCE, *_CHOICE[:3], *_OTHERWISE, *_CHOICE[3:])
"""All arms, in the order in which they are run."""


@dataclass(frozen=True, slots=True)
class Scope:
    tasks: tuple[str, ...] = tuple(TASKS)
    seeds: int = 3
    refine: bool = True
    """Whether losses are run between the last that is borne and the first that is not."""
    arms: tuple[Arm, ...] = ORDER

    def seeds_of(self, task: str) -> int:
        """Of a model, at the loss-free rate."""
        return self.seeds * open_task(task).seeds_factor


QUICK = Scope(tasks=("mlp",), seeds=2, refine=False, arms=(BASELINE, *CANDIDATES[:3], _CHANCE[0], _CHANCE[4]))


def missing(scope: Scope, results: Results) -> Iterator[list[list[Run]]]:
    """Runs that have no result yet, by who train together, until none is missing.

    What it yields is to be in `results` when it is asked for more.
    """
    for task in scope.tasks:
        if runs := _without(_clean(scope, task), results):
            yield _together(runs)
        if runs := _without(_reference(scope, task, results), results):
            yield _together(runs)
    for arm in scope.arms:
        for task in scope.tasks:
            while runs := _without(_arm(scope, task, arm, results), results):
                yield _together(runs)


def _clean(scope: Scope, task: str) -> list[Run]:
    return [_loss_free(task, rate, seed) for rate in RATES for seed in range(scope.seeds)]


def _reference(scope: Scope, task: str, results: Results) -> list[Run]:
    """Loss-free runs at the best rate: more seeds, fewer rounds, and the same again."""
    best = results.best_rate(task)
    more = [_loss_free(task, best, seed) for seed in range(max(REFERENCE_SEEDS, scope.seeds_of(task)))]
    seeds = scope.seeds_of(task)
    again = [replace(run, again=again) for run in more[:seeds] for again in range(1, REPEATS)]
    return more + [replace(run, rounds=FEWER_ROUNDS) for run in more] + again


def _loss_free(task: str, rate: float, seed: int) -> Run:
    return Run(task, BASELINE, 0.0, rate, seed)


def _arm(scope: Scope, task: str, arm: Arm, results: Results) -> Iterator[Run]:
    """The runs of an arm, as far as its results so far say which."""
    best = results.best_rate(task)
    tested = results.losses(task, arm)
    for loss in losses(scope, task, arm, results):
        rates: tuple[float, ...] = NEIGHBOURS[:1]
        if arm in EVERY_RATE or (
            arm.process == "independent"
            and loss in tested
            and not results.borne(task, arm, loss, tuned=False)
        ):
            rates = NEIGHBOURS
        for neighbour in rates:
            for seed in range(scope.seeds_of(task) if neighbour == 1.0 else scope.seeds):
                yield Run(task, arm, loss, round(best * neighbour, 4), seed)


def losses(scope: Scope, task: str, arm: Arm, results: Results) -> list[float]:
    """The losses to run: the first, above or below them where they do not find the end, and in the gap where it is."""
    wanted = list(LOSSES_FIRST)
    tested = results.losses(task, arm)
    if not set(wanted) <= set(tested):
        return wanted
    ends = [results.bracket(task, arm, tuned=tuned) for tuned in (False, True)]
    for above in LOSSES_ABOVE:
        if any(first_bad is None for _, first_bad in ends) and max(tested) < above:
            return [*tested, above]
    for below in LOSSES_BELOW:
        if any(last_good is None for last_good, _ in ends) and min(tested) > below:
            return [*tested, below]
    if scope.refine and len(tested) < len(LOSSES_FIRST) + 4:
        for last_good, first_bad in ends:
            if last_good is not None and first_bad is not None and first_bad > GAP_MAX * last_good:
                return [*tested, _between(last_good, first_bad)]
    return tested


def _between(low: float, high: float) -> float:
    """About the middle, as people count: of 0.3 and 0.5 0.4, of 0.03 and 0.1 0.05."""
    middle = (low * high) ** 0.5
    return float(f"{middle:.1g}") if float(f"{middle:.1g}") not in (low, high) else float(f"{middle:.2g}")


def _without(runs: Iterable[Run], results: Results) -> list[Run]:
    return [run for run in runs if run not in results]


def _together(runs: list[Run]) -> list[list[Run]]:
    """By group, and few enough for the caches."""
    groups = [list(group) for _, group in itertools.groupby(runs, key=lambda run: run.group)]
    return [group[begin : begin + TOGETHER] for group in groups for begin in range(0, len(group), TOGETHER)]
