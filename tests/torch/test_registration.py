"""How torch comes to know the backend: at its import, by dlcp.torch's, by register(); and at what price."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch.torch_version import TorchVersion

from dlcp.requirements import OLDEST_TORCH
from dlcp.torch import registration


def python(code: str, *, path: Path | None = None, **environment: str) -> str:
    """What a fresh interpreter printed."""
    paths = [str(Path(__file__).resolve().parents[2]), *([str(path)] if path else [])]
    environment = {"PYTHONPATH": os.pathsep.join(paths), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def installed(tmp_path: Path, repository: Path) -> Path:
    """A folder that says what an installed dlcp says, for a tree that was installed before it said so."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["torch.backends"]
    folder = tmp_path / "as_if_installed-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: as-if-installed\nVersion: 1.0\n")
    lines = "".join(f"{name} = {target}\n" for name, target in points.items())
    (folder / "entry_points.txt").write_text(f"[torch.backends]\n{lines}")
    return tmp_path


KNOWN = (
    "from torch.distributed import Backend;"
    "print('DLCP' in Backend._plugins, Backend.backend_list.count('dlcp'))"
)


def test_importing_torch_registers(installed: Path) -> None:
    assert python(f"import torch; {KNOWN}", path=installed) == "True 1"


def test_importing_dlcp_torch_first_registers_once(installed: Path) -> None:
    # torch is then imported by dlcp.torch, and asks for it while it is being imported.
    assert python(f"import dlcp.torch; {KNOWN}", path=installed) == "True 1"


def test_without_autoload_importing_dlcp_torch_registers() -> None:
    off = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert python(f"import dlcp.torch; {KNOWN}", **off) == "True 1"
    again = "import dlcp.torch; dlcp.torch.register(); dlcp.torch.register();"
    assert python(f"{again} {KNOWN}", **off) == "True 1"


def test_autoload_loads_next_to_nothing(installed: Path) -> None:
    # The bound on time (20 ms) is the benchmarks'; this is why it holds.
    code = "import sys, torch; print(sorted(name for name in sys.modules if name.split('.')[0] == 'dlcp'))"
    loaded = (
        "['dlcp', 'dlcp.requirements', 'dlcp.torch', 'dlcp.torch.backend_name', 'dlcp.torch.registration']"
    )
    assert python(code, path=installed) == loaded


def test_making_a_group_does_not_import_dynamo() -> None:
    code = "import dlcp.torch.process_group, sys; print('torch._dynamo' in sys.modules)"
    assert python(code) == "False"


def test_devices_keep_their_defaults() -> None:
    code = (
        "import dlcp.torch, torch.distributed as dist; print(dist.Backend.default_device_backend_map['cpu'])"
    )
    assert python(code) == "gloo"


def test_entry_point_loads(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    target = project["entry-points"]["torch.backends"]["dlcp"]
    EntryPoint("dlcp", target, "torch.backends").load()()


def test_a_torch_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.3.1+cpu"))
    with pytest.raises(
        ImportError,
        match=r"torch is 2\.3\.1\+cpu; accepted by the backend dlcp: .* or later: pip install -U torch$",
    ):
        registration._create(None)


def test_the_oldest_torch_is_the_one_that_is_installed_with(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["torch"] == [f"torch>={OLDEST_TORCH}"]


def test_names_of_the_package() -> None:
    import dlcp.torch

    for name in dlcp.torch.__all__:
        assert getattr(dlcp.torch, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = dlcp.torch.nothing
