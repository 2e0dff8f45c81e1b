"""Training jobs: what each worker computes, layer by layer, and when and how its gradients travel.

A pass is forward through the layers and backward again. When backward has made a unit of gradients (a layer, or
several fused), its communication may start: a collective of all workers, or push and pull at a hub. A layer's next
forward waits for its unit, or, without overlap, for all. Which pieces leave when is a scheduler's choice: the orders
of dlcp.transport.layer_order, whose slices, classes and credits are used as they are, as channels of the task graph.

There is one more pass than there are iterations. An iteration is measured from the end of one backward to the end of
the next. So each holds one whole round of communication with what it overlaps on both sides, and none is special.
Adding, updating weights and reading input cost no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dlcp.errors import ArgumentError
from dlcp.transport.layer_order import ORDERS
from dlcp.transport.layer_order.byte_scheduler import CREDIT_BYTES, PARTITION_BYTES, ByteScheduler
from dlcp.transport.layer_order.p3 import P3
from dlcp.transport.layer_order.slices import Slice
from dlcp.transport.schedule import PLACED
from dlcp.units import PS_PER_S
from dlcp_sim.training_times import TrainingReport, report_in
from dlcp_sim.workloads import models
from dlcp_sim.workloads.collectives import (
    CoarseRing,
    Delivery,
    Turns,
    balanced,
    hand_over,
    hub,
    in_groups,
    lay,
    split,
)
from dlcp_sim.workloads.executor import Collective
from dlcp_sim.workloads.graphs import template
from dlcp_sim.workloads.load import Array, Load, Rows, Workload, host_numbers, picoseconds

if TYPE_CHECKING:
    from dlcp_sim.fabrics import Fabric
    from dlcp_sim.result import Result

TOPOLOGIES = ("ring", "direct", "halving_doubling", "tree", "bounded", "all_gather", "hierarchical", "hub")
OVERLAPS = ("both", "backward", "none")
# A tensor of more elements is divided among all servers, unless it is cut anyway (MXNet: MXNET_KVSTORE_BIGARRAY_BOUND).
BIG_ELEMENTS = 1_000_000


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


# --- how gradients travel ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """Layers whose gradients travel together: first to last, as forward counts."""

    first: int
    last: int
    bytes: int


def fuse(layer_bytes: Sequence[int], fusion_bytes: int) -> list[Unit]:
    """Layers in units, in the order of forward: from the last layer on, a unit is full when it has so many bytes."""
    units: list[Unit] = []
    last, pending = len(layer_bytes) - 1, 0
    for layer in reversed(range(len(layer_bytes))):
        pending += layer_bytes[layer]
        if pending > 0 and (pending >= fusion_bytes or layer == 0):
            units.append(Unit(layer, last, pending))
            last, pending = layer - 1, 0
    if last >= 0 and units:  # front layers without parameters of their own
        units[-1] = Unit(0, units[-1].last, units[-1].bytes)
    return units[::-1]


class GradientExchange:
    """Of one job: pieces, channels, and one round after the other."""

    def __init__(
        self,
        job: TrainingJob,
        load: Load,
        hosts: Array,
        servers: Array,
        units: Sequence[Unit],
        model: models.Model,
    ) -> None:
        self.job, self.load, self.hosts, self.servers, self.units = job, load, hosts, servers, units
        together = job.topology != "hub"
        sent = [max(1, round(unit.bytes * job.send_ratio)) for unit in units]
        slices, self.credit_bytes, self.by_layer = self._order(sent, together)
        if job.topology == "hub" and self.credit_bytes is None:
            slices = self._shards(slices)
        self.unit = np.array([piece.layer for piece in slices])
        """Of each piece."""
        self.bytes = np.array([piece.nbytes for piece in slices])
        self.priority = self.unit if self.by_layer else np.zeros_like(self.unit)
        name = job.name or model.name
        labels = [load.label(f"{name} {self._unit_name(unit, model)}") for unit in units]
        ratios = np.array(job.loss_ratio, float)
        if ratios.ndim == 0:
            ratios = np.full(len(model.layers), ratios)
        if len(ratios) != len(model.layers) or (ratios < 0).any() or (ratios > 1).any():
            raise ArgumentError(
                f"loss_ratio is {job.loss_ratio!r}; accepted: 0 to 1, one or {len(model.layers)}"
            )
        # Units of several layers may lose what the strictest of them may.
        strictest = np.array([ratios[unit.first : unit.last + 1].min() for unit in units])
        self.traffic_class = np.array([piece.traffic_class for piece in slices])
        self.loss_ratio = strictest[self.unit]
        self.delivery = Delivery(
            traffic_class=self.traffic_class,
            label=np.array(labels)[self.unit],
            loss_ratio=self.loss_ratio,
            critical_ratio=job.critical_ratio,
            patience_ps=-1 if job.patience_s is None else picoseconds(job.patience_s, "patience_s"),
            everything_lossy=job.topology != "bounded" and bool((ratios > 0).any()),
        )
        self.channels: Array | None = None
        self.turns: Turns | None = None
        if self.credit_bytes is not None and together:
            self.channels = load.channels.append(
                credit_bytes=np.full(len(hosts), self.credit_bytes), together=1
            )
        if job.topology == "hub":
            self.server_of = balanced(self.bytes, len(servers))
            if self.credit_bytes is not None:
                self.turns = Turns.make(load, len(hosts), len(servers), self.credit_bytes, self.priority)

    def _order(self, unit_bytes: Sequence[int], together: bool) -> tuple[tuple[Slice, ...], int | None, bool]:
        """Slices by number, the credit, and whether front layers go first."""
        job = self.job
        if job.scheduler == "p3":
            p3 = P3(
                unit_bytes,
                element_bytes=job.element_bytes,
                slices_under_way=job.slices_under_way,
                together=together,
            )
            return p3.slices, p3.credit_bytes, True
        if job.scheduler == "byte_scheduler":
            scheduler = ByteScheduler(
                unit_bytes,
                partition_bytes=job.partition_bytes,
                credit_bytes=job.credit_bytes,
                together=together,
            )
            return scheduler.slices, scheduler.credit_bytes, True
        slices = ORDERS[job.scheduler](unit_bytes).slices
        return slices, 0 if job.one_at_a_time else None, job.scheduler != "fifo"

    def _shards(self, slices: Sequence[Slice]) -> tuple[Slice, ...]:
        """Large tensors divided among all servers, or into pieces that servers send back while others still come."""
        shards: list[Slice] = []
        for piece in slices:
            large = piece.nbytes > BIG_ELEMENTS * self.job.element_bytes
            count = len(self.servers) if large else 1
            if self.job.pipeline_bytes is not None:
                count = -(-piece.nbytes // self.job.pipeline_bytes)
            for nbytes in split(piece.nbytes, count):
                shards.append(piece._replace(number=len(shards), nbytes=int(nbytes)))
        return tuple(shards)

    def _unit_name(self, unit: Unit, model: models.Model) -> str:
        first, last = model.layers[unit.first].name, model.layers[unit.last].name
        return first if first == last else f"{first}…{last}"

    def round(self, backward: Rows, forward: Rows) -> tuple[Rows, Rows]:
        """One step's gradients, from a backward pass to the next forward, both by worker and layer.

        Per piece and worker the task at whose start it leaves, per unit and worker the task at whose end it is there.
        """
        job, load = self.job, self.load
        first = np.array([unit.first for unit in self.units])
        ready = backward[:, first if job.overlap != "none" else np.zeros_like(first)][:, self.unit].T
        summed = self._local_ps(self.bytes)[:, None]
        if job.local_rate_bps:
            made = load.add_computations(np.broadcast_to(self.hosts, ready.shape), summed)
            load.add_edges(ready, made)
            ready = made
        start = gates = ready
        expected = None
        if self.channels is not None:
            # Each gate gives its bytes back when its piece is over; the pieces' ends are the tasks added next.
            expected = len(load.tasks) + ready.size + np.arange(ready.size).reshape(ready.shape)
            start = gates = load.add_computations(
                np.broadcast_to(self.hosts, ready.shape),
                0,
                channel=np.broadcast_to(self.channels, ready.shape),
                priority=self.priority[:, None],
                channel_bytes=self.bytes[:, None],
                returned_by=expected,
            )
            load.add_edges(ready, gates)
        if job.topology == "hub":
            start, done = hub(
                load,
                self.hosts,
                self.servers,
                self.bytes,
                self.server_of,
                gates=gates,
                turns=self.turns,
                delivery=self.delivery,
            )
        else:
            done = self._collectives(gates)
        assert expected is None or (expected == done).all()
        spread = self._local_ps(np.bincount(self.unit, self.bytes, len(self.units)))[:, None]
        over = load.add_computations(np.broadcast_to(self.hosts, (len(self.units), len(self.hosts))), spread)
        load.add_edges(done, over[self.unit])
        if job.overlap == "both":
            load.add_edges(over.T, forward[:, first])
        else:
            load.add_edges(over.T, np.broadcast_to(forward[:, :1], over.T.shape))
        return start, over

    def _local_ps(self, nbytes: Array) -> Array:
        """How long a tensor is summed inside a host; or spread there."""
        if not self.job.local_rate_bps:
            return np.zeros(len(nbytes), np.int64)
        # What is sent may be a part of what is summed.
        whole = nbytes / self.job.send_ratio
        return np.round(whole * 8 / self.job.local_rate_bps * PS_PER_S).astype(np.int64)

    def _collectives(self, gates: Rows) -> Rows:
        """All pieces as collectives; per piece and worker the end, numbered right after the tasks there are."""
        job, load, world = self.job, self.load, len(self.hosts)
        collective, algorithm = schedule_of(job.topology)
        placement = in_groups(world, job.group_size) if algorithm in PLACED else None
        if job.executor:
            return hand_over(
                load,
                [
                    Collective(
                        collective=collective,
                        algorithm=algorithm,
                        hosts=tuple(int(host) for host in self.hosts),
                        bytes=int(nbytes),
                        traffic_class=int(traffic_class),
                        loss_ratio=float(loss_ratio),
                        critical_ratio=job.critical_ratio,
                        patience_s=job.patience_s,
                        placement=placement,
                    )
                    for nbytes, traffic_class, loss_ratio in zip(
                        self.bytes, self.traffic_class, self.loss_ratio, strict=True
                    )
                ],
                gates,
            )
        options: dict[str, Any] = {
            "gates": gates,
            "pipeline_bytes": job.pipeline_bytes,
            "delivery": self.delivery,
        }
        if isinstance(job.coarse, CoarseRing):
            return job.coarse.lay(load, self.hosts, self.bytes, **options)
        graph = template(collective, algorithm, world, placement=placement)
        return lay(load, graph, self.hosts, self.bytes, **options)


def schedule_of(topology: str) -> tuple[str, str]:
    """The collective and its algorithm."""
    if topology == "all_gather":
        return "all_gather", "ring"
    return ("bounded_all_reduce", "direct") if topology == "bounded" else ("all_reduce", topology)


def training_report(result: Result, job: int = 0) -> TrainingReport:
    """What became of a job of a run. Raises ArgumentError if the workload had no such job."""
    return report_in(result.metadata, result.arrays, job)
