"""What is generated from the table of settings is current; and what `dlcp settings` prints."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from dlcp import _native
from dlcp.errors import SettingsError
from dlcp.transport import Settings
from dlcp.transport.setting_rules import rules
from dlcp.transport.settings_reference import fields_module, main, reference_page

RENEW = "run `python -m dlcp.transport.settings_reference`"


def test_fields_are_those_of_the_table(repository: Path) -> None:
    text = (repository / "dlcp" / "transport" / "settings_fields.py").read_text()
    assert text == fields_module(), RENEW


def test_reference_page_is_that_of_the_table(repository: Path) -> None:
    assert (repository / "docs" / "settings.md").read_text() == reference_page(), RENEW


def test_every_setting_of_the_table_is_a_field_with_its_default() -> None:
    settings = Settings()
    assert {item.name for item in fields(Settings)} == set(rules())
    for name, rule in rules().items():
        assert getattr(settings, name) == rule.default, name


def test_every_native_setting_is_taken_by_the_runtime() -> None:
    options = _native.RuntimeOptions(0)
    for name, rule in rules().items():
        if rule.entry.layer != "job":
            options.set(name, rule.default)
    with pytest.raises(ValueError, match="no runtime has a setting shm"):
        options.set("shm", True)


def test_command_prints_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    for name in rules():
        assert f"  {name}" in printed


def test_command_prints_one_setting_by_name_or_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["DLCP_INITIAL_RTT_S"]) == 0
    assert capsys.readouterr().out == (
        "Timers\n\n  initial_rtt_s (seconds)    DLCP_INITIAL_RTT_S\n"
        "      default 0.01; accepted: a number above 0 up to 10\n"
        "      Round-trip time assumed until one is measured.\n\n"
    )


def test_json_has_every_setting_or_those_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["settings"]] == list(rules())
    assert main(["--json", "DLCP_INITIAL_RTT_S", "key"]) == 0
    timer, key = json.loads(capsys.readouterr().out)["settings"]
    assert timer == {
        "name": "initial_rtt_s",
        "section": "Timers",
        "variable": "DLCP_INITIAL_RTT_S",
        "default": 0.01,
        "unit": "seconds",
        "accepted": "a number above 0 up to 10",
        "meaning": "Round-trip time assumed until one is measured.",
    }
    assert (key["variable"], key["default"]) == (None, None)


def test_command_names_the_nearest_setting() -> None:
    with pytest.raises(SettingsError, match=r"unknown setting 'min_rto'; did you mean min_rto_s\?$"):
        main(["min_rto"])


def test_eager_bytes_is_a_setting() -> None:
    assert Settings.load(environ={"DLCP_EAGER_BYTES": "65536"}).eager_bytes == 65536
