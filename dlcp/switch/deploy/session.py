"""A conversation with one P4Runtime switch: who is primary, what it holds, what to write.

`Session` is what a deployment needs of any client; `GrpcSession` is ours. It is a plain synchronous client on finsy's
messages and stubs: finsy's own Switch takes primacy as it connects, loads the pipeline when it likes and owns an event
loop, while a deployment over many switches stands or falls with the order of these steps and with a bound on each.

Bounds: every request ends after `timeout_s` with SwitchTimeoutError. Nothing is repeated by itself. Primacy ends with
the session. Errors name switch and address.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

# What gRPC's C core says on standard error about connections, errors of ours say once, with a name.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from dlcp.switch.deploy.codec import decode, encode
from dlcp.switch.deploy.errors import (
    DeployError,
    OtherPrimaryError,
    SwitchRefusedError,
    SwitchTimeoutError,
    UnreachableError,
)
from dlcp.switch.deploy.pipeline import Pipeline, Schema
from dlcp.switch.deploy.update import Kind, Update
from dlcp.switch.entries import Entry
from dlcp.switch.topology import MAX_ELECTION_ID, SwitchTarget

MAX_MESSAGE_BYTES = 64 * 2**20  # a pipeline is one message; gRPC's own limit is 4 MiB
BATCH_UPDATES = 100  # per Write, so that a stop is heard of and an answer stays short
BACKUP_ELECTION_ID = 0  # outranks nobody: P4Runtime 1.3, 5.2

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Primacy:
    """What a switch answers to an arbitration request."""

    is_ours: bool
    election_id: int
    """Of the primary, or if there is none, the highest that was ever seen, as far as the switch says."""
    has_primary: bool


class Session(Protocol):
    """What a deployment needs of a client. All methods raise DeployError."""

    def primary(self) -> int | None:
        """Election id of a live primary other than this session; None if there is none. Takes nothing from anybody."""

    def become_primary(self, take_over: bool = False, own: int | None = None) -> int:
        """OtherPrimaryError if there is a live one, unless it may be taken over. Answers the election id.

        `own`: the id of an earlier session of ours, which the switch may not have seen end.
        """

    def pipeline(self) -> Pipeline | None:
        """What the switch runs; None if nothing was pushed yet."""

    def set_pipeline(self, pipeline: Pipeline) -> None:
        """Pushes a pipeline. All entries are gone then."""

    def read(self, schema: Schema) -> list[Entry]:
        """All entries, default actions and multicast groups of the pipeline."""

    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        """Carries the updates out, in this order. What came before one that fails is done."""

    def counters(self, schema: Schema, name: str) -> dict[int, tuple[int, int]]:
        """Index → packets and bytes, of what has counted anything."""

    def read_all(self) -> list[bytes]:
        """All that can be read of whatever pipeline, as serialised entities: to put it back."""

    def restore(self, entities: Sequence[bytes]) -> None:
        """Writes what `read_all` gave, after `set_pipeline`."""

    def close(self) -> None:
        """Ends it, and primacy with it. Never raises."""


class GrpcSession:
    """A Session over gRPC. Connects at the first request. Used by one thread at a time."""

    def __init__(self, target: SwitchTarget, timeout_s: float = 10.0) -> None:
        self.target = target
        self.timeout_s = timeout_s
        self._election_id = BACKUP_ELECTION_ID
        self._stream: _Stream | None = None
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),  # switches are on the spot, whatever the site's proxy is
        ]
        self._channel = grpc.insecure_channel(target.address, options=options)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)

    # ---- who is primary ----

    def primary(self) -> int | None:
        """As of Session."""
        answer = self._arbitrate(BACKUP_ELECTION_ID)
        self._end_stream()
        return answer.election_id if answer.has_primary and not answer.is_ours else None

    def become_primary(self, take_over: bool = False, own: int | None = None) -> int:
        """As of Session."""
        asked = self._arbitrate(BACKUP_ELECTION_ID)
        self._end_stream()
        # If somebody was there and has gone, the highest id that was ever seen is the least that will do (5.3).
        least = 0 if asked.is_ours else asked.election_id + asked.has_primary
        take_over = take_over or (own is not None and asked.election_id == own)
        if asked.has_primary and not asked.is_ours and not take_over:
            raise self._other_primary(asked.election_id)
        for _ in range(3):  # others may come meanwhile
            wish = max(self.target.election_id, least)
            if wish > MAX_ELECTION_ID:
                raise self._other_primary(asked.election_id)
            answer = self._arbitrate(wish)
            if answer.is_ours:
                self._election_id = wish
                return wish
            self._end_stream()
            if answer.has_primary and not take_over:
                raise self._other_primary(answer.election_id)
            least = answer.election_id + answer.has_primary
        raise self._other_primary(least - 1)

    def _other_primary(self, election_id: int) -> OtherPrimaryError:
        return OtherPrimaryError(
            f"{self._where}: another controller is connected and primary, with election id {election_id}; nothing "
            "is taken from it. Disconnect it, or say --take-over"
        )

    def _arbitrate(self, election_id: int) -> Primacy:
        """A stream of its own per election id: BMv2's server ends when a stream takes an id that another one has."""
        self._stream = _Stream(self._stub)
        try:
            answer = self._stream.arbitrate(self.target.device_id, election_id, self.timeout_s)
        except queue.Empty:
            self._end_stream()
            raise self._late("asked who is primary") from None
        except grpc.RpcError as error:
            self._end_stream()
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise OtherPrimaryError(
                    f"{self._where}: another controller has the election id {election_id} ({error.details()}); "
                    "give the switch another election_id in the topology"
                ) from None
            raise self._named(error, "asked who is primary") from None
        return answer

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # ---- pipelines ----

    def pipeline(self) -> Pipeline | None:
        """As of Session."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self.target.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.ALL
        )
        try:
            answer = self._stub.GetForwardingPipelineConfig(request, timeout=self.timeout_s)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:  # P4Runtime 1.3, 14: nothing was set yet
                return None
            raise self._named(error, "asked for its pipeline") from None
        config = answer.config
        if not config.p4_device_config and not config.p4info.tables:
            return None
        p4info = config.p4info.SerializeToString(deterministic=True)
        return Pipeline(p4info, config.p4_device_config, config.cookie.cookie)

    def set_pipeline(self, pipeline: Pipeline) -> None:
        """As of Session."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.target.device_id,
            election_id=_uint128(self._election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        request.config.p4info.ParseFromString(pipeline.p4info)
        request.config.p4_device_config = pipeline.device_config
        request.config.cookie.cookie = pipeline.cookie
        self._call("given its pipeline", self._stub.SetForwardingPipelineConfig, request)

    # ---- entries ----

    def read(self, schema: Schema) -> list[Entry]:
        """As of Session."""
        entries = [decode(entity, schema) for entity in self._read(_all_of(schema))]
        return [entry for entry in entries if entry is not None]

    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        """As of Session."""
        messages = [
            p4r.Update(type=_TYPES[update.kind], entity=encode(update.entry, schema)) for update in updates
        ]
        self._write(messages, [str(update) for update in updates])

    def counters(self, schema: Schema, name: str) -> dict[int, tuple[int, int]]:
        """As of Session."""
        counter = schema.counters[name]
        entity = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=counter.id))
        found = [e.counter_entry for e in self._read([entity])]
        return {
            e.index.index: (e.data.packet_count, e.data.byte_count)
            for e in found
            if e.data.packet_count or e.data.byte_count
        }

    def read_all(self) -> list[bytes]:
        """As of Session. What a switch does not offer to read cannot have been written to it over P4Runtime either."""
        pipeline = self.pipeline()
        if pipeline is None:
            return []
        entities = []
        for wish in [*_all_of(pipeline.schema), *_ALL_OTHER]:
            with contextlib.suppress(_NotOfferedError):
                entities += self._read([wish])
        return [entity.SerializeToString(deterministic=True) for entity in entities]

    def restore(self, entities: Sequence[bytes]) -> None:
        """As of Session."""
        messages = [p4r.Entity.FromString(entity) for entity in entities]
        # What others refer to goes first: members, then groups of them, then tables.
        messages.sort(key=lambda e: _RESTORE_ORDER.index(e.WhichOneof("entity") or ""))
        updates = []
        for entity in messages:
            is_default = entity.HasField("table_entry") and entity.table_entry.is_default_action
            updates.append(
                p4r.Update(type=p4r.Update.MODIFY if is_default else p4r.Update.INSERT, entity=entity)
            )
        self._write(updates, [str(update.entity.WhichOneof("entity")) for update in updates])

    def _read(self, entities: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self.target.device_id, entities=entities)

        def collect(message: p4r.ReadRequest, timeout: float) -> list[p4r.Entity]:
            return [e for part in self._stub.Read(message, timeout=timeout) for e in part.entities]

        return self._call("read", collect, request)

    def _write(self, updates: Sequence[p4r.Update], names: Sequence[str]) -> None:
        for start in range(0, len(updates), BATCH_UPDATES):
            request = p4r.WriteRequest(
                device_id=self.target.device_id,
                election_id=_uint128(self._election_id),
                updates=updates[start : start + BATCH_UPDATES],
            )
            try:
                self._stub.Write(request, timeout=self.timeout_s)
            except grpc.RpcError as error:
                refused = [(names[start + i], text) for i, text in _failed_updates(error)]
                if refused:
                    name, text = refused[0]
                    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
                    raise SwitchRefusedError(f"{self._where} refuses to {name}: {text}{more}") from None
                raise self._named(error, "written to") from None

    def close(self) -> None:
        """As of Session."""
        self._end_stream()
        self._channel.close()

    # ---- errors ----

    @property
    def _where(self) -> str:
        return f"{self.target.name} ({self.target.address})"

    def _call(self, what: str, method: Callable[..., Answer], request: Any) -> Answer:
        try:
            return method(request, timeout=self.timeout_s)
        except grpc.RpcError as error:
            raise self._named(error, what) from None

    def _late(self, what: str) -> SwitchTimeoutError:
        return SwitchTimeoutError(
            f"{self._where} does not answer within {self.timeout_s:g} s, {what}; look whether it is up and reachable, "
            "or give it more time with --timeout"
        )

    def _named(self, error: Any, what: str) -> DeployError:
        """The error of dlcp for one of gRPC."""
        code, details = error.code(), " ".join((error.details() or "").split())
        match code:
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return self._late(what)
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
                return UnreachableError(
                    f"{self._where} cannot be reached when {what}: {details or code.name}; look at the address, and "
                    "whether its P4Runtime server runs"
                )
            case grpc.StatusCode.PERMISSION_DENIED:
                latest = self._stream.latest if self._stream is not None else None
                who = "" if latest is None else f", with election id {latest.election_id}"
                return OtherPrimaryError(
                    f"{self._where}: another controller has become primary{who}; deploy again when it is done"
                )
            case grpc.StatusCode.UNIMPLEMENTED:
                return _NotOfferedError(f"{self._where} does not offer to be {what}: {details or code.name}")
            case grpc.StatusCode.NOT_FOUND:
                text = f"{self._where}, {what}: {details or code.name}; is device_id {self.target.device_id} right?"
                return SwitchRefusedError(text)
        return SwitchRefusedError(f"{self._where}, {what}: {code.name}: {details}")


class _NotOfferedError(SwitchRefusedError):
    """The switch does not implement a request."""


class _Stream:
    """The stream of one election id: as long as it is open, the switch takes us into account."""

    def __init__(self, stub: p4r_grpc.P4RuntimeStub) -> None:
        self.latest: Primacy | None = None
        self._requests: queue.Queue[p4r.StreamMessageRequest | None] = queue.Queue()
        self._answers: queue.Queue[Primacy | grpc.RpcError] = queue.Queue()
        self._call: Any = stub.StreamChannel(iter(self._requests.get, None))
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def arbitrate(self, device_id: int, election_id: int, timeout_s: float) -> Primacy:
        """The switch's first answer. Raises queue.Empty when it does not come in time, and RpcError."""
        update = p4r.MasterArbitrationUpdate(device_id=device_id, election_id=_uint128(election_id))
        self._requests.put(p4r.StreamMessageRequest(arbitration=update))
        answer = self._answers.get(timeout=timeout_s)
        if isinstance(answer, grpc.RpcError):
            raise answer
        return answer

    def _listen(self) -> None:
        try:
            for message in self._call:
                if message.HasField("arbitration"):
                    self.latest = _primacy(message.arbitration)
                    self._answers.put(self.latest)
            self._answers.put(_EndedError())
        except grpc.RpcError as error:
            self._answers.put(error)

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._thread.join(timeout=5)


class _EndedError(grpc.RpcError):  # type: ignore[misc]
    """The switch has ended the stream without a word."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "it ended the stream"


def _primacy(message: p4r.MasterArbitrationUpdate) -> Primacy:
    """P4Runtime 1.3, 5.3: OK to the primary, ALREADY_EXISTS to others, NOT_FOUND if there is none."""
    code = message.status.code
    election_id = message.election_id.high << 64 | message.election_id.low
    return Primacy(code == rpc_code.OK, election_id, code != rpc_code.NOT_FOUND)


def _uint128(value: int) -> p4r.Uint128:
    return p4r.Uint128(high=value >> 64, low=value & 2**64 - 1)


def _all_of(schema: Schema) -> list[p4r.Entity]:
    """Requests for all that entries can be: of every table, its default action, and multicast groups."""
    wishes = []
    for table in schema.tables.values():
        wishes.append(p4r.Entity(table_entry=p4r.TableEntry(table_id=table.id)))
        if not table.has_const_default:
            default = p4r.TableEntry(table_id=table.id, is_default_action=True)
            wishes.append(p4r.Entity(table_entry=default))
    group = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
    wishes.append(p4r.Entity(packet_replication_engine_entry=group))
    return wishes


_ALL_OTHER = [
    p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
    p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
    p4r.Entity(
        packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
            clone_session_entry=p4r.CloneSessionEntry()
        )
    ),
]
_RESTORE_ORDER = (
    "action_profile_member",
    "action_profile_group",
    "packet_replication_engine_entry",
    "table_entry",
)
_TYPES = {Kind.insert: p4r.Update.INSERT, Kind.modify: p4r.Update.MODIFY, Kind.delete: p4r.Update.DELETE}


def _failed_updates(error: Any) -> Iterator[tuple[int, str]]:
    """Which updates of a batch failed, and why: P4Runtime 1.3, 12.3, an Error per update in the status' details."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            with contextlib.suppress(Exception):  # a server's malformed details are no details
                for index, detail in enumerate(rpc_status.Status.FromString(value).details):
                    one = p4r.Error()
                    if detail.Unpack(one) and one.canonical_code != rpc_code.OK:
                        name = rpc_code.Code.Name(one.canonical_code)
                        yield index, f"{name}: {one.message}" if one.message else name
