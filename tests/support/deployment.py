"""Switches to deploy to, policies that differ in every table, and what a switch holds, whoever asks."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.switch import (
    BridgeEntry,
    Policy,
    Port,
    Route,
    SwitchTarget,
    Thresholds,
    Topology,
    TrafficClass,
    programs,
)
from dlcp.switch.deploy.grpc_session import GrpcSession
from dlcp.switch.deploy.pipeline import Pipeline
from dlcp.switch.deploy.reads import all_of
from dlcp.switch.deploy.session import Session
from dlcp.switch.deploy.transaction import DesiredState
from dlcp.switch.entries import desired_entries
from tests.support.p4runtime import P4RuntimeServer

MACS = [f"02:00:00:00:00:{n:02x}" for n in range(16)]
PIPELINE = Pipeline.of(programs.load("v1model"))
TIMEOUT_S = 60.0  # of one request; a switch that is well answers in milliseconds, unless the machine is busy

OLD = Policy(
    "old",
    (
        TrafficClass(
            1, dscp=(8,), critical=Thresholds(1000, 1003), droppable=(Thresholds(drop_above_bytes=500),)
        ),
        TrafficClass(7, dscp=(56,)),
    ),
    "path_id",
    foreign_class=0,
    port_bytes=100_000,
)
NEW = Policy(
    "new",
    (
        TrafficClass(
            1, dscp=(10,), critical=Thresholds(1000, 1004), droppable=(Thresholds(drop_above_bytes=900),)
        ),
        TrafficClass(2, dscp=(8,), critical=Thresholds(drop_above_bytes=5000)),
    ),
    "adaptive",
    ports=(Port("a", 10**9, (TrafficClass(1, critical=Thresholds(50)),)),),
    foreign_class=3,
    port_bytes=90_000,
)


def target(name: str, address: str, device_id: int = 1, new: bool = False) -> SwitchTarget:
    """A switch with everything a topology can say; with `new`, of most of it something else."""
    return SwitchTarget(
        name,
        address,
        {"a": 1, "b": 2, "c": 3, "d": 4, **({} if new else {"e": 5})},
        device_id=device_id,
        path_groups={"up": ("d", "c") if new else ("c", "d")},
        router_macs=(MACS[1], MACS[2]) if new else (MACS[1],),
        bridge=(
            BridgeEntry(MACS[10], "a"),
            BridgeEntry(MACS[11], "b") if new else BridgeEntry(MACS[12], group="up"),
        ),
        routes=(
            Route("10.0.0.0/8", "b" if new else "a", MACS[10]),
            Route("::/0", group="up", next_hops={"c": MACS[13], "d": MACS[14]}),
        ),
    )


def desired(server: P4RuntimeServer, name: str = "s1", new: bool = False) -> DesiredState:
    """What the switch behind a server is to hold: under OLD, or with `new` under NEW."""
    place = target(name, server.address, server.device_id, new)
    return DesiredState.of(place, PIPELINE, desired_entries(NEW if new else OLD, place).entries)


def open_session(place: SwitchTarget) -> Session:
    """Over gRPC, with time for a busy machine."""
    return GrpcSession(place, TIMEOUT_S)


@dataclass(frozen=True)
class State:
    """All that can be read of a switch."""

    device_config: bytes
    cookie: int
    entities: frozenset[bytes]


def state(server: P4RuntimeServer) -> State | None:
    """What a switch holds; None: nothing was pushed."""
    session = GrpcSession(
        SwitchTarget("look", server.address, {"a": 1}, device_id=server.device_id), TIMEOUT_S
    )
    try:
        pipeline = session.pipeline()
        if pipeline is None:
            return None
        held = [
            e.SerializeToString(deterministic=True) for e in session.read_entities(all_of(pipeline.schema))
        ]
        return State(pipeline.device_config, pipeline.cookie, frozenset(held))
    finally:
        session.close()


def topology_text(*servers: P4RuntimeServer) -> str:
    """A topology file of these switches, called s1, s2 and so on."""
    return Topology(
        tuple(target(f"s{n}", s.address, s.device_id) for n, s in enumerate(servers, 1))
    ).to_toml()
