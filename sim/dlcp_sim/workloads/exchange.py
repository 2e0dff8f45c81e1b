"""How a training job's gradients travel: units of layers, in pieces that a scheduler orders, round after round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dlcp.errors import ArgumentError
from dlcp.transport.layer_order import ORDERS
from dlcp.transport.layer_order.byte_scheduler import ByteScheduler
from dlcp.transport.layer_order.p3 import P3
from dlcp.transport.layer_order.slices import Slice
from dlcp.transport.schedule import PLACED
from dlcp.units import PS_PER_S
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
from dlcp_sim.workloads.load import Array, Load, Rows, picoseconds

if TYPE_CHECKING:
    from dlcp_sim.workloads.models import Model
    from dlcp_sim.workloads.training import TrainingJob

# A tensor of more elements is divided among all servers, unless it is cut anyway (MXNet: MXNET_KVSTORE_BIGARRAY_BOUND).
BIG_ELEMENTS = 1_000_000


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
        model: Model,
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

    def _unit_name(self, unit: Unit, model: Model) -> str:
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
