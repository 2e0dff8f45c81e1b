"""Drivers that are plugins: what is said of one that is not there, or that does not load."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dlcp.errors import DriverError
from dlcp.transport import plugins

REBUILD = "in a checkout of dlcp, pip install --no-deps --force-reinstall --no-cache-dir ."
BUILD = {"dpdk": "apt-get install libdpdk-dev dpdk pkgconf", "xdp": "apt-get install libxdp-dev pkgconf"}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where plugins are looked for: there is none."""
    monkeypatch.setattr(plugins, "_FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "library"), [("dpdk", "DPDK"), ("xdp", "libxdp")])
def test_absent_plugin_says_what_to_install(name: str, library: str, folder: Path) -> None:
    lack = plugins.why_not(name)
    assert lack == plugins.Lack(f"dlcp was built without {library}", f"{BUILD[name]}, then {REBUILD}")
    with pytest.raises(DriverError) as raised:
        plugins.load(name)
    assert str(raised.value) == str(lack) == f"{lack.text}: {lack.remedy}"


@pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed")
def test_library_that_is_missing_is_named(folder: Path) -> None:
    gone = folder / "librte_gone.so"
    build = ["cc", "-shared", "-fPIC", "-x", "c", "/dev/null"]
    subprocess.run([*build, "-o", gone, "-Wl,-soname,librte_gone.so.23"], check=True)
    words = [*build, "-o", plugins.path("dpdk"), "-x", "none", "-Wl,--no-as-needed", gone]
    subprocess.run(words, check=True)
    gone.unlink()
    assert plugins.why_not("dpdk") == plugins.Lack(
        "the DPDK driver needs the library librte_gone.so.23, which is not installed",
        f"apt-get install dpdk; if that brings another version, {plugins.install('dpdk')}",
    )


def test_file_that_is_no_library_is_named(folder: Path) -> None:
    plugins.path("xdp").write_text("no library")
    lack = plugins.why_not("xdp")
    assert lack is not None
    assert lack.text.startswith(f"the XDP driver does not load ({plugins.path('xdp')}: ")
    assert lack.remedy == plugins.install("xdp")


@pytest.mark.parametrize(
    ("library", "package"),
    [("libxdp.so.1", "libxdp1"), ("libbpf.so.1", "libbpf1"), ("libelf.so.1", "libelf1"), ("libz.so.1", None)],
)
def test_package_of_a_missing_library(
    library: str, package: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins.path("xdp").touch()

    def refuse(path: str) -> None:
        raise OSError(f"{library}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(plugins.ctypes, "CDLL", refuse)
    install = plugins.install("xdp")
    brings = f"apt-get install {package}; if that brings another version, {install}" if package else install
    assert plugins.why_not("xdp") == plugins.Lack(
        f"the XDP driver needs the library {library}, which is not installed", brings
    )
