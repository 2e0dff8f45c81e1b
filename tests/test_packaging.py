"""What is installed: the right names, the right dependencies, and a wheel that stands alone."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
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


# Drivers that are plugins, by the pkg-config package and the version that CMakeLists.txt asks for.
PLUGINS = {"dpdk": ("libdpdk", "22.11"), "xdp": ("libxdp", "1.2")}
# What every Linux has, and libcrypto, which protects packets.
SYSTEM_LIBRARIES = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcrypto|ld-linux[\w-]*)\.so\.\d+"
)


def is_built_here(plugin: str) -> bool:
    package, version = PLUGINS[plugin]
    try:
        return (
            subprocess.run(["pkg-config", f"--atleast-version={version}", package], check=False).returncode
            == 0
        )
    except FileNotFoundError:
        return False


def needed_libraries(library: Path) -> set[str]:
    """The shared libraries that this one names and that are not everybody's."""
    listed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"\(NEEDED\)\s+Shared library: \[(.+)\]", listed))
    assert names
    return {name for name in names if not SYSTEM_LIBRARIES.fullmatch(name)}


def package_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def test_runtime_needs_two_packages_and_training_one_more(pyproject: dict[str, Any]) -> None:
    assert package_names(pyproject["project"]["dependencies"]) == {"aeg", "numpy"}
    assert package_names(pyproject["project"]["optional-dependencies"]["torch"]) == {"torch"}


def test_editable_install_makes_nothing_beside_the_checkout_importable(
    repository: Path, pyproject: dict[str, Any]
) -> None:
    """scikit-build-core puts each package's folder on sys.path, less as many folders as the package's name has."""
    for package, folder in pyproject["tool"]["scikit-build"]["wheel"]["packages"].items():
        assert (repository / folder).parents[len(Path(package).parts) - 1].is_relative_to(repository)


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


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@builds_wheel
@pytest.mark.parametrize("plugin", PLUGINS)
def test_wheel_holds_a_driver_where_its_library_was_found(plugin: str, unpacked: Path) -> None:
    library = unpacked / "dlcp" / f"libdlcp_io_{plugin}.so"
    assert library.exists() == is_built_here(plugin)


@builds_wheel
def test_modules_need_no_library_of_a_driver(unpacked: Path) -> None:
    """Of other libraries those alone that OpenSSL's archive may need, as Debian 14's does."""
    for pattern in ("dlcp/_native.*.so", "dlcp_sim/_core.*.so"):
        (module,) = unpacked.glob(pattern)
        assert needed_libraries(module) <= {"libz.so.1", "libzstd.so.1"}


@builds_wheel
@pytest.mark.parametrize(
    ("plugin", "own"), [("dpdk", r"librte_\w+\.so\.\d+"), ("xdp", r"lib(xdp|bpf)\.so\.\d+")]
)
def test_driver_needs_its_own_libraries_only(plugin: str, own: str, unpacked: Path) -> None:
    if not is_built_here(plugin):
        pytest.skip(f"no {' '.join(PLUGINS[plugin])} for pkg-config")
    needed = needed_libraries(unpacked / "dlcp" / f"libdlcp_io_{plugin}.so")
    assert needed
    assert {name for name in needed if not re.fullmatch(own, name)} == set()


@builds_wheel
def test_dlcp_without_the_dpdk_driver_works_and_says_what_to_install(unpacked: Path, tmp_path: Path) -> None:
    """What a wheel is that was built where there is no DPDK."""
    site = tmp_path / "site"
    shutil.copytree(unpacked, site, ignore=shutil.ignore_patterns("libdlcp_io_*.so"))
    code = """
import sys
sys.path[:0] = [sys.argv[1]]
sys.path.append(sys.argv[2])
import dlcp
from dlcp.errors import DriverError
from dlcp.transport import Endpoint, dpdk
assert dlcp.__file__.startswith(sys.argv[1])
with Endpoint(rank=0) as a, Endpoint(rank=1) as b:
    a.connect(1, b.address)
try:
    Endpoint(rank=0, driver="dpdk", bind_host="192.0.2.1/24", allow_unauthenticated=True)
except DriverError as error:
    print(error)
print(dpdk.why_not())
"""
    numpy = Path(importlib.util.find_spec("numpy").origin).parent.parent  # type: ignore[union-attr,arg-type]
    result = subprocess.run(
        # Without site, or an editable install of dlcp would come first.
        [sys.executable, "-I", "-S", "-c", code, site, numpy],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    refusal, why_not = result.stdout.splitlines()
    assert refusal.startswith("driver 'dpdk': ")
    assert "apt-get install libdpdk-dev" in why_not


@pytest.mark.parametrize("without", ["-DDLCP_BUILD_PLUGINS=OFF", "-DPKG_CONFIG_EXECUTABLE=/bin/false"])
def test_build_goes_without_drivers_that_need_a_library(
    without: str, repository: Path, tmp_path: Path
) -> None:
    configured = subprocess.run(
        ["cmake", "-S", repository, "-B", tmp_path, "-G", "Ninja", without],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    targets = subprocess.run(
        ["cmake", "--build", tmp_path, "--target", "help"], capture_output=True, text=True, check=True
    ).stdout
    assert "dlcp_plugins: phony" in targets
    assert not re.search(r"libdlcp_io_\w+\.so", targets)
    assert ("libdpdk-dev" in configured) == ("PKG_CONFIG" in without)


def test_source_distribution_holds_all_that_is_committed(repository: Path, tmp_path: Path) -> None:
    """So that `make` works in it as in a clone: it calls programs in .ci, and runs the tests."""
    listed = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"git does not say what is committed: {listed.stderr.strip()}")
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=repository, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {name for name in listed.stdout.splitlines() if (repository / name).exists()} - names == set()


def test_wheels_are_for_interpreters_that_are_here(repository: Path) -> None:
    """`make wheels` tries what it builds; this is that it would build something."""
    printed = subprocess.run(
        ["make", "-n", "--no-print-directory", "wheels"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    _, program, *interpreters = printed.stdout.splitlines()[-1].split()
    assert program == ".ci/wheels.py"
    assert interpreters
    assert [one for one in interpreters if shutil.which(one) is None] == []
