"""A process that simulates points of a sweep, one after the other: `python -m dlcp_sim.worker`.

It reads scenarios from standard input and answers on standard output, in frames: a byte of meaning, eight of length,
content. A program of its own, not a fork or a spawn of the sweep's, so that it inherits neither threads nor somebody's
`__main__`. It ends when its input ends, or when the process that started it is gone.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import struct
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import IO, Any

SCENARIO, RESULT, ERROR = b"s", b"r", b"e"
_HEAD = struct.Struct("<cQ")


def write_frame(stream: IO[bytes], kind: bytes, content: bytes) -> None:
    """Sends a frame."""
    stream.write(_HEAD.pack(kind, len(content)) + content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    """The next frame; None: there is none any more, or it was cut off."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    kind, size = _HEAD.unpack(head)
    content = stream.read(size)
    return (kind, content) if len(content) == size else None


def simulate(tables: Mapping[str, Any], modules: Sequence[str] = ()) -> bytes:
    """Runs a scenario given in tables. Returns its result as a block. `modules` are imported first."""
    from dlcp_sim.toml import scenario_from

    for module in modules:
        importlib.import_module(module)

    parent = os.getppid()

    def look(_: object) -> None:
        if os.getppid() != parent:
            sys.exit("the sweep that asked for this is gone")

    return scenario_from(tables).run(look).to_bytes()


def explained(error: BaseException) -> str:
    """An error in one line if it is a caller's mistake, else with the place where it happened."""
    from dlcp.errors import DlcpError

    if isinstance(error, DlcpError):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()


def main() -> int:
    """The process. Returns its exit status."""
    # Ctrl-C on a terminal reaches the whole group; the sweep decides what becomes of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever prints goes to standard error; the answers' stream is ours alone.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        try:
            write_frame(answers, RESULT, simulate(*json.loads(frame[1])))
        except BrokenPipeError:
            return 1
        except Exception as error:
            write_frame(answers, ERROR, explained(error).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
