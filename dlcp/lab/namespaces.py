"""Network namespaces of the lab: their names, what runs in them, and how they are cleared away.

A namespace is called dlcp-PID-LAB-NODE, PID being the process that made it. Of the libraries only the standard one,
since the reaper runs this too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dlcp.errors import DlcpError

NETNS = Path("/run/netns")
INTERFACE = "eth-lab"
"""What every host calls its only interface."""
_NAME = re.compile(r"(dlcp-(\d+)-([a-z][a-z0-9_]*))-([hls]\d+)")
_END_S = 2.0
_READY_S = 30.0
_LOG_LINES = 5  # of a process that did not start
_TOOLS = {"ip": "iproute2", "tc": "iproute2", "ethtool": "ethtool"}


class LabError(DlcpError, RuntimeError):
    """A command that builds the lab failed; the message holds the command and its words."""


def missing(what: str, without_root: str = "") -> str | None:
    """Why there can be no namespaces, cables and queues here, or None. `what` needs them; `without_root`: a way out."""
    if os.geteuid() != 0:
        return f"{what} needs root{without_root}"
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"{what} needs {tool} (Debian: {package})"
    probe = f"dlcp-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return f"no network namespaces here: {made.stderr.strip()}" if made.returncode else None


class Nodes:
    """The hosts and switches of a lab, a namespace each, and the processes that were started there."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._started: list[subprocess.Popen[Any]] = []

    def namespace(self, node: str | int) -> str:
        """The name of a node's network namespace, for `ip -n` and setns(2). A number is a host's."""
        return f"{self.prefix}-{f'h{node}' if isinstance(node, int) else node}"

    def command(self, node: str | int, words: Iterable[object]) -> list[str]:
        """The command line that runs `words` on that node."""
        return ["ip", "netns", "exec", self.namespace(node), *map(str, words)]

    def start(self, node: str | int, words: Iterable[object], **popen: object) -> subprocess.Popen[Any]:
        """A process on that node, with text pipes for output and errors; ended with the lab at the latest."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        options: dict[str, Any] = {**pipes, **popen}
        process: subprocess.Popen[Any] = subprocess.Popen(self.command(node, words), **options)
        self._started.append(process)
        return process

    def end(self) -> None:
        """Ends what was started, and closes its pipes."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
        for process in self._started:
            process.wait()
            for pipe in (process.stdout, process.stderr, process.stdin):
                if pipe is not None:
                    pipe.close()


def prefix_of(lab: str) -> str:
    """What the names of a lab's namespaces begin with, if this process makes them."""
    return f"dlcp-{os.getpid()}-{lab}"


def run(*words: object, script: str | None = None) -> str:
    """What a command prints; `script` goes to its standard input. Raises LabError with the command and its words."""
    line = [str(word) for word in words]
    done = subprocess.run(line, capture_output=True, text=True, input=script)
    if done.returncode:
        complaint = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        raise LabError(f"{' '.join(line)}: {complaint}")
    return done.stdout


def batch(tool: str, namespace: str | None, lines: Sequence[str]) -> None:
    """Runs lines of `ip` or `tc`, in a namespace if one is named, in one process. LabError: a line failed."""
    if not lines:
        return
    place = [] if namespace is None else ["-n", namespace]
    words = [tool, *place, "-batch", "-"]
    done = subprocess.run(words, capture_output=True, text=True, input="\n".join(lines) + "\n")
    if done.returncode:
        complaint = done.stderr.strip()
        at = re.search(r"Command failed -:(\d+)", complaint)
        line = lines[int(at[1]) - 1] if at else "-batch"
        raise LabError(
            f"{' '.join(words[:-2])} {line}: {complaint.splitlines()[0] if complaint else 'failed'}"
        )


def interface_bytes(interface: str) -> int:
    """Bytes that this process's namespace has sent through an interface, Ethernet headers included. LookupError."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, colon, counts = line.partition(":")
        if colon and name.strip() == interface:
            return int(counts.split()[8])
    raise LookupError(f"no interface {interface} in this namespace")


def launch(
    what: str, words: Sequence[str], log: Path, is_ready: Callable[[int], bool]
) -> subprocess.Popen[bytes]:
    """A process that writes to `log`, when it is ready: `is_ready` is asked with its id.

    Raises LabError, which begins with `what` and holds the process's last words, if it does not get ready.
    It has a session of its own: Ctrl-C is for who holds the lab, and a lab that stands outlives the terminal.
    """
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, start_new_session=True, **streams)
    end_s = time.monotonic() + _READY_S
    try:
        while not is_ready(process.pid):
            if process.poll() is not None or time.monotonic() > end_s:
                said = log.read_text(errors="replace").strip().splitlines()
                status = process.returncode
                how = f"is not ready after {_READY_S:g} s" if status is None else f"ended with {status}"
                raise LabError(f"{what} {how}: {'; '.join(said[-_LOG_LINES:]) or 'it said nothing'}")
            time.sleep(0.02)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def each() -> Iterator[tuple[str, str, int]]:
    """Name, prefix and maker's process id of every namespace of a fabric on this machine."""
    with contextlib.suppress(OSError):
        for entry in sorted(NETNS.iterdir()):
            if match := _NAME.fullmatch(entry.name):
                yield entry.name, match[1], int(match[2])


def processes(names: Sequence[str]) -> list[int]:
    """Who lives in these namespaces."""
    inodes = set()
    for name in names:
        with contextlib.suppress(OSError):
            inodes.add((NETNS / name).stat().st_ino)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if (entry / "ns/net").stat().st_ino in inodes:
                    found.append(int(entry.name))
    return found


def remove(prefix: str) -> None:
    """Ends who lives in the namespaces of this prefix, and deletes them. What is not there is not an error."""
    names = [name for name, own, _ in each() if own == prefix]
    if not names:
        return
    end_s = time.monotonic() + _END_S
    while (left := processes(names)) and time.monotonic() < end_s:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


def is_alive(pid: int, started: str) -> bool:
    """Whether the process still is the one that started then; a process id alone may be another's by now."""
    return started_at(pid) == started


def started_at(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty: it is not there, or only its exit status is."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in ("Z", "X") else words[19]
