"""The guides' examples run, each guide as one program, and the files they name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GUIDES = sorted((ROOT / "docs").glob("*.md"))
EXAMPLES = [guide for guide in GUIDES if "```python\n" in guide.read_text()]


@pytest.mark.parametrize("guide", EXAMPLES, ids=lambda guide: guide.stem)
def test_examples_run_one_after_another(guide: Path) -> None:
    pytest.importorskip("dlcp._native", reason="the extension module is not built")
    blocks = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.DOTALL | re.MULTILINE)
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False, timeout=100
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_files_a_guide_names_exist(guide: Path) -> None:
    names = re.findall(r"`([\w/]+\.(?:md|py|hpp|toml))`", guide.read_text())
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_guide_to_switches_shows_a_policy_and_a_topology_that_load() -> None:
    from dlcp.switch import Policy, Topology

    text = (ROOT / "docs" / "switch.md").read_text()
    policy, topology = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    uplinks = Policy.from_toml(policy).path_groups["uplinks"]
    assert uplinks == ("up1", "up2")
    Topology.from_toml(topology).check_policy(Policy.from_toml(policy))


def test_the_guide_to_gradients_lists_every_option_with_its_default() -> None:
    from dataclasses import fields

    from dlcp.torch import GradientOptions

    text = (ROOT / "docs" / "gradients.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `?([^|`]+)`? \|", text, re.MULTILINE)
    listed = dict(rows)
    options = GradientOptions()
    for field in fields(GradientOptions):
        if field.name in ("residual", "seed"):
            continue
        assert listed[field.name].strip() == _shown(getattr(options, field.name)), field.name


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
