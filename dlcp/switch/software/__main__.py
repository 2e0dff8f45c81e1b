"""`python -m dlcp.switch.software POLICY --ports …`: as `dlcp switch run`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dlcp.arguments import Parser
from dlcp.exit_status import exit_status
from dlcp.switch.software.command import add_arguments, run


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = add_arguments(Parser(prog="dlcp switch run"))
    options = parser.parse_args(arguments)
    return exit_status("dlcp switch run", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
