"""How every `dlcp` command ends: one line for what went wrong, and a status that scripts can tell apart.

2: an error of dlcp, a missing torch or compiled module, or a full disk; 130: Ctrl-C; 141: nobody reads the output any
more, as shells report SIGPIPE. All output is written before the status is decided, so that the interpreter's end has
none left to fail on. What the output's character set lacks is a question mark on a terminal, and escaped elsewhere. Any
other exception is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

from dlcp.errors import DlcpError
from dlcp.requirements import missing


def exit_status(name: str, run: Callable[[], int]) -> int:
    """What `run()` returns, once all output is written, or the status for what it raised. `name`: begins complaints.

    SystemExit passes through, as argparse raises it after help and complaints, unless nobody reads the output.
    """
    status = 0
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace" if sys.stdout.isatty() else "backslashreplace")
    try:
        try:
            status = run()
        except DlcpError as error:
            status = 2
            print(f"{name}: {error}", file=sys.stderr)
        except ImportError as error:
            if (says := missing(error)) is None:
                raise
            status = 2
            print(f"{name}: {says}", file=sys.stderr)
        except KeyboardInterrupt:
            status = 130
        except SystemExit:
            _flush()
            raise
        _flush()
    except BrokenPipeError:
        _forget_output()
        return 130 if status == 130 else 141
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _forget_output()
        print(f"{name}: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 2
    return status


def _flush() -> None:
    for stream in _streams():
        stream.flush()


def _forget_output() -> None:
    """What is left in the buffers goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in _streams():
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError):  # of a stream without a descriptor, such as a test's
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _streams() -> list[TextIO]:
    """Those that the shell has not closed, as `>&-` does."""
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
