"""Sets switches up that add: `python -m dlcp.switch.aggregation deploy|status …` (switch_command.py)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dlcp.errors import DlcpError
from dlcp.switch.aggregation import switch_command


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m dlcp.switch.aggregation", description=__doc__)
    switch_command.add_parsers(made.add_subparsers(dest="role", required=True))
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 if a switch is not as it should be, 2 for a mistake of the caller's."""
    arguments = parser().parse_args(argv)
    try:
        return switch_command.run(arguments)
    except DlcpError as error:
        print(f"dlcp: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
