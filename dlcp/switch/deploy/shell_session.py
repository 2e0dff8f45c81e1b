"""A Session that p4runtime-shell leads, in a process and under a Python of its own: `shell_program.py` runs there.

Updates go over one by one, as P4Runtime messages, and so does what is read. Everything that makes a deployment safe is
the transaction's, so it is the same as over gRPC; the shell is slower. A process that does not answer in time is ended,
and what it was asked counts as failed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from finsy.proto import p4r

from dlcp.errors import DriverError
from dlcp.switch.deploy.codec import encode_update
from dlcp.switch.deploy.errors import DeployError, ShellError, SwitchRefusedError
from dlcp.switch.deploy.pipeline import Pipeline, Schema
from dlcp.switch.deploy.session import Primacy, Session, primacy
from dlcp.switch.deploy.update import Update
from dlcp.switch.topology import SwitchTarget

PROGRAM = Path(__file__).with_name("shell_program.py")
START_S = 30.0  # importing gRPC and protobuf from a slow disk
GRACE_S = 1.0  # what a process has left, once the switch has not answered, to say so itself


def check_python(python: Path | None) -> Path:
    """The Python to run the shell under. DriverError says how to make one."""
    how = "make one: python3 -m venv p4shell; p4shell/bin/pip install p4runtime-shell==0.0.6"
    if python is None:
        raise DriverError(f"--via shell needs --shell-python, a Python with p4runtime-shell; {how}")
    if not os.access(python, os.X_OK) or python.is_dir():
        raise DriverError(f"--shell-python is {str(python)!r}, which is no program; {how}")
    return python


class ShellSession(Session):
    """A Session over p4runtime-shell. The process starts at the first request."""

    def __init__(self, target: SwitchTarget, python: Path, timeout_s: float = 10.0) -> None:
        super().__init__(target, timeout_s)
        self._python = python
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the session
        self._lost = ""
        self._has_client = False

    # ---- requests ----

    def arbitrate(self, election_id: int) -> Primacy:
        """The switch's answer to a new client of the shell with this election id."""
        try:
            self._has_client = False
            answer = self._ask("asked who is primary", "arbitrate", election_id=election_id)
        except SwitchRefusedError as error:
            if error.code == "INVALID_ARGUMENT":
                raise self.taken(election_id, "says p4runtime-shell") from None
            raise
        self._has_client = True
        return primacy(answer["code"], answer["election_id"])

    def end_stream(self) -> None:
        """Ends the shell's client; the process stays."""
        if self._process is not None and not self._lost:
            self._has_client = False
            self._ask("left", "end")

    def pipeline(self) -> Pipeline | None:
        """What the switch runs; None if nothing was pushed yet."""
        try:
            answer = self._ask_client("asked for its pipeline", "pipeline")
        except SwitchRefusedError as error:
            if error.code == "FAILED_PRECONDITION":
                return None
            raise
        if answer is None:
            return None
        return Pipeline(_bytes(answer["p4info"]), _bytes(answer["device_config"]), answer["cookie"])

    def set_pipeline(self, pipeline: Pipeline) -> None:
        """Verifies and commits it, in one request."""
        self._ask(
            "given its pipeline",
            "set_pipeline",
            p4info=_text(pipeline.p4info),
            device_config=_text(pipeline.device_config),
            cookie=pipeline.cookie,
        )

    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        """One request per update, so that a time-out is that of one answer of the switch."""
        for update in updates:
            self._write(f"asked to {update}", encode_update(update, schema))

    def write_messages(self, updates: Sequence[p4r.Update]) -> None:
        """As `write`."""
        for update in updates:
            self._write("given back its entries", update)

    def _write(self, what: str, update: p4r.Update) -> None:
        self._ask(what, "write", update=_text(update.SerializeToString()))

    def close(self) -> None:
        """Ends the process, by force if it does not end by itself."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(OSError):
                process.stdin.close()  # which ends the program
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if self._listener is not None:
                self._listener.join()
            process.stdout.close()
        self._errors.close()

    def read_entities(self, entities: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        """What the switch answers; the shell asks for each by itself."""
        body = [_text(entity.SerializeToString()) for entity in entities]
        return [p4r.Entity.FromString(_bytes(e)) for e in self._ask_client("read", "read", entities=body)]

    def _ask_client(self, what: str, do: str, **arguments: Any) -> Any:
        """Asks what needs no election id; opens a stream first, since the shell's client is one."""
        if not self._has_client:
            self.open_stream()
        return self._ask(what, do, **arguments)

    # ---- the process ----

    def _start(self) -> None:
        # Isolated, so that nothing of this environment reaches the other; a session of its own, so that Ctrl-C reaches
        # only the deployment, which then needs the shell to undo.
        self._process = subprocess.Popen(
            [str(self._python), "-I", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listener.start()
        self._answer("started", START_S)
        place = {"address": self.target.address, "device_id": self.target.device_id}
        self._request({"do": "open", **place, "timeout_s": self.timeout_s})
        self._answer("started", START_S)

    def _listen(self, lines: Any) -> None:
        for line in lines:
            self._answers.put(line)
        self._answers.put(None)

    def _ask(self, what: str, do: str, **arguments: Any) -> Any:
        if self._lost:
            raise ShellError(self._lost)
        if self._process is None:
            try:
                self._start()
            except OSError as error:
                raise self._lose(f"{self._python} cannot be started: {error.strerror or error}") from None
        self._request({"do": do, **arguments})
        return self._answer(what, self.timeout_s + GRACE_S)

    def _request(self, request: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # A pipe takes 64 kB at once, a pipeline is more: a process that does not read would be waited for without end.
        watch = threading.Timer(self.timeout_s + GRACE_S, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None
        finally:
            watch.cancel()

    def _answer(self, what: str, timeout_s: float) -> Any:
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            late = self.late(what)
            self._lose(str(late))
            raise late from None
        if line is None:
            raise self._ended()
        try:
            answer = json.loads(line)
            if "error" not in answer:
                return answer["ok"]
            error = answer["error"]
            error["code"], error["details"]
        except (ValueError, TypeError, KeyError):
            said = line.strip()[:80]
            raise self._lose(f"{self._python} is no Python with p4runtime-shell: it says {said!r}") from None
        if error["code"] == "IMPORT":
            raise self._lose(
                f"{self._python} has no p4runtime-shell ({error['details']}): {self._python} -m pip install "
                "p4runtime-shell==0.0.6"
            )
        raise self.named_error(error["code"], error["details"], what)

    def _ended(self) -> DeployError:
        assert self._process is not None
        self._process.kill()
        status = self._process.wait()
        self._errors.seek(0)
        words = self._errors.read().strip().splitlines()
        last = f": {words[-1]}" if words else ""
        return self._lose(f"{self.target.where}: p4runtime-shell ended with status {status}{last}")

    def _lose(self, why: str) -> ShellError:
        """The process is of no use any more."""
        self._lost = why
        if self._process is not None:
            self._process.kill()
        return ShellError(why)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
