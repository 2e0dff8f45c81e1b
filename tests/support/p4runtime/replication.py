"""Multicast groups and clone sessions (specification: PacketReplicationEngineEntry)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from finsy.proto import p4r

from tests.support.bmv2.v1model import Replica

from . import bytestrings
from .pipeline import Pipeline
from .status import ALREADY_EXISTS, INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE, Refused

PORT_BITS = 9  # of v1model
GROUP_BITS = 16
_CLONE_GROUPS = 1 << 15  # as PI: a session's copies are a group of their own
MOST_SESSIONS = 1 << 15


def write(pipeline: Pipeline, kind: int, message: p4r.PacketReplicationEngineEntry) -> None:
    """One update of the replication engine."""
    match message.WhichOneof("type"):
        case "multicast_group_entry":
            _write_group(pipeline, kind, message.multicast_group_entry)
        case "clone_session_entry":
            _write_session(pipeline, kind, message.clone_session_entry)
        case _:
            raise Refused(INVALID_ARGUMENT, "neither group nor session")


def read(pipeline: Pipeline, message: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
    """One group or session, or all of them."""
    match message.WhichOneof("type"):
        case "multicast_group_entry":
            wanted = message.multicast_group_entry.multicast_group_id
            if wanted and wanted not in pipeline.groups:
                raise Refused(NOT_FOUND, f"no multicast group {wanted}")
            for number, group in sorted(pipeline.groups.items()):
                if wanted in (0, number):
                    entity = p4r.Entity()
                    entity.packet_replication_engine_entry.multicast_group_entry.CopyFrom(group)
                    yield entity
        case "clone_session_entry":
            wanted = message.clone_session_entry.session_id
            if wanted and wanted not in pipeline.sessions:
                raise Refused(NOT_FOUND, f"no clone session {wanted}")
            for number, session in sorted(pipeline.sessions.items()):
                if wanted in (0, number):
                    entity = p4r.Entity()
                    entity.packet_replication_engine_entry.clone_session_entry.CopyFrom(session)
                    yield entity
        case _:
            raise Refused(INVALID_ARGUMENT, "neither group nor session")


def _write_group(pipeline: Pipeline, kind: int, message: p4r.MulticastGroupEntry) -> None:
    number = message.multicast_group_id
    if not 0 < number < 1 << GROUP_BITS:
        raise Refused(INVALID_ARGUMENT, f"multicast group {number} of 1 to {(1 << GROUP_BITS) - 1}")
    _exists(kind, number in pipeline.groups, f"multicast group {number}")
    if kind == p4r.Update.DELETE:
        del pipeline.groups[number]
        pipeline.program.model.groups.pop(number, None)
        return
    pipeline.program.model.groups[number] = _replicas(message.replicas)
    pipeline.groups[number] = p4r.MulticastGroupEntry()
    pipeline.groups[number].CopyFrom(message)


def _write_session(pipeline: Pipeline, kind: int, message: p4r.CloneSessionEntry) -> None:
    number = message.session_id
    if not 0 < number < MOST_SESSIONS:
        raise Refused(INVALID_ARGUMENT, f"clone session {number} of 1 to {MOST_SESSIONS - 1}")
    _exists(kind, number in pipeline.sessions, f"clone session {number}")
    model = pipeline.program.model
    if kind == p4r.Update.DELETE:
        del pipeline.sessions[number], model.mirrors[number], model.groups[_CLONE_GROUPS | number]
        return
    if message.packet_length_bytes or message.class_of_service:
        raise Refused(INVALID_ARGUMENT, "clones are neither cut nor classed here")
    model.groups[_CLONE_GROUPS | number] = _replicas(message.replicas)
    model.mirrors[number] = _CLONE_GROUPS | number
    pipeline.sessions[number] = p4r.CloneSessionEntry()
    pipeline.sessions[number].CopyFrom(message)


def _exists(kind: int, there: bool, what: str) -> None:
    if kind == p4r.Update.INSERT and there:
        raise Refused(ALREADY_EXISTS, f"{what} is there")
    if kind != p4r.Update.INSERT and not there:
        raise Refused(NOT_FOUND, f"no {what}")


def _replicas(messages: Sequence[p4r.Replica]) -> list[Replica]:
    replicas = []
    for message in messages:
        if message.WhichOneof("port_kind") == "port":
            port = bytestrings.decode(message.port, PORT_BITS, "port of a replica")
        else:
            port = message.egress_port
        if port >> PORT_BITS:
            raise Refused(OUT_OF_RANGE, f"port {port} of a replica does not fit {PORT_BITS} bits")
        if message.instance >> GROUP_BITS:
            raise Refused(INVALID_ARGUMENT, f"instance {message.instance} does not fit {GROUP_BITS} bits")
        replicas.append(Replica(port, message.instance))
    if len(set(replicas)) != len(replicas):
        raise Refused(INVALID_ARGUMENT, "two replicas are the same")
    return replicas
