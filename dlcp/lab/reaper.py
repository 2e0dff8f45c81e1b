"""Clears a lab away when the process that holds it is gone, however it went: python -m dlcp.lab.reaper PREFIX FOLDER.

The holder keeps the other end of standard input open. At its end, everything in namespaces of PREFIX is killed, the
namespaces are deleted, and the lab's FOLDER is removed. A holder that cleared away itself leaves nothing to do; one
that lets the lab stand writes STAND first.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

from dlcp.lab import namespaces

STAND = b"stand"


class Reaper:
    """Watches over a lab for this process, until `dismiss`."""

    def __init__(self, prefix: str, directory: os.PathLike[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dlcp.lab.reaper", prefix, os.fspath(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self, *, stand: bool = False) -> None:
        """Lets it end; with `stand` the lab stays."""
        self._process.communicate(STAND if stand else b"")


def main() -> int:
    """The program."""
    prefix, directory = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    last = b""
    while got := os.read(0, 4096):
        last = got
    if last != STAND:
        namespaces.remove(prefix)
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
