"""What marking and residuals cost beside the all-reduce that they serve: 64 MB, two ranks, the loopback interface.

In every rank, in turn: a dlcp all-reduce; then what a lossy exchange does beside its collective, at the same time in
both ranks, so that they contend for memory as in training: adding what was kept, importance of all blocks, and keeping
what was abandoned (single blocks chosen by chance in what goes to the other rank: the most runs that there can be).
Packing costs nothing: the buffer is used as it is. An iteration takes as long as its slowest rank.

The buffer is laid out as the first parameters of a ResNet-50; datagrams are as large as the loopback takes them, or as
Ethernet does. Times are right on a machine that does nothing else; processor times bear some company.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from bench.collectives.compare import MIB
from bench.collectives.world import DLCP, Backend, Place, Ranks
from bench.report import Figure, Report, in_turn, ratios, slowest

SUMMARY = "importance and residuals of a 64 MB buffer beside its all-reduce on loopback"
NEEDS_LAB = False
NEEDS_PROGRAMS = False
NBYTES = 64 * MIB
WORLD = 2
SMALL_NUMEL = 4096
RATIO_AT_MOST = 0.10
# 1500 bytes less the headers of IP and UDP.
ETHERNET = Backend("dlcp, 1500 bytes", "dlcp", {"DLCP_SHM": "0", "DLCP_MAX_DATAGRAM_BYTES": "1472"})
NETWORKS = (DLCP, ETHERNET)
# The first steps make what later ones use again.
WARMUP = 2
PARTS = ("add kept", "mark", "keep", "end step")


class Way(NamedTuple):
    """How gradients lose."""

    importance: Literal["rms", "sampled"]
    abandoned: float
    """Of what goes to the other rank."""

    def __str__(self) -> str:
        return f"{self.importance}, {self.abandoned:.0%} abandoned"


WAYS = tuple(Way(importance, share) for importance in ("rms", "sampled") for share in (0.01, 0.05))


@dataclass(frozen=True)
class Times:
    """How long one thing took, an entry per iteration."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    """Of all threads of the process."""

    def add(self, work: Callable[[], object]) -> None:
        cpu_s, start_s = time.process_time(), time.perf_counter()
        work()
        self.wall_s.append(time.perf_counter() - start_s)
        self.cpu_s.append(time.process_time() - cpu_s)

    @classmethod
    def sum(cls, times: Iterable[Times]) -> Times:
        """Of things that were done one after the other in every iteration."""
        several = list(times)
        return cls(
            [sum(each) for each in zip(*(one.wall_s for one in several), strict=True)],
            [sum(each) for each in zip(*(one.cpu_s for one in several), strict=True)],
        )


@dataclass(frozen=True)
class Account:
    """One rank's times."""

    block_bytes: int
    segments: int
    all_reduce: Times
    overhead: dict[Way, dict[str, Times]]
    """By what was done."""
    hadamard: Times
    """There and back."""


def run(*, quick: bool) -> Report:
    worlds, iterations = (2, 5) if quick else (5, 15)
    place, networks = Place.loopback(WORLD), {network.label: network for network in NETWORKS}
    with Ranks() as ranks:
        found = in_turn(worlds, networks, lambda network: ranks.run(measure, place, network, iterations))
    return judge(found)


def judge(found: dict[str, list[list[Account]]]) -> Report:
    """What was found, by network: a world per repetition, a rank's account per rank."""
    any_world = next(iter(found.values()))
    settings = {
        "buffer": f"{NBYTES / MIB:.0f} MB of f32, {any_world[0][0].segments} parameters",
        "ranks": WORLD,
        "worlds": len(any_world),
        "iterations each": len(any_world[0][0].hadamard.wall_s),
    }
    report = Report("gradient_overhead", settings)
    for title, of in (
        ("ms, slowest rank", _slowest_s),
        ("ms of processor time, mean of ranks", _processor_s),
    ):
        table = report.table(
            f"{title}; medians of a world: median (lowest–highest); part: of the all-reduce's",
            ["", *PARTS, "sum", "part"],
        )
        for worlds in found.values():
            blocks = f"blocks of {worlds[0][0].block_bytes}"
            whole = [of([account.all_reduce for account in accounts]) for accounts in worlds]
            table.add(f"{blocks}, all-reduce", *[""] * len(PARTS), _ms(whole), "")
            for way in WAYS:
                done = [[account.overhead[way] for account in accounts] for accounts in worlds]
                each = [[of([one[part] for one in accounts]) for accounts in done] for part in PARTS]
                total = [of([Times.sum(one.values()) for one in accounts]) for accounts in done]
                ratio = ratios(total, whole)
                table.add(f"{blocks}, {way}", *map(_ms, each), _ms(total), ratio)
                if of is _slowest_s:
                    report.at_most(RATIO_AT_MOST, f"{blocks}, {way}: overhead / all-reduce", ratio)
            transform = [of([account.hadamard for account in accounts]) for accounts in worlds]
            table.add("  apart: Hadamard, there and back", *[""] * len(PARTS), _ms(transform), "")
    return report


def _slowest_s(ranks: list[Times]) -> float:
    """Of iterations, each as long as in its slowest rank."""
    return statistics.median(slowest(rank.wall_s for rank in ranks))


def _processor_s(ranks: list[Times]) -> float:
    return statistics.median(map(statistics.mean, zip(*(rank.cpu_s for rank in ranks), strict=True)))


def _ms(times_s: list[float]) -> Figure:
    return Figure.of(1e3 * time_s for time_s in times_s)


# --- on a rank -------------------------------------------------------------------------------------------------


def measure(iterations: int) -> Account:
    """What runs on every rank."""
    import torch
    import torch.distributed as dist

    from dlcp.torch.gradient.hadamard import Hadamard
    from dlcp.torch.gradient.layout import Layout

    rank = dist.get_rank()
    layout = Layout.of(_first_of(resnet50(), NBYTES // 4))
    source = torch.randn(layout.numel, generator=torch.Generator().manual_seed(rank))
    buffer = source.clone()
    all_reduce, hadamard = Times(), Times()
    dist.all_reduce(buffer)
    group: Any = dist.group.WORLD
    block_bytes = group.communicator.block_bytes(1 - rank)
    steps = {way: _Steps(way, layout, source, block_bytes) for way in WAYS}
    transform = Hadamard(0)
    for iteration in range(WARMUP + iterations):
        warm = iteration >= WARMUP
        buffer.copy_(source)
        dist.barrier()
        (all_reduce if warm else Times()).add(lambda: dist.all_reduce(buffer))
        for step in steps.values():
            step.prepare()
            dist.barrier()
            step.run(warm)
        dist.barrier()
        (hadamard if warm else Times()).add(lambda: transform.inverse_(transform.forward_(buffer, 0), 0))
    overhead = {way: step.times for way, step in steps.items()}
    return Account(block_bytes, len(layout.segments), all_reduce, overhead, hadamard)


class _Steps:
    """What a lossy exchange does beside its collective, step after step."""

    def __init__(self, way: Way, layout: Any, source: Any, block_bytes: int) -> None:
        import torch.distributed as dist

        from dlcp.torch.gradient.importance import Marker
        from dlcp.torch.gradient.options import GradientOptions
        from dlcp.torch.gradient.residual import ResidualMemory

        self.times = {part: Times() for part in PARTS}
        self._way, self._layout, self._source, self._block_bytes = way, layout, source, block_bytes
        options = GradientOptions(importance=way.importance)
        self._marker, self._residual = Marker(options), ResidualMemory(options.residual)
        small = (segment.name for segment in layout.segments if segment.count < SMALL_NUMEL)
        self._critical = frozenset(small)
        half = layout.numel // 2
        self._parts = [(0, half), (half, layout.numel)]
        self._rank = dist.get_rank()
        self._random = random.Random(self._rank)
        self._buffer = source.clone()

    def prepare(self) -> None:
        """A step's gradients, and what of them will be abandoned."""
        import numpy as np

        from dlcp.transport.bounded import Abandoned

        self._buffer.copy_(self._source)
        begin, end = (4 * edge for edge in self._parts[1 - self._rank])
        blocks = -(-(end - begin) // self._block_bytes)
        chosen = self._random.sample(range(blocks), int(self._way.abandoned * blocks))
        bits = np.zeros(-(-blocks // 64) * 64, np.uint8)
        bits[chosen] = 1
        words = np.packbits(bits, bitorder="little").view(np.uint64)
        nbytes = len(chosen) * self._block_bytes
        self._lost = Abandoned(1 - self._rank, begin, end - begin, self._block_bytes, nbytes, words)

    def run(self, warm: bool) -> None:
        work = (self._add, self._mark, self._keep, self._end)
        for part, each in zip(PARTS, work, strict=True):
            (self.times[part] if warm else Times()).add(each)

    def _add(self) -> None:
        self._residual.add_to(self._buffer, self._layout)

    def _mark(self) -> None:
        sizes = [self._block_bytes] * WORLD
        self._marker.mark(self._buffer, self._layout, self._critical, self._parts, sizes, self._rank)

    def _keep(self) -> None:
        self._residual.keep(self._buffer, self._layout, self._lost.runs() // 4)

    def _end(self) -> None:
        self._marker.end_step()
        self._residual.end_step()


def resnet50() -> Iterator[tuple[str, int]]:
    """Names and numbers of elements of a ResNet-50's parameters (He et al., CVPR 2016, table 1), in order."""

    def with_norm(name: str, inputs: int, outputs: int, size: int) -> Iterator[tuple[str, int]]:
        yield f"{name}.weight", inputs * outputs * size * size
        yield f"{name}.norm.weight", outputs
        yield f"{name}.norm.bias", outputs

    yield from with_norm("stem", 3, 64, 7)
    inputs = 64
    for stage, (width, depth) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(depth):
            name = f"stage{stage}.{block}"
            yield from with_norm(f"{name}.reduce", inputs, width, 1)
            yield from with_norm(f"{name}.conv", width, width, 3)
            yield from with_norm(f"{name}.expand", width, 4 * width, 1)
            if block == 0:
                yield from with_norm(f"{name}.shortcut", inputs, 4 * width, 1)
            inputs = 4 * width
    yield "classifier.weight", 1000 * inputs
    yield "classifier.bias", 1000


def _first_of(tensors: Iterator[tuple[str, int]], numel: int) -> Iterator[tuple[str, int]]:
    """Tensors up to a number of elements; the last is cut."""
    for name, count in tensors:
        if numel == 0:
            return
        yield name, min(count, numel)
        numel -= min(count, numel)
