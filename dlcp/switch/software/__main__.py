"""`python -m dlcp.switch.software POLICY --ports …`: as `dlcp switch run`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dlcp.exit_status import exit_status
from dlcp.switch.command import main as switch_main


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    return exit_status("dlcp switch run", lambda: switch_main(["run", *words]))


if __name__ == "__main__":
    sys.exit(main())
