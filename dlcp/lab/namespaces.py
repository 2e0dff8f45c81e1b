"""Network namespaces of the lab: their names, who lives in them, and how they are cleared away.

A namespace is called dlcp-PID-LAB-NODE, PID being the process that made it. netlab's (dlcp-PID-N-HOST, N a number) are
none of these. Only the standard library, since the reaper runs this too.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlcp.lab.netlab import LabError

NETNS = Path("/run/netns")
_NAME = re.compile(r"(dlcp-(\d+)-([a-z][a-z0-9_]*))-([hls]\d+)")
_END_S = 2.0


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
