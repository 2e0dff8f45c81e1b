"""Rates as people write them, for all commands alike, and numbers as people read them."""

from __future__ import annotations

import argparse
import math
import sys

import pytest

from dlcp.units import aligned, duration, fitted, grouped, parse_rate, parse_size, plural, rate, size


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (198.2e-6, "198.2 µs"),
        (1.5, "1.500 s"),
        (12345.6, "12346 s"),
        (2e-9, "2.000 ns"),
        (5e-13, "0.500 ps"),
        (-0.25, "-250.0 ms"),
        (0, "0 s"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rates_and_counts() -> None:
    assert rate(81.3e9) == "81.30 Gb/s"
    assert rate(0) == "0 b/s"
    assert grouped(941320) == "941 320"
    assert grouped(7) == "7"


def test_rows_are_aligned() -> None:
    assert list(aligned([["", "mean"], ["ndp", "1 s"]])) == ["     mean", "ndp   1 s"]


def test_sizes_are_read_as_they_are_written() -> None:
    assert [parse_size(text) for text in ("64K", "64k", "64KB", "64KiB", "65536")] == [65536] * 5
    for nbytes, text in ((1, "1"), (4092, "4092"), (4096, "4K"), (3 << 20, "3M"), (1 << 40, "1T")):
        assert size(nbytes) == text
        assert parse_size(text) == nbytes
    for text in ("", "0", "lots", "-4K", "4 K B", "1.5M"):
        with pytest.raises(argparse.ArgumentTypeError, match="accepted: such as 512M, 8G"):
            parse_size(text)


def test_one_of_what_is_counted_has_no_ending() -> None:
    assert [plural(1, "rank"), plural(0, "rank"), plural(1, "switch"), plural(4, "switch")] == [
        *("1 rank", "0 ranks", "1 switch", "4 switches")
    ]


def test_a_terminal_that_is_too_narrow_has_columns_as_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["", "completion", "slowdown"], ["dlcp", "184.5 µs", "1.11"]]
    monkeypatch.setenv("COLUMNS", "20")
    assert fitted(rows) == rows  # it goes to no terminal
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert list(aligned(fitted(rows))) == [
        "                dlcp",
        "completion  184.5 µs",
        "slowdown        1.11",
    ]
    monkeypatch.setenv("COLUMNS", "26")
    assert fitted(rows) == rows
