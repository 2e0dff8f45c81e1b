"""`python -m dlcp` is the `dlcp` command."""

import sys


def _run() -> int:
    from dlcp.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(_run())
