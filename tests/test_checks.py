"""Checks of what a caller gives (dlcp/checks.py): what passes, and the sentence about what does not."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from dlcp import checks
from dlcp.errors import ArgumentError, SettingsError


@pytest.mark.parametrize("value", [0, 7, np.int32(7), np.uint8(1)])
def test_integer_in_range_is_plain(value: object) -> None:
    assert type(checks.integer("port", value, 0, 7)) is int


@pytest.mark.parametrize("value", [True, np.True_, -1, 8, 1.0, "1", None, [1], float("nan")])
def test_integer_refused(value: object) -> None:
    with pytest.raises(ArgumentError, match=r"^port is .*; accepted: an integer from 0 to 7$"):
        checks.integer("port", value, 0, 7)


def test_integer_without_upper_end() -> None:
    assert checks.integer("count", 2**80, 1) == 2**80
    with pytest.raises(SettingsError, match="^count is 0; accepted: an integer from 1$"):
        checks.integer("count", 0, 1, error=SettingsError)


@pytest.mark.parametrize("value", [0, 0.5, np.float32(0.5), np.int64(1)])
def test_number_in_range_is_plain(value: object) -> None:
    assert type(checks.number("ratio", value, 0, 1)) is float


@pytest.mark.parametrize("value", [True, -0.1, 1.1, float("nan"), float("inf"), "0.5", None, 1j])
def test_number_refused(value: object) -> None:
    with pytest.raises(ArgumentError, match=r"^ratio is .*; accepted: a number from 0 to 1$"):
        checks.number("ratio", value, 0, 1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: checks.number("wait_s", 0, 0, above=True, unit="seconds"),
            "a number of seconds above 0",
        ),
        (lambda: checks.number("ratio", 1, 0, 1, below=True), "a number from 0 to less than 1"),
        (lambda: checks.number("rate", 0, 0, 10, above=True), "a number above 0 up to 10"),
        (lambda: checks.boolean("on", 1), "True or False"),
        (lambda: checks.text("name", 5), "a text"),
        (lambda: checks.text("name", "", "a name", empty=False), "a name"),
        (lambda: checks.timeout("timeout_s", -1), "a number of seconds from 0, or None: no limit"),
        (lambda: checks.timeout("timeout_s", "x"), "a number of seconds from 0, or None: no limit"),
        (lambda: checks.timeout("timeout_s", float("nan")), "a number of seconds from 0, or None: no limit"),
    ],
)
def test_sentence_says_what_is_accepted(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).endswith(f"; accepted: {sentence}")


def test_timeout_without_limit_is_none() -> None:
    assert checks.timeout("timeout_s", None) is None
    assert checks.timeout("timeout_s", float("inf")) is None
    assert checks.timeout("timeout_s", 0) == 0.0


def test_choice_names_the_nearest() -> None:
    assert checks.choice("color", "red", ("red", "green")) == "red"
    with pytest.raises(ArgumentError, match=r"color is 'grene'; did you mean green\? accepted: red, green"):
        checks.choice("color", "grene", ("red", "green"))
    with pytest.raises(ArgumentError, match="color is 5; accepted: red, green"):
        checks.choice("color", 5, ("red", "green"))


def test_known_names_the_nearest() -> None:
    checks.known("setting", ["port"], ["port", "paths"])
    with pytest.raises(ArgumentError, match=r"unknown setting 'prot'; did you mean port\? accepted: port"):
        checks.known("setting", {"prot": 1}, ["port"])


def test_table_of_a_file() -> None:
    assert checks.table("transport", {"port": 1}, ["port"]) == {"port": 1}
    with pytest.raises(ArgumentError, match=r"transport is 5; accepted: a table \[transport\]"):
        checks.table("transport", 5, ["port"])
    with pytest.raises(ArgumentError, match=r"unknown key in \[transport\]: 'prot'; did you mean port\?"):
        checks.table("transport", {"prot": 1}, ["port"])


def test_long_value_is_cut_off() -> None:
    with pytest.raises(ArgumentError) as caught:
        checks.integer("port", list(range(10_000)), 0, 1)
    assert len(str(caught.value)) < 200


def test_option_of_a_command_line() -> None:
    assert checks.option(-1, 5)("-1") == -1
    for text in ("6", "x", "1.0", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="accepted: -1 to 5"):
            checks.option(-1, 5)(text)


def test_import_loads_neither_numpy_nor_torch() -> None:
    program = (
        "import sys, dlcp.checks; sys.exit(any(m in sys.modules for m in ('numpy', 'torch', 'dlcp._native')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
