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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from dlcp.lab.namespaces import launch
from dlcp.lab.thrift import I32, I64, STRING, Bmv2Error, Thrift

EXECUTABLE = "simple_switch_grpc"
THRIFT_PORT = 9090
# A program that bounds its queues in bytes is not to meet the bound of BMv2, 64 packets by default.
DEEP_PACKETS = 65536
STOP_SECONDS = 5.0


def missing() -> str | None:
    """Why no BMv2 can run here, or None."""
    if shutil.which(EXECUTABLE) is None:
        return f"BMv2 needs {EXECUTABLE} on PATH"
    return None if os.geteuid() == 0 else "BMv2 needs root to open interfaces"


def address(folder: Path) -> str:
    """Where the switch with this folder serves P4Runtime, as gRPC writes it."""
    return f"unix:{folder / 'grpc'}"


class Runtime:
    """Settings and registers of a running switch, over Thrift."""

    def __init__(self, namespace: Path) -> None:
        """OSError if no switch listens in the network namespace that this file stands for."""
        self._thrift = Thrift(THRIFT_PORT, namespace)

    def close(self) -> None:
        """Ends the connection; the switch goes on."""
        self._thrift.close()

    def set_rate(self, packets_per_s: int, port: int) -> None:
        """Of each queue of a port."""
        self._thrift.call("simple_switch", "set_egress_queue_rate", (I32, port), (I64, packets_per_s))

    def set_depth(self, packets: int) -> None:
        """How many packets each queue holds."""
        self._thrift.call("simple_switch", "set_all_egress_queue_depths", (I32, packets))

    def read_register(self, name: str, index: int) -> int:
        """One cell, by the register's full name in the program."""
        value = self._thrift.call("standard", "bm_register_read", (I32, 0), (STRING, name), (I32, index))
        if not isinstance(value, int):
            raise Bmv2Error(f"register {name}[{index}]: the switch answered {value!r}")
        return value

    def write_register(self, name: str, index: int, value: int) -> None:
        cell = (I32, 0), (STRING, name), (I32, index)
        self._thrift.call("standard", "bm_register_write", *cell, (I64, value))


class SimpleSwitch:
    """One switch with deep queues, from `start` or `with` to `stop` or the end of the `with`."""

    device_id = 1

    def __init__(
        self,
        ports: Mapping[int, str],
        *,
        prefix: Sequence[str],
        folder: Path | None = None,
        name: str = EXECUTABLE,
    ) -> None:
        """Interfaces by port number.

        `prefix` is the command that runs others where the interfaces are: `ip netns exec NAME`. `folder`: for sockets
        and log; such a switch outlives this process. None: one of its own, and the switch ends with the thread that
        started it (PR_SET_PDEATHSIG), so that none outlives a killed test. `name`: for errors.
        """
        self._name = name
        self._ports = dict(ports)
        self._prefix = list(prefix)
        self._own_folder: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._own_folder = tempfile.TemporaryDirectory(prefix=f"dlcp-{os.getpid()}-bmv2-")
            folder = Path(self._own_folder.name)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._runtime: Runtime | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Where P4Runtime is served, as gRPC writes it."""
        return address(self._folder)

    @property
    def runtime(self) -> Runtime:
        """For what P4Runtime has no words for."""
        if self._runtime is None:
            raise Bmv2Error("the switch is not running")
        return self._runtime

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when the switch answers; LabError with its last words if it does not."""
        self._folder.mkdir(exist_ok=True)
        try:
            log = self._folder / "log"
            self._process = launch(self._name, self._command(), log, self._serves)
            self.runtime.set_depth(DEEP_PACKETS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the process; nothing of it stays but a folder that was given."""
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
        if self._own_folder is not None:
            self._own_folder.cleanup()

    def _command(self) -> list[str]:
        ends_with_us = self._own_folder is not None and shutil.which("setpriv") is not None
        tie = ["setpriv", "--pdeathsig", "KILL"] if ends_with_us else []
        words = [*self._prefix, *tie, EXECUTABLE, "--no-p4", "--device-id", str(self.device_id)]
        for port, interface in self._ports.items():
            words += ["-i", f"{port}@{interface}"]
        words += ["--thrift-port", str(THRIFT_PORT)]
        # Otherwise a fixed path in /tmp, which two switches of one number would share.
        words += ["--notifications-addr", f"ipc://{self._folder / 'notifications'}"]
        return [*words, "--", "--grpc-server-addr", self.address, "--priority-queues", "8"]

    def _serves(self, pid: int) -> bool:
        """Whether it answers."""
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(self._folder / "grpc")) != 0:
                return False
        # Only when it serves has the process come to its namespace for certain; Thrift comes up last.
        with contextlib.suppress(OSError):
            self._runtime = Runtime(Path(f"/proc/{pid}/ns/net"))
        return self._runtime is not None
