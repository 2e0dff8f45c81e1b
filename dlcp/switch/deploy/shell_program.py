"""Run under a Python that has p4runtime-shell: carries out requests from standard input, one JSON object per line.

A process per switch, since the shell has one global client, and a Python of its own, since its pins (protobuf below
3.21) contradict those of everything else here. So this file uses nothing of dlcp and is never imported by it.
Each line is answered by one line: {"ok": …}, or {"error": …} with the name of a gRPC status where there is one. The
shell ends the process on some errors (sys.exit) and breaks on others (AttributeError in its own message): both are
answered as errors. Bounds on time are the caller's, who ends this process.
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
    """An error to be answered: name of a gRPC status or "", details, index of the update that failed."""

    def __init__(self, code: str, details: str, index: int | None = None) -> None:
        super().__init__(details)
        self.answer = {"code": code, "details": details, "index": index}


class LastWords(logging.Handler):
    """What the shell logs before it ends the process."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(record.getMessage())


class Worker:
    """The shell, and the switch that it talks to."""

    def __init__(self, last_words: LastWords) -> None:
        import p4runtime_sh.shell as sh
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

        self.sh, self.p4r, self.client_class = sh, p4r, Client
        self.last_words = last_words
        self.address, self.device_id = "", 0
        self.named = False  # whether the shell knows the names of the pipeline

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
        try:
            self.sh.client = self.client_class(
                self.device_id, self.address, (election_id >> 64, election_id & LOW_64)
            )
        except SystemExit:
            # The shell has said why in its log: that of the stream is the reason, "Failed to …" what follows from it.
            words = [word for word in self.last_words.words if word.startswith("P4Runtime RPC error")]
            raise (Refused(*rpc_error(words[-1])) if words else Refused("DEADLINE_EXCEEDED", "")) from None
        arbitration = self.sh.client.heard.arbitration
        primary = arbitration.election_id
        return {"code": arbitration.status.code, "election_id": primary.high << 64 | primary.low}

    def do_end(self) -> None:
        """Ends the client, if there is one."""
        client, self.sh.client = self.sh.client, None
        if client is not None:
            client.stream.cancel()  # else the shell waits for a switch that may not answer
            client.tear_down()

    def client(self) -> Any:
        """The shell's client; makes one that claims nothing if there is none."""
        if self.sh.client is None:
            self.do_arbitrate(0)
        return self.sh.client

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
        self.named = False
        client.stub.SetForwardingPipelineConfig(request)

    def do_read(self, entities: list[str]) -> list[str]:
        """What the switch answers to each of these entities."""
        found = []
        for entity in entities:
            message = self.p4r.Entity.FromString(base64.b64decode(entity))
            for part in self.client().read_one(message):
                found += [text(e.SerializeToString(deterministic=True)) for e in part.entities]
        return found

    def do_write(self, updates: list[dict[str, Any]]) -> None:
        """Entries by name, as one would type them into the shell."""
        if not self.named:
            self.sh.context.set_p4info(self.client().get_p4info())
            self.named = True
        for index, update in enumerate(updates):
            try:
                getattr(self.entity(**update["entry"]), update["kind"])()
            except Exception as error:
                raise refused(error, index) from None

    def entity(
        self,
        table: str = "",
        match: dict[str, str] | None = None,
        action: str = "",
        params: dict[str, str] | None = None,
        priority: int = 0,
        default: bool = False,
        group: int = 0,
        ports: list[int] | None = None,
    ) -> Any:
        """The shell's object for an entry."""
        if not table:
            multicast = self.sh.MulticastGroupEntry(group)
            for port in ports or []:
                multicast.add(port, 1)
            return multicast
        entry = self.sh.TableEntry(table)(action=action)
        for name, value in (match or {}).items():
            entry.match[name] = value
        for name, value in (params or {}).items():
            entry.action[name] = value
        entry.priority = priority
        entry.is_default = default
        return entry

    def do_write_raw(self, updates: list[str]) -> None:
        """Updates as messages: what another program's pipeline held."""
        for index, update in enumerate(updates):
            try:
                self.client().write_update(self.p4r.Update.FromString(base64.b64decode(update)))
            except Exception as error:
                raise refused(error, index) from None


def text(data: bytes) -> str:
    """Bytes in JSON."""
    return base64.b64encode(data).decode()


def refused(error: Exception, index: int | None = None) -> Refused:
    """What is answered for an exception of the shell, of gRPC, or of a fault in the shell."""
    inner = getattr(error, "grpc_error", error)
    if hasattr(inner, "code") and hasattr(inner, "details"):
        return Refused(inner.code().name, inner.details() or "", index)
    if failures := getattr(error, "errors", None):
        import google.rpc.code_pb2 as rpc_code

        _, failure = failures[0]
        name = rpc_code.Code.Name(failure.canonical_code)
        return Refused("UNKNOWN", f"{name}: {failure.message}" if failure.message else name, index)
    return Refused("", f"{type(error).__name__}: {error}", index)


def rpc_error(words: str) -> tuple[str, str]:
    """Status and details of the sentence that the shell logs: "P4Runtime RPC error (NAME): details"."""
    name, _, details = words.partition("(")[2].partition("): ")
    return name, details


def main() -> int:
    """Answers requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the shell prints: not between our lines

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    last_words = LastWords()
    logging.getLogger().handlers[:] = [last_words]
    try:
        worker = Worker(last_words)
    except ImportError as error:
        answer({"error": {"code": "IMPORT", "details": str(error), "index": None}})
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
    os._exit(status)  # threads of the shell's client may still wait for a switch
