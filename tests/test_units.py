"""Rates as people write them, for all commands alike."""

from __future__ import annotations

import argparse

import pytest

from dlcp.units import parse_rate


@pytest.mark.parametrize(
    "text",
    ["25G", "25g", "25Gbit", "25Gbit/s", "25gbps", "25 Gbit/s", "25Gb/s", "25000M", "25000000000", "0.025T"],
)
def test_same_rate_in_many_words(text: str) -> None:
    assert parse_rate(text) == 25 * 10**9


@pytest.mark.parametrize(
    "text", ["", "G", "25GB", "25GBps", "25 kilo", "-1G", "1e9", "1,5G", "nan", "25Gbit/h", "2５G"]
)
def test_what_is_no_rate_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="accepted: such as 500k, 100M, 25G"):
        parse_rate(text)
