"""`dlcp switch jobs write|deploy|status`: the jobs of switches that add.

job_command.py writes their file, switch_command.py brings it onto switches.
"""

from __future__ import annotations

import argparse
from typing import Any

from dlcp.switch.aggregation import job_command, switch_command

_ABOUT = (
    "Writes the jobs of a switch that adds to a file, brings them onto P4 switches, shows what these counted."
)


def add_parser(subparsers: Any) -> None:
    part = subparsers.add_parser("jobs", help="jobs of the switch that adds", description=_ABOUT)
    roles = part.add_subparsers(dest="role", required=True, metavar="{write,deploy,status}")
    job_command.add_parser(roles)
    switch_command.add_parsers(roles)


def run(options: argparse.Namespace) -> int:
    """The exit status: 0; 1 if a switch is not as it should be."""
    roles = {
        "write": job_command.run,
        "deploy": switch_command.run_deploy,
        "status": switch_command.run_status,
    }
    return roles[options.role](options)
