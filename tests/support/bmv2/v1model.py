"""The architecture around a program's controls: what simple_switch does between parser, ingress, queue and egress.

Order and details follow its `simple_switch.cpp`: clones first, then resubmission, multicast before unicast, drops by
port 511. It has no clock and no queues: `ingress` answers what is to be queued, `egress` what leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .expressions import Evaluate
from .layout import Layout, UnsupportedError
from .packet import Packet
from .parser import Deparser, Parser
from .primitives import DROP_PORT, Externs
from .tables import Table

NORMAL, INGRESS_CLONE, EGRESS_CLONE, _COALESCED, RECIRCULATED, REPLICATED, RESUBMITTED = range(7)
# simple_switch would go round for ever.
MOST_ROUNDS = 64

Hook = Callable[[Packet], None]


@dataclass(frozen=True)
class Replica:
    """Where a copy of a multicast group goes."""

    port: int
    instance: int = 0


@dataclass(frozen=True)
class Queued:
    """A packet that waits for its port: which queue it joins, 7 before 0."""

    port: int
    priority: int
    packet: Packet


@dataclass(frozen=True)
class Depths:
    """What a program is told of its queue, in packets, and of time, in microseconds."""

    enqueued_us: int = 0
    dequeued_us: int = 0
    at_enqueue: int = 0
    at_dequeue: int = 0


@dataclass
class Left:
    """What became of a packet at egress: bytes that leave by a port, packets queued anew, one that comes in again."""

    sent: tuple[int, bytes] | None = None
    queued: list[Queued] = field(default_factory=list)
    recirculated: Packet | None = None


class Control:
    """Ingress or egress: tables and conditions, one after the other."""

    def __init__(self, externs: Externs, tables: dict[str, Table], json: dict[str, Any]) -> None:
        if json.get("action_profiles"):
            raise UnsupportedError(f"action profile {json['action_profiles'][0]['name']}")
        if json.get("action_calls"):
            raise UnsupportedError(f"action call {json['action_calls'][0]['name']}")
        self._first: str | None = json["init_table"]
        self._tables = {each["name"]: tables[each["name"]] for each in json["tables"]}
        self._conditions: dict[str, tuple[Evaluate, str | None, str | None]] = {
            each["name"]: (
                externs.expressions.function(each["expression"]),
                each["true_next"],
                each["false_next"],
            )
            for each in json["conditionals"]
        }

    def run(self, packet: Packet) -> None:
        """Through all of it, or to where the program says exit."""
        node = self._first
        while node is not None and not packet.exited:
            if node in self._conditions:
                condition, yes, no = self._conditions[node]
                node = yes if condition(packet, ()) else no
            else:
                node = self._tables[node].apply(packet)
        packet.exited = False


class V1Model:
    """Parser, controls and deparser of one program, joined."""

    def __init__(self, externs: Externs, parser: Parser, deparser: Deparser, json: dict[str, Any]) -> None:
        self._parser = parser
        self._deparser = deparser
        self._layout: Layout = externs.layout
        self._field_lists: dict[int, list[tuple[str, str]]] = {
            each["id"]: [tuple(e["value"]) for e in each["elements"] if e["type"] == "field"]
            for each in json.get("field_lists", ())
        }
        self.controls: dict[str, Control] = {}
        self.groups: dict[int, list[Replica]] = {}
        self.mirrors: dict[int, Replica | int] = {}  # per session: a port, or the number of a group
        # Called with each packet before the control: tests set what they want to see there.
        self.before: dict[str, Hook | None] = {"ingress": None, "egress": None}
        # What the traffic manager fills in, where the program has it.
        known = self._layout.known
        self._port_in = self._slot("standard_metadata.ingress_port")
        self._port_out = self._slot("standard_metadata.egress_port")
        self._egress_spec = self._slot("standard_metadata.egress_spec")
        self._length = self._slot("standard_metadata.packet_length")
        self._instance_type = self._slot("standard_metadata.instance_type")
        self._parser_error = known("standard_metadata.parser_error")
        self._checksum_error = known("standard_metadata.checksum_error")
        self._group = known("intrinsic_metadata.mcast_grp")
        self._instance = known("intrinsic_metadata.egress_rid")
        self._priority = known("intrinsic_metadata.priority")
        self._time_in = known("intrinsic_metadata.ingress_global_timestamp")
        self._time_out = known("intrinsic_metadata.egress_global_timestamp")
        self._queueing = [
            known(f"queueing_metadata.{name}")
            for name in ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth")
        ]

    def _slot(self, name: str) -> int:
        found = self._layout.known(name)
        if found is None:
            raise UnsupportedError(f"a program without {name}")
        return found.slot

    # ---- ingress ----

    def ingress(self, data: bytes, port: int, now_us: int = 0, handle: int = 0) -> list[Queued]:
        """From the wire to the queues: parser, checksums, ingress control, and what it asks for."""
        packet = Packet(self._layout, data)
        packet.handle = handle
        packet.fields[self._port_in] = port
        packet.fields[self._length] = len(data)
        packet.fields[self._instance_type] = NORMAL
        return self._ingress(packet, now_us)

    def reenter(self, packet: Packet, now_us: int = 0) -> list[Queued]:
        """A recirculated packet comes in again."""
        return self._ingress(packet, now_us)

    def _ingress(self, packet: Packet, now_us: int) -> list[Queued]:
        queued: list[Queued] = []
        for _ in range(MOST_ROUNDS):
            again = self._ingress_once(packet, now_us, queued)
            if again is None:
                return queued
            packet = again
        raise RuntimeError(f"resubmitted {MOST_ROUNDS} times")

    def _ingress_once(self, packet: Packet, now_us: int, queued: list[Queued]) -> Packet | None:
        if self._time_in is not None and not packet.fields[self._instance_type]:
            packet.fields[self._time_in.slot] = self._time_in.wrap(now_us)
        ingress_port, length_bytes = packet.fields[self._port_in], packet.length_bytes
        self._parse(packet)
        hook = self.before["ingress"]
        if hook is not None:
            hook(packet)
        self.controls["ingress"].run(packet)
        egress_spec = packet.fields[self._egress_spec]
        if packet.clone_session is not None:
            session, fields = packet.clone_session, packet.clone_list
            packet.clone_session = None
            if session in self.mirrors:
                clone = self._fresh(packet, length_bytes)
                clone.fields[self._port_in] = ingress_port
                self._parse(clone)
                self._carry(packet, clone, fields, INGRESS_CLONE)
                queued += self._mirrored(clone, session)
        if packet.resubmit_list:
            again = self._fresh(packet, length_bytes)
            self._carry(packet, again, packet.resubmit_list, RESUBMITTED)
            again.fields[self._length] = length_bytes
            return again
        group = packet.fields[self._group.slot] if self._group is not None else 0
        if group:
            packet.fields[self._instance_type] = REPLICATED
            queued += self._replicated(packet, group)
        elif egress_spec != DROP_PORT:
            packet.fields[self._instance_type] = NORMAL
            queued.append(self._queue(packet, egress_spec))
        return None

    def _parse(self, packet: Packet) -> None:
        error = self._parser.parse(packet)
        if self._parser_error is not None:
            packet.fields[self._parser_error.slot] = error
        if self._checksum_error is not None:
            packet.fields[self._checksum_error.slot] = int(packet.checksum_error)

    def _fresh(self, packet: Packet, length_bytes: int) -> Packet:
        """The packet as it came in."""
        fresh = Packet(self._layout, packet.original)
        fresh.ingress_bytes = packet.ingress_bytes
        fresh.length_bytes = length_bytes
        fresh.handle = packet.handle
        return fresh

    def _carry(self, source: Packet, target: Packet, fields: int, instance_type: int) -> None:
        """Metadata of a copy: nothing but what the program's field list keeps."""
        target.reset_metadata()
        for header, name in self._field_lists.get(fields, ()):
            slot = self._layout.field(header, name).slot
            target.fields[slot] = source.fields[slot]
        target.fields[self._instance_type] = instance_type

    # ---- queues ----

    def _queue(self, packet: Packet, port: int) -> Queued:
        return Queued(port, packet.fields[self._priority.slot] if self._priority is not None else 0, packet)

    def _replicated(self, packet: Packet, group: int) -> Iterable[Queued]:
        for replica in self.groups.get(group, ()):
            if self._instance is not None:
                packet.fields[self._instance.slot] = replica.instance
            yield self._queue(packet.copy(), replica.port)

    def _mirrored(self, packet: Packet, session: int) -> Iterable[Queued]:
        target = self.mirrors[session]
        if isinstance(target, Replica):
            yield self._queue(packet, target.port)
        else:
            yield from self._replicated(packet, target)

    # ---- egress ----

    def egress(self, queued: Queued, depths: Depths = Depths()) -> Left:
        """From the queue to the wire: egress control, checksums, deparser, and what the program asks for."""
        packet = queued.packet
        if self._time_out is not None:
            packet.fields[self._time_out.slot] = self._time_out.wrap(depths.dequeued_us)
        told = (
            depths.enqueued_us,
            depths.at_enqueue,
            depths.dequeued_us - depths.enqueued_us,
            depths.at_dequeue,
        )
        for found, value in zip(self._queueing, told, strict=True):
            if found is not None:
                packet.fields[found.slot] = found.wrap(value)
        packet.fields[self._port_out] = queued.port
        packet.fields[self._egress_spec] = (DROP_PORT + 1) & 0x1FF
        packet.fields[self._length] = packet.length_bytes
        hook = self.before["egress"]
        if hook is not None:
            hook(packet)
        self.controls["egress"].run(packet)
        left = Left()
        if packet.clone_session is not None:
            session, fields = packet.clone_session, packet.clone_list
            packet.clone_session = None
            if session in self.mirrors:
                clone = packet.copy()
                self._carry(packet, clone, fields, EGRESS_CLONE)
                left.queued += self._mirrored(clone, session)
        if packet.fields[self._egress_spec] == DROP_PORT:
            return left
        data = self._deparser.deparse(packet)
        if packet.recirculate_list:
            again = Packet(self._layout, data)
            again.handle = packet.handle
            self._carry(packet, again, packet.recirculate_list, RECIRCULATED)
            again.fields[self._length] = len(data)
            left.recirculated = again
        else:
            left.sent = (queued.port, data)
        return left
