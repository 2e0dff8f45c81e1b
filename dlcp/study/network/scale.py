"""Large worlds: 512 workers at 56 Gb/s in one ring, and 16 hosts of 8 GPUs at 25 Gb/s.

GradientFlow (arXiv 1902.06855) says 410.2 for AlexNet and 434.1 for ResNet-50 on 512 GPUs at 56 Gb/s, by ring
all-reduce of fp16 gradients, fusion ("lazy all-reduce") and coarse-grained sparsity. What one GPU does follows from the
paper's own figures: 95 epochs of ImageNet in 1.5 minutes, and 90 in 7.3, at these speed-ups. Batch, fusion threshold
and sparsity are not confirmed: 128 and 64 images, several thresholds, 15 % of the chunks. Collectives run one at a
time, as in one stream; forward waits for all of them. Not counted: packing chunks, their norms (which the next step
needs), the update and reading images. HiTopKComm (arXiv 2010.10458) says 25 to 40 % faster than the state of the art
on 16 hosts of 8 V100s at 25 Gb/s.

A ring of 512 has 523,264 messages per tensor, so it is simulated in fewer steps, each carrying what several carry, with
the latency of those left out (collectives.CoarseRing). How far that is from the full ring, packet by packet, stands in
a table of its own. There hosts send at line rate: a ring alone in a lossless network queues nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dlcp.study.network import _sweep
from dlcp_sim import switches
from dlcp_sim.fabrics import LeafSpine, ThreeTier
from dlcp_sim.report.tables import Table
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import LineRate, Tcp
from dlcp_sim.workloads import models
from dlcp_sim.workloads.collectives import CoarseRing
from dlcp_sim.workloads.load import Load, Workload, host_numbers
from dlcp_sim.workloads.training import TrainingJob, training_report

if TYPE_CHECKING:
    from dlcp_sim.fabrics import Fabric

NAME = "scale"
SUMMARY = "512 workers in a ring with fusion and sparsity, and 16 hosts of 8 GPUs with sparse gradients"

IMAGES = 1_281_167
PUBLISHED = {"alexnet": 410.2, "resnet50": 434.1}
"""GradientFlow's speed-ups on 512 GPUs."""
GPU_IMAGES_PER_S = {
    "alexnet": IMAGES * 95 / (1.5 * 60) / PUBLISHED["alexnet"],
    "resnet50": IMAGES * 90 / (7.3 * 60) / PUBLISHED["resnet50"],
}
"""Of one GPU, from the paper's times and speed-ups: 3,300 and 606."""
BATCH = {"alexnet": 128, "resnet50": 64}
SPARSITY = 0.15
RATE_BPS, DELAY_S = 56e9, 0.5e-6
PAYLOAD_BYTES, HEADER_BYTES = 8192, 64
STEPS = 16
"""Of a ring of 512."""
FUSIONS_BYTES = (4 << 20, 16 << 20, 64 << 20)
JITTERS = (0.0, 0.02, 0.05)
WORLD = 512

HITOPK_HOSTS, HITOPK_GPUS, HITOPK_RATE_BPS = 16, 8, 25e9
DENSITY = 0.01
NVLINK_BYTES_PER_S = 150e9
"""Of a V100, each direction (NVIDIA's data sheet)."""
MEMORY_BYTES_PER_S = 900e9
SELECTION_PASSES = 30
"""MSTopK reads its shard so many times."""


def world_fabric(world: int) -> ThreeTier:
    """Leaves of 16 hosts, as many spines as it takes to have no bottleneck."""
    return LeafSpine(max(1, world // 16), 16, min(16, world), rate_bps=RATE_BPS, delay_s=DELAY_S)


def coarse(world: int, steps: int) -> CoarseRing:
    """The ring of a world in so many steps, with the latency of its links on average."""
    leaves = world // 16
    links = 2 + 2 * (leaves / world if leaves > 1 else 0.0)  # of 16 hosts in a row one sends to the next leaf
    delay_s = links * (DELAY_S + 8 * HEADER_BYTES / RATE_BPS)
    return CoarseRing(steps, delay_s, RATE_BPS / (links - 1), PAYLOAD_BYTES)


@dataclass(frozen=True, kw_only=True)
class Ring(Workload):
    """One all-reduce in a ring of all hosts, whole or in `steps`."""

    kind: ClassVar[str] = "ring"
    bytes: int
    steps: int | None = None

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """The messages. With all its steps a coarse ring is the ring."""
        world = fabric.hosts
        coarse(world, self.steps or 2 * (world - 1)).lay(load, host_numbers(fabric, None), self.bytes)


@dataclass(frozen=True)
class Case:
    model: str
    world: int
    fusion_bytes: int = 0
    sparse: bool = False
    jitter: float = 0.0

    def job(self, iterations: int) -> TrainingJob:
        own = models.model(self.model)
        speed = models.Speed(GPU_IMAGES_PER_S[self.model], "V100", "derived from arXiv 1902.06855, abstract")
        return TrainingJob(
            model=replace(own, speed=speed, batch=BATCH[self.model]),
            workers=self.world,
            iterations=iterations,
            overlap="backward",
            fusion_bytes=self.fusion_bytes,
            one_at_a_time=True,
            element_bytes=2,
            send_ratio=SPARSITY if self.sparse else 1.0,
            coarse=coarse(self.world, min(STEPS, 2 * (self.world - 1))),
            jitter=self.jitter,
        )


def _line_rate() -> LineRate:
    return LineRate(payload_bytes=PAYLOAD_BYTES, header_bytes=HEADER_BYTES)


def speedup(job: tuple[Case, int, int]) -> float:
    """Of one run: samples per second over those of one GPU."""
    case, iterations, seed = job
    result = Scenario(
        fabric=world_fabric(case.world), transport=_line_rate(), workload=case.job(iterations), seed=seed
    ).run()
    return training_report(result).samples_per_s / GPU_IMAGES_PER_S[case.model]


def ring_time(job: tuple[int, int, int | None]) -> float:
    """Seconds of an all-reduce: world, bytes, steps (None: all)."""
    world, nbytes, steps = job
    result = Scenario(
        fabric=world_fabric(world), transport=_line_rate(), workload=Ring(bytes=nbytes, steps=steps)
    ).run()
    return result.simulated_s


# --- 16 hosts of 8 GPUs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostCase:
    """A method to exchange gradients between hosts of several GPUs."""

    model: str
    scheme: str
    """"dense 2-D" or "sparse"."""
    precision_bytes: int = 4

    def scenario(self, iterations: int, seed: int) -> Scenario:
        """TCP on persistent connections, tuned: as in the training study."""
        sparse = self.scheme == "sparse"
        # Reduce-scatter inside a host, on a ring of its GPUs; and back. Sparse: a GPU selects of its shard.
        local_s_per_byte = (HITOPK_GPUS - 1) / HITOPK_GPUS / NVLINK_BYTES_PER_S
        if sparse:
            local_s_per_byte += SELECTION_PASSES / HITOPK_GPUS / MEMORY_BYTES_PER_S / 2
        # A value of which DENSITY is sent brings an index of four bytes along; all hosts' are gathered.
        ratio = HITOPK_HOSTS * DENSITY * (self.precision_bytes + 4) / self.precision_bytes
        fabric = ThreeTier(hosts_per_edge=HITOPK_HOSTS, rate_bps=HITOPK_RATE_BPS, delay_s=1e-6)
        return Scenario(
            fabric=fabric,
            transport=Tcp(mtu_bytes=9000, min_rto_s=1e-3, persistent=True),
            switch=switches.with_shared_buffer(switches.drop_tail(fabric), 16_000_000),
            workload=TrainingJob(
                model=self.model,
                workers=HITOPK_HOSTS,
                topology="all_gather" if sparse else "ring",
                iterations=iterations,
                fusion_bytes=8 << 20,
                one_at_a_time=True,
                overlap="backward",
                element_bytes=self.precision_bytes,
                send_ratio=ratio if sparse else 1.0,
                local_rate_bps=8 / local_s_per_byte,
                jitter=0.02,
            ),
            seed=seed,
        )


def host_iteration(job: tuple[HostCase, int, int]) -> float:
    """Seconds of an iteration."""
    case, iterations, seed = job
    return float(training_report(case.scenario(iterations, seed).run()).iteration_s.mean())


# --- tables -----------------------------------------------------------------------------------------------------


def check_table(times: Mapping[tuple[int, int, int | None], float]) -> Table:
    coarse_rings = sorted(
        (world, nbytes, steps, took) for (world, nbytes, steps), took in times.items() if steps is not None
    )
    return _sweep.table(
        "All-reduce in a ring: all messages packet by packet, and fewer steps",
        (
            {
                "workers": str(world),
                "MB": (f"{nbytes / 1e6:g}", nbytes),
                "full ring": _sweep.ms(times[world, nbytes, None], 3),
                "steps": _sweep.count(steps),
                "coarse ring": _sweep.ms(took, 3),
                "error": _sweep.signed(took / times[world, nbytes, None] - 1),
            }
            for world, nbytes, steps, took in coarse_rings
        ),
    )


def speedup_table(found: Mapping[Case, float]) -> Table:
    def published(case: Case) -> _sweep.Cell:
        if case.world != WORLD or not case.sparse or not case.fusion_bytes:
            return ""
        return f"{PUBLISHED[case.model]:.1f}", PUBLISHED[case.model]

    return _sweep.table(
        f"Speed-up over one GPU, {RATE_BPS / 1e9:g} Gb/s, ring, fp16",
        (
            {
                "model": case.model,
                "workers": _sweep.count(case.world),
                "fusion": (
                    f"{case.fusion_bytes >> 20} MB" if case.fusion_bytes else "none",
                    case.fusion_bytes,
                ),
                "sparsity": (f"{100 * SPARSITY:g} %", SPARSITY) if case.sparse else ("dense", 1.0),
                "jitter": (f"{100 * case.jitter:g} %", case.jitter),
                "speed-up": (f"{value:.1f}", value),
                "efficiency": _sweep.percent(value / case.world, 1),
                "published": published(case),
            }
            for case, value in found.items()
        ),
    )


def hosts_table(found: Mapping[HostCase, float]) -> Table:
    pairs = [
        (case, dense, found[replace(case, scheme="sparse")])
        for case, dense in found.items()
        if case.scheme != "sparse"
    ]
    return _sweep.table(
        f"{HITOPK_HOSTS} hosts of {HITOPK_GPUS} GPUs, {HITOPK_RATE_BPS / 1e9:g} Gb/s: dense 2-D all-reduce, and "
        f"HiTopKComm at {100 * DENSITY:g} %",
        (
            {
                "model": case.model,
                "bytes per value": _sweep.count(case.precision_bytes),
                "dense 2-D": _sweep.ms(dense),
                "sparse": _sweep.ms(sparse),
                "faster": _sweep.signed(dense / sparse - 1),
                "published": "+25 to +40 %",
            }
            for case, dense, sparse in pairs
        ),
    )


def _notes(found: Mapping[Case, float]) -> list[str]:
    def best(model: str, jitter: float) -> float:
        return max(
            (
                v
                for c, v in found.items()
                if (c.model, c.world, c.sparse, c.jitter) == (model, WORLD, True, jitter)
            ),
            default=0.0,
        )

    lines = []
    for model, published in PUBLISHED.items():
        if steady := best(model, 0.0):
            off, _ = _sweep.signed(steady / published - 1)
            line = f"{model}: {steady:.1f} with equal workers, published {published} ({off})"
            if noisy := best(model, 0.05):
                line += f"; {noisy:.1f} when compute times vary by 5 %, since all wait for the slowest of 512"
            lines.append(line)
    return lines


def cases(quick: bool) -> list[Case]:
    """What is run; quick: 64 workers in place of 512."""
    world = 64 if quick else WORLD
    largest = FUSIONS_BYTES[-1]
    found = []
    for model in PUBLISHED:
        found += [Case(model, world)]
        found += [Case(model, world, fusion) for fusion in (FUSIONS_BYTES[:1] if quick else FUSIONS_BYTES)]
        found += [Case(model, world, FUSIONS_BYTES[0], True, jitter) for jitter in JITTERS]
        found += [
            Case(model, smaller, FUSIONS_BYTES[0], True) for smaller in (16, 64, 256) if smaller < world
        ]
        if not quick:
            found += [Case(model, world, largest, True)]
    return found


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    iterations = 1 if quick else 2
    worlds = (16, 64) if quick else (16, 64, 512)
    rings = [
        (world, nbytes, steps)
        for world in worlds
        for nbytes in (600_000, 16_000_000)
        for steps in (16, 64, None)
    ]
    rings = [job for job in rings if job[2] is None or job[2] < 2 * (job[0] - 1)]
    times = dict(zip(rings, _sweep.parallel(ring_time, rings), strict=True))
    of_seeds = [
        (case, iterations, seed)
        for case in cases(quick)
        for seed in range(1, (seeds if case.jitter else 1) + 1)
    ]
    values: dict[Case, list[float]] = {}
    for (case, _, _), value in zip(of_seeds, _sweep.parallel(speedup, of_seeds), strict=True):
        values.setdefault(case, []).append(value)
    found = {case: float(np.mean(several)) for case, several in values.items()}
    names = ("resnet50",) if quick else ("resnet50", "vgg16", "transformer_base")
    hosts = [HostCase(model, scheme) for model in names for scheme in ("dense 2-D", "sparse")]
    of_hosts = _sweep.parallel(host_iteration, [(case, iterations, 1) for case in hosts])
    tables = [
        speedup_table(found),
        check_table(times),
        hosts_table(dict(zip(hosts, of_hosts, strict=True))),
    ]
    lines = _notes(found)
    return _sweep.leave(
        output / NAME,
        tables,
        lines,
        markdown=[f"# {SUMMARY}", *tables, *(_sweep.bullets([line]) for line in lines)],
        csv="\n".join(table.csv() for table in tables),
        draw=partial(draw, found),
    )


def draw(found: Mapping[Case, float], path: Path) -> None:
    """Speed-ups of each model by what was done for it."""
    from dlcp_sim.report import pictures

    with pictures.new_figure(1, heading="What fusion and sparse gradients give a ring") as (figure, axes):
        axis = axes[0]
        world = max(case.world for case in found)
        labels: dict[str, list[float]] = {}
        for case, value in found.items():
            if case.world == world:
                label = f"fused {case.fusion_bytes >> 20} MB" if case.fusion_bytes else "per layer"
                label += ", sparse" if case.sparse else ""
                label += f", ±{100 * case.jitter:g} %" if case.jitter else ""
                labels.setdefault(label, []).append(value)
        width = 0.8 / len(labels)
        for place, (label, values) in enumerate(labels.items()):
            at = np.arange(len(values)) + width * (place - (len(labels) - 1) / 2)
            axis.bar(at, values, width * 0.9, label=label)
        for place, published in enumerate(PUBLISHED.values()):
            if world == WORLD:
                axis.hlines(published, place - 0.45, place + 0.45, color="black", lw=1, ls="--")
        axis.axhline(world, color="grey", lw=1)
        axis.set_xticks(range(len(PUBLISHED)), list(PUBLISHED))
        axis.set_ylim(0, 1.5 * world)
        axis.set_ylabel("speed-up over one GPU")
        axis.set_title(f"{world} workers; dashed: published; grey: as many GPUs")
        axis.legend(fontsize="x-small", ncols=3, loc="upper right")
        pictures.save(figure, path)
