"""`dlcp switch policy`: a policy file to begin with, on standard output."""

from __future__ import annotations

import argparse
import re
from typing import Any

from dlcp.errors import SettingsError
from dlcp.switch.start import starting_policy, starting_text

_UNITS = {"M": 10**6, "G": 10**9, "T": 10**12}


def add_parser(subparsers: Any) -> None:
    """The words of `dlcp switch policy`."""
    parser = subparsers.add_parser(
        "policy",
        help="a policy to begin with, for a fabric of one link rate",
        description="Prints a policy to begin with, with comments: dlcp switch policy --rate 100G > policy.toml",
    )
    parser.add_argument("--rate", type=_rate, default="10G", help="of the fabric's links, as 25G (10G)")
    parser.add_argument(
        "--rtt-us", type=float, default=30.0, metavar="MICROSECONDS", help="round trip without queues (30)"
    )
    parser.add_argument("--packet-bytes", type=int, default=1500, help="of a full packet (1500)")
    parser.add_argument("--trim", action="store_true", help="cut droppable packets instead of dropping them")
    parser.add_argument(
        "--separate", action="store_true", help="leave queue 0 to other traffic; jobs then set DLCP_DSCP"
    )


def _rate(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([MGT])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a rate as 100M, 25G, 1.6T")
    return f"{found[1]} {found[2]}", round(float(found[1]) * _UNITS[found[2]])


def run(options: argparse.Namespace) -> int:
    """`dlcp switch policy`."""
    words, rate_bps = options.rate
    if not 0.1 <= options.rtt_us <= 1e6:
        raise SettingsError(f"--rtt-us is {options.rtt_us:g}; accepted: 0.1 to 1000000")
    policy = starting_policy(
        rate_bps, options.rtt_us * 1e-6, options.packet_bytes, options.trim, options.separate
    )
    print(starting_text(policy, words), end="")
    return 0
