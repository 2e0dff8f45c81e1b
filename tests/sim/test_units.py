"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from dlcp_sim.units import aligned, duration, grouped, rate


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
