"""`dlcp switch show`: a policy as a person reads it, each set of thresholds said once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp.cli import main
from dlcp.switch.policy import Policy, Port, Thresholds, TrafficClass, importance_levels
from dlcp.switch.runs import runs
from dlcp.switch.start import starting_policy

LEVELS = importance_levels("drop_above_bytes", 8_000, 15_000)


def shown(policy: Policy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    path = tmp_path / "policy.toml"
    policy.save(path)
    assert main(["switch", "show", str(path)]) == 0
    return capsys.readouterr().out.splitlines()


def test_numbers_are_listed_by_runs() -> None:
    assert runs([8, 8, 0, 1, 2, 10, 9, 63]) == "0–2, 8–10, 63"
    assert runs([]) == ""


def test_starting_policy_fits_on_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(starting_policy(10**11), tmp_path, capsys)
    assert len(lines) < 32
    assert max(map(len, lines)) <= 110
    assert [line for line in lines if "  marked from" in line] == [
        "classes 0–6           marked from  dropped above"
    ]
    assert "class 7: never marked or trimmed, dropped only where the buffer ends" in lines


def test_droppable_packets_are_shown_as_never_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # As native/switch/decision.hpp has it: only what is ECN-capable is.
    marks = Thresholds(1_000, 2_000, 0.5)
    lines = shown(Policy(classes=(TrafficClass(1, dscp=(8,), droppable=(marks,)),)), tmp_path, capsys)
    assert "class 1: never marked or trimmed, dropped only where the buffer ends" in lines


def test_foreign_traffic_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = shown(Policy(classes=(TrafficClass(1, dscp=(8, 10)),)), tmp_path, capsys)
    at = alone.index("foreign      in queue 0; never marked or trimmed:")
    assert alone[at + 1].split() == [
        "DSCP",
        "0–7,",
        "9,",
        "11–63;",
        "VLAN,",
        "IPv4",
        "options,",
        "what",
        "is",
        "not",
        "IP",
    ]
    shared = shown(Policy(classes=(TrafficClass(0, dscp=tuple(range(64))),)), tmp_path, capsys)
    at = shared.index("foreign      in queue 0 with class 0; never marked or trimmed:")
    assert shared[at + 1].split() == ["VLAN,", "IPv4", "options,", "what", "is", "not", "IP"]


def test_every_threshold_and_ratio_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ramp = Thresholds(3_000, 7_000, 0.25, trim_above_bytes=8_000, drop_above_bytes=9_000)
    levels = (*LEVELS[:6], *[Thresholds(drop_above_bytes=20_000)] * 2)
    own = TrafficClass(2, critical=Thresholds(1_000), droppable=(Thresholds(trim_above_bytes=500),))
    policy = Policy(
        classes=(TrafficClass(2, "two", (16,), ramp, levels), TrafficClass(1, "one", (8,), ramp, levels)),
        ports=(Port("up1", 10**10, (own,)), Port("up2", 10**10, (own,)), Port("down", 10**9)),
    )
    lines = shown(policy, tmp_path, capsys)
    at = next(i for i, line in enumerate(lines) if line.startswith("classes 1–2 "))
    title = "classes 1–2           marked from  all marked  mark ratio  trimmed above  dropped above"
    assert lines[at] == title
    assert lines[at + 1].split() == ["critical", "3000", "7000", "0.25", "8000", "9000"]
    # Equal levels together, the most important first.
    assert lines[at + 2].split() == ["importance", "192–254", "–", "–", "–", "–", "20000"]
    assert lines[at + 3].split() == ["importance", "160–191", "–", "–", "–", "–", "13000"]
    at = next(i for i, line in enumerate(lines) if line.startswith("classes 2 at up1, 2 at up2 "))
    assert lines[at + 1].split() == ["critical", "1000", "–"]
    assert lines[at + 2].split() == ["droppable", "–", "500"]
    assert "down  1 Gb/s" in lines
