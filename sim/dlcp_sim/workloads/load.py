"""What a workload comes to: columns of flows, tasks, edges and channels, and what they mean to people.

A workload writes its load once, in NumPy arrays, and the load hands all of it to a simulation in a few calls; no Python
runs per flow. Numbers of rows are the simulator's own (sim/core/tasks.hpp says what tasks, edges and channels do), so a
load goes into a simulation that has nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlcp.errors import ArgumentError
from dlcp.units import PS_PER_S
from dlcp_sim.plain import table_of
from dlcp_sim.training_times import iteration_times_s
from dlcp_sim.workloads.executor import Collective, add_collective

if TYPE_CHECKING:
    from dlcp_sim import _core
    from dlcp_sim.fabrics import Fabric

Array = NDArray[Any]
Rows = NDArray[np.int64]

NONE = 2**32 - 1
"""No task, no channel: `none` of the core."""


class Kind(IntEnum):
    """What a task is."""

    COMPUTE = 0
    """`value`: picoseconds that it takes."""
    FLOW = 1
    """`value`: the flow; it is a task of the flow's source."""
    COLLECTIVE = 2
    """`value`: collective << 32 | rank; the transport runs it."""


class When(IntEnum):
    """When an edge becomes true."""

    FINISHED = 0
    """Of a flow: it is delivered; true at its destination."""
    ACKNOWLEDGED = 1
    """Of a flow: its sender knows; true at its source."""


class Table:
    """Rows by columns, appended in blocks of arrays. `default` None: the column has to be given."""

    def __init__(self, **columns: tuple[str, Any]) -> None:
        self._types = {name: (np.dtype(kind), default) for name, (kind, default) in columns.items()}
        self._blocks: list[dict[str, Array]] = []
        self._length = 0

    def append(self, **columns: ArrayLike) -> Rows:
        """New rows, from arrays and scalars of a common shape; their numbers, in that shape."""
        unknown = columns.keys() - self._types.keys()
        if unknown:
            raise ArgumentError(f"columns {sorted(unknown)} are unknown: use {', '.join(self._types)}")
        values: dict[str, Array] = {}
        for name, (kind, default) in self._types.items():
            value = columns.get(name, default)
            if value is None:
                raise ArgumentError(f"column {name} is missing")
            values[name] = np.asarray(value)
            _check_range(name, values[name], kind)
        shape = np.broadcast_shapes(*(value.shape for value in values.values()))
        block = {
            name: np.broadcast_to(value.astype(self._types[name][0]), shape).reshape(-1)
            for name, value in values.items()
        }
        count = int(np.prod(shape))
        numbers = np.arange(self._length, self._length + count, dtype=np.int64).reshape(shape)
        if count:
            self._blocks.append(block)
            self._length += count
        return numbers

    def __getitem__(self, name: str) -> Array:
        """A column."""
        if len(self._blocks) > 1:
            self._blocks = [
                {key: np.concatenate([block[key] for block in self._blocks]) for key in self._types}
            ]
        if not self._blocks:
            return np.empty(0, self._types[name][0])
        return self._blocks[0][name]

    def columns(self) -> dict[str, Array]:
        """All columns by name."""
        return {name: self[name] for name in self._types}

    def __len__(self) -> int:
        """How many rows."""
        return self._length


def _check_range(name: str, value: Array, kind: np.dtype[Any]) -> None:
    """Raises ArgumentError when `value` does not fit into `kind`."""
    if kind.kind not in "iu" or value.size == 0:
        return
    info = np.iinfo(kind)
    low, high = value.min(), value.max()
    if low < info.min or high > info.max:
        wrong = low if low < info.min else high
        raise ArgumentError(f"{name} is {wrong}; accepted: {info.min} to {info.max}")


class Load:
    """All that a simulation is to carry."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}
        """Sentences for the summary, in order."""
        self.flows = Table(
            source=("u4", None),
            destination=("u4", None),
            bytes=("u8", None),
            start_ps=("i8", 0),
            traffic_class=("u1", 0),
            loss_ratio=("f8", 0.0),
            critical_ratio=("f8", 1.0),
            patience_ps=("i8", -1),
            label=("u4", 0),
        )
        """A flow of a task starts with it; its start_ps is -1."""
        self.tasks = Table(
            kind=("u1", None),
            host=("u4", None),
            value=("i8", None),
            channel=("u4", NONE),
            priority=("i8", 0),
            channel_bytes=("u8", 0),
            returned_by=("u4", NONE),
        )
        self.edges = Table(before=("u4", None), after=("u4", None), when=("u1", When.FINISHED))
        self.channels = Table(credit_bytes=("u8", None), together=("u1", 0))
        self.collectives: list[Collective] = []
        """Those that the transport runs; only dlcp's does."""
        self.labels: list[str] = []
        """What the flows' labels mean."""
        self.jobs: list[dict[str, Any]] = []
        """Of each training job what is worth saying, as plain data."""
        self._arrays: dict[str, Array] = {}

    def label(self, name: str) -> int:
        """The number of a label; a new one if it is not there yet."""
        if name not in self.labels:
            self.labels.append(name)
        return self.labels.index(name)

    def add_flow_tasks(
        self,
        source: ArrayLike,
        destination: ArrayLike,
        bytes: ArrayLike,  # noqa: A002  the field's word
        *,
        channel: ArrayLike = NONE,
        priority: ArrayLike = 0,
        channel_bytes: ArrayLike = 0,
        returned_by: ArrayLike = NONE,
        **flow: ArrayLike,
    ) -> Rows:
        """Flows that start as tasks; the tasks' numbers. `flow`: other columns of flows."""
        numbers = self.flows.append(source=source, destination=destination, bytes=bytes, start_ps=-1, **flow)
        return self.tasks.append(
            kind=Kind.FLOW,
            host=source,
            value=numbers,
            channel=channel,
            priority=priority,
            channel_bytes=channel_bytes,
            returned_by=returned_by,
        )

    def add_computations(self, host: ArrayLike, duration_ps: ArrayLike, **task: ArrayLike) -> Rows:
        """Tasks that take time, or none; their numbers. `task`: other columns of tasks."""
        return self.tasks.append(kind=Kind.COMPUTE, host=host, value=duration_ps, **task)

    def add_edges(self, before: ArrayLike, after: ArrayLike, when: ArrayLike = When.FINISHED) -> None:
        """Each task of `after` waits for the one of `before` in its place."""
        self.edges.append(before=before, after=after, when=when)

    def add_job(self, about: Mapping[str, Any], **arrays: Array) -> int:
        """A training job: plain data about it, and arrays of task numbers; its number."""
        number = len(self.jobs)
        self.jobs.append(dict(about))
        self._arrays |= {f"job.{number}.{name}": array for name, array in arrays.items()}
        return number

    def arrays(self) -> dict[str, Array]:
        """What reports need to find the jobs' tasks, by "job.NUMBER.NAME"."""
        return dict(self._arrays)

    def metadata(self) -> dict[str, Any]:
        """Labels and jobs as plain data."""
        return {"labels": list(self.labels), "jobs": [dict(job) for job in self.jobs]}

    def note(self, sentence: str) -> None:
        """Adds a sentence about this load to the summary, once."""
        self.notes[sentence] = None

    def iteration_s(self, finished_ps: Array) -> list[float]:
        """Seconds per iteration of the first job, on average over workers; empty: none, or none over."""
        if not self.jobs:
            return []
        return iteration_times_s(self._arrays["job.0.backward"], finished_ps)

    def apply(self, simulation: _core.Simulation) -> None:
        """Hands all of it to a simulation that has no flows yet."""
        if len(self.flows):
            simulation.add_flows(**self.flows.columns())
        for credit_bytes, together in zip(
            self.channels["credit_bytes"], self.channels["together"], strict=True
        ):
            simulation.add_channel(int(credit_bytes), together=bool(together))
        if self.collectives:
            for place, one in enumerate(self.collectives):  # by which tasks know them
                index = add_collective(simulation, one)
                assert index == place, "the simulation had collectives before"
        if len(self.tasks):
            simulation.add_tasks(**self.tasks.columns())
        if len(self.edges):
            simulation.add_edges(**self.edges.columns())


@dataclass(frozen=True, kw_only=True)
class Workload(ABC):
    """What hosts do: the base of all workloads. Fields are checked when the load is built, against the fabric."""

    kind: ClassVar[str] = ""
    """Its name in a scenario's file."""

    def build(self, fabric: Fabric, seed: int) -> Load:
        """The load of this workload alone. Same fabric and seed, same load."""
        load = Load()
        self.add_to(load, fabric, seed)
        return load

    @abstractmethod
    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """Adds this workload to a load."""

    def as_dict(self) -> dict[str, Any]:
        """Kind and settings as a scenario's file has them; what is None is left out."""
        return table_of(self.kind, self)


def host_numbers(fabric: Fabric, hosts: Sequence[int] | int | None, name: str = "hosts") -> Array:
    """Hosts as an array: all of the fabric (None), the first so many, or these; ArgumentError if they are not there."""
    if hosts is None:
        return np.arange(fabric.hosts)
    chosen = np.arange(hosts) if isinstance(hosts, int) else np.asarray(list(hosts), np.int64)
    if chosen.size == 0 or chosen.min() < 0 or chosen.max() >= fabric.hosts:
        accepted = (
            f"1 to {fabric.hosts}, the fabric's hosts"
            if isinstance(hosts, int)
            else f"at least one of 0 to {fabric.hosts - 1}"
        )
        raise ArgumentError(f"{name} is {hosts!r}; accepted: {accepted}")
    if len(np.unique(chosen)) != len(chosen):
        raise ArgumentError(f"{name} is {hosts!r}; accepted: each host once")
    return chosen


def picoseconds(seconds: float, name: str) -> int:
    """A time of at least zero in the simulator's unit; ArgumentError otherwise."""
    if not 0 <= seconds < 1e6:
        raise ArgumentError(f"{name} is {seconds!r}; accepted: 0 to 1e6 seconds")
    return round(seconds * PS_PER_S)
