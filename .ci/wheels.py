"""Wheels for Linux with glibc 2.28 or later, built and tried here, into dist: `wheels.py PYTHON ...` (make wheels).

They are built from the source distribution, which goes into dist too. The compiler is zig, from PyPI: it links with the
glibc that it is told and brings its C++ library along, so no old system is needed. OpenSSL is linked in, from Debian's
packages unpacked in a folder: zig does not read /usr/include. The drivers that need libraries of the host (DPDK,
AF_XDP) are left out. A wheel of Python 3.12 or later is for all later ones too (abi3).
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
# Debian 10, Ubuntu 18.10, RHEL 8.
GLIBC = "2.28"
# Each processor as Debian calls it. intel-ipsec-mb.h names a library that is loaded where the host has it.
DEBIAN = {"x86_64": ("amd64", ["libssl-dev", "libipsec-mb-dev"]), "aarch64": ("arm64", ["libssl-dev"])}
WHEEL_BYTES_MAX = 15_000_000
# Downloads of numpy and aeg are part of it.
INSTALL_S_MAX = 60
# Two ranks add, with the tags that need the package aeg; OpenSSL is in the module and hidden.
TRY = """
from concurrent.futures import ThreadPoolExecutor
import ctypes
import numpy as np
from dlcp import _native
from dlcp.transport import DataType, Job, MemoryStore, Span

def rank(number):
    data = np.full(1 << 20, number + 1, np.float32)
    with Job(store, number, 2) as job:
        job.open_communicator("all").all_reduce(Span.of(data), DataType.f32).wait(60)
    return set(data)

assert "aegis_128x2" in _native.offered_ciphers(), _native.offered_ciphers()
assert not hasattr(ctypes.CDLL(_native.__file__), "EVP_EncryptInit_ex"), "libcrypto is not hidden"
store = MemoryStore(60)
with ThreadPoolExecutor(2) as pool:
    assert list(pool.map(rank, range(2))) == [{3.0}, {3.0}]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "pythons", nargs="+", metavar="PYTHON", help="interpreters; two of 3.12 or later: one wheel"
    )
    parser.add_argument("--machine", choices=DEBIAN, default=platform.machine())
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = environment("tools", "python3", project["project"]["optional-dependencies"]["wheels"])
    libraries = unpacked(options.machine)
    defines = cmake_defines(options.machine, tools, libraries)
    built: dict[str, Path] = {}
    source: Path | None = None
    for python in options.pythons:
        minor = int(run(python, "-c", "import sys; print(sys.version_info.minor)"))
        tag = "cp311" if minor == 11 else "cp312-abi3"
        if tag not in built:
            own = environment(f"python3.{minor}", python, project["build-system"]["requires"])
            source = source or unpacked_source(own)
            built[tag] = build(source, options.machine, tag, own, tools, defines)
        if options.machine == platform.machine():
            try_out(built[tag], python)


def run(*words: object, folder: Path = ROOT, **changes: str) -> str:
    """What a program prints that runs in a folder. Its complaints go to the terminal."""
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=os.environ | changes,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def environment(name: str, python: str, packages: list[str]) -> Path:
    """An environment with the packages in the versions that are tested together: its bin."""
    folder, made = WORK / name, WORK / name / "made"
    wanted = "\n".join([*packages, (ROOT / "constraints.txt").read_text()])
    if not made.exists() or made.read_text() != wanted:
        run(python, "-m", "venv", "--clear", folder)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        run(*pip, "-c", "constraints.txt", *packages)
        made.write_text(wanted)
    return folder / "bin"


def unpacked(machine: str) -> Path:
    """The root of Debian's packages for a machine. What apt knows of this host stays as it is."""
    architecture, packages = DEBIAN[machine]
    folder, apt = WORK / machine / "libraries", WORK / machine / "apt"
    if not folder.exists():
        for place in ("lists/partial", "cache/archives/partial"):
            (apt / place).mkdir(parents=True, exist_ok=True)
        own = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "",
            "Dir::State": apt,
            "Dir::State::status": "/dev/null",
            "Dir::Cache": apt / "cache",
        }
        words = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in own.items())]
        run(*words, "update")
        subprocess.run([*map(str, words), "download", *packages], cwd=apt, check=True)
        for package in apt.glob("*.deb"):
            run("dpkg-deb", "-x", package, apt / "root")
        # The headers that differ by machine, beside the others.
        include = apt / "root" / "usr" / "include"
        shutil.copytree(include / f"{machine}-linux-gnu", include, dirs_exist_ok=True)
        (apt / "root").rename(folder)
    return folder / "usr"


def cmake_defines(machine: str, tools: Path, libraries: Path) -> dict[str, object]:
    """What CMake is told of the compiler and the libraries. CMake wants one word for each program."""
    programs = WORK / machine / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    target = f"-target {machine}-linux-gnu.{GLIBC}"
    # A broken invariant stops the program in this build too: zig would define NDEBUG with -O3.
    for name, words in (("c++", f"c++ {target} -UNDEBUG"), ("ar", "ar"), ("ranlib", "ranlib")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{tools}/python" -m ziglang {words} "$@"\n')
        program.chmod(0o755)
    found = {
        "CMAKE_CXX_COMPILER": programs / "c++",
        "CMAKE_AR": programs / "ar",
        "CMAKE_RANLIB": programs / "ranlib",
        "DLCP_BUILD_PLUGINS": "OFF",
        "OPENSSL_USE_STATIC_LIBS": "ON",
        "OPENSSL_INCLUDE_DIR": libraries / "include",
        "OPENSSL_CRYPTO_LIBRARY": libraries / "lib" / f"{machine}-linux-gnu" / "libcrypto.a",
        # OFF: not for this processor.
        "DLCP_IPSEC_MB_INCLUDE_DIR": libraries / "include" if machine == "x86_64" else "OFF",
    }
    if machine != platform.machine():
        found |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": machine}
    return found


def unpacked_source(own: Path) -> Path:
    """The root of the source distribution, always in one place: the compiler knows by it what it has compiled."""
    folder = WORK / "source"
    shutil.rmtree(folder, ignore_errors=True)
    DIST.mkdir(exist_ok=True)
    code = "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))"
    name = run(own / "python", "-c", code, DIST).split()[-1]
    shutil.unpack_archive(DIST / name, folder)
    return folder / name.removesuffix(".tar.gz")


def build(source: Path, machine: str, tag: str, own: Path, tools: Path, defines: dict[str, object]) -> Path:
    """The wheel in dist."""
    begin = time.monotonic()
    raw = WORK / machine / tag
    # Files of a source distribution are all of one time, by which a build would not see what has changed.
    for made in ("build", "wheel"):
        shutil.rmtree(raw / made, ignore_errors=True)
    settings = {f"cmake.define.{name}": value for name, value in defines.items()}
    settings |= {"build-dir": raw / "build", "wheel.py-api": "cp312"}
    run(
        *(own / "python", "-m", "pip", "wheel", "-qq", "--disable-pip-version-check"),
        *("--no-deps", "--no-build-isolation", "--wheel-dir", raw / "wheel"),
        *(f"--config-settings={name}={value}" for name, value in settings.items()),
        source,
        CMAKE_CXX_COMPILER_LAUNCHER="",  # zig keeps objects itself
        ZIG_GLOBAL_CACHE_DIR=str(WORK / "zig"),
        ZIG_LOCAL_CACHE_DIR=str(WORK / "zig"),
        PATH=f"{own}:{os.environ['PATH']}",
        # Read by Python and scikit-build-core where the machine is another one.
        _PYTHON_HOST_PLATFORM=f"linux-{machine}",
        SETUPTOOLS_EXT_SUFFIX=f".{'cpython-311-' if tag == 'cp311' else 'cpython-312-'}{machine}-linux-gnu.so",
    )
    (wheel,) = (raw / "wheel").glob("*.whl")
    shutil.rmtree(raw / "repaired", ignore_errors=True)
    run(
        *(tools / "python", "-m", "auditwheel", "repair", "--wheel-dir", raw / "repaired", wheel),
        PATH=f"{tools}:{os.environ['PATH']}",
    )
    (repaired,) = (raw / "repaired").glob("*.whl")
    # auditwheel takes no --plat of another processor, so what it found is checked here.
    needed = min(tuple(map(int, found)) for found in re.findall(r"manylinux_(\d+)_(\d+)_", repaired.name))
    assert needed <= tuple(map(int, GLIBC.split("."))), f"{repaired.name} needs a glibc later than {GLIBC}"
    size = repaired.stat().st_size
    assert size <= WHEEL_BYTES_MAX, f"{repaired.name} has {size} bytes; at most {WHEEL_BYTES_MAX} are wanted"
    print(f"{repaired.name}: {size / 1e6:.1f} MB in {time.monotonic() - begin:.0f} s", flush=True)
    return Path(shutil.copy(repaired, DIST))


def try_out(wheel: Path, python: str) -> None:
    """Installs the wheel where nothing else is, without building anything, and runs what needs no other host."""
    folder = WORK / "tried"
    run(python, "-m", "venv", "--clear", folder)
    begin = time.monotonic()
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    run(*pip, "--only-binary=:all:", wheel)
    installed_s = time.monotonic() - begin
    assert installed_s <= INSTALL_S_MAX, (
        f"{wheel.name} installs in {installed_s:.0f} s; at most {INSTALL_S_MAX} are wanted"
    )
    for words in (
        ["version"],
        ["doctor", "--alone"],
        ["ping", "--demo", "--count", "10"],
        ["sim", "run", ROOT / "docs" / "simulator" / "incast.toml"],
    ):
        run(folder / "bin" / "dlcp", *words, folder=folder)  # not where the sources are
    run(folder / "bin" / "python", "-c", TRY, folder=folder)
    print(f"{wheel.name} under {python}: installed in {installed_s:.0f} s, works", flush=True)


if __name__ == "__main__":
    main()
