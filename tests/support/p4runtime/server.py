"""The gRPC service: streams, who may write, and one device behind a lock.

A server is a context manager on a free loopback port, and several can run in a process. Its threads only ever touch the
device under `lock`, which a test takes too when it sends packets (`process` does).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from finsy.proto import U128, p4r, p4r_grpc

from tests.support.bmv2 import Program

from .arbitration import Arbitration, Controller
from .device import Device
from .faults import Dropped, Faults
from .status import (
    DETAILS_KEY,
    FAILED_PRECONDITION,
    GRPC_CODES,
    NOT_FOUND,
    PERMISSION_DENIED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
    Refused,
    batch_details,
)

API_VERSION = "1.4.1"
_MOST_THREADS = 40  # each open stream holds one
_READ_AT_ONCE = 256  # entities per response


class P4RuntimeServer:
    """A device that speaks P4Runtime.

    `with P4RuntimeServer(device_id=1) as server:` serves at `server.address`. `server.program` is what packets meet.
    """

    def __init__(self, device_id: int = 1, seed: int = 0) -> None:
        self.device_id = device_id
        self.faults = Faults()
        self.lock = threading.RLock()
        self.writes = 0  # Write requests that were let in
        self.pushes = 0  # SetForwardingPipelineConfig requests that were let in
        self._device = Device(self.faults, seed)
        self._arbitration = Arbitration(device_id)
        self._streams: list[_Stream] = []
        self._server: grpc.Server | None = None
        self._port = 0

    # ---- life ----

    def __enter__(self) -> P4RuntimeServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Serves; after a `stop` at the same port, with the state it had, as a switch whose agent restarts."""
        # No port sharing: of two servers the second is to fail, not to take half of the calls.
        server = grpc.server(
            futures.ThreadPoolExecutor(_MOST_THREADS),
            options=[("grpc.so_reuseport", 0)],
            maximum_concurrent_rpcs=None,
        )
        p4r_grpc.add_P4RuntimeServicer_to_server(_Service(self), server)
        self._port = server.add_insecure_port(f"127.0.0.1:{self._port}")
        server.start()
        self._server = server

    def stop(self) -> None:
        """Ends all calls and streams at once."""
        if self._server is not None:
            self.faults.release()
            self.drop_connections()
            self._server.stop(grace=None).wait()
            self._server = None
        with self.lock:
            self._arbitration = Arbitration(self.device_id)

    def drop_connections(self) -> None:
        """All streams end UNAVAILABLE, as if the network had cut them."""
        with self.lock:
            for stream in self._streams.copy():
                stream.end(Refused(UNAVAILABLE, "told to drop the connection"))

    # ---- the device, for tests ----

    @property
    def program(self) -> Program:
        """The program that packets meet, with its state. Take `lock` while a client may be writing."""
        if self._device.running is None:
            raise Refused(FAILED_PRECONDITION, "no forwarding pipeline has been committed")
        return self._device.running.program

    def process(self, data: bytes, port: int) -> list[tuple[int, bytes]]:
        """A packet through the whole switch: port and bytes of all that leaves."""
        with self.lock:
            return self.program.process(data, port)

    def hold(self, config: p4r.ForwardingPipelineConfig) -> None:
        """The switch runs this pipeline before anybody connects."""
        with self.lock:
            self._device.set_pipeline(p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config)

    def occupy(self, election_id: int) -> Occupant:
        """Another controller is there, with this election id, until its `leave`."""
        return Occupant(self, election_id)

    # ---- for the service ----

    def allow(self, request: Any) -> None:
        """The checks that come before a write or a push."""
        if request.device_id != self.device_id:
            raise Refused(NOT_FOUND, f"no device {request.device_id}")
        if not self._arbitration.knows(request.role):
            raise Refused(NOT_FOUND, f"no role {request.role!r}")
        election_id = U128.decode(request.election_id) if request.HasField("election_id") else None
        if not self._arbitration.is_primary(request.role, election_id):
            raise Refused(PERMISSION_DENIED, f"not primary: election id {election_id}")


class Occupant:
    """A controller without a connection."""

    def __init__(self, server: P4RuntimeServer, election_id: int) -> None:
        self._server = server
        self._controller = Controller(self._hear)
        self.heard: list[p4r.StreamMessageResponse] = []
        with server.lock:
            update = p4r.MasterArbitrationUpdate(
                device_id=server.device_id, election_id=U128.encode(election_id)
            )
            server._arbitration.update(self._controller, update)

    def _hear(self, message: p4r.StreamMessageResponse) -> None:
        self.heard.append(message)

    @property
    def is_primary(self) -> bool:
        """Whether nobody has outbid it."""
        with self._server.lock:
            return self._server._arbitration.owns(self._controller)

    def leave(self) -> None:
        """It goes."""
        with self._server.lock:
            self._server._arbitration.leave(self._controller)


class _Stream:
    """One StreamChannel: what is to be said waits in a queue, so that nobody waits for a slow reader."""

    def __init__(self) -> None:
        self._outgoing: queue.SimpleQueue[p4r.StreamMessageResponse | Refused | None] = queue.SimpleQueue()
        self.controller = Controller(self._outgoing.put)

    def end(self, reason: Refused | None = None) -> None:
        """Ends it, after all that was said before."""
        self._outgoing.put(reason)

    def outgoing(self) -> Iterator[p4r.StreamMessageResponse | Refused]:
        """Until its end."""
        while (message := self._outgoing.get()) is not None:
            yield message


class _Service(p4r_grpc.P4RuntimeServicer):
    """Requests to calls on the device; Refused to gRPC statuses."""

    def __init__(self, owner: P4RuntimeServer) -> None:
        self._owner = owner

    def StreamChannel(  # noqa: N802 - gRPC's name
        self, request_iterator: Iterator[p4r.StreamMessageRequest], context: grpc.ServicerContext
    ) -> Iterator[p4r.StreamMessageResponse]:
        owner, stream = self._owner, _Stream()
        with owner.lock:
            owner._streams.append(stream)
        # The call may end while nothing is said: its end wakes the queue.
        context.add_callback(stream.end)
        reader = threading.Thread(target=self._hear, args=(request_iterator, stream), daemon=True)
        reader.start()
        try:
            for message in stream.outgoing():
                if isinstance(message, Refused):
                    context.abort(GRPC_CODES[message.code], message.message)
                else:
                    yield message
        finally:
            with owner.lock:
                owner._streams.remove(stream)
                owner._arbitration.leave(stream.controller)

    def _hear(self, requests: Iterator[p4r.StreamMessageRequest], stream: _Stream) -> None:
        try:
            for request in requests:
                with self._owner.lock:
                    self._handle(request, stream)
        except Refused as refusal:
            stream.end(refusal)
        except grpc.RpcError:
            stream.end()
        except Exception as error:  # the call was ended under the iterator
            stream.end(Refused(UNKNOWN, repr(error)))
        else:
            stream.end()

    def _handle(self, request: p4r.StreamMessageRequest, stream: _Stream) -> None:
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            self._owner._arbitration.update(stream.controller, request.arbitration)
            return
        error = p4r.StreamError(
            canonical_code=UNIMPLEMENTED, message=f"no {kind} here: the switch has no port for it"
        )
        if stream.controller.device_id is None:
            raise Refused(FAILED_PRECONDITION, "a stream starts with arbitration")
        if not self._owner._arbitration.owns(stream.controller):
            error = p4r.StreamError(canonical_code=PERMISSION_DENIED, message="not primary")
        if kind == "packet":
            error.packet_out.packet_out.CopyFrom(request.packet)
        elif kind == "digest_ack":
            error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
        stream.controller.send(p4r.StreamMessageResponse(error=error))

    def Write(self, request: p4r.WriteRequest, context: grpc.ServicerContext) -> p4r.WriteResponse:  # noqa: N802
        owner = self._owner
        try:
            with owner.lock:
                owner.allow(request)
                _ = owner._device.pipeline
            if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                raise Refused(UNIMPLEMENTED, "only CONTINUE_ON_ERROR")
            results: list[Refused | None] = []
            with owner.lock:
                owner.writes += 1
            for update in request.updates:
                if owner.faults.wants_hang():  # outside the lock: the device itself is well
                    owner.faults.hang()
                    if not context.is_active():
                        context.abort(grpc.StatusCode.CANCELLED, "the client did not wait")
                with owner.lock:
                    results += owner._device.write([update])
        except Refused as refusal:
            context.abort(GRPC_CODES[refusal.code], refusal.message)
        except Dropped:
            owner.drop_connections()
            context.abort(grpc.StatusCode.UNAVAILABLE, "told to drop the connection")
        if any(result is not None for result in results):
            context.set_trailing_metadata(((DETAILS_KEY, batch_details(results)),))
            context.abort(grpc.StatusCode.UNKNOWN, "Write failure.")
        return p4r.WriteResponse()

    def Read(  # noqa: N802
        self, request: p4r.ReadRequest, context: grpc.ServicerContext
    ) -> Iterator[p4r.ReadResponse]:
        owner = self._owner
        try:
            with owner.lock:
                if request.device_id != owner.device_id:
                    raise Refused(NOT_FOUND, f"no device {request.device_id}")
                entities = owner._device.read(request.entities)
        except Refused as refusal:
            context.abort(GRPC_CODES[refusal.code], refusal.message)
        for i in range(0, len(entities), _READ_AT_ONCE):
            yield p4r.ReadResponse(entities=entities[i : i + _READ_AT_ONCE])

    def SetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.SetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4r.SetForwardingPipelineConfigResponse:
        owner = self._owner
        try:
            with owner.lock:
                owner.allow(request)
                owner.pushes += 1
                owner._device.set_pipeline(
                    request.action, request.config if request.HasField("config") else None
                )
        except Refused as refusal:
            context.abort(GRPC_CODES[refusal.code], refusal.message)
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.GetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4r.GetForwardingPipelineConfigResponse:
        owner = self._owner
        try:
            with owner.lock:
                if request.device_id != owner.device_id:
                    raise Refused(NOT_FOUND, f"no device {request.device_id}")
                config = owner._device.get_pipeline(request.response_type)
        except Refused as refusal:
            context.abort(GRPC_CODES[refusal.code], refusal.message)
        return p4r.GetForwardingPipelineConfigResponse(config=config)

    def Capabilities(  # noqa: N802
        self, request: p4r.CapabilitiesRequest, context: grpc.ServicerContext
    ) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)
