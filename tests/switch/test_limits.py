"""What a target cannot do of a policy: named by the line of the file, refused or noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp.switch import (
    Policy,
    Port,
    SwitchTarget,
    Thresholds,
    TrafficClass,
)
from dlcp.switch.entries import (
    desired_entries,
    limits_of,
)
from dlcp.switch.limits import Limit, UnsupportedError, line_number, refuse
from dlcp.switch.policy_file import PolicyFile

pytest.importorskip("finsy", reason="needs the packages of the extra p4")


SMALL = SwitchTarget("s1", "h:1", {"a": 1, "b": 2, "c": 3})


# --- limits ---------------------------------------------------------------------------------------------------

TRIMS = TrafficClass(1, dscp=(8,), droppable=(Thresholds(trim_above_bytes=100),))


def limits(policy: Policy) -> dict[str, bool]:
    """Line → whether it is refused."""
    return {limit.line: limit.refused for limit in limits_of(policy)}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(port_bytes=9), {}),
        (Policy(shared_bytes=9), {}),
        (Policy(), {"port_bytes": True}),
        (Policy(port_bytes=9, pause_above_bytes=5), {"pause_above_bytes": True}),
        (Policy(port_bytes=9, trimmed_run_packets=10), {"trimmed_run_packets": True}),
        (Policy(port_bytes=9, trimmed_bytes=200), {}),
        (Policy(port_bytes=9, classes=(TRIMS,)), {"trimmed_bytes": False, "trimmed_class": False}),
        (
            Policy(port_bytes=9, trimmed_bytes=106, classes=(TRIMS, TrafficClass(7, dscp=(56,)))),
            {},
        ),
        (Policy(port_bytes=9, ports=(Port("a", 10**9),)), {"port.rate_bps": False}),
    ],
    ids=lambda value: None if isinstance(value, Policy) else ",".join(value) or "none",
)
def test_limits_of_bmv2_are_told(policy: Policy, expected: dict[str, bool]) -> None:
    assert limits(policy) == expected


def test_refused_limit_says_line_number_and_what_happens_instead(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("# pfc\nport_bytes = 900\npause_above_bytes = 800\n")
    file = PolicyFile.load(path)
    found = desired_entries(file.policy, SMALL).limits
    with pytest.raises(UnsupportedError) as raised:
        refuse(found, [], file.text, file.path)
    said = str(raised.value)
    assert said.startswith(f"{path}:3: pause_above_bytes = 800: BMv2 sends no pause frames")
    assert "instead: packets that find the buffer full are dropped" in said
    assert said.endswith("To go on all the same: --accept pause_above_bytes")
    refuse(found, ["pause_above_bytes"], file.text, file.path)


def test_line_is_found_in_its_table() -> None:
    text = 'name = "x"\nrate_bps = 1\n[path_groups]\nrate_bps = ["a"]\n[[port]]\nname = "a"\n  rate_bps=5\n'
    assert line_number(text, "port.rate_bps") == 7
    assert line_number(text, "rate_bps") == 2
    assert line_number(text, "shared_bytes") is None


def test_several_refused_lines_are_all_told() -> None:
    two = [Limit(line, 1, "why", "instead") for line in ("a", "b")]
    with pytest.raises(UnsupportedError, match="--accept a --accept b"):
        refuse(two, [], None, "p")
    refuse(two, ["a", "b"], None, "p")
