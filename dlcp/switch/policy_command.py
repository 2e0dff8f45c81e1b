"""`dlcp switch policy`: a policy file to begin with, on standard output."""

from __future__ import annotations

import argparse
from typing import Any

from dlcp.errors import SettingsError
from dlcp.switch.starting_policy import MAX_PORTS, PORTS, starting_policy, starting_text
from dlcp.units import parse_rate


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "policy",
        description="Prints a policy to begin with, with comments: dlcp switch policy --rate 100G > policy.toml",
    )
    parser.add_argument("--rate", type=parse_rate, default="10G", help="of the fabric's links, as 25G (10G)")
    parser.add_argument(
        "--ports", type=int, default=PORTS, help="of a switch, which share its buffer (%(default)s)"
    )
    parser.add_argument(
        "--rtt-us", type=float, default=30.0, metavar="MICROSECONDS", help="round trip without queues (30)"
    )
    parser.add_argument("--packet-bytes", type=int, default=1500, help="of a full packet (1500)")
    parser.add_argument(
        "--trim",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="cut packets to their headers instead of dropping them (switches that can do so)",
    )
    parser.add_argument(
        "--separate",
        action="store_true",
        help="leave queue 0 to other traffic, and use DSCP values that nobody else has; jobs then set DLCP_DSCP",
    )


def run(options: argparse.Namespace) -> int:
    if not 10**6 <= options.rate <= 10**13:
        raise SettingsError(f"--rate is {options.rate} bit/s; accepted: 1M to 10T")
    if not 0.1 <= options.rtt_us <= 1e6:
        raise SettingsError(f"--rtt-us is {options.rtt_us:g}; accepted: 0.1 to 1000000")
    if not 1 <= options.ports <= MAX_PORTS:
        raise SettingsError(f"--ports is {options.ports}; accepted: 1 to {MAX_PORTS}")
    policy = starting_policy(
        options.rate,
        options.rtt_us * 1e-6,
        options.packet_bytes,
        options.trim,
        options.separate,
        ports=options.ports,
    )
    print(starting_text(policy, options.rate), end="")
    return 0
