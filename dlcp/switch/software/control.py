"""The control socket of a running switch: JSON lines over a Unix socket, one answer for each request.

A request is `{"do": name, …arguments}`, an answer `{"ok": true, "value": …}` or `{"ok": false, "error": sentence}`.
Whoever can open the socket commands the switch, so only its owner can. A malformed request gets an error as its answer.
The server cuts off a request that exceeds MAX_REQUEST_BYTES, and refuses more than MAX_CLIENTS clients at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from dlcp.errors import AddressError, DlcpError, ResourceError
from dlcp.switch.policy import Policy
from dlcp.switch.software.errors import SwitchError
from dlcp.switch.software.native_jobs import read_jobs
from dlcp.switch.software.switch import SoftwareSwitch

MAX_REQUEST_BYTES = 1 << 20
MAX_CLIENTS = 32


class ControlServer:
    """Serves a switch at `path` inside its `with`, which removes the socket at its end. `stop` sets `stopped`."""

    def __init__(self, switch: SoftwareSwitch, path: Path | str, stopped: threading.Event) -> None:
        self.path = Path(path)
        _clear_stale(self.path)
        commands = _commands(switch)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):
                    while line := self.rfile.readline(MAX_REQUEST_BYTES + 1):
                        answer, is_last = _answer(commands, line)
                        self.wfile.write(answer)
                        if is_last:  # the answer goes first, as the process may end now
                            stopped.set()
                        if is_last or len(line) > MAX_REQUEST_BYTES:
                            return

        mask = os.umask(0o177)
        try:
            self._server = _Server(str(self.path), Handler)
        except OSError as error:
            raise AddressError(f"control socket {self.path}: {error.strerror or error}") from None
        finally:
            os.umask(mask)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="dlcp-switch-control",
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)


class Control:
    """A connection to a running switch; see `connect`. Errors of the switch are SwitchError with its sentence."""

    def __init__(self, connection: socket.socket, path: Path) -> None:
        self._connection = connection
        self._file = connection.makefile("rb")
        self._path = path
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes the connection; the switch goes on."""
        self._file.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def status(self) -> dict[str, Any]:
        """As SoftwareSwitch.status."""
        value: dict[str, Any] = self._ask("status")
        return value

    def set_policy(self, policy: Policy) -> None:
        """Replaces the policy between two packets; queued packets stay."""
        self._ask("set_policy", policy=policy.to_toml())

    def set_jobs(self, jobs: str) -> None:
        """Replaces the jobs that the switch adds for: the text of a file of jobs, ports by name."""
        self._ask("set_jobs", jobs=jobs)

    def set_faults(
        self,
        port: str,
        direction: str = "out",
        *,
        loss_ratio: float = 0.0,
        burst_packets: float = 0.0,
        down: bool = False,
        rate_bps: int = 0,
        seed: int = 0,
    ) -> None:
        """As SoftwareSwitch.set_faults."""
        self._ask(
            "set_faults",
            port=port,
            direction=direction,
            loss_ratio=loss_ratio,
            burst_packets=burst_packets,
            down=down,
            rate_bps=rate_bps,
            seed=seed,
        )

    def clear_faults(self) -> None:
        """Removes the faults of all ports."""
        self._ask("clear_faults")

    def set_link(self, port: str, up: bool) -> None:
        """As SoftwareSwitch.set_link."""
        self._ask("set_link", port=port, up=up)

    def capture(self, port: str, path: str | os.PathLike[str] | None) -> None:
        """As SoftwareSwitch.capture; the file is written by the switch, as it sees the path."""
        self._ask("capture", port=port, path=None if path is None else os.path.abspath(path))  # noqa: PTH100

    def sample(self, interval_s: float) -> None:
        """As SoftwareSwitch.sample."""
        self._ask("sample", interval_s=interval_s)

    def samples(self, since: int = 0) -> list[dict[str, Any]]:
        """All samples from number `since` on that the switch still has."""
        found: list[dict[str, Any]] = []
        while some := self._ask("samples", since=since):
            found += some
            since = some[-1]["index"] + 1
        return found

    def macs(self) -> dict[str, str]:
        """MAC address → port or group."""
        value: dict[str, str] = self._ask("macs")
        return value

    def stop(self) -> dict[str, Any]:
        """Ends the switch. Returns its last status."""
        value: dict[str, Any] = self._ask("stop")
        return value

    def _ask(self, do: str, **arguments: object) -> Any:
        with self._lock:
            try:
                self._connection.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
                line = self._file.readline()
            except OSError as error:
                raise SwitchError(f"switch at {self._path}: {error}") from None
        if not line.endswith(b"\n"):
            raise SwitchError(f"switch at {self._path}: it has ended")
        answer = json.loads(line)
        if not answer["ok"]:
            raise SwitchError(answer["error"])
        return answer["value"]


def connect(path: Path | str, timeout_s: float = 5.0) -> Control:
    """A connection to the switch whose control socket is at `path`. SwitchError: nobody answers within `timeout_s`.

    `timeout_s` also bounds each answer.
    """
    end = time.monotonic() + timeout_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            return Control(connection, Path(path))
        except OSError as error:
            connection.close()
            if time.monotonic() >= end:
                raise SwitchError(f"no switch answers at {path}: {error}") from None
        time.sleep(0.02)


# ---- the server's side ----


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    request_queue_size = 2 * MAX_CLIENTS
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, handler: type[socketserver.StreamRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(MAX_CLIENTS)
        super().__init__(path, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # the thread could not start
                self._room.release()
                raise
            return
        with contextlib.suppress(OSError):
            request.send(_refusal(f"{MAX_CLIENTS} others command the switch; accepted: no more at a time"))
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


def _commands(switch: SoftwareSwitch) -> dict[str, Callable[..., Any]]:
    return {
        "status": switch.status,
        "set_policy": lambda policy: switch.set_policy(Policy.from_toml(policy)),
        "set_jobs": lambda jobs: switch.set_jobs(read_jobs(jobs, switch.ports)),
        "set_faults": switch.set_faults,
        "clear_faults": switch.clear_faults,
        "set_link": switch.set_link,
        "capture": switch.capture,
        "sample": switch.sample,
        "samples": switch.samples,
        "macs": switch.macs,
        _STOP: switch.status,
    }


_STOP = "stop"


def _answer(commands: Mapping[str, Callable[..., Any]], line: bytes) -> tuple[bytes, bool]:
    """The answer, and whether the switch is to end."""
    try:
        do, arguments = _request(commands, line)
        value = commands[do](**arguments)
        return json.dumps({"ok": True, "value": value}).encode() + b"\n", do == _STOP
    except (DlcpError, TypeError, ValueError) as error:
        return _refusal(str(error)), False
    except Exception as error:  # such as RecursionError, of JSON that is nested without end
        return _refusal(f"{type(error).__name__}: {error}"), False


def _refusal(sentence: str) -> bytes:
    return json.dumps({"ok": False, "error": sentence}).encode() + b"\n"


def _request(commands: Mapping[str, Callable[..., Any]], line: bytes) -> tuple[str, dict[str, Any]]:
    if len(line) > MAX_REQUEST_BYTES:
        raise SwitchError(f"a request of more than {MAX_REQUEST_BYTES} bytes")
    request = json.loads(line)
    do = request.pop("do", None) if isinstance(request, dict) else None
    if not isinstance(do, str) or do not in commands:
        raise SwitchError(f"a request is an object whose `do` is one of {', '.join(commands)}")
    return do, request


def _clear_stale(path: Path) -> None:
    """Removes a socket that nobody listens at. ResourceError: a switch listens there, or it is no socket."""
    if not path.exists():
        return
    if not path.is_socket():
        raise ResourceError(f"control socket {path}: something else is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except (TimeoutError, BlockingIOError):  # it listens, and is too busy to say so
            pass
        except OSError as error:
            raise ResourceError(f"control socket {path}: something else is there: {error.strerror}") from None
    raise ResourceError(f"control socket {path}: another switch listens there")
