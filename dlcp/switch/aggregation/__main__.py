"""Sets switches up that add: `python -m dlcp.switch.aggregation job|deploy|status …`.

job_command.py writes the file of jobs, switch_command.py brings it onto switches.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dlcp.errors import DlcpError
from dlcp.switch.aggregation import job_command, switch_command


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m dlcp.switch.aggregation", description=__doc__)
    roles = made.add_subparsers(dest="role", required=True)
    job_command.add_parser(roles)
    switch_command.add_parsers(roles)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 if a switch is not as it should be, 2 for a mistake of the caller's."""
    arguments = parser().parse_args(argv)
    roles = {"job": job_command.run, "deploy": switch_command.run_deploy, "status": switch_command.run_status}
    try:
        return roles[arguments.role](arguments)
    except DlcpError as error:
        print(f"dlcp: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
