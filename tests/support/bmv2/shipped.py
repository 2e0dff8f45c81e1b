"""The shipped v1model program with a policy and ways to everywhere: what the interpreter and BMv2 are given alike."""

from __future__ import annotations

from finsy.proto import p4r
from google.protobuf import text_format

from dlcp.switch import programs
from dlcp.switch.policy import Policy, Thresholds, TrafficClass
from dlcp.switch.programs import PathChoice
from dlcp.switch.topology import SwitchTarget
from tests.support import v1model
from tests.support.bmv2 import Program
from tests.support.p4runtime.client import Client

PORTS = 4
HOST, ROUTER, NOWHERE = (bytes([2, 0, 0, 0, 0, n]) for n in (1, 2, 3))
BY_FLOW, BY_PATH, IN_TURN = (bytes([2, 0, 0, 0, 0, n]) for n in (4, 5, 6))
EVERYBODY = b"\xff" * 6
HOST_PORT = 1
WAYS = (2, 3)
CHOICES = {11: PathChoice.FLOW_HASH, 12: PathChoice.PATH_ID, 13: PathChoice.ROUND_ROBIN}
ROUTED = 14
NAMES = {f"port{port}": port for port in range(PORTS)}
TARGET = SwitchTarget("switch", "", NAMES, path_groups={"ways": tuple(f"port{port}" for port in WAYS)})
SALT = 0x5EED

# Half of the levels give way early, the others late; classes 3 and 4 trim. All is far from DEPTHS.
EARLY, LATE, FULL = 300_000, 1_000_000, 4_000_000
POLICY = Policy(
    "on BMv2",
    (
        *(
            TrafficClass(
                number,
                dscp=(8 * number + 1, 8 * number + 3) if number else (2,),
                critical=Thresholds(EARLY, drop_above_bytes=LATE),
                droppable=tuple(
                    Thresholds(
                        trim_above_bytes=EARLY if number in (3, 4) else None,
                        drop_above_bytes=EARLY if level < 4 and number not in (3, 4) else LATE,
                    )
                    for level in range(8)
                ),
            )
            for number in range(7)
        ),
        TrafficClass(7, dscp=(56,), critical=Thresholds(drop_above_bytes=LATE)),
    ),
    foreign_class=1,
    port_bytes=FULL,
)


def config() -> p4r.ForwardingPipelineConfig:
    """The shipped program."""
    shipped = programs.load("v1model")
    made = p4r.ForwardingPipelineConfig(p4_device_config=shipped.json)
    text_format.Parse(shipped.p4info, made.p4info)
    return made


def number(mac: bytes) -> int:
    return int.from_bytes(mac, "big")


def install(program: Program) -> None:
    """The policy's entries, and ways to everywhere."""
    v1model.install(program, POLICY, TARGET)
    program.insert("bridge", {"dst_mac": number(HOST)}, "to_port", [HOST_PORT])
    for (group, choice), mac in zip(CHOICES.items(), (BY_FLOW, BY_PATH, IN_TURN), strict=True):
        program.insert("bridge", {"dst_mac": number(mac)}, "to_group", [group])
        program.insert("path_group", {"group": group}, "choose", [len(WAYS), choice, SALT])
        for index, port in enumerate(WAYS):
            program.insert("member", {"group": group, "index": index}, "member_port", [port])
    program.insert("router_mac", {"dst_mac": number(ROUTER)}, "to_router")
    program.insert(
        "route_ipv4", {"dst": (0x0A000000, 16)}, "next_hop", [HOST_PORT, number(HOST), number(ROUTER)]
    )
    program.insert("route_ipv4", {"dst": (0x0A000100, 24)}, "next_hop_group", [ROUTED])
    program.insert(
        "route_ipv6", {"dst": (0x20010DB8_0001 << 80, 48)}, "next_hop", [0, number(HOST), number(ROUTER)]
    )
    program.insert("route_ipv6", {"dst": (0x20010DB8_0002 << 80, 48)}, "next_hop_group", [ROUTED])
    program.insert("path_group", {"group": ROUTED}, "choose", [len(WAYS), PathChoice.FLOW_HASH, SALT])
    for index, port in enumerate(WAYS):
        values = [port, 0x020000000100 + port, number(ROUTER)]
        program.insert("member", {"group": ROUTED, "index": index}, "routed_member", values)


def groups(program: Program) -> list[p4r.Entity]:
    """The multicast groups of a program, as messages."""
    made = []
    for number_, replicas in sorted(program.model.groups.items()):
        entity = p4r.Entity()
        group = entity.packet_replication_engine_entry.multicast_group_entry
        group.multicast_group_id = number_
        for replica in replicas:
            group.replicas.add(egress_port=replica.port, instance=1)
        made.append(entity)
    return made


def everything(client: Client) -> list[p4r.Entity]:
    return client.read(p4r.Entity(table_entry=p4r.TableEntry()))


def default(client: Client, table: str) -> p4r.Entity:
    """The default entry, as the switch has it."""
    table_id = next(t.preamble.id for t in config().p4info.tables if t.preamble.alias == table)
    (entity,) = client.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=table_id, is_default_action=True)))
    entity.table_entry.is_const = False
    return entity


def canonical(entities: list[p4r.Entity]) -> list[str]:
    return sorted(str(entity) for entity in entities)
