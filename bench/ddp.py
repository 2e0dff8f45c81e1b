"""A step of DistributedDataParallel: a model of 25 million parameters over dlcp and over Gloo, no loss.

The model is a stack of equal layers, so that most of the backward pass is left when the first bucket goes. The batch is
small: the network is what is looked at. Beside the time per step stands what one bucket costs in dlcp's Python: with
small buckets one after the other, as the bar means it, and in these steps, whose data push it out of the caches.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.collectives.timing import synchronizer
from bench.collectives.world import DLCP, DLCP_SHM, GLOO, Backend, Place, Ranks
from bench.report import Figure, Report, in_turn, ratios, slowest, spread
from dlcp import lab
from dlcp.lab import tcp_fill
from dlcp.lab.tcp_fill import TcpFill

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
    last_loss: float
    """The backends should agree on it, to rounding."""
    in_step_us: float = 0.0
    """Python's time per bucket in these steps, with the model's data in the caches; 0 for other backends."""
    alone_us: float = 0.0
    """The same with small buckets and no model to speak of: the least of many steps."""
    buckets: int = 0
    """Per step."""


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 2.0) if quick else (3, 5.0)
    backends: tuple[Backend, ...] = (GLOO, DLCP, DLCP_SHM)
    found: dict[tuple[str, str], list[list[Steps]]] = {}
    fills: dict[str, TcpFill] = {}

    def measure(ranks: Ranks, places: dict[str, tuple[Place, tuple[Backend, ...]]]) -> None:
        cases = {
            (words, backend.label): (place, backend)
            for words, (place, these) in places.items()
            for backend in these
        }
        found.update(in_turn(repeats, cases, lambda case: ranks.run(train, *case, seconds)))

    with Ranks() as ranks:
        measure(ranks, {f"loopback, {n} ranks": (Place.loopback(n), backends) for n in (2, 4)})
        if lab.missing() is None:
            with lab.Lab(rate_bps=10**9) as network:
                fills["1 Gbit/s"] = tcp_fill.measure(network)
                measure(
                    ranks,
                    {f"1 Gbit/s, {n} ranks": (Place.of_lab(network, n), (GLOO, DLCP)) for n in (2, 4)},
                )
    return _judge(found, {"repeats": repeats, "seconds each": seconds, "batch": BATCH}, fills)


def _judge(
    found: dict[tuple[str, str], list[list[Steps]]], settings: dict[str, object], fills: dict[str, TcpFill]
) -> Report:
    parameters = next(iter(found.values()))[0][0].parameters
    report = Report("ddp", settings, fills=fills)
    table = report.table(
        f"{parameters / 1e6:.1f} million parameters: median (lowest–highest)",
        ["", "steps", "ms per step", "buckets", "Python µs per bucket", "in the step", "last loss"],
    )
    for (words, label), runs in found.items():
        python = Figure.of(max(rank.alone_us for rank in steps) for steps in runs)
        in_step = Figure.of(max(rank.in_step_us for rank in steps) for steps in runs)
        table.add(
            f"{words}, {label}",
            str(sum(len(steps[0].times_s) for steps in runs)),
            spread((1e3 * step_s(steps) for steps in runs), 1),
            str(runs[0][0].buckets or ""),
            python.show(0) if label != GLOO.label else "",
            in_step.show(0) if label != GLOO.label else "",
            f"{runs[0][0].last_loss:.6f}",
        )
        if label != GLOO.label:
            ratio = ratios(map(step_s, runs), map(step_s, found[words, GLOO.label]))
            report.at_most(1.0, f"{words}: time per step, {label} / Gloo", ratio)
            report.at_most(PYTHON_US_AT_MOST, f"{words}: {label}, Python per bucket, µs", python)
    return report


def step_s(steps: list[Steps]) -> float:
    """The median over steps of the slowest rank's time."""
    return statistics.median(slowest(rank.times_s for rank in steps))


# --- on every rank --------------------------------------------------------------------------------------------


def train(
    seconds: float,
    device: str = "cpu",
    width: int = WIDTH,
    samples: int = BATCH,
    options: dict[str, Any] | None = None,
) -> Steps:
    """Steps for about `seconds`, the same number on all ranks. `options`: of a GradientState; None: there is none."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    synchronize = synchronizer(device)
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers).to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    replica = DistributedDataParallel(model)
    if options is not None:
        import dlcp.torch

        replica.register_comm_hook(dlcp.torch.GradientState(model, **options), dlcp.torch.gradient_hook)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    batch = torch.randn(samples, width, generator=generator).to(device)
    losses: list[float] = []

    def step() -> float:
        start_s = time.perf_counter()
        optimizer.zero_grad()
        loss = (replica(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        synchronize()
        return time.perf_counter() - start_s

    # DDP lays its buckets out anew after the first step.
    warm = [step() for _ in range(3)]
    plans: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(plans, warm[-1])
    iterations = max(5, int(seconds / max(plans)))
    times_s = [step() for _ in range(iterations)]
    # Recipes do not call the group, and the stopwatch knows no device.
    stopwatch = Stopwatch.of(dist.group.WORLD) if device == "cpu" and options is None else None
    if stopwatch is None:
        return Steps(parameters, times_s, losses[len(warm) + iterations - 1])
    in_step_us = [stopwatch.lap(step) for _ in range(10)]
    buckets = stopwatch.buckets
    small = small_steps()
    for _ in range(20):
        small()
    alone_us = [stopwatch.lap(small) for _ in range(100)]
    last = losses[len(warm) + iterations - 1]
    return Steps(parameters, times_s, last, statistics.median(in_step_us), min(alone_us), buckets)


def small_steps() -> Callable[[], None]:
    """Backward passes with many small buckets and next to no arithmetic, which leave the caches to the backend."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(LAYERS)))
    replica = DistributedDataParallel(model, bucket_cap_mb=0.01)
    batch = torch.ones(1, 64)
    return lambda: replica(batch).sum().backward()


class Stopwatch:
    """Processor time of dlcp's Python for one bucket: starting it, its future, and completing that on other threads.

    Native calls are taken out. Put around them after what is timed by the clock, since it costs a little itself.
    """

    def __init__(self, group: Any) -> None:
        from dlcp.torch.futures import CollectiveFuture
        from dlcp.torch.work import CollectiveWork
        from dlcp.transport import transfer

        self.buckets = 0
        self._ns = 0
        self._running = threading.local()
        communicator = group.communicator
        communicator._runtime = _Timed(communicator._runtime, self)
        group.allreduce = self._timed(group.allreduce, counted=True)
        for owner, name in (
            (CollectiveWork, "get_future"),
            (CollectiveFuture, "complete"),
            (transfer, "_call"),  # the callback thread's way into the backend
        ):
            setattr(owner, name, self._timed(getattr(owner, name)))

    @classmethod
    def of(cls, group: Any) -> Stopwatch | None:
        """One for dlcp's group; None for another's."""
        return cls(group) if hasattr(group, "communicator") else None

    def lap(self, step: Callable[[], object]) -> float:
        """Microseconds per bucket of one step."""
        self.buckets = self._ns = 0
        step()
        return self._ns / 1e3 / self.buckets

    def _timed(self, function: Any, *, counted: bool = False) -> Any:
        def timed(*arguments: Any, **named: Any) -> Any:
            self.buckets += counted
            if getattr(self._running, "inside", False):
                return function(*arguments, **named)
            self._running.inside = True
            start_ns = time.thread_time_ns()
            try:
                return function(*arguments, **named)
            finally:
                self._ns += time.thread_time_ns() - start_ns
                self._running.inside = False

        return timed

    def native(self, ns: int) -> None:
        """Takes out a native call that this thread made inside."""
        if getattr(self._running, "inside", False):
            self._ns -= ns


class _Timed:
    """A native host whose calls tell a stopwatch how long they took."""

    def __init__(self, host: Any, stopwatch: Stopwatch) -> None:
        self._runtime = host
        self._stopwatch = stopwatch

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._runtime, name)
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
