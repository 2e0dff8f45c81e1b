"""`python -m bench` is bench/command.py, loaded where its status is decided: it loads all that is compiled."""

import sys

from dlcp.exit_status import exit_status


def _run() -> int:
    from bench.command import main

    return main()


if __name__ == "__main__":
    sys.exit(exit_status("python -m bench", _run))
