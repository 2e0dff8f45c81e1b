"""Collectives on values that exist, over a network that is simulated: what a switch drops is missing from the sum.

A group is a set of hosts of a simulated fabric. Each collective starts at a moment of simulated time, runs block by
block through the shipping engine and executor, and ends at each rank at a moment of its own; time goes on from one to
the next, as does whatever else is on the network. The arithmetic is the executor's: the schedule's order of summation,
to the bit.

It trains nothing (training.py does) and knows no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dlcp import _native
from dlcp.errors import ArgumentError, DlcpError
from dlcp.units import PS_PER_S
from dlcp_sim import _core, faults, switches
from dlcp_sim.transports import Dlcp
from dlcp_sim.workloads.executor import compiled, part_bytes

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric
    from dlcp_sim.faults import Fault
    from dlcp_sim.workloads.load import Workload

Values = NDArray[np.float32]
ELEMENT_BYTES = 4

FIRST_LOOK_PS = 10_000_000
"""How far a run goes between two looks whether a collective is over; later a fiftieth of what it has taken."""
LOOKS = 50


class CosimulationError(DlcpError):
    """A collective failed or did not end: what the executor says, and of which ranks."""


@dataclass(frozen=True)
class Abandoned:
    """What was abandoned of one message, as elements of the sending rank's array."""

    sender: int
    owner: int
    """The rank that would have added it."""
    ranges: NDArray[np.int64]
    """First element and end of each run: int64[runs, 2]."""

    @property
    def elements(self) -> int:
        """How many."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())


@dataclass(frozen=True)
class Reduction:
    """How a collective went."""

    results: list[Values]
    """By rank; of a measurement without values empty."""
    started_s: NDArray[np.float64]
    finished_s: NDArray[np.float64]
    """By rank, in simulated seconds since the group began."""
    abandoned: list[Abandoned] = field(default_factory=list)
    """What senders still hold and nobody has added."""
    sent_bytes: int = 0
    """Payload of all ranks, without repairs."""
    retransmitted_bytes: int = 0

    @property
    def duration_s(self) -> float:
        """From the first start to the last end."""
        return float(self.finished_s.max() - self.started_s.min())

    @property
    def abandoned_bytes(self) -> int:
        """Of all messages."""
        return ELEMENT_BYTES * sum(each.elements for each in self.abandoned)


class SimulatedGroup:
    """Hosts of a simulated fabric that reduce arrays of float32.

        with_loss = SimulatedGroup(ds.Star(8, rate_bps=10e9, delay_s=1e-6))
        out = with_loss.bounded_all_reduce(gradients, loss_ratio=0.1, importance=marks)

    `hosts`: by rank; None: all. `policy`: of the switches; None: as the transport has it. `background`: a workload that
    shares the network from time zero. `threads`: of the simulation; results do not depend on them.
    """

    def __init__(
        self,
        fabric: Fabric,
        *,
        hosts: Sequence[int] | None = None,
        transport: Dlcp | None = None,
        policy: Policy | None = None,
        background: Workload | None = None,
        network_faults: Sequence[Fault] = (),
        seed: int = 1,
        threads: int = 1,
    ) -> None:
        self.transport = Dlcp() if transport is None else transport
        self.hosts = list(range(fabric.hosts)) if hosts is None else list(hosts)
        if len(self.hosts) < 2 or len(set(self.hosts)) < len(self.hosts):
            raise ArgumentError(f"hosts is {hosts!r}; accepted: two or more, each once")
        if not all(0 <= host < fabric.hosts for host in self.hosts):
            raise ArgumentError(f"hosts is {hosts!r}; accepted: 0 to {fabric.hosts - 1}")
        core = fabric.build()
        self._simulation = _core.Simulation(
            core,
            switches.to_core(self.transport.policy(fabric) if policy is None else policy),
            self.transport.name,
            self.transport.parameters(),
            seed=seed,
            threads=threads,
        )
        if background is not None:
            background.build(fabric, seed).apply(self._simulation)
        if network_faults:
            self._simulation.add_faults(faults.events(network_faults, fabric, core))
        # Memory that the executor may touch: of what is pending, and of what failed.
        self._held: list[object] = []
        _core.keep_open(self._simulation)
        _core.add_collective_group(self._simulation, self.hosts)
        self._simulation.run(0)

    # --- what is asked ---

    @property
    def size(self) -> int:
        """How many ranks."""
        return len(self.hosts)

    @property
    def now_s(self) -> float:
        """The simulated time that has been reached; nothing can start before it."""
        return self._simulation.now_ps / PS_PER_S

    @property
    def block_elements(self) -> int:
        """Elements that one packet carries."""
        return self.transport.block_bytes // ELEMENT_BYTES

    def parts(self, elements: int) -> list[tuple[int, int]]:
        """Which elements each rank owns in a bounded all-reduce: begin and end."""
        ends = np.cumsum(part_bytes(elements * ELEMENT_BYTES, self.size)) // ELEMENT_BYTES
        return [
            (int(end - length), int(end)) for end, length in zip(ends, np.diff(ends, prepend=0), strict=True)
        ]

    def blocks(self, elements: int) -> list[int]:
        """How many blocks each rank's part has: the lengths of importance."""
        return [-(-(end - begin) // self.block_elements) for begin, end in self.parts(elements)]

    def packet_counters(self) -> dict[str, int]:
        """Sums over all ports: what switches dropped, marked, trimmed, what faults lost."""
        counters = self._simulation.port_counters()
        names = ("packets_sent", "packets_dropped", "packets_marked", "packets_trimmed", "packets_lost")
        return {name: int(counters[name].sum()) for name in names}

    # --- collectives ---

    def all_reduce(
        self,
        arrays: Sequence[Values] | int,
        *,
        algorithm: str = "ring",
        average: bool = False,
        start_s: float | Sequence[float] | None = None,
        timeout_s: float = 60.0,
    ) -> Reduction:
        """The sum (or mean) of one float32 array per rank, exact, at every rank.

        `arrays` may be a number of elements: then nothing is added, and only times come out. `start_s`: when the ranks
        call it; None: now. Raises CosimulationError if it fails, or is not over `timeout_s` of simulated time later.
        """
        values, elements = self._values(arrays)
        outputs = [value.copy() for value in values]
        index = self._add("all_reduce", algorithm, None, outputs, elements, average)
        return self._run(index, [], outputs, elements, start_s, timeout_s)

    def bounded_all_reduce(
        self,
        arrays: Sequence[Values] | int,
        *,
        loss_ratio: float,
        importance: Sequence[Sequence[NDArray[np.uint8] | None]] | None = None,
        critical_ratio: float = 1.0,
        average: bool = False,
        rescale: bool = False,
        patience_s: float | None = None,
        start_s: float | Sequence[float] | None = None,
        timeout_s: float = 60.0,
    ) -> Reduction:
        """The sum of what arrived: on the way to the rank that adds, blocks may be abandoned within `loss_ratio`.

        `importance[rank][owner]`: uint8 per block of the rank's message to the owner, 255 is critical; without it
        `critical_ratio` of the blocks are drawn to be critical. `average`: results are divided by the number of ranks;
        `rescale`: a result is multiplied by ranks over contributions that came, so that a sum stays one. All ranks
        end with the same bits. `patience_s`: so long after the start, senders abandon unsent blocks within the budget.
        """
        if not 0.0 <= loss_ratio < 1.0:
            raise ArgumentError(f"loss_ratio is {loss_ratio}; accepted: 0 up to 1, 1 excluded")
        values, elements = self._values(arrays)
        inputs = [np.ascontiguousarray(value) for value in values]
        outputs = [np.zeros(elements, np.float32) for _ in values]
        given = None
        if importance is not None:
            counts = self.blocks(elements)
            given = [
                [_checked(of, rank, owner, counts[owner]) for owner, of in enumerate(row)]
                for rank, row in enumerate(importance)
            ]
            if len(given) != self.size or any(len(row) != self.size for row in given):
                raise ArgumentError(f"importance is not {self.size} rows of {self.size}")
        index = self._add(
            "bounded_all_reduce",
            "direct",
            inputs,
            outputs,
            elements,
            average,
            loss=_native.LossRules(loss_ratio, patience_s=patience_s, rescale=rescale),
            critical_ratio=critical_ratio,
            importance=given,
        )
        return self._run(index, inputs, outputs, elements, start_s, timeout_s)

    # --- inside ---

    def _values(self, arrays: Sequence[Values] | int) -> tuple[list[Values], int]:
        if isinstance(arrays, int):
            if arrays < 0:
                raise ArgumentError(f"{arrays} elements; accepted: 0 or more")
            return [], arrays
        if len(arrays) != self.size:
            raise ArgumentError(f"{len(arrays)} arrays; accepted: one per rank, {self.size}")
        for rank, array in enumerate(arrays):
            if array.dtype != np.float32 or array.ndim != 1 or array.size != arrays[0].size:
                raise ArgumentError(
                    f"the array of rank {rank} is {array.dtype}{list(array.shape)}; accepted: float32, one"
                    f" dimension, {arrays[0].size} elements as the first"
                )
        return list(arrays), int(arrays[0].size)

    def _add(
        self,
        collective: str,
        algorithm: str,
        inputs: list[Values] | None,
        outputs: list[Values],
        elements: int,
        average: bool,
        **bounded: Any,
    ) -> int:
        """The number of a new collective. `inputs` None: it works in its outputs. `bounded`: as the core has it."""
        ranks, nbytes = range(self.size), elements * ELEMENT_BYTES
        return _core.add_collective(
            self._simulation,
            self.hosts,
            [compiled(collective, algorithm, self.size, rank) for rank in ranks],
            [(0, 0) if inputs is None else (_address(inputs, rank), nbytes) for rank in ranks],
            [(_address(outputs, rank), nbytes) for rank in ranks],
            average_over=self.size if average else 0,
            **bounded,
        )

    def _run(
        self,
        index: int,
        inputs: list[Values],
        outputs: list[Values],
        elements: int,
        start_s: float | Sequence[float] | None,
        timeout_s: float,
    ) -> Reduction:
        simulation = self._simulation
        now_ps = simulation.now_ps
        starts = [start_s] * self.size if isinstance(start_s, float | int | None) else list(start_s)
        if len(starts) != self.size:
            raise ArgumentError(f"{len(starts)} starts; accepted: one, or one per rank, {self.size}")
        at_ps = [now_ps if at is None else max(now_ps, round(at * PS_PER_S)) for at in starts]
        self._held += [inputs, outputs]
        _core.start_collective(simulation, index, at_ps)
        first_ps, until_ps = min(at_ps), max(at_ps) + round(timeout_s * PS_PER_S)
        while _core.collective_ranks_over(simulation, index) < self.size:
            now_ps = simulation.now_ps
            if now_ps >= until_ps:
                self._fail(index, f"is not over after {timeout_s} s")
            step_ps = max(FIRST_LOOK_PS, (now_ps - first_ps) // LOOKS)
            simulation.run(min(until_ps, max(now_ps, first_ps) + step_ps))
        found = _core.collective_results(simulation, index)
        if any(error is not None for error in found["error"]):
            self._fail(index, "failed")
        self._held.clear()  # one is pending at a time
        reduction = Reduction(
            outputs,
            found["started_ps"] / PS_PER_S,
            found["finished_ps"] / PS_PER_S,
            self._abandoned(index, elements),
            int(found["sent_bytes"].sum()),
            int(found["retransmitted_bytes"].sum()),
        )
        _core.forget_collective(simulation, index)
        return reduction

    def _fail(self, index: int, how: str) -> None:
        found = _core.collective_results(self._simulation, index)
        ranks = ", ".join(
            f"rank {rank}: {error or ('over' if finished >= 0 else 'pending')}"
            for rank, (error, finished) in enumerate(zip(found["error"], found["finished_ps"], strict=True))
        )
        raise CosimulationError(f"the collective {how}: {ranks}")

    def _abandoned(self, index: int, elements: int) -> list[Abandoned]:
        begins = [begin for begin, _ in self.parts(elements)]
        out = []
        for rank in range(self.size):
            for each in _core.collective_result(self._simulation, index, rank).abandoned:
                if not each.sent:
                    continue
                bits = np.unpackbits(each.blocks.view(np.uint8), bitorder="little")
                edges = np.flatnonzero(np.diff(bits.view(np.int8), prepend=0, append=0)).reshape(-1, 2)
                ends = np.minimum(edges * each.block_bytes, each.message_bytes) // ELEMENT_BYTES
                out.append(Abandoned(rank, each.peer, (begins[each.chunk] + ends).astype(np.int64)))
        return out


def _address(arrays: list[Values], rank: int) -> int:
    return int(arrays[rank].ctypes.data) if arrays else 0


def _checked(given: NDArray[np.uint8] | None, rank: int, owner: int, blocks: int) -> NDArray[np.uint8] | None:
    if given is None or rank == owner:
        return None
    if given.dtype != np.uint8 or given.shape != (blocks,):
        raise ArgumentError(
            f"importance of rank {rank} for {owner} is {given.dtype}{list(given.shape)}; accepted: uint8[{blocks}]"
        )
    return np.ascontiguousarray(given)
