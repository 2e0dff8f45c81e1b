"""Any transport on random fabrics, buffers and faults: every flow ends, bytes add up, and the result is one.

What is drawn comes from a number alone; a failure names it. `python -m tests.sim.test_random_runs TRANSPORT NUMBER`
runs one again and tells more.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from dlcp.switch import Policy
from dlcp_sim import _core, faults, switches
from dlcp_sim.fabrics import Dumbbell, Fabric, FatTree, LeafSpine, Star, TwoSites
from dlcp_sim.faults import BurstLoss, ExtraDelay, Fault, Flapping, LinkDown, RandomLoss, SlowLink
from dlcp_sim.transports import TRANSPORTS
from tests.support.simulation import Flow, add_flows

RUNS = 60  # of each transport
PATIENCE_S = 100.0  # a case takes milliseconds, unless the machine has other work
REPAIRING = [name for name in TRANSPORTS if name != "line_rate"]
FABRICS: list[Fabric] = [
    FatTree(4),
    Star(6),
    LeafSpine(2, 2, 3),
    Dumbbell(2, 3, bottleneck_bps=25e9, bottleneck_delay_s=20e-6),
    TwoSites(1, 2, 2, long_delay_s=100e-6),
    FatTree(4, rate_bps=10e9, edge_rate_bps=40e9),
]


@dataclass(frozen=True)
class Case:
    """What is run."""

    transport: str
    number: int
    fabric: Fabric
    policy: Policy
    flows: list[Flow]
    faults: list[Fault]

    def run(self, **settings: Any) -> Any:
        """A simulation that is over, or stopped after an hour of simulated time.

        Raises RuntimeError after PATIENCE_S of real time.
        """
        kind = TRANSPORTS[self.transport]
        simulation = _core.Simulation(
            self.fabric.build(),
            switches.to_core(self.policy),
            self.transport,
            kind().parameters(),
            seed=self.number + 1,
            discipline=kind.discipline,
            check_invariants=True,
            **settings,
        )
        add_flows(simulation, self.flows)
        simulation.add_faults(faults.events(self.faults, self.fabric))
        begin_s = time.monotonic()
        simulation.run(until_ps=3600 * 10**12, wall_s=PATIENCE_S)
        # Cut off there, its flows would differ from those of another run for no reason of the simulator's.
        if time.monotonic() - begin_s >= PATIENCE_S:
            raise RuntimeError(f"not over after {PATIENCE_S} s with {settings}")
        return simulation


def random_fault(draw: random.Random, fabric: Fabric) -> Fault:
    source, target, _, _ = fabric.core.link(draw.randrange(fabric.core.ports))
    link = draw.choice(("{} -> {}", "{} - {}")).format(fabric.name(source), fabric.name(target))
    at_s = draw.choice((0.0, draw.random() * 1e-4))
    until_s = at_s + draw.choice((1e-5, 1e-4, 1e-3))
    match draw.randrange(7):
        case 0:
            return LinkDown(link, draw.choice((None, 1e-5, 1e-4)), at_s=at_s, until_s=until_s)
        case 1:
            return RandomLoss(link, draw.choice((0.001, 0.01, 0.05)))
        case 2:
            return BurstLoss(link, 0.005, 0.3)
        case 3:
            return SlowLink(link, 5e9, at_s=at_s, until_s=draw.choice((None, until_s)))
        case 4:
            return ExtraDelay(link, draw.choice((1e-5, 1e-3)), at_s=at_s, until_s=until_s)
        case 5:
            return Flapping(link, 1e-5, 3e-5, at_s=at_s, until_s=until_s)
        case _:
            return RandomLoss(link, 0.9, at_s=at_s, until_s=until_s)


def case(transport: str, number: int) -> Case:
    """The case of this number."""
    draw = random.Random(f"{transport} {number}")
    fabric = draw.choice(FABRICS)
    policy = TRANSPORTS[transport]().policy(fabric)
    lossless = policy.pause_above_bytes is not None
    if not lossless and draw.random() < 0.5:
        policy = replace(policy, port_bytes=100_000, shared_bytes=None)
    if draw.random() < 0.3:
        policy = replace(
            policy, path_choice=draw.choice(("flow_hash", "random", "adaptive", "round_robin", "path_id"))
        )
    flows = []
    for _ in range(draw.randrange(1, 40)):
        source = draw.randrange(fabric.hosts)
        target = (source + 1 + draw.randrange(fabric.hosts - 1)) % fabric.hosts
        bounded = transport == "dlcp" and draw.random() < 0.5
        flows.append(
            Flow(
                source,
                target,
                draw.choice((1, 100, 4096, 5000, 50_000, 300_000)),
                draw.choice((0, 0, 0, draw.randrange(100_000_000))),
                draw.randrange(7),
                draw.choice((0.01, 0.1, 0.5)) if bounded else 0.0,
                draw.random() if bounded else 1.0,
            )
        )
    wrong = [random_fault(draw, fabric) for _ in range(draw.randrange(4))]
    return Case(transport, number, fabric, policy, flows, wrong)


def complaint(one: Case) -> str:
    """What is wrong with a case's result; empty: nothing."""
    try:
        simulation = one.run()
        found = simulation.flow_results()
        size = np.array([flow.bytes for flow in one.flows], np.uint64)
        may_lose = np.array([flow.bytes * flow.loss_ratio for flow in one.flows])
        if (found["delivered_ps"] < 0).any():
            return f"flows {np.flatnonzero(found['delivered_ps'] < 0).tolist()} never end"
        if (found["acknowledged_ps"] < found["delivered_ps"]).any():
            return "a sender knows before the receiver, or never"
        if (found["delivered_bytes"] + found["abandoned_bytes"] != size).any():
            return "bytes do not add up"
        if (found["abandoned_bytes"] > may_lose).any():
            return "more was abandoned than may be"
        settings = ({"threads": 3}, {"event_queue": "heap"})[one.number % 2]
        other = one.run(**settings)
        for name, values in other.flow_results().items():
            if (values != found[name]).any():
                return f"{name} differs with {settings}"
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("transport", REPAIRING)
def test_every_flow_ends_whatever_happens_to_links(transport: str) -> None:
    wrong = {number: text for number in range(RUNS) if (text := complaint(case(transport, number)))}
    assert not wrong, f"run again: python -m tests.sim.test_random_runs {transport} {next(iter(wrong))}"


if __name__ == "__main__":
    chosen = case(sys.argv[1], int(sys.argv[2]))
    print(chosen)
    print(complaint(chosen) or "nothing is wrong")
