"""BMv2's simple_switch_grpc as a process: started on interfaces, waited for, set up, and gone at the end.

    with SimpleSwitch({0: "sw0", 1: "sw1"}, prefix=["ip", "netns", "exec", name]) as switch:
        switch.runtime.set_rate(500, port=1)
        ...  # P4Runtime at switch.address

It starts without a program, which comes over P4Runtime. P4Runtime is served on a Unix socket, so that who is outside
the switch's network namespace reaches it; what P4Runtime has no words for (queues, registers) goes over Thrift.

Known of BMv2 and not repaired here: a rate and a depth are in packets, and a port's rate is applied to each of its
queues, so that its classes never compete for the link (behavioral-model issues 907, 1067); queue 7 is served first
from version 1.15.1 on (#1276). Packets of a priority without a queue are dropped, hence eight queues.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dlcp.lab.thrift import I32, I64, STRING, Bmv2Error, Thrift

EXECUTABLE = "simple_switch_grpc"
PRIORITY_QUEUES = 8
THRIFT_PORT = 9090
# A program that bounds its queues in bytes is not to meet the bound of BMv2, 64 packets by default.
DEEP_PACKETS = 65536
START_SECONDS = 30.0
STOP_SECONDS = 5.0
_LOG_LINES = 5  # of a switch that did not start


def missing() -> str | None:
    """Why no BMv2 can run here, or None."""
    if shutil.which(EXECUTABLE) is None:
        return f"BMv2 needs {EXECUTABLE} on PATH"
    return None if os.geteuid() == 0 else "BMv2 needs root to open interfaces"


def command(
    ports: Mapping[int, str],
    folder: Path,
    *,
    device_id: int = 1,
    priority_queues: int = PRIORITY_QUEUES,
    thrift_port: int = THRIFT_PORT,
    log_level: str | None = None,
    executable: str = EXECUTABLE,
) -> list[str]:
    """The command line of a switch on interfaces, by port number, without a program. Its sockets are in `folder`."""
    words = [executable, "--no-p4", "--device-id", str(device_id)]
    for port, interface in ports.items():
        words += ["-i", f"{port}@{interface}"]
    words += ["--thrift-port", str(thrift_port)]
    # Otherwise a fixed path in /tmp, which two switches of one number would share.
    words += ["--notifications-addr", f"ipc://{folder / 'notifications'}"]
    if log_level is not None:
        words += ["--log-console", "--log-level", log_level]
    words += ["--", "--grpc-server-addr", address(folder), "--priority-queues", str(priority_queues)]
    return words


def address(folder: Path) -> str:
    """Where that switch serves P4Runtime, as gRPC writes it."""
    return f"unix:{folder / 'grpc'}"


def is_up(folder: Path) -> bool:
    """Whether it does."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(folder / "grpc")) == 0


class Runtime:
    """Settings and registers of a running switch, over Thrift."""

    def __init__(self, port: int = THRIFT_PORT, namespace: Path | None = None) -> None:
        """OSError if nothing listens at that port, in the network namespace that a file stands for."""
        self._thrift = Thrift(port, namespace)

    def close(self) -> None:
        """Ends the connection; the switch goes on."""
        self._thrift.close()

    def set_rate(self, packets_per_s: int, port: int | None = None, priority: int | None = None) -> None:
        """Of one queue, of each queue of a port, or of all."""
        rate = (I64, packets_per_s)
        if port is None:
            self._call("simple_switch", "set_all_egress_queue_rates", rate)
        elif priority is None:
            self._call("simple_switch", "set_egress_queue_rate", (I32, port), rate)
        else:
            self._call("simple_switch", "set_egress_priority_queue_rate", (I32, port), (I32, priority), rate)

    def set_depth(self, packets: int, port: int | None = None, priority: int | None = None) -> None:
        """How many packets a queue holds: one queue's, each queue's of a port, or all queues'."""
        depth = (I32, packets)
        if port is None:
            self._call("simple_switch", "set_all_egress_queue_depths", depth)
        elif priority is None:
            self._call("simple_switch", "set_egress_queue_depth", (I32, port), depth)
        else:
            self._call(
                "simple_switch", "set_egress_priority_queue_depth", (I32, port), (I32, priority), depth
            )

    def read_register(self, name: str, index: int) -> int:
        """One cell, by the register's full name in the program."""
        value = self._call("standard", "bm_register_read", (I32, 0), (STRING, name), (I32, index))
        if not isinstance(value, int):
            raise Bmv2Error(f"register {name}[{index}]: the switch answered {value!r}")
        return value

    def write_register(self, name: str, index: int, value: int) -> None:
        """One cell."""
        self._call("standard", "bm_register_write", (I32, 0), (STRING, name), (I32, index), (I64, value))

    def _call(self, service: str, method: str, *arguments: tuple[int, int | str]) -> int | bytes | None:
        return self._thrift.call(service, method, *arguments)


class SimpleSwitch:
    """One switch. A context manager; leaving it ends the process."""

    def __init__(
        self,
        ports: Mapping[int, str],
        *,
        prefix: Sequence[str] = (),
        device_id: int = 1,
        priority_queues: int = PRIORITY_QUEUES,
        thrift_port: int | None = None,
        log_level: str | None = None,
        executable: str | None = None,
        depth_packets: int | None = DEEP_PACKETS,
    ) -> None:
        """Interfaces by port number.

        `prefix` is the command that runs others where the interfaces are (`ip netns exec NAME`). Builds without logging
        ignore `log_level` ("debug", "trace"). `depth_packets` is that of every queue; None: BMv2's own.
        """
        self.ports = dict(ports)
        self.device_id = device_id
        self._prefix = list(prefix)
        self._queues = priority_queues
        self._thrift_port = (
            thrift_port if thrift_port is not None else (THRIFT_PORT if prefix else _free_port())
        )
        self._log_level = log_level
        self._executable = executable or shutil.which(EXECUTABLE)
        self._depth_packets = depth_packets
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._runtime: Runtime | None = None

    # ---- life ----

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Where P4Runtime is served, as gRPC writes it."""
        return address(self._path())

    @property
    def runtime(self) -> Runtime:
        """For what P4Runtime has no words for."""
        if self._runtime is None:
            raise Bmv2Error("the switch is not running")
        return self._runtime

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        """What the switch writes, until it is stopped."""
        return self._path() / "log"

    def start(self) -> None:
        """Returns when the switch answers; Bmv2Error with its last words if it does not.

        The process ends with the thread that calls this (PR_SET_PDEATHSIG), so that none outlives a killed test.
        """
        if self._executable is None:
            raise Bmv2Error(f"{EXECUTABLE} is not on PATH")
        self._folder = tempfile.TemporaryDirectory(prefix=f"dlcp-{os.getpid()}-bmv2-")
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(self._command(), stdout=log, stderr=subprocess.STDOUT)
            self._runtime = self._wait()
            if self._depth_packets is not None:
                self._runtime.set_depth(self._depth_packets)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the process; nothing of it stays."""
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    # ---- inside ----

    def _path(self) -> Path:
        if self._folder is None:
            raise Bmv2Error("the switch is not running")
        return Path(self._folder.name)

    def _command(self) -> list[str]:
        assert self._executable is not None
        # It ends with us, even if we are killed.
        tied = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        return [
            *self._prefix,
            *tied,
            *command(
                self.ports,
                self._path(),
                device_id=self.device_id,
                priority_queues=self._queues,
                thrift_port=self._thrift_port,
                log_level=self._log_level,
                executable=self._executable,
            ),
        ]

    def _wait(self) -> Runtime:
        assert self._process is not None
        until = time.monotonic() + START_SECONDS
        while True:
            if self._process.poll() is not None:
                raise Bmv2Error(f"{EXECUTABLE} ended with {self._process.returncode}: {self._last_words()}")
            # Only when it serves has the process come to its namespace for certain; Thrift comes up last.
            if is_up(self._path()):
                with contextlib.suppress(OSError):
                    return Runtime(self._thrift_port, Path(f"/proc/{self.pid}/ns/net"))
            if time.monotonic() > until:
                waited = f"does not answer after {START_SECONDS:g} s"
                raise Bmv2Error(f"{EXECUTABLE} {waited}: {self._last_words()}")
            time.sleep(0.02)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return "; ".join(lines[-_LOG_LINES:]) or "it said nothing"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
