"""How gradients get from worker to worker: exactly over dlcp, with bounded loss over dlcp, or over a baseline.

A configuration takes one gradient per worker and returns the mean that every worker then has, and the network's time.
A baseline's values are exact; its time is that of the same collective as flows over its transport.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlcp.errors import ArgumentError
from dlcp.transport import DataType
from dlcp.transport.gradient import IMPORTANCE_CODES, mark_importance
from dlcp_sim.cosimulation.group import SimulatedGroup, Values
from dlcp_sim.transports import Dlcp
from dlcp_sim.transports.base import Transport

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric
    from dlcp_sim.faults import Fault
    from dlcp_sim.workloads.load import Workload

SMOOTHING = 0.9
"""Of the running mean squares that importance is measured by (as dlcp.torch.gradient has it)."""
_MEAN_SQUARE_MIN = 1e-30


@dataclass(frozen=True)
class Layer:
    """Elements of a gradient that belong to one parameter."""

    begin: int
    count: int
    droppable: bool


@dataclass(frozen=True, kw_only=True)
class Place:
    """The network that configurations are compared on."""

    fabric: Fabric
    workers: int
    policy: Policy | None = None
    """None: each transport's own."""
    background: Workload | None = None
    network_faults: Sequence[Fault] = ()
    seed: int = 1


@dataclass(frozen=True)
class Step:
    """What came of one step's gradients."""

    mean: Values
    network_s: float
    abandoned_share: float = 0.0
    """Of the bytes sent to their owners."""


Exchange = Callable[[Values, float], Step]
"""A configuration at work: the mean of float32[workers, elements], asked for at a simulated time in seconds."""


@dataclass(frozen=True, kw_only=True)
class Configuration(ABC):
    """How gradients are exchanged."""

    name: str = ""
    policy: Policy | None = None
    """Of the switches; None: the place's, or the transport's own."""

    @abstractmethod
    def open(self, place: Place, layers: Sequence[Layer]) -> Exchange:
        """At work at a place, on gradients of these layers."""

    @property
    def title(self) -> str:
        """For tables."""
        return self.name or type(self).__name__.lower()


def _group(place: Place, transport: Dlcp, policy: Policy | None) -> SimulatedGroup:
    return SimulatedGroup(
        place.fabric,
        hosts=range(place.workers),
        transport=transport,
        policy=policy or place.policy,
        background=place.background,
        network_faults=place.network_faults,
        seed=place.seed,
    )


@dataclass(frozen=True, kw_only=True)
class Exact(Configuration):
    """Every value arrives, over dlcp."""

    transport: Dlcp = field(default_factory=Dlcp)
    algorithm: str = "direct"

    def open(self, place: Place, layers: Sequence[Layer]) -> Exchange:
        """Its hosts."""
        group = _group(place, self.transport, self.policy)

        def step(gradients: Values, start_s: float) -> Step:
            out = group.all_reduce(list(gradients), algorithm=self.algorithm, average=True, start_s=start_s)
            return Step(out.results[0], float(out.finished_s.max()) - start_s)

        return step


@dataclass(frozen=True, kw_only=True)
class Bounded(Configuration):
    """Blocks may be abandoned within `loss_ratio`, the least important first, and are added to the next step."""

    transport: Dlcp = field(default_factory=Dlcp)
    loss_ratio: float = 0.1
    critical_share: float = 0.1
    """Of the droppable blocks: the most important ones, which are never abandoned."""
    rescale: bool = False
    patience_s: float | None = None
    residual: bool = True
    """A worker keeps what nobody added, and adds it to its next gradient (error feedback)."""

    def open(self, place: Place, layers: Sequence[Layer]) -> Exchange:
        """Its hosts, with nothing kept yet."""
        if not 0.0 <= self.critical_share <= 1.0:
            raise ArgumentError(f"critical_share is {self.critical_share}; accepted: 0 to 1")
        return _Bounded(self, _group(place, self.transport, self.policy), layers).step


class _Bounded:
    def __init__(self, configuration: Bounded, group: SimulatedGroup, layers: Sequence[Layer]) -> None:
        self._configuration, self._group = configuration, group
        self._segments = np.array([(layer.begin, layer.count) for layer in layers], np.int64)
        self._always = np.array([not layer.droppable for layer in layers])
        elements = int(self._segments.sum(axis=1).max())
        self._parts = np.array(
            [(begin, end, group.block_elements) for begin, end in group.parts(elements)], np.int64
        )
        self._blocks = group.blocks(elements)
        self._mean_squares: list[NDArray[np.float64] | None] = [None] * group.size
        self._threshold = [IMPORTANCE_CODES] * group.size
        self._kept = np.zeros((group.size, elements), np.float32)

    def step(self, gradients: Values, start_s: float) -> Step:
        configuration, group = self._configuration, self._group
        sent = np.ascontiguousarray(gradients + self._kept)
        importance = [self._marks(rank, sent[rank]) for rank in range(group.size)]
        out = group.bounded_all_reduce(
            list(sent),
            loss_ratio=configuration.loss_ratio,
            importance=importance,
            average=True,
            rescale=configuration.rescale,
            patience_s=configuration.patience_s,
            start_s=start_s,
        )
        self._kept[:] = 0
        if configuration.residual:
            for each in out.abandoned:
                for begin, end in each.ranges.tolist():
                    self._kept[each.sender, begin:end] = sent[each.sender, begin:end]
        lossy = (group.size - 1) * sent.nbytes
        return Step(out.results[0], float(out.finished_s.max()) - start_s, out.abandoned_bytes / lossy)

    def _marks(self, rank: int, values: Values) -> list[NDArray[np.uint8] | None]:
        """Importance of a worker's blocks by owner; thresholds come from the step before."""
        known = self._mean_squares[rank]
        counts = self._segments[:, 1]
        if known is None:
            known = np.add.reduceat(values.astype(np.float64) ** 2, self._segments[:, 0]) / counts
        marks, histogram, squares = mark_importance(
            DataType.f32,
            values.ctypes.data,
            values.size,
            segments=self._segments,
            inverse_mean_squares=1.0 / np.maximum(known, _MEAN_SQUARE_MIN),
            critical=self._always,
            parts=self._parts,
            threshold=self._threshold[rank],
        )
        self._mean_squares[rank] = SMOOTHING * known + (1 - SMOOTHING) * squares / counts
        # The greatest codes that together hold no more than the critical share of the bytes.
        from_above = np.cumsum(histogram[::-1])
        wanted = self._configuration.critical_share * float(from_above[-1])
        self._threshold[rank] = IMPORTANCE_CODES - int(np.searchsorted(from_above, wanted, side="right"))
        return [
            None if owner == rank else part
            for owner, part in enumerate(np.split(marks, np.cumsum(self._blocks)[:-1]))
        ]


@dataclass(frozen=True, kw_only=True)
class Baseline(Configuration):
    """Every value arrives, at the time that the same collective takes as flows over another transport.

    Times come from one run of `rounds` collectives in a row, over and over: exchanges of equal size take times that
    differ only by chance.
    """

    transport: Transport
    algorithm: str = "ring"
    rounds: int = 20

    @property
    def title(self) -> str:
        """For tables."""
        return self.name or self.transport.name

    def open(self, place: Place, layers: Sequence[Layer]) -> Exchange:
        """Runs its network, once."""
        elements = max(layer.begin + layer.count for layer in layers)
        durations_s = itertools.cycle(self._durations_s(place, 4 * elements).tolist())

        def step(gradients: Values, start_s: float) -> Step:
            return Step(gradients.mean(axis=0, dtype=np.float64).astype(np.float32), next(durations_s))

        return step

    def _durations_s(self, place: Place, nbytes: int) -> NDArray[np.float64]:
        from dlcp_sim.scenario import Scenario
        from dlcp_sim.workloads.collectives import CollectiveRun
        from dlcp_sim.workloads.flows import Together

        run = CollectiveRun(algorithm=self.algorithm, bytes=nbytes, hosts=place.workers, times=self.rounds)
        workload = run if place.background is None else Together(workloads=(run, place.background))
        result = Scenario(
            fabric=place.fabric,
            transport=self.transport,
            workload=workload,
            switch=self.policy or place.policy,
            faults=tuple(place.network_faults),
            seed=place.seed,
        ).run()
        ends = result.flows.start_s + result.flows.completion_s
        ends = ends[result.flows.of(f"all_reduce {self.algorithm}")].reshape(self.rounds, -1).max(axis=1)
        return np.diff(ends, prepend=0.0)
