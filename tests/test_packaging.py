"""What is installed: the right names, the right dependencies, and a wheel that stands alone."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dlcp.switch import programs


@pytest.fixture(scope="module")
def pyproject(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text())


# Both modules are compiled for it; on two busy cores that takes minutes, unless ccache has them.
builds_wheel = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree. Its objects stay in build/wheel, so that only the first one takes long."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
            *(
                "--disable-pip-version-check",
                "--config-settings=build-dir=build/wheel",
                "--wheel-dir",
                folder,
                ".",
            ),
        ],
        cwd=repository,
        check=True,
    )
    (found,) = folder.glob("*.whl")
    return found


def package_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def test_runtime_needs_numpy_and_torch_only(pyproject: dict[str, Any]) -> None:
    assert package_names(pyproject["project"]["dependencies"]) == {"numpy", "torch"}


def test_build_needs_no_torch(pyproject: dict[str, Any]) -> None:
    assert package_names(pyproject["build-system"]["requires"]) == {"scikit-build-core", "nanobind"}


def test_constraints_pin_what_setup_installs(repository: Path, pyproject: dict[str, Any]) -> None:
    lines = (repository / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    project = pyproject["project"]
    named = [
        *project["dependencies"],
        *pyproject["build-system"]["requires"],
        *(requirement for group in project["optional-dependencies"].values() for requirement in group),
    ]
    assert package_names(named) - {name.replace("_", "-") for name in pins} == set()
    assert pins["torch"] == "2.13.0"


def test_installed_version_is_the_packages() -> None:
    import dlcp

    assert importlib.metadata.version("dlcp") == dlcp.__version__


def test_license_is_apache(repository: Path) -> None:
    assert "Apache License" in (repository / "LICENSE").read_text()
    assert importlib.metadata.metadata("dlcp")["License-Expression"] == "Apache-2.0"


@builds_wheel
def test_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {
        "dlcp",
        "dlcp_sim",
        wheel.name.split("-cp")[0] + ".dist-info",
    }
    assert "dlcp/py.typed" in names
    assert {"dlcp_sim/__init__.py", "dlcp_sim/_core.pyi", "dlcp_sim/py.typed"} <= set(names)
    assert not [name for name in names if name.endswith((".a", ".cpp", ".hpp", ".cmake"))]
    compiled = {name.removeprefix("dlcp/switch/compiled/") for name in names if "/compiled/" in name}
    outputs = {name + suffix for name in programs.names() for suffix in (".json", ".p4info.txtpb")}
    assert compiled == outputs | {"manifest.toml"}
    for module in (r"dlcp/_native", r"dlcp_sim/_core"):
        assert [name for name in names if re.fullmatch(module + r"\..*\.so", name)]


@pytest.mark.slow
@builds_wheel
def test_wheel_imports_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """No torch, no numpy, no source tree: `import dlcp` and the engine still load."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = """
import importlib.util, dlcp, dlcp.switch, dlcp_sim
import dlcp._native, dlcp_sim._core
from dlcp.switch import programs
assert programs.folder().parent.name == "switch"
assert programs.load("v1model").json
assert importlib.util.find_spec("sim") is None
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([python, "-c", code], cwd=tmp_path, env=environment, check=True)
