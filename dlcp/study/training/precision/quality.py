"""How well arms end, from results: numbers only.

*Excess*: held-out loss at the end, less that of the dense exchange with the same seed (the mean of its repetitions).
Each is at its own best learning rate of those tried (by the mean over seeds). *Rounds*: the share of a dense run's
rounds after which a dense run, of that length and with its own schedule, ends as well; between the lengths that were
run, in a line. *Steps to the mark*: the share of a run's steps after which it is as good as dense runs are half-way in
the mean; between the points of its curve, in a line.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from statistics import mean, stdev, variance

from dlcp.study.training.precision.arm import DENSE, Arm
from dlcp.study.training.precision.problems import PROBLEMS
from dlcp.study.training.precision.training import POINTS, Result, Run
from dlcp.study.training.results import RunResults, finite_mean

_DENSE = Arm(DENSE)


class Results(RunResults[Run, Result]):
    """Runs and what they came to, by run."""

    def __init__(self, results: Mapping[Run, Result] | None = None) -> None:
        self._ends: dict[tuple[str, Arm, float], dict[float, dict[int, list[Result]]]] = {}
        super().__init__(results)

    def add(self, run: Run, result: Result) -> None:
        super().add(run, result)
        rates = self._ends.setdefault((run.problem, run.arm, run.rounds), {})
        rates.setdefault(run.rate, {}).setdefault(run.seed, []).append(result)

    def problems(self) -> list[str]:
        """Those that have a dense run, in the order of PROBLEMS."""
        known = {run.problem for run in self._results if run.arm == _DENSE}
        return [problem for problem in PROBLEMS if problem in known]

    def arms(self, problem: str) -> list[Arm]:
        """Those that have a run, the dense one too, in the order in which they came."""
        return list(dict.fromkeys(run.arm for run in self._results if run.problem == problem))

    def rates(self, problem: str, arm: Arm) -> list[float]:
        """Learning rates that were tried, ascending."""
        return sorted(self._ends.get((problem, arm, 1.0), {}))

    def best_rate(self, problem: str, arm: Arm) -> float:
        """Times the problem's own, by the mean over the seeds that were run at all rates."""
        rates = self._ends[problem, arm, 1.0]
        seeds = set.intersection(*(set(ends) for ends in rates.values()))
        return min(rates, key=lambda rate: finite_mean(_end(rates[rate][seed]) for seed in seeds))

    def ends(self, problem: str, arm: Arm, rounds: float = 1.0) -> dict[int, float]:
        """Held-out loss by seed, mean over repetitions, at the best rate of the full length; empty: not run."""
        rates = self._ends.get((problem, arm, rounds), {})
        best = self.best_rate(problem, arm) if rates else 0.0
        return {seed: _end(found) for seed, found in rates.get(best, {}).items()}

    def bits(self, problem: str, arm: Arm) -> float:
        """Of a coded value, as counted, in the mean over runs."""
        rates = self._ends[problem, arm, 1.0].values()
        return mean(result.bits for ends in rates for found in ends.values() for result in found)

    def excesses(self, problem: str, arm: Arm) -> list[float]:
        """Of each seed that was run; infinite where a run diverged."""
        dense, ends = self.ends(problem, _DENSE), self.ends(problem, arm)
        return [
            end - dense[seed] if math.isfinite(end) else math.inf
            for seed, end in sorted(ends.items())
            if seed in dense
        ]

    def excess(self, problem: str, arm: Arm) -> float:
        """Their mean; infinite: a run diverged; NaN: none was run."""
        found = self.excesses(problem, arm)
        return finite_mean(found) if found else math.nan

    def deviation(self, problem: str, arm: Arm) -> float:
        """Of the excesses over seeds; infinite: a run diverged, or fewer than two were run."""
        found = self.excesses(problem, arm)
        return stdev(found) if len(found) > 1 and all(map(math.isfinite, found)) else math.inf

    def error(self, problem: str, arm: Arm) -> float:
        """The standard error of the excess; infinite as the deviation is."""
        found = self.excesses(problem, arm)
        return self.deviation(problem, arm) / math.sqrt(len(found)) if found else math.inf

    def halfway(self, problem: str, arm: Arm) -> list[float]:
        """As excesses, half-way; empty: not all of these runs have curves."""
        return self._beside_dense(
            problem, arm, lambda curve: curve[POINTS // 2], lambda own, dense: own - dense
        )

    def later(self, problem: str, arm: Arm) -> list[float]:
        """Of each seed: steps to the mark over the dense run's; NaN: a run never comes there. Empty as halfway is."""
        dense = [curve for found in self._curves(problem, _DENSE).values() for curve in found]
        mark = mean(curve[POINTS // 2] for curve in dense) if dense else math.nan
        return self._beside_dense(
            problem, arm, lambda curve: _first_at(curve, mark), lambda own, dense: own / dense
        )

    def _beside_dense(
        self,
        problem: str,
        arm: Arm,
        of: Callable[[list[float]], float],
        compared: Callable[[float, float], float],
    ) -> list[float]:
        """Of each seed, what its curves come to (mean over repetitions) and dense's, compared."""
        own, dense = self._curves(problem, arm), self._curves(problem, _DENSE)
        seeds = sorted(own.keys() & dense.keys())
        if len(seeds) != len(self.excesses(problem, arm)):
            return []
        return [compared(mean(map(of, own[seed])), mean(map(of, dense[seed]))) for seed in seeds]

    def _curves(self, problem: str, arm: Arm) -> dict[int, list[list[float]]]:
        """By seed, each run's held-out loss at the start (infinite) and at each point, at the best rate."""
        rates = self._ends.get((problem, arm, 1.0), {})
        runs = rates[self.best_rate(problem, arm)] if rates else {}
        curves = {
            seed: [[math.inf, *one.curve, one.held_out] for one in found if len(one.curve) == POINTS - 1]
            for seed, found in runs.items()
        }
        return {seed: found for seed, found in curves.items() if found}

    def spread(self, problem: str) -> float:
        """The standard deviation of the dense exchange's end over seeds."""
        ends = list(self.ends(problem, _DENSE).values())
        return stdev(ends) if len(ends) > 1 else math.inf

    def chance(self, problem: str) -> float:
        """How far repetitions of a dense run of one seed lie apart, a standard deviation; infinite: not repeated."""
        best = self._ends[problem, _DENSE, 1.0][self.best_rate(problem, _DENSE)].values()
        variances = [variance(result.held_out for result in found) for found in best if len(found) > 1]
        return math.sqrt(mean(variances)) if variances else math.inf

    def cost(self, problem: str, rounds: float) -> float | None:
        """By how much a dense run of a share of the rounds ends worse, over the seeds of both; None: not run."""
        shorter, whole = self.ends(problem, _DENSE, rounds), self.ends(problem, _DENSE)
        seeds = shorter.keys() & whole.keys()
        return mean(shorter[seed] - whole[seed] for seed in seeds) if seeds else None

    def rounds(self, problem: str, arm: Arm) -> float | None:
        """See above, at most 1; 0: worse than the shortest that was run; None: not run, or nothing to compare with.

        Over the seeds of which shorter dense runs are known.
        """
        lengths = {rounds for name, one, rounds in self._ends if (name, one) == (problem, _DENSE)}
        known = {seed for length in lengths - {1.0} for seed in self.ends(problem, _DENSE, length)}
        ends = {seed: end for seed, end in self.ends(problem, arm).items() if seed in known}
        curve = []
        for length in sorted(lengths):
            dense = self.ends(problem, _DENSE, length)
            if ends and ends.keys() <= dense.keys():
                curve.append((length, mean(dense[seed] for seed in ends)))
        if len(curve) < 2:
            return None
        return _length(curve, finite_mean(ends.values()))


def _length(curve: list[tuple[float, float]], end: float) -> float:
    """Where a curve of (rounds, loss), by rounds ascending, comes to `end`, seen from its last point."""
    for (less, worse), (more, better) in reversed(list(itertools.pairwise(curve))):
        if end <= better:
            return more
        if end <= worse:
            return less + (more - less) * (worse - end) / (worse - better)
    return 0.0


def _first_at(curve: list[float], mark: float) -> float:
    """The share of the steps after which a curve first is at the mark; NaN: never."""
    for point, (before, after) in enumerate(itertools.pairwise(curve)):
        if after <= mark:
            part = (before - mark) / (before - after) if math.isfinite(before) else 1.0
            return (point + part) / POINTS
    return math.nan


def _end(repetitions: list[Result]) -> float:
    return finite_mean(result.held_out for result in repetitions)
