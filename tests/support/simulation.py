"""Runs of the simulator's core without a scenario around them, for tests of what is below scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlcp.switch import Policy
from dlcp_sim import _core, faults, switches
from dlcp_sim.fabrics import Fabric


@dataclass(frozen=True)
class Flow:
    """One flow to add."""

    source: int
    destination: int
    bytes: int
    start_ps: int = 0
    traffic_class: int = 0
    loss_ratio: float = 0.0
    critical_ratio: float = 1.0


def add_flows(simulation: Any, flows: Sequence[Flow]) -> None:
    """Adds them, in order."""

    def column(values: Iterable[float], dtype: type[np.generic]) -> NDArray[Any]:
        return np.array(list(values), dtype)

    simulation.add_flows(
        source=column((f.source for f in flows), np.uint32),
        destination=column((f.destination for f in flows), np.uint32),
        bytes=column((f.bytes for f in flows), np.uint64),
        start_ps=column((f.start_ps for f in flows), np.int64),
        traffic_class=column((f.traffic_class for f in flows), np.uint8),
        loss_ratio=column((f.loss_ratio for f in flows), np.float64),
        critical_ratio=column((f.critical_ratio for f in flows), np.float64),
        patience_ps=column((-1 for _ in flows), np.int64),
        label=column((0 for _ in flows), np.uint32),
    )


def simulate(
    fabric: Fabric,
    flows: Sequence[Flow],
    *,
    policy: Policy | None = None,
    transport: str = "line_rate",
    parameters: Mapping[str, float] | None = None,
    wrong: Sequence[faults.Fault] = (),
    until_ps: int = -1,
    **settings: Any,
) -> Any:
    """A simulation that has run, with its invariants checked."""
    core_policy = switches.to_core(switches.unbounded() if policy is None else policy)
    built = fabric.build()
    simulation = _core.Simulation(
        built, core_policy, transport, dict(parameters or {}), check_invariants=True, **settings
    )
    add_flows(simulation, flows)
    simulation.add_faults(faults.events(wrong, fabric))
    simulation.run(until_ps=until_ps)
    return simulation


def permutation(hosts: int, flow_bytes: int, seed: int = 1) -> list[Flow]:
    """Every host sends to the next one of a shuffled ring: P128 and P1024 of docs/simulator/validation.md."""
    import random

    order = list(range(hosts))
    random.Random(seed).shuffle(order)
    return [Flow(order[i], order[(i + 1) % hosts], flow_bytes) for i in range(hosts)]


def completions_ps(simulation: Any) -> NDArray[np.int64]:
    """Of each flow, from its start; negative: not delivered."""
    found = simulation.flow_results()
    took: NDArray[np.int64] = np.where(
        found["delivered_ps"] < 0, -1, found["delivered_ps"] - found["started_ps"]
    )
    return took
