"""A Session over plain gRPC, on finsy's messages and stubs.

finsy's own Switch takes primacy as it connects, loads the pipeline when it likes and owns an event loop. A deployment
over many switches stands or falls with the order of these steps and with a bound on each of them. So only finsy's
protocol buffers are used, and the client is synchronous.

Bounds: every request ends after `timeout_s` with SwitchTimeoutError. Nothing is repeated by itself. Primacy ends with
the session. Errors name switch and address.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

# What gRPC's C core would say of connections on standard error, errors of ours say once, with a name.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from dlcp.switch.deploy.codec import encode_update
from dlcp.switch.deploy.errors import DeployError, SwitchRefusedError
from dlcp.switch.deploy.pipeline import Pipeline, Schema
from dlcp.switch.deploy.session import BACKUP_ELECTION_ID, BATCH_UPDATES, Primacy, Session, primacy
from dlcp.switch.deploy.update import Update
from dlcp.switch.topology import SwitchTarget

MAX_MESSAGE_BYTES = 64 * 2**20  # a pipeline is one message; gRPC's own limit is 4 MiB
LEAVE_S = 1.0  # for a switch to notice that a stream has ended
NEW_PRIMARY_S = 1.0  # for the word that another controller is primary now

Answer = TypeVar("Answer")


class GrpcSession(Session):
    """A Session over gRPC. Connects at the first request. Used by one thread at a time."""

    def __init__(self, target: SwitchTarget, timeout_s: float = 10.0) -> None:
        super().__init__(target, timeout_s)
        self._stream: _Stream | None = None
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.enable_retries", 0),
            # A new session does not wait out the pause after an old one's failure.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),  # switches are on the spot, whatever the site's proxy is
        ]
        self._channel = grpc.insecure_channel(target.address, options=options)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)

    # ---- who is primary ----

    def arbitrate(self, election_id: int) -> Primacy:
        """A stream per election id: BMv2's server ends itself when a stream changes to an id that another one has."""
        self._stream = _Stream(self._stub)
        try:
            return self._stream.arbitrate(self.target.device_id, election_id, self.timeout_s)
        except queue.Empty:
            self.end_stream()
            raise self.late("asked who is primary") from None
        except grpc.RpcError as error:
            self.end_stream()
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise self.taken(election_id, error.details()) from None
            raise self._named(error, "asked who is primary") from None

    def end_stream(self) -> None:
        """Ends the stream, if there is one, and waits until the switch has noticed."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # ---- pipelines ----

    def pipeline(self) -> Pipeline | None:
        """What the switch runs; None if nothing was pushed yet."""
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
        """Verifies and commits it, in one request."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.target.device_id,
            election_id=_uint128(self.election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        request.config.p4info.ParseFromString(pipeline.p4info)
        request.config.p4_device_config = pipeline.device_config
        request.config.cookie.cookie = pipeline.cookie
        self._call("given its pipeline", self._stub.SetForwardingPipelineConfig, request)

    # ---- entries ----

    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        """Carries the updates out in batches; an error names those that the switch refuses."""
        messages = [encode_update(update, schema) for update in updates]
        self._write(messages, [str(update) for update in updates])

    def write_messages(self, updates: Sequence[p4r.Update]) -> None:
        """As `write`."""
        self._write(updates, [f"restore a {update.entity.WhichOneof('entity')}" for update in updates])

    def read_entities(self, entities: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        """What the switch answers, in one request."""
        request = p4r.ReadRequest(device_id=self.target.device_id, entities=entities)

        def collect(message: p4r.ReadRequest, timeout: float) -> list[p4r.Entity]:
            return [e for part in self._stub.Read(message, timeout=timeout) for e in part.entities]

        return self._call("read", collect, request)

    def _write(self, updates: Sequence[p4r.Update], names: Sequence[str]) -> None:
        for start in range(0, len(updates), BATCH_UPDATES):
            request = p4r.WriteRequest(
                device_id=self.target.device_id,
                election_id=_uint128(self.election_id),
                updates=updates[start : start + BATCH_UPDATES],
            )
            try:
                self._stub.Write(request, timeout=self.timeout_s)
            except grpc.RpcError as error:
                refused = [(names[start + i], text) for i, text in _failed_updates(error)]
                if refused:
                    name, text = refused[0]
                    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
                    raise SwitchRefusedError(f"{self.target.where} refuses to {name}: {text}{more}") from None
                raise self._named(error, "written to") from None

    def close(self) -> None:
        """Ends stream and connection."""
        self.end_stream()
        self._channel.close()

    # ---- errors ----

    def _call(self, what: str, method: Callable[..., Answer], request: Any) -> Answer:
        try:
            return method(request, timeout=self.timeout_s)
        except grpc.RpcError as error:
            raise self._named(error, what) from None

    def _named(self, error: Any, what: str) -> DeployError:
        """The error of dlcp for one of gRPC."""
        primary = None
        if self._stream is not None and error.code() == grpc.StatusCode.PERMISSION_DENIED:
            primary = self._stream.primary_other_than(self.election_id)
        return self.named_error(error.code().name, error.details() or "", what, primary)


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
        update = p4r.MasterArbitrationUpdate(device_id=device_id)
        if election_id != BACKUP_ELECTION_ID:  # left out it is that of a backup, and no other can have it
            update.election_id.CopyFrom(_uint128(election_id))
        self._requests.put(p4r.StreamMessageRequest(arbitration=update))
        answer = self._answers.get(timeout=timeout_s)
        if isinstance(answer, grpc.RpcError):
            raise answer
        return answer

    def primary_other_than(self, own: int) -> int | None:
        """The primary's election id. A switch that refuses us may say a moment later who took our place."""
        with contextlib.suppress(queue.Empty):
            while self.latest is not None and self.latest.election_id == own:
                self._answers.get(timeout=NEW_PRIMARY_S)
        return None if self.latest is None else self.latest.election_id

    def _listen(self) -> None:
        try:
            for message in self._call:
                if message.HasField("arbitration"):
                    primary = message.arbitration.election_id
                    self.latest = primacy(message.arbitration.status.code, primary.high << 64 | primary.low)
                    self._answers.put(self.latest)
            self._answers.put(_EndedError())
        except grpc.RpcError as error:
            self._answers.put(error)

    def close(self) -> None:
        """Ends it, and waits a moment for the switch's own end: only then has it forgotten our election id."""
        self._requests.put(None)
        if self.latest is not None:  # who has never answered has no election id to forget
            self._thread.join(timeout=LEAVE_S)
        self._call.cancel()


class _EndedError(grpc.RpcError):  # type: ignore[misc]
    """The switch has ended the stream without a word."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "it ended the stream"


def _uint128(value: int) -> p4r.Uint128:
    return p4r.Uint128(high=value >> 64, low=value & 2**64 - 1)


def _failed_updates(error: Any) -> Iterator[tuple[int, str]]:
    """Which updates of a batch failed, and why: P4Runtime 1.3, 12.3, an Error per update in the status' details."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            with contextlib.suppress(Exception):  # a server's malformed details are no details
                for index, detail in enumerate(rpc_status.Status.FromString(value).details):
                    one = p4r.Error()
                    if detail.Unpack(one) and one.canonical_code != rpc_code.OK:
                        name = rpc_code.Code.Name(one.canonical_code)
                        words = " ".join(one.message.split())
                        yield index, f"{name}: {words}" if words else name
