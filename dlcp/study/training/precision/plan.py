"""What the study of precision runs, and in which order: the most telling first, so that a part says something too.

The dense exchange is run at all learning rates and with fewer rounds; then the core arms at its best rate, with more
seeds, and at other rates where they cost rounds; then the others likewise. Before all that few bits (FEW) are run on
trainings of other kinds, with as many seeds as a standard error needs; after all that on large models. The planner
looks at what is there and names what is missing: a study that was stopped goes on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dlcp.study.training.precision.arm import DENSE, Arm, bits_of
from dlcp.study.training.precision.problems import FIRST, LARGE, OTHER_KINDS
from dlcp.study.training.precision.quality import Results
from dlcp.study.training.precision.training import Run

RATES = (0.5, 1.0, 2.0)
"""Times the problem's own learning rate."""
FEWER_ROUNDS = (0.9, 0.75, 0.5)
"""Of dense runs, by which a loss is told as a share of rounds."""
SEEDS = 3
CORE_SEEDS = 6
"""Of the dense exchange and the core arms at their best rates: chance moves a run by as much as few bits do."""
TUNED_BELOW = 0.97
"""The share of rounds below which an arm is tried at other learning rates too."""
REPEATS = 4
"""Of the dense exchange at its best rate: the luck of a single one would be in every comparison."""
TOGETHER = 3
"""Runs that train together."""
EXACT = Arm(DENSE)
FLAT = tuple(Arm(codec) for codec in ("int4", "int2", "int8", "fp16", "bf16", "fp8_e4m3"))
FEEDBACK = (Arm("int4", "sender"), Arm("int4", "none"))


def layered(bits: float, refinement: str, base: str = "int2", layers: int = 1) -> Arm:
    """An arm that sends `bits` per value in the mean."""
    # Rounded, so that it reads back from a record as it was.
    share = round((bits - bits_of(base)) / (layers * bits_of(refinement)), 4)
    return Arm(base, refinement=refinement, layers=layers, share=share)


AS_INT4 = layered(bits_of("int4"), "int4")
"""As many bytes as four flat bits: two bits for every value, four more for 47 % of the blocks."""
THREE_BITS = layered(bits_of("int4") - 1, "int4")
FIVE_BITS = layered(bits_of("int4") + 1, "int4", base="int4")
LAYERED = (
    AS_INT4,
    replace(AS_INT4, capacity="log-normal"),
    replace(AS_INT4, order="random"),
    replace(AS_INT4, capacity="slow rank"),
    replace(AS_INT4, capacity="cross traffic"),
    THREE_BITS,
    replace(THREE_BITS, capacity="log-normal"),
)
CHOSEN = (
    Arm("int2", wider=("int4", "int8"), wider_bits=bits_of("int4"), capacity="log-normal"),
    Arm("int2", wider=("int4",), wider_bits=3.75, capacity="slow rank"),
    Arm("int2", wider=("int4",), wider_bits=3.25, capacity="cross traffic"),
)
"""Flat codes, which the sender chooses by the capacity that it knows beforehand."""
MORE = (
    *CHOSEN,
    replace(THREE_BITS, order="random"),
    layered(bits_of("int4"), "int8"),
    layered(bits_of("int4"), "int2", layers=2),
    replace(AS_INT4, block_groups=4),
    FIVE_BITS,
    replace(FIVE_BITS, capacity="log-normal"),
    replace(AS_INT4, capacity="log-normal", order="random"),
    Arm("int2", "none"),
    Arm("int8", "none"),
)
FEW = (
    Arm("int8"),
    Arm("int4"),
    Arm("int4", returned="int8"),
    Arm("int4", warmup_steps=20),
    Arm("int4", warmup_steps=20, scale="least squares"),
    Arm("int4", warmup_steps=20, turned=True),
    Arm("int4", warmup_steps=20, scale="least squares", turned=True),
)
"""What "auto" takes, "low_bit" without its first steps, what is between, "low_bit" with them; then what may help it."""
FEW_MORE = (
    Arm("int4", scale_values=32),
    Arm("int4", scale="least squares"),
    Arm("int4", turned=True),
)
"""On trainings of other kinds alone, with fewer seeds."""
FEW_SEEDS, FEW_MORE_SEEDS = 16, 8
FEW_RATE_SEEDS = 2
"""Of the dense exchange at each rate: what it is best at, all others of FEW take."""
FEW_REPEATS = 2
"""Of the dense exchange: all others of FEW are held against it."""
FEW_LARGE = (FEW[0], FEW[3])
"""What ships, on large models, of which a run takes minutes: FEW_MORE_SEEDS, one seed at each rate, no repetitions."""
CORE = (*FLAT[:2], AS_INT4, FEEDBACK[1], *LAYERED[1:3], THREE_BITS)
"""Run before all else, and with more seeds."""
MAIN = (*FLAT[:2], AS_INT4, *FEEDBACK, *FLAT[2:], *LAYERED[1:])
ORDER = (*MAIN, *MORE)
"""Of the plan."""
SHOWN = (
    EXACT,
    *FLAT[3:],
    FLAT[2],
    *FLAT[:2],
    *FEW[2:],
    *FEW_MORE,
    *FEEDBACK,
    *MORE[-2:],
    *LAYERED,
    *MORE[3:-2],
    *CHOSEN,
)
"""Of the report."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is to be run."""

    problems: tuple[str, ...] = tuple(FIRST)
    seeds: int = SEEDS
    core_seeds: int = CORE_SEEDS
    arms: tuple[Arm, ...] = ORDER
    few: tuple[str, ...] = ()
    """Problems of which few bits are asked alone; if there are any, of `problems` too."""
    large: tuple[str, ...] = ()
    """As `few`, of large models."""


FULL = Scope(few=tuple(OTHER_KINDS), large=tuple(LARGE))
QUICK = Scope(problems=("mlp sgd",), seeds=2, core_seeds=2, arms=(*FLAT[:2], AS_INT4))


def missing(scope: Scope, results: Results) -> Iterator[list[Run]]:
    """Runs that have no result yet, by who train together, until none is missing.

    What it yields is to be in `results` when it is asked for more.
    """
    if scope.few:
        yield from _few((*scope.few, *scope.problems), FEW, FEW_SEEDS, results)
        yield from _few(scope.few, FEW_MORE, FEW_MORE_SEEDS, results)
    main, more, core = ([arm for arm in scope.arms if arm in some] for some in (MAIN, MORE, CORE))
    yield from _dense(scope, scope.seeds, results)
    yield from _at_dense_rate(scope, core, results)
    yield from _at_other_rates(scope, core, results)
    yield from _dense(scope, scope.core_seeds, results)
    yield from _more_seeds(scope, core, results)
    yield from _at_dense_rate(scope, [*main, *more], results)
    yield from _at_other_rates(scope, [*main, *more], results)
    yield from _few_large(scope.large, results)


Batches = Iterator[list[Run]]


def _few(problems: Sequence[str], arms: Sequence[Arm], seeds: int, results: Results) -> Batches:
    for problem in problems:
        plain = [Run(problem, EXACT, rate, seed) for rate in RATES for seed in range(FEW_RATE_SEEDS)]
        yield from _together(plain, results)
    for arm, problem in itertools.product((EXACT, *arms), problems):
        best = results.best_rate(problem, arm if arm in results.arms(problem) else EXACT)
        runs = [Run(problem, arm, best, seed) for seed in range(seeds)]
        for again in range(FEW_REPEATS if arm == EXACT else 1):
            yield from _together([replace(run, again=again) for run in runs], results)


def _few_large(problems: Sequence[str], results: Results) -> Batches:
    """One at a time: each fills the memory that three small ones share."""
    for problem in problems:
        for rate in RATES:
            yield from _together([Run(problem, EXACT, rate, 0)], results)
        best = results.best_rate(problem, EXACT)
        for arm, seed in itertools.product((EXACT, *FEW_LARGE), range(FEW_MORE_SEEDS)):
            yield from _together([Run(problem, arm, best, seed)], results)


def _dense(scope: Scope, seeds: int, results: Results) -> Batches:
    """The scope's seeds at all rates and again; `seeds` at the best rate, of all rounds and of fewer."""
    for problem in scope.problems:
        plain = [Run(problem, EXACT, rate, seed) for rate in RATES for seed in range(scope.seeds)]
        yield from _together(plain, results)
        best = [Run(problem, EXACT, results.best_rate(problem, EXACT), seed) for seed in range(seeds)]
        for rounds in (1.0, *FEWER_ROUNDS):
            yield from _together([replace(run, rounds=rounds) for run in best], results)
        for again in range(1, REPEATS):
            yield from _together([replace(run, again=again) for run in best[: scope.seeds]], results)


def _at_dense_rate(scope: Scope, arms: Sequence[Arm], results: Results) -> Batches:
    for arm, problem in itertools.product(arms, scope.problems):
        best = results.best_rate(problem, EXACT)
        yield from _together([Run(problem, arm, best, seed) for seed in range(scope.seeds)], results)


def _at_other_rates(scope: Scope, arms: Sequence[Arm], results: Results) -> Batches:
    """Where an arm costs rounds."""
    for arm, problem in itertools.product(arms, scope.problems):
        rounds = results.rounds(problem, arm)
        if rounds is not None and rounds < TUNED_BELOW:
            runs = [Run(problem, arm, rate, seed) for rate in RATES for seed in range(scope.seeds)]
            yield from _together(runs, results)


def _more_seeds(scope: Scope, arms: Sequence[Arm], results: Results) -> Batches:
    for arm, problem in itertools.product(arms, scope.problems):
        best = results.best_rate(problem, arm)
        yield from _together([Run(problem, arm, best, seed) for seed in range(scope.core_seeds)], results)


def _together(runs: Iterable[Run], results: Results) -> Batches:
    """What is missing of runs of one arm, few at a time: more do not fit the caches."""
    left = [run for run in runs if run not in results]
    for _, some in itertools.groupby(left, key=lambda run: run.rate):
        listed = list(some)
        yield from (listed[begin : begin + TOGETHER] for begin in range(0, len(listed), TOGETHER))
