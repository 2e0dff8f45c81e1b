"""The guides' examples run, each guide as one program, and the files they name exist."""

from __future__ import annotations

import re
import shutil
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
    assert [line for line in shown_output(guide) if line not in result.stdout.splitlines()] == []


def shown_output(guide: Path) -> list[str]:
    """The lines that the guide says its programs print, but for those in which something is left out."""
    texts = re.findall(r"^It prints\b.*\n\n((?: {4}.+\n)+)", guide.read_text(), re.MULTILINE)
    return [line[4:] for text in texts for line in text.splitlines() if "…" not in line]


@pytest.mark.parametrize("name", ["gradients", "start"])
def test_first_programs_show_that_few_bits_save_bytes(name: str) -> None:
    """One rank alone would send none; that the figure is what the program prints is tested above."""
    (line,) = shown_output(ROOT / "docs" / f"{name}.md")
    share = re.fullmatch(r"(\d+)% of float32's bytes", line)
    assert share is not None
    assert 0 < int(share[1]) < 100


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_files_a_guide_names_exist(guide: Path) -> None:
    names = re.findall(r"`([\w/]+\.(?:md|py|hpp|toml))`", guide.read_text())
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_nothing_says_to_install_dlcp_by_a_name_that_no_index_has(repository: Path) -> None:
    sources = [*repository.glob("*.md"), *repository.glob("docs/**/*.md"), *repository.glob("dlcp/**/*.py")]
    by_name = re.compile(r"pip install( -\S+)* ['\"]?dlcp(?![\w./-])")
    said = [found.group() for source in sources for found in by_name.finditer(source.read_text())]
    assert not said


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


OWN = (ROOT / "docs" / "extending.md").read_text()


def cpp(file: str) -> str:
    """The block of C++ that stands under a file's name."""
    (block,) = re.findall(rf"^`{re.escape(file)}`.*:\n\n```cpp\n((?:.*\n)*?)```", OWN, re.MULTILINE)
    return str(block)


@pytest.fixture(scope="module")
def with_own_controller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of headers in which the table of controllers has the page's two lines."""
    header = "native/engine/congestion/controllers.hpp"
    declaration, row = cpp(header).splitlines(keepends=True)
    head, entry, rest = (ROOT / header).read_text().partition("struct CongestionEntry {")
    table, end, tail = rest.partition("};\n\n// A controller, as its place in the table.")
    assert entry
    assert end
    folder = tmp_path_factory.mktemp("headers")
    changed = folder / "engine" / "congestion" / "controllers.hpp"
    changed.parent.mkdir(parents=True)
    changed.write_text(head + declaration + entry + table + row + end + tail)
    return folder


@pytest.mark.parametrize(
    "file",
    [
        "native/engine/congestion/aimd.cpp",
        "tests/native/engine/test_aimd.cpp",
        "sim/core/transports/fixed_window.cpp",
    ],
)
def test_cpp_of_write_your_own_compiles(file: str, with_own_controller: Path, tmp_path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, ("g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler: neither g++ nor clang++ is on PATH")
    if file.startswith("tests/") and not Path("/usr/include/doctest/doctest.h").exists():
        pytest.skip("doctest is not installed (doctest-dev)")
    source = tmp_path / "own.cpp"
    source.write_text(cpp(file))
    folders = (f"-I{folder}" for folder in (with_own_controller, ROOT / "native", ROOT))
    warnings = ("-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror")
    subprocess.run([compiler, "-std=c++20", "-fsyntax-only", *warnings, *folders, source], check=True)


def test_python_half_of_an_own_transport_gives_a_policy() -> None:
    pytest.importorskip("dlcp_sim._core", reason="the simulator's module is not built")
    from dlcp_sim import Star
    from dlcp_sim.transports import baselines

    (block,) = re.findall(r"^```py\n(.*?)^```", OWN, re.DOTALL | re.MULTILINE)
    names = {**vars(baselines), "native": lambda kind: kind}  # no module has the native half
    exec(block, names)
    assert names["FixedWindow"].name == "fixed_window"
    assert names["FixedWindow"]().policy(Star(2)).name == "unbounded"
