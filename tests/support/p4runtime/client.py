"""A P4Runtime controller by hand, for tests that look at codes: one stream, and calls that say who they are.

Waiting for the server ends after a deadline, so that a server that says nothing fails a test and does not hang it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from finsy.proto import U128, p4r, p4r_grpc, rpc_status

from .status import DETAILS_KEY

DEVICE = 1
DEADLINE_S = 10


class Client:
    """A controller by hand: one stream, and calls that say who they are."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.election_id: int | None = None
        self.role = ""
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self._answers = self.stub.StreamChannel(iter(self._requests.get, None))

    def close(self) -> None:
        """The stream's end, awaited."""
        self._requests.put(None)
        self._answers.cancel()
        self.channel.close()

    def claim(
        self, election_id: int | None, device_id: int = DEVICE, role: str | None = None
    ) -> p4r.MasterArbitrationUpdate:
        """What the server answers to an arbitration message."""
        update = p4r.MasterArbitrationUpdate(device_id=device_id)
        if election_id is not None:
            update.election_id.CopyFrom(U128.encode(election_id))
        if role is not None:
            update.role.name = role
        self.election_id, self.role = election_id, role or ""
        self.send(p4r.StreamMessageRequest(arbitration=update))
        return self.hear()

    def send(self, request: p4r.StreamMessageRequest) -> None:
        self._requests.put(request)

    def hear(self) -> p4r.MasterArbitrationUpdate:
        """The next arbitration message."""
        answer = self.hear_any()
        assert answer.HasField("arbitration")
        return answer.arbitration

    def hear_any(self) -> p4r.StreamMessageResponse:
        heard: list[Any] = []

        def listen() -> None:
            try:
                heard.append(next(self._answers))
            except BaseException as error:
                heard.append(error)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        thread.join(DEADLINE_S)
        assert heard, "the server said nothing"
        if isinstance(heard[0], BaseException):
            raise heard[0]
        answer: p4r.StreamMessageResponse = heard[0]
        return answer

    def write(self, *updates: p4r.Update, timeout_s: float = DEADLINE_S, **more: Any) -> None:
        request = p4r.WriteRequest(device_id=DEVICE, role=self.role, updates=updates)
        if self.election_id is not None:
            request.election_id.CopyFrom(U128.encode(self.election_id))
        for name, value in more.items():
            setattr(request, name, value)
        self.stub.Write(request, timeout=timeout_s)

    def read(self, *entities: p4r.Entity, device_id: int = DEVICE) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=device_id, entities=entities)
        return [e for response in self.stub.Read(request, timeout=DEADLINE_S) for e in response.entities]

    def push(self, action: str, made: p4r.ForwardingPipelineConfig | None) -> None:
        request = p4r.SetForwardingPipelineConfigRequest(device_id=DEVICE, role=self.role, config=made)
        request.action = p4r.SetForwardingPipelineConfigRequest.Action.Value(action)
        if self.election_id is not None:
            request.election_id.CopyFrom(U128.encode(self.election_id))
        self.stub.SetForwardingPipelineConfig(request, timeout=DEADLINE_S)

    def get(self, kind: str = "ALL") -> p4r.GetForwardingPipelineConfigResponse:
        request = p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE)
        request.response_type = p4r.GetForwardingPipelineConfigRequest.ResponseType.Value(kind)
        answer: p4r.GetForwardingPipelineConfigResponse = self.stub.GetForwardingPipelineConfig(
            request, timeout=DEADLINE_S
        )
        return answer


def code_of(call: Callable[[], object]) -> str:
    """The name of the gRPC status of a call that is to fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return str(caught.value.code().name)


def update_codes(call: Callable[[], object]) -> list[int]:
    """The canonical code of each update of a write that is to fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() == grpc.StatusCode.UNKNOWN, caught.value
    trailer = dict(caught.value.trailing_metadata())[DETAILS_KEY]
    status = rpc_status.Status.FromString(trailer)
    assert status.code == 2
    errors = []
    for detail in status.details:
        error = p4r.Error()
        assert detail.Unpack(error)
        errors.append(error.canonical_code)
    return errors
