"""Training jobs: what each worker computes, layer by layer, and when its gradients travel.

A pass is forward through the layers and backward again. When backward has made a unit of gradients (a layer, or
several fused), its communication may start: a collective of all workers, or push and pull at a hub. A layer's next
forward waits for its unit, or, without overlap, for all. Which pieces leave when is a scheduler's choice: the orders
of dlcp.transport.layer_order, whose slices, classes and credits are used as they are, as channels of the task graph.

There is one more pass than there are iterations: an iteration is measured from the end of one backward to the end of
the next, so each holds one whole round of communication with what it overlaps on both sides, and none is special.
Adding, updating weights and reading input cost no time. How gradients travel is exchange.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dlcp.errors import ArgumentError
from dlcp.transport.layer_order import ORDERS
from dlcp.transport.layer_order.byte_scheduler import CREDIT_BYTES, PARTITION_BYTES
from dlcp.units import PS_PER_S
from dlcp_sim.workloads import models
from dlcp_sim.workloads.collectives import CoarseRing, in_groups
from dlcp_sim.workloads.exchange import GradientExchange, fuse
from dlcp_sim.workloads.load import Array, Load, Rows, Workload, host_numbers, iteration_times_s, picoseconds

if TYPE_CHECKING:
    from dlcp_sim.fabrics import Fabric
    from dlcp_sim.result import Result

Numbers = NDArray[np.float64]

TOPOLOGIES = ("ring", "direct", "halving_doubling", "tree", "bounded", "all_gather", "hierarchical", "hub")
OVERLAPS = ("both", "backward", "none")


@dataclass(frozen=True, kw_only=True)
class TrainingJob(Workload):
    """Data-parallel training of one model."""

    kind: ClassVar[str] = "training"
    model: str | models.Model | Mapping[str, object] = "resnet50"
    """One of dlcp_sim.workloads.models.MODELS, or a model of one's own; as a table: the fields of Model."""
    workers: int = 8
    topology: str = "ring"
    """bounded: the all-reduce that may lose (transpose and its inverse). all_gather: of sparse gradients, in a ring;
    all of them are `send_ratio` of a tensor. hierarchical: with `group_size`. hub: parameter servers (`servers`)."""
    scheduler: str = "fifo"
    """One of dlcp.transport.layer_order.ORDERS: fifo, p3, byte_scheduler, layer_priority."""
    iterations: int = 2
    batch: int | None = None
    """Samples per worker; None: the model's."""
    hosts: tuple[int, ...] | None = None
    """Of the workers; None: the fabric's first ones."""
    servers: int = 0
    """Hub: how many, on hosts of their own; 0: one on each worker's host."""
    server_hosts: tuple[int, ...] | None = None
    """None: those after the workers."""
    group_size: int = 8
    overlap: str = "both"
    """What overlaps with communication: "both" passes, only "backward" (forward waits for everything), or "none"."""
    fusion_bytes: int = 0
    """Layers are fused, from the last one on, until they have this much."""
    max_layers: int | None = None
    """The model is simplified to so many layers."""
    partition_bytes: int = PARTITION_BYTES
    """ByteScheduler's."""
    credit_bytes: int = CREDIT_BYTES
    slices_under_way: int = 4
    """P3's."""
    pipeline_bytes: int | None = None
    """Messages of collectives, and tensors of a hub that no scheduler cuts, are passed on in pieces of this size; None:
    whole."""
    one_at_a_time: bool = False
    """Fifo: a piece leaves when the one before is over, as collectives in one stream of a GPU."""
    coarse: CoarseRing | Mapping[str, float] | None = None
    """Ring: simulated in fewer steps; as a table: the fields of CoarseRing."""
    local_rate_bps: float = 0.0
    """Inside a host of several GPUs: how fast the whole tensor is summed before it leaves, and spread when it has come;
    0: a worker is one GPU."""
    executor: bool = False
    """Collectives run on the executor that ships; dlcp only."""
    element_bytes: int = 4
    send_ratio: float = 1.0
    """How much of each gradient travels: sparse methods."""
    loss_ratio: float | tuple[float, ...] = 0.0
    """How much of a gradient's message may be abandoned, of all layers or of each. Of a collective other than "bounded"
    all messages may lose, as the papers have it; of a hub those to it."""
    critical_ratio: float = 1.0
    """How much of a message is critical."""
    patience_s: float | None = None
    stragglers: Mapping[int, float] = field(default_factory=dict)
    """How many times as long as the others single workers compute."""
    jitter: float = 0.0
    """Each worker's compute time of a pass is multiplied by exp of a normal deviate of this width."""
    compute_scale: float = 1.0
    """Of all compute times: half for GPUs twice as fast."""
    start_s: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        """Makes of a file's tables what they stand for."""
        if isinstance(self.model, Mapping):
            object.__setattr__(self, "model", models.of_table(self.model))
        if isinstance(self.coarse, Mapping):
            object.__setattr__(self, "coarse", CoarseRing(**dict[str, Any](self.coarse)))
        if any(not isinstance(worker, int) for worker in self.stragglers):
            object.__setattr__(self, "stragglers", {int(k): float(v) for k, v in self.stragglers.items()})

    def the_model(self) -> models.Model:
        """The model, simplified as asked."""
        assert not isinstance(self.model, Mapping)
        model = models.model(self.model) if isinstance(self.model, str) else self.model
        return model if self.max_layers is None else model.merged(self.max_layers)

    def check(self) -> None:
        """Raises ArgumentError about what is wrong whatever the fabric."""
        for name, accepted in (("topology", TOPOLOGIES), ("overlap", OVERLAPS), ("scheduler", tuple(ORDERS))):
            if getattr(self, name) not in accepted:
                raise ArgumentError(f"{name} is {getattr(self, name)!r}; accepted: {', '.join(accepted)}")
        for name, least in (("workers", 2), ("iterations", 1), ("servers", 0), ("fusion_bytes", 0)):
            if getattr(self, name) < least:
                raise ArgumentError(f"{name} is {getattr(self, name)}; accepted: {least} or more")
        if self.coarse is not None and self.topology != "ring":
            raise ArgumentError(f"topology is {self.topology!r}; accepted with coarse: ring")
        if self.one_at_a_time and (self.scheduler != "fifo" or self.topology == "hub"):
            raise ArgumentError(
                f"one_at_a_time is True; accepted: with fifo, a collective; not {self.scheduler!r}, {self.topology!r}"
            )
        if not 0 < self.send_ratio <= 1:
            raise ArgumentError(f"send_ratio is {self.send_ratio}; accepted: above 0, up to 1")
        if self.topology == "hierarchical":
            in_groups(self.workers, self.group_size)
        if self.executor and self.topology == "hub":
            raise ArgumentError("executor runs no hub; accepted: the other topologies")
        wrong = [worker for worker in self.stragglers if not 0 <= worker < self.workers]
        if wrong:
            raise ArgumentError(f"stragglers names worker {wrong[0]}; accepted: 0 to {self.workers - 1}")

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """Passes, gradients and what each waits for."""
        self.check()
        model = self.the_model()
        hosts = host_numbers(fabric, self.workers if self.hosts is None else self.hosts, "hosts")
        if len(hosts) != self.workers:
            raise ArgumentError(f"hosts are {len(hosts)}; accepted: {self.workers}, one per worker")
        servers = self._servers(fabric, hosts)
        units = fuse([layer.parameters * self.element_bytes for layer in model.layers], self.fusion_bytes)
        forward, backward = self._computations(load, model, hosts, seed)
        exchange = GradientExchange(self, load, hosts, servers, units, model)
        rounds = [exchange.round(backward[number], forward[number + 1]) for number in range(self.iterations)]
        load.add_job(
            {
                "name": self.name or f"{model.name}, {self.topology}, {self.scheduler}",
                "model": model.name,
                "batch": self.batch or model.batch,
                "layers": [layer.name for layer in model.layers],
                "hosts": [int(host) for host in hosts],
                "units": [[unit.first, unit.last] for unit in units],
                "pieces": [int(unit) for unit in exchange.unit],
                "sent_bytes": [int(unit.bytes * self.send_ratio) for unit in units],
            },
            forward=forward,
            backward=backward,
            start=np.stack([start for start, _ in rounds]),
            done=np.stack([done for _, done in rounds]),
        )

    def _servers(self, fabric: Fabric, hosts: Array) -> Array:
        if self.topology != "hub":
            return np.empty(0, np.int64)
        if self.server_hosts is not None:
            return host_numbers(fabric, self.server_hosts, "server_hosts")
        if self.servers == 0:
            return hosts
        first = int(hosts.max()) + 1
        return host_numbers(fabric, tuple(range(first, first + self.servers)), "servers")

    def _computations(self, load: Load, model: models.Model, hosts: Array, seed: int) -> tuple[Rows, Rows]:
        """Tasks of forward and backward by pass, worker and layer, each after the one before it."""
        passes, depth = self.iterations + 1, len(model.layers)
        factor = np.full((passes, self.workers), float(self.compute_scale))
        for worker, slower in self.stragglers.items():
            factor[:, worker] *= slower
        if self.jitter:
            factor *= np.exp(np.random.default_rng((seed, 4)).normal(0, self.jitter, factor.shape))

        def tasks(seconds: Sequence[float]) -> Rows:
            duration = np.round(factor[:, :, None] * np.array(seconds) * PS_PER_S).astype(np.int64)
            return load.add_computations(np.broadcast_to(hosts[None, :, None], duration.shape), duration)

        forward, backward = tasks(model.forward_s(self.batch)), tasks(model.backward_s(self.batch))
        load.add_edges(forward[:, :, :-1], forward[:, :, 1:])
        load.add_edges(forward[:, :, depth - 1], backward[:, :, depth - 1])
        load.add_edges(backward[:, :, 1:], backward[:, :, :-1])
        load.add_edges(backward[:-1, :, 0], forward[1:, :, 0])
        if self.start_s:
            load.add_edges(
                load.add_computations(hosts, picoseconds(self.start_s, "start_s")), forward[0, :, 0]
            )
        return forward, backward


# --- reports -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingReport:
    """When a job's workers computed and communicated. All times in seconds; NaN: it did not come to it."""

    job: Mapping[str, Any]
    layers: tuple[str, ...]
    units: tuple[tuple[int, int], ...]
    """Layers whose gradients travel together, first and last."""
    forward_start_s: Numbers
    """[passes, workers, layers]; there is one pass more than iterations."""
    forward_end_s: Numbers
    backward_start_s: Numbers
    backward_end_s: Numbers
    ready_s: Numbers
    """[iterations, workers, units]: backward has made the gradients."""
    communication_start_s: Numbers
    communication_end_s: Numbers
    iteration_s: Numbers
    """[iterations], on average over workers: from the end of a backward pass to the end of the next."""
    compute_s: Numbers
    """[iterations, workers]: what of it the worker computed."""
    exposed_s: Numbers
    """[iterations, workers]: what of it the worker waited."""

    @property
    def samples_per_s(self) -> float:
        """Of all workers, over all iterations."""
        mean_s = float(np.mean(self.iteration_s))
        return float(self.job["batch"] * len(self.job["hosts"]) / mean_s)

    def summary(self) -> str:
        """The job in a line."""
        step, wait = float(np.mean(self.iteration_s)), float(np.mean(self.exposed_s))
        return (
            f"{self.job['name']}: {1e3 * step:.2f} ms per iteration, {1e3 * wait:.2f} ms of it exposed communication "
            f"({100 * wait / step:.1f} %), {self.samples_per_s:.0f} samples/s"
        )


def training_report(result: Result, job: int = 0) -> TrainingReport:
    """What became of a job of a run. Raises ArgumentError if the workload had no such job."""
    jobs = result.metadata.get("jobs") or []
    if not 0 <= job < len(jobs):
        raise ArgumentError(f"job is {job}; accepted: 0 to {len(jobs) - 1}, the workload's jobs")
    arrays = result.arrays
    found = {name: arrays[f"job.{job}.{name}"] for name in ("forward", "backward", "start", "done")}
    return report_of(jobs[job], found, arrays["task.started_ps"], arrays["task.finished_ps"])


def report_of(
    job: Mapping[str, Any], tasks: Mapping[str, Array], started_ps: Array, finished_ps: Array
) -> TrainingReport:
    """The report from the job's tasks and the times of all tasks."""

    def seconds(times_ps: Array, rows: Array) -> Numbers:
        chosen = np.asarray(times_ps, np.int64)[rows]
        return np.where(chosen < 0, np.nan, chosen / PS_PER_S)

    forward, backward = tasks["forward"], tasks["backward"]
    forward_start, forward_end = seconds(started_ps, forward), seconds(finished_ps, forward)
    backward_start, backward_end = seconds(started_ps, backward), seconds(finished_ps, backward)
    units = tuple((int(first), int(last)) for first, last in job["units"])
    first = [unit[0] for unit in units]
    ready = backward_end[:-1][:, :, first]
    pieces = np.asarray(job["pieces"])
    # Of a piece that waits for nothing but its gradients the task is the backward that made them; it leaves at its end.
    begun = seconds(started_ps, tasks["start"]).transpose(0, 2, 1)
    is_backward = np.isin(tasks["start"], backward).transpose(0, 2, 1)
    begun = np.where(is_backward, seconds(finished_ps, tasks["start"]).transpose(0, 2, 1), begun)
    start = np.stack([begun[:, :, pieces == unit].min(axis=2) for unit in range(len(units))], axis=2)
    end = seconds(finished_ps, tasks["done"]).transpose(0, 2, 1)
    compute = np.nansum(forward_end - forward_start, axis=2) + np.nansum(
        backward_end - backward_start, axis=2
    )
    steps = np.diff(backward_end[:, :, 0], axis=0)
    return TrainingReport(
        job=job,
        layers=tuple(job["layers"]),
        units=units,
        forward_start_s=forward_start,
        forward_end_s=forward_end,
        backward_start_s=backward_start,
        backward_end_s=backward_end,
        ready_s=ready,
        communication_start_s=start,
        communication_end_s=end,
        iteration_s=np.array(iteration_times_s(backward, finished_ps)),
        compute_s=compute[1:],
        exposed_s=steps - compute[1:],
    )
