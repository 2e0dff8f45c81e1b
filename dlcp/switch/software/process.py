"""A software switch in a process of its own, driven by its control socket.

For tests and test beds. `prefix` is a command that runs the process elsewhere, such as in a network namespace.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dlcp.switch.policy import Policy
from dlcp.switch.software.control import Control, connect
from dlcp.switch.software.errors import SwitchError

READY_S = 20.0
END_S = 10.0


class SwitchProcess:
    """A switch that runs; see `start`. A context manager that ends it."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: Control, folder: tempfile.TemporaryDirectory[str]
    ) -> None:
        self.control = control
        self._process = process
        self._folder = folder

    @property
    def log(self) -> str:
        """What the process has written so far, to standard output and error."""
        return (Path(self._folder.name) / "log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> dict[str, Any]:
        """Ends the switch. Returns its last status; {} if it had ended before."""
        status: dict[str, Any] = {}
        with contextlib.suppress(SwitchError):
            status = self.control.stop()
        self.control.close()
        _end(self._process)
        self._folder.cleanup()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    policy: Policy | Path | str,
    ports: Sequence[str],
    *,
    control: Path | str | None = None,
    prefix: Sequence[str] = (),
    rate_bps: int = 0,
    salt: int = 0,
    seed: int = 0,
    sample_s: float | None = None,
    addresses: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> SwitchProcess:
    """Starts a switch and waits until it forwards. SwitchError: it does not, with the last line it wrote.

    `policy`: one, or its file. `control`: where its socket is to be; None: in a folder of its own. `addresses`: MAC
    address → port or group. `arguments`: more words of `dlcp switch run`.
    """
    folder = tempfile.TemporaryDirectory(prefix="dlcp-switch-")
    try:
        file = Path(folder.name) / "policy.toml"
        if isinstance(policy, Policy):
            policy.save(file)
        socket = Path(control) if control is not None else Path(folder.name) / "control.sock"
        options: dict[str, object] = {
            "ports": ",".join(ports),
            "control": socket,
            "rate": rate_bps,
            "salt": salt,
            "seed": seed,
        }
        if sample_s is not None:
            options["sample"] = f"{sample_s * 1e6:.0f}us"
        words = [*prefix, sys.executable, "-m", "dlcp", "switch", "run"]
        words += [str(file if isinstance(policy, Policy) else policy), "--json"]
        words += [f"--{name}={value}" for name, value in options.items()]
        for mac, target in (addresses or {}).items():
            words += ["--address", f"{mac}={target}"]
        log = Path(folder.name) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*words, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            _await(process, log)
            return SwitchProcess(process, connect(socket), folder)
        except BaseException:
            _end(process)
            raise
    except BaseException:
        folder.cleanup()
        raise


def _await(process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_S
    while b"ready:" not in log.read_bytes():
        ended = process.poll()
        if ended is not None or time.monotonic() > end:
            words = log.read_text(errors="replace").strip().splitlines()
            fate = f"not ready after {READY_S:.0f} s" if ended is None else f"ended with status {ended}"
            raise SwitchError(words[-1] if words else f"the switch is {fate}, without a word")
        time.sleep(0.01)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
