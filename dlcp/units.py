"""Rates as people write them on a command line: the commands read them by one rule."""

from __future__ import annotations

import argparse
import re

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_rate(text: str) -> int:
    """Bits per second, of 25G as of 25g, 25Gbit, 25Gbit/s and 25gbps. ArgumentTypeError says what is accepted.

    A capital B would be bytes, and is refused.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kKmMgGtT]?)(?:bit(?:/s|ps)?|b/s|bps)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate; accepted: such as 500k, 100M, 25G, 25Gbit/s"
        )
    return round(float(found[1]) * _FACTORS[found[2].lower()])
