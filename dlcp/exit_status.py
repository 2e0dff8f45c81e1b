"""How every `dlcp` command ends: one line for what went wrong, and a status that scripts can tell apart.

2: an error of dlcp, or a full disk; 130: Ctrl-C; 141: nobody reads the output any more, as shells say it of SIGPIPE.
Anything else that is raised is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from dlcp.errors import DlcpError


def exit_status(name: str, run: Callable[[], int]) -> int:
    """What `run()` returns, once all output is written, or the status for what it raised. `name`: begins complaints."""
    try:
        status = run()
        sys.stdout.flush()
    except DlcpError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _forget_output()
        return 141
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _forget_output()
        print(f"{name}: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 2
    return status


def _forget_output() -> None:
    """So that the interpreter's end does not write what is left."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
