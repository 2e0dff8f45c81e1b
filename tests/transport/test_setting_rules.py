"""The rule of each kind of setting: what it accepts as a value and reads from text, by the engine's table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlcp.transport.setting_rules import plain, read_ports, rules


def test_every_default_is_accepted_by_its_own_rule() -> None:
    for name, rule in rules().items():
        assert rule.default is None or rule.accepts(rule.default), name
        assert (rule.default is None) == (rule.none is not None), name


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("paths", [1, 64], [0, 65, 1.0, True, "8"]),
        ("peer_timeout_s", [0.1, 86400, 1], [0, 86401, float("nan"), True, "1"]),
        ("max_ack_delay_s", [0, 1], [-0.1, 1.1, float("inf")]),
        ("encrypt", [True, False], [0, 1, "yes"]),
        ("congestion", ["window", "auto"], ["cubic", "", None, 0]),
        ("driver_options", ["", "port=1"], ["\0", "\udcff", 5]),
        ("key_file", ["/k", "\udcff"], ["\0", 5]),
        ("interface", ["eth0", "^lo", "=eth0,eth1"], ["eth0,", "^", 0]),
        ("port_range", ["7000", "7000-7063"], ["7100-7000", "0-9", "http", 7000]),
        ("dscp", [(0,) * 8, (63,) * 8], [(0,) * 7, (64,) * 8, (True,) * 8, [0] * 8]),
        ("key", [b"k" * 32], [b"k", "k" * 32]),
    ],
)
def test_rule_accepts_its_range_alone(name: str, good: list[Any], bad: list[Any]) -> None:
    rule = rules()[name]
    for value in good:
        assert rule.accepts(value), value
    for value in bad:
        assert not rule.accepts(value), value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("paths", "8", 8),
        ("peer_timeout_s", "2.5", 2.5),
        ("encrypt", "ON", True),
        ("encrypt", "0", False),
        ("dscp", "0,1,2,3,4,5,6,7", (0, 1, 2, 3, 4, 5, 6, 7)),
        ("congestion", "window", "window"),
    ],
)
def test_text_becomes_a_value(name: str, text: str, value: Any) -> None:
    assert rules()[name].read(text) == value


def test_what_is_as_good_becomes_what_is_kept() -> None:
    assert plain("dscp", [0] * 8) == (0,) * 8
    assert plain("key_file", Path("/k")) == "/k"
    assert plain("port_range", (7000, 7063)) == "7000-7063"
    assert plain("log_level", "INFO") == "info"
    assert plain("paths", 8) == 8


def test_ports_of_a_range_and_of_one() -> None:
    assert read_ports("7000 - 7002") == range(7000, 7003)
    assert read_ports("7000") == range(7000, 7001)
    with pytest.raises(ValueError, match="0-9"):
        read_ports("0-9")


def test_unit_is_the_end_of_the_name() -> None:
    assert {rules()[name].unit for name in ("peer_timeout_s", "linger_s")} == {"seconds"}
    assert rules()["line_rate_bps"].unit == "bits per second"
    assert rules()["driver"].unit == ""
