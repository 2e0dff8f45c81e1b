"""What training bears, from results: numbers only.

*Excess* of a loss: the mean over seeds of held-out loss at the end, less that of the loss-free runs of the same seed at
their best learning rate; runs of one seed start from the same weights and see the same examples.
*Allowance*: what ending EXTRA_ROUNDS earlier costs the loss-free run at that rate. A loss is *borne*, it needs no extra
rounds, when after the same number of rounds the excess is no more than the allowance. *Tolerance*: more loss cannot
help, so the excess is taken to rise with it (isotonic regression); where it crosses the allowance, in a line between
two losses that were run, is the tolerance.
*At the loss-free rate*: nobody tunes anything for the loss. *Tuned*: at each loss at the best rate of those tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean, stdev

from dlcp.study.training.arm import Arm
from dlcp.study.training.results import RunResults, finite_mean
from dlcp.study.training.training import Result, Run

EXTRA_ROUNDS = 0.05
"""Of all rounds: about the least that a handful of seeds tell apart from none."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    loss: float
    """From 0 to 1."""
    at_least: bool
    """Whether all losses that were run are borne."""
    at_most: bool
    """Whether none was: then `loss` is the smallest that was run."""

    def __str__(self) -> str:
        sign = ">= " if self.at_least else "< " if self.at_most else ""
        return f"{sign}{100 * self.loss:.2g} %"


class Results(RunResults[Run, Result]):
    """Runs and what they came to, by run."""

    def __init__(self, results: Mapping[Run, Result] | None = None) -> None:
        self._clean: dict[str, dict[float, dict[int, float]]] = {}
        self._again: dict[str, dict[float, dict[int, list[float]]]] = {}
        self._lossy: dict[tuple[str, Arm], dict[float, dict[float, dict[int, Result]]]] = {}
        super().__init__(results)

    def add(self, run: Run, result: Result) -> None:
        super().add(run, result)
        if run.rounds != 1.0:
            return
        if run.loss == 0.0:
            again = self._again.setdefault(run.task, {}).setdefault(run.rate, {})
            again.setdefault(run.seed, []).append(result.held_out)
            if not run.again:
                self._clean.setdefault(run.task, {}).setdefault(run.rate, {})[run.seed] = result.held_out
            return
        rates = self._lossy.setdefault((run.task, run.arm), {}).setdefault(run.loss, {})
        rates.setdefault(run.rate, {})[run.seed] = result

    # ---- the loss-free run ----

    def tasks(self) -> list[str]:
        """Those that have a loss-free run."""
        return list(self._clean)

    def best_rate(self, task: str) -> float:
        """The learning rate, times the task's own, at which the loss-free run ends best."""
        seeds = min(len(ends) for ends in self._clean[task].values())
        return min(
            self._clean[task],
            key=lambda rate: finite_mean([self._clean[task][rate][s] for s in range(seeds)]),
        )

    def clean(self, task: str) -> list[float]:
        """Held-out losses of the loss-free run at its best rate, by seed."""
        ends = self._clean[task][self.best_rate(task)]
        return [ends[seed] for seed in sorted(ends)]

    def allowance(self, task: str) -> float:
        """See above; by runs of fewer rounds, each against the run of its seed."""
        best = self.best_rate(task)
        pairs = [
            (result.held_out - self._clean[task][best][run.seed], 1 - run.rounds)
            for run, result in self._results.items()
            if run.task == task and run.rounds != 1.0 and run.rate == best
        ]
        return EXTRA_ROUNDS * mean(pair[0] for pair in pairs) / mean(pair[1] for pair in pairs)

    # ---- an arm ----

    def arms(self, task: str) -> list[Arm]:
        """Those that have a result, in the order in which they came."""
        return [arm for one, arm in self._lossy if one == task]

    def losses(self, task: str, arm: Arm) -> list[float]:
        """Those that have a result, ascending."""
        return sorted(self._lossy.get((task, arm), {}))

    def rates(self, task: str, arm: Arm, loss: float) -> list[float]:
        """Those that have a result, ascending."""
        return sorted(self._lossy[task, arm][loss])

    def excess(self, task: str, arm: Arm, loss: float, rate: float) -> float:
        """See above; infinite where a run diverged."""
        return finite_mean(self._differences(task, arm, loss, rate))

    def error(self, task: str, arm: Arm, loss: float, rate: float) -> float:
        """The standard error of the excess; infinite where a run diverged."""
        differences = self._differences(task, arm, loss, rate)
        if len(differences) < 2 or not all(math.isfinite(difference) for difference in differences):
            return math.inf
        return stdev(differences) / math.sqrt(len(differences))

    def _differences(self, task: str, arm: Arm, loss: float, rate: float) -> list[float]:
        """By seed: held-out loss less the mean of the loss-free runs."""
        reference = self._again[task][self.best_rate(task)]
        ends = self._lossy[task, arm][loss][rate]
        return [ends[seed].held_out - mean(reference[seed]) for seed in sorted(ends)]

    def abandoned(self, task: str, arm: Arm, loss: float) -> float:
        """The share of droppable blocks that was abandoned, mean over runs."""
        return mean(
            result.abandoned for ends in self._lossy[task, arm][loss].values() for result in ends.values()
        )

    def end(self, task: str, arm: Arm, loss: float, *, tuned: bool) -> float | None:
        """The excess at the loss-free rate, or the best over rates. None: not run at that rate."""
        rates = self.rates(task, arm, loss)
        if tuned:
            return min(self.excess(task, arm, loss, rate) for rate in rates)
        best = self.best_rate(task)
        return self.excess(task, arm, loss, best) if best in rates else None

    def borne(self, task: str, arm: Arm, loss: float, *, tuned: bool) -> bool:
        """Whether the excess is no more than the allowance."""
        end = self.end(task, arm, loss, tuned=tuned)
        return end is not None and end <= self.allowance(task)

    def rising(self, task: str, arm: Arm, *, tuned: bool) -> list[tuple[float, float]]:
        """Losses, and the excess as a function that does not fall that is nearest to what was found."""
        points = [
            (loss, end)
            for loss in self.losses(task, arm)
            if (end := self.end(task, arm, loss, tuned=tuned)) is not None
        ]
        return list(zip([loss for loss, _ in points], _isotonic([end for _, end in points]), strict=True))

    def bracket(self, task: str, arm: Arm, *, tuned: bool) -> tuple[float | None, float | None]:
        """The last loss that is borne, and the first that is not, by rising(); None: there is none."""
        points = self.rising(task, arm, tuned=tuned)
        good = [loss for loss, end in points if end <= self.allowance(task)]
        bad = [loss for loss, end in points if not end <= self.allowance(task)]
        return (good[-1] if good else None), (bad[0] if bad else None)

    def tolerance(self, task: str, arm: Arm, *, tuned: bool) -> Tolerance | None:
        """See above. None: nothing was run."""
        last_good, first_bad = self.bracket(task, arm, tuned=tuned)
        if first_bad is None:
            return None if last_good is None else Tolerance(last_good, at_least=True, at_most=False)
        if last_good is None:
            return Tolerance(first_bad, at_least=False, at_most=True)
        ends = dict(self.rising(task, arm, tuned=tuned))
        good, bad = ends[last_good], ends[first_bad]
        way = (self.allowance(task) - good) / (bad - good) if math.isfinite(bad) else 0.0
        return Tolerance(last_good + way * (first_bad - last_good), at_least=False, at_most=False)


def _isotonic(values: list[float]) -> list[float]:
    """The nearest values that do not fall: neighbours that do are pooled to their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (first, many), (second, more) = pools[-2:]
            pools[-2:] = [((first * many + second * more) / (many + more), many + more)]
    return [value for value, many in pools for _ in range(many)]
