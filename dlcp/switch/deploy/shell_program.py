"""Run under a Python that has p4runtime-shell: carries out requests from standard input, one JSON object per line.

The shell's pins (protobuf below 3.21) contradict those of everything else here, so it has a Python of its own. This
file uses nothing of dlcp and is never imported by it. The shell's client connects, arbitrates, reads and writes;
entries come as P4Runtime messages, which are the same in every version.

Each line is answered by one line: {"ok": …}, or {"error": …} with the name of a gRPC status where there is one. The
client ends the process on some errors (sys.exit); that is answered as an error too. The caller bounds the time of a
request, and ends this process if it takes longer.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
from typing import Any

LOW_64 = 2**64 - 1


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault
    """An error to be answered: name of a gRPC status or "", and details."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.answer = {"code": code, "details": details}


class LastWords(logging.Handler):
    """What the client logs before it ends the process."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(record.getMessage())


class Worker:
    """The shell's client, and the switch that it talks to."""

    def __init__(self, last_words: LastWords) -> None:
        from p4.v1 import p4runtime_pb2 as p4r
        from p4runtime_sh.p4runtime import P4RuntimeClient

        class Client(P4RuntimeClient):  # type: ignore[misc]
            """The shell's client; keeps the answer to its arbitration request, which it would only print."""

            heard: Any = None
            wait_s = 2.0

            def get_stream_packet(self, type_: str, timeout: float = 1) -> Any:
                packet = super().get_stream_packet(type_, max(timeout, self.wait_s))
                if type_ == "arbitration":
                    self.heard = packet
                return packet

        self.p4r, self.client_class = p4r, Client
        self.connected: Client | None = None
        self.last_words = last_words
        self.address, self.device_id = "", 0

    def do(self, request: dict[str, Any]) -> Any:
        """Carries a request out; Refused if that fails."""
        method = getattr(self, "do_" + request.pop("do"))
        self.last_words.words.clear()
        try:
            return method(**request)
        except Refused:
            raise
        except SystemExit:
            raise Refused("", "; ".join(self.last_words.words) or "p4runtime-shell gave up") from None
        except Exception as error:
            raise refused(error) from None

    def do_open(self, address: str, device_id: int, timeout_s: float) -> None:
        """Says which switch; nothing is connected yet."""
        self.address, self.device_id = address, device_id
        self.client_class.wait_s = timeout_s

    def do_arbitrate(self, election_id: int) -> dict[str, int]:
        """A new client, as the shell makes it, with this election id; what the switch answered."""
        self.do_end()
        halves = (election_id >> 64, election_id & LOW_64)
        try:
            self.connected = self.client_class(self.device_id, self.address, halves)
        except SystemExit:
            # The client has said why in its log: that of the stream is the reason, "Failed to …" what follows from it.
            words = [word for word in self.last_words.words if word.startswith("P4Runtime RPC error")]
            raise (Refused(*rpc_error(words[-1])) if words else Refused("DEADLINE_EXCEEDED", "")) from None
        arbitration = self.connected.heard.arbitration
        primary = arbitration.election_id
        return {"code": arbitration.status.code, "election_id": primary.high << 64 | primary.low}

    def do_end(self) -> None:
        """Ends the client, if there is one."""
        client, self.connected = self.connected, None
        if client is not None:
            client.stream.cancel()  # else it waits for a switch that may not answer
            client.tear_down()

    def client(self) -> Any:
        """The client; the session sees to it that there is one."""
        assert self.connected is not None
        return self.connected

    def do_pipeline(self) -> dict[str, Any] | None:
        """What the switch runs."""
        request = self.p4r.GetForwardingPipelineConfigRequest(device_id=self.device_id)
        config = self.client().stub.GetForwardingPipelineConfig(request).config
        if not config.p4_device_config and not config.p4info.tables:
            return None
        return {
            "p4info": text(config.p4info.SerializeToString(deterministic=True)),
            "device_config": text(config.p4_device_config),
            "cookie": config.cookie.cookie,
        }

    def do_set_pipeline(self, p4info: str, device_config: str, cookie: int) -> None:
        """As the shell's set_fwd_pipe_config, which takes files and knows no cookie."""
        client = self.client()
        request = self.p4r.SetForwardingPipelineConfigRequest(device_id=self.device_id)
        request.election_id.high, request.election_id.low = client.election_id
        request.action = self.p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.config.p4info.ParseFromString(base64.b64decode(p4info))
        request.config.p4_device_config = base64.b64decode(device_config)
        request.config.cookie.cookie = cookie
        client.stub.SetForwardingPipelineConfig(request)

    def do_read(self, entities: list[str]) -> list[str]:
        """What the switch answers to each of these entities."""
        found = []
        for entity in entities:
            message = self.p4r.Entity.FromString(base64.b64decode(entity))
            for part in self.client().read_one(message):
                found += [text(e.SerializeToString(deterministic=True)) for e in part.entities]
        return found

    def do_write(self, update: str) -> None:
        """One update, as a message."""
        self.client().write_update(self.p4r.Update.FromString(base64.b64decode(update)))


def text(data: bytes) -> str:
    """Bytes in JSON."""
    return base64.b64encode(data).decode()


def refused(error: Exception) -> Refused:
    """The answer for an exception of the client, of gRPC, or of a fault in the client."""
    inner = getattr(error, "grpc_error", error)
    if hasattr(inner, "code") and hasattr(inner, "details"):
        return Refused(inner.code().name, inner.details() or "")
    if failures := getattr(error, "errors", None):
        import google.rpc.code_pb2 as rpc_code

        _, failure = failures[0]
        name = rpc_code.Code.Name(failure.canonical_code)
        return Refused("UNKNOWN", f"{name}: {failure.message}" if failure.message else name)
    return Refused("", f"{type(error).__name__}: {error}")


def rpc_error(words: str) -> tuple[str, str]:
    """Status and details of the sentence that the client logs: "P4Runtime RPC error (NAME): details"."""
    name, _, details = words.partition("(")[2].partition("): ")
    return name, details


def main() -> int:
    """Answers requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the client prints: not between our lines

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    last_words = LastWords()
    logging.getLogger().handlers[:] = [last_words]
    try:
        worker = Worker(last_words)
    except ImportError as error:
        answer({"error": {"code": "IMPORT", "details": str(error)}})
        return 1
    answer({"ok": None})
    for line in sys.stdin:
        try:
            answer({"ok": worker.do(json.loads(line))})
        except Refused as error:
            answer({"error": error.answer})
    worker.do_end()
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # threads of the client may still wait for a switch
