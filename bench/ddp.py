"""A step of DistributedDataParallel: a model of 25 million parameters over dlcp and over Gloo, no loss.

The model is a stack of equal layers, so that most of the backward pass is left when the first bucket goes. The batch is
small: the network is what is looked at. Beside the time per step, what one bucket costs in dlcp's Python: the
processor time of the thread that runs the backend's methods, less what the native calls under them take.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from bench.collectives.compare import progress
from bench.collectives.world import DLCP, DLCP_SHM, GLOO, Backend, Place, Ranks
from bench.report import Bar, Figure, Report, Table
from dlcp import lab

SUMMARY = "steps of DDP with 25 million parameters, worlds of 2 and 4, Gloo beside; Python's share per bucket"
NEEDS_LAB = False
NEEDS_PROGRAMS = False
LAYERS, WIDTH, BATCH = 12, 1448, 16
PYTHON_US_AT_MOST = 60.0


@dataclass(frozen=True)
class Steps:
    """One rank's account."""

    parameters: int
    times_s: list[float]
    losses: tuple[float, float]
    """At the first and the last step: the ranks and the backends should agree."""
    python_us: float
    """Per bucket; 0 for other backends."""
    buckets: float
    """Per step."""


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 2.0) if quick else (3, 5.0)
    backends: tuple[Backend, ...] = (GLOO, DLCP, DLCP_SHM)
    found: dict[tuple[str, str], list[list[Steps]]] = {}

    def measure(ranks: Ranks, places: dict[str, tuple[Place, tuple[Backend, ...]]]) -> None:
        for repeat in range(repeats):
            for words, (place, these) in places.items():
                for backend in these:
                    progress(f"{repeat + 1}/{repeats} {words}, {backend.label}")
                    steps = ranks.run(train, place, backend, seconds)
                    found.setdefault((words, backend.label), []).append(steps)
        progress("")

    with Ranks() as ranks:
        measure(ranks, {f"loopback, {n} ranks": (Place.loopback(n), backends) for n in (2, 4)})
        if lab.missing() is None:
            with lab.Lab(rate_bps=10**9) as network:
                measure(
                    ranks,
                    {f"1 Gbit/s, {n} ranks": (Place.of_lab(network, n), (GLOO, DLCP)) for n in (2, 4)},
                )
    return _judge(found, {"repeats": repeats, "seconds each": seconds, "batch": BATCH})


def _judge(found: dict[tuple[str, str], list[list[Steps]]], settings: dict[str, object]) -> Report:
    parameters = next(iter(found.values()))[0][0].parameters
    table = Table(
        f"{parameters / 1e6:.1f} million parameters: median (lowest–highest)",
        ["", "steps", "ms per step", "buckets per step", "Python µs per bucket", "last loss"],
    )
    report = Report("ddp", settings, [table])
    for (words, label), runs in found.items():
        python = Figure.of([max(rank.python_us for rank in steps) for steps in runs])
        table.add(
            f"{words}, {label}",
            str(sum(len(steps[0].times_s) for steps in runs)),
            Figure.of([1e3 * step_s(steps) for steps in runs]).show(1),
            f"{runs[0][0].buckets:.0f}",
            python.show(0) if label != GLOO.label else "",
            f"{runs[0][0].losses[1]:.6f}",
        )
        if label == GLOO.label:
            continue
        pairs = zip(runs, found[words, GLOO.label], strict=True)
        ratio = Figure.of([step_s(own) / step_s(theirs) for own, theirs in pairs])
        report.bars.append(Bar(f"{words}: time per step, {label} / Gloo", None, 1.0, ratio))
        what = f"{words}: {label}, Python per bucket, µs"
        report.bars.append(Bar(what, None, PYTHON_US_AT_MOST, python))
    return report


def step_s(steps: list[Steps]) -> float:
    """The median over steps of the slowest rank's time."""
    return statistics.median(max(times) for times in zip(*(rank.times_s for rank in steps), strict=True))


# --- on every rank --------------------------------------------------------------------------------------------


def train(seconds: float) -> Steps:
    """Steps for about `seconds`, the same number on all ranks."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    batch = torch.randn(BATCH, WIDTH, generator=generator)
    losses: list[float] = []

    def step() -> float:
        start_s = time.perf_counter()
        optimizer.zero_grad()
        loss = (replica(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        return time.perf_counter() - start_s

    # DDP lays its buckets out anew after the first step.
    warm = [step() for _ in range(3)]
    plans: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(plans, warm[-1])
    iterations = max(5, int(seconds / max(plans)))
    times_s = [step() for _ in range(iterations)]
    stopwatch = Stopwatch.of(dist.group.WORLD)
    if stopwatch is not None:
        for _ in range(5):
            step()
    return Steps(
        parameters,
        times_s,
        (losses[0], losses[len(warm) + iterations - 1]),
        0.0 if stopwatch is None else stopwatch.python_us,
        0.0 if stopwatch is None else stopwatch.calls / 5,
    )


class Stopwatch:
    """Processor time of a process group's `allreduce` and of completing its future, without the native calls.

    Put around them after what is timed by the clock, since it costs a little itself.
    """

    def __init__(self, group: Any) -> None:
        self.calls = 0
        self._all_ns = 0
        self._native_ns = 0
        from dlcp.torch import work

        communicator = group.communicator
        communicator._host = _Timed(communicator._host, self)
        group.allreduce = self._timed(group.allreduce, counted=True)
        work.CollectiveWork._complete = self._timed(work.CollectiveWork._complete)  # type: ignore[method-assign]
        work.CollectiveWork.get_future = self._timed(work.CollectiveWork.get_future)  # type: ignore[method-assign]

    @classmethod
    def of(cls, group: Any) -> Stopwatch | None:
        """One for dlcp's group; None for another's."""
        return cls(group) if hasattr(group, "communicator") else None

    @property
    def python_us(self) -> float:
        return (self._all_ns - self._native_ns) / 1e3 / max(1, self.calls)

    def _timed(self, function: Any, *, counted: bool = False) -> Any:
        def timed(*arguments: Any, **named: Any) -> Any:
            self.calls += counted
            start_ns = time.thread_time_ns()
            try:
                return function(*arguments, **named)
            finally:
                self._all_ns += time.thread_time_ns() - start_ns

        return timed

    def native(self, ns: int) -> None:
        self._native_ns += ns


class _Timed:
    """A native host whose calls tell a stopwatch how long they took."""

    def __init__(self, host: Any, stopwatch: Stopwatch) -> None:
        self._host = host
        self._stopwatch = stopwatch

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._host, name)
        if not callable(function):
            return function

        def timed(*arguments: Any, **named: Any) -> Any:
            start_ns = time.thread_time_ns()
            try:
                return function(*arguments, **named)
            finally:
                self._stopwatch.native(time.thread_time_ns() - start_ns)

        setattr(self, name, timed)
        return timed
