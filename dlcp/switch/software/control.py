"""The control socket of a running switch: JSON lines over a Unix socket, one answer for each request.

A request is `{"do": name, …arguments}`, an answer `{"ok": true, "value": …}` or `{"ok": false, "error": sentence}`. Who
may open the socket may command the switch: it is made for its owner only. A request that is none is answered, not
obeyed, and harms nobody; one that has no end within a bound is cut off.
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
from dlcp.switch.software.switch import SoftwareSwitch

MAX_REQUEST_BYTES = 1 << 20


class ControlServer:
    """Answers for a switch at `path`, from `with` to its end; the file goes with it. `stopped` is set by `stop`."""

    def __init__(self, switch: SoftwareSwitch, path: Path | str) -> None:
        self.path = Path(path)
        self.stopped = threading.Event()
        _clear_stale(self.path)
        commands = _commands(switch, self.stopped)
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):
                    while line := self.rfile.readline(MAX_REQUEST_BYTES + 1):
                        self.wfile.write(_answer(commands, line))
                        if len(line) > MAX_REQUEST_BYTES or server.stopped.is_set():
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
        """Another policy, between two packets; queued packets stay."""
        self._ask("set_policy", policy=policy.to_toml())

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
        """None at any port."""
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
        """All samples of number `since` and later that the switch still has."""
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
        """Ends the switch. Answers its last status."""
        value: dict[str, Any] = self._ask("stop")
        return value

    def _ask(self, do: str, **arguments: object) -> Any:
        with self._lock:
            try:
                self._connection.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
                line = self._file.readline()
            except OSError as error:
                raise SwitchError(f"switch at {self._path}: {error}") from None
        if not line:
            raise SwitchError(f"switch at {self._path}: it has ended")
        answer = json.loads(line)
        if not answer["ok"]:
            raise SwitchError(answer["error"])
        return answer["value"]


def connect(path: Path | str, timeout_s: float = 5.0) -> Control:
    """A connection to the switch whose control socket is at `path`; waits for it to come. SwitchError: it does not.

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
    daemon_threads = True
    block_on_close = False


def _commands(switch: SoftwareSwitch, stopped: threading.Event) -> dict[str, Callable[..., Any]]:
    def stop() -> dict[str, Any]:
        status = switch.status()
        stopped.set()
        return status

    return {
        "status": switch.status,
        "set_policy": lambda policy: switch.set_policy(Policy.from_toml(policy)),
        "set_faults": switch.set_faults,
        "clear_faults": switch.clear_faults,
        "set_link": switch.set_link,
        "capture": switch.capture,
        "sample": switch.sample,
        "samples": switch.samples,
        "macs": switch.macs,
        "stop": stop,
    }


def _answer(commands: Mapping[str, Callable[..., Any]], line: bytes) -> bytes:
    try:
        answer = {"ok": True, "value": _obey(commands, line)}
    except (DlcpError, TypeError, ValueError) as error:
        answer = {"ok": False, "error": str(error)}
    return json.dumps(answer).encode() + b"\n"


def _obey(commands: Mapping[str, Callable[..., Any]], line: bytes) -> Any:
    if len(line) > MAX_REQUEST_BYTES:
        raise SwitchError(f"a request of more than {MAX_REQUEST_BYTES} bytes")
    request = json.loads(line)
    if not isinstance(request, dict) or request.get("do") not in commands:
        raise SwitchError(f"a request is an object whose `do` is one of {', '.join(commands)}")
    return commands[request.pop("do")](**request)


def _clear_stale(path: Path) -> None:
    """Removes a socket that nobody listens at; ResourceError if somebody does, or it is something else."""
    if not path.exists():
        return
    if not path.is_socket():
        raise ResourceError(f"control socket {path}: something else is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise ResourceError(f"control socket {path}: another switch listens there")
