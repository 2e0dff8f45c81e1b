"""Versions, settings in the environment, and the job key's file."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dlcp import __version__, _native
from dlcp.doctor.finding import Finding, Topic, listed
from dlcp.errors import SettingsError
from dlcp.requirements import INSTALL_TORCH, OLDEST_TORCH, UPGRADE_TORCH
from dlcp.transport import Settings
from dlcp.transport.driver import BELOW_KERNEL

VERSIONS, CRYPTO, SETTINGS, KEY = map(Topic, ("versions", "crypto", "settings", "key"))
# Above this, tags cost more than the rest of a packet on loopback.
_TAG_NS_FAST = 110
# Variables of others that name an interface for the same purpose.
_OTHERS_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


@listed
def look_at_software() -> Iterator[Finding]:
    """Findings about versions."""
    torch = version_of("torch")
    yield VERSIONS.ok(
        f"dlcp {__version__}, wire version {_native.WIRE_VERSION}, Python {platform.python_version()}, numpy"
        f" {version_of('numpy')}, torch {torch}"
    )
    if torch == "absent":
        yield VERSIONS.warn(
            'torch is not installed: init_process_group("dlcp") and `dlcp train` need it', INSTALL_TORCH
        )
    elif _main_numbers(torch) < _main_numbers(OLDEST_TORCH):
        yield VERSIONS.fail(f"torch is {torch}; dlcp needs {OLDEST_TORCH} or later", UPGRADE_TORCH)

    ciphers = _native.offered_ciphers()
    says = (
        f"packets are protected by {_native.fastest_crypto_library()}, ciphers {', '.join(ciphers)}, by estimate"
        f" {min(ciphers.values())} ns a packet"
    )
    if min(ciphers.values()) <= _TAG_NS_FAST:
        yield CRYPTO.ok(says)
    else:
        yield CRYPTO.ok(
            says,
            "cheaper tags: libipsec-mb 2.0 on x86 (Debian 13: apt-get install libipsec-mb2)"
            + ("" if "aegis_128x2" in ciphers else ", or pip install aeg"),
        )


def version_of(package: str) -> str:
    """Of an installed package; "absent": it is not."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _main_numbers(version: str) -> tuple[int, ...]:
    """The first two: (2, 11) of "2.11.0+cpu"."""
    return tuple(int(word) for word in version.split(".")[:2] if word.isdecimal())


def look_at_settings(environ: Mapping[str, str]) -> tuple[Settings, list[Finding]]:
    """The settings of this environment, or the defaults if they are wrong, and findings about them."""
    given = sorted(name for name in environ if name.startswith("DLCP_"))
    settings = Settings()
    try:
        settings = Settings.load(environ=environ)
    except SettingsError as error:
        text = f"{error} (what follows is of the defaults)"
        found = SETTINGS.fail(text, _remedy(str(error), given, environ))
    else:
        words = ", ".join(f"{name}={environ[name]}" for name in given)
        found = SETTINGS.ok(words or "no DLCP_* variable is set: all defaults")
    return settings, [found, *_look_at_others(settings, environ), _look_at_key(settings)]


def _look_at_others(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """A finding if another library's variable names an interface and no setting of dlcp's does."""
    name = next((name for name in _OTHERS_INTERFACES if environ.get(name)), None)
    if name is not None and settings.interface is None and settings.bind_host is None:
        text = f"{name}={environ[name]} is not read by dlcp"
        yield SETTINGS.warn(text, f"export DLCP_INTERFACE='{environ[name]}'")


def _remedy(error: str, given: Sequence[str], environ: Mapping[str, str]) -> str:
    """What mends settings. `given`: the variables that are set."""
    places = {}
    for variable in given:
        # A sentence names the variable, or the setting. Every one about a file says "config" in the file's name.
        setting = "" if variable == "DLCP_CONFIG" else f"|{variable.removeprefix('DLCP_').lower()}"
        found = re.search(rf"\b({variable}{setting})\b", error)
        if found is not None:
            places[variable] = found.start()
    if not places:
        return (
            f"see {environ['DLCP_CONFIG']}" if environ.get("DLCP_CONFIG") else "see the setting that it names"
        )
    bad = min(places, key=lambda name: places[name])
    near = re.search(r"did you mean ([a-z+]+)\?", error)
    if near is not None:
        return f"export {bad}={near[1]}"
    if bad == "DLCP_BIND_HOST" and environ.get("DLCP_DRIVER", "udp").removeprefix("local+") in BELOW_KERNEL:
        return "export DLCP_BIND_HOST=10.0.0.1/24, an address of the port's own"
    return f"unset {bad}"


def _look_at_key(settings: Settings) -> Finding:
    if settings.key_file is None:
        if settings.allow_unauthenticated:
            return KEY.warn(
                "DLCP_ALLOW_UNAUTHENTICATED is set: whoever can send to a rank can forge what it receives",
                "unset DLCP_ALLOW_UNAUTHENTICATED",
            )
        return KEY.ok("a job draws its own key and shares it through the launcher's store")
    path = Path(settings.key_file)
    try:
        settings.job_key()
    except SettingsError as error:
        return KEY.fail(str(error), f"(umask 077; head -c 32 /dev/urandom > {path})")
    mode = path.stat().st_mode
    if mode & 0o077:
        return KEY.warn(f"key file {path} can be read by others (mode {mode & 0o777:o})", f"chmod 600 {path}")
    owner = "" if path.stat().st_uid == os.geteuid() else ", another user's"
    return KEY.ok(f"the job key is in {path}{owner}")


def describe_host() -> str:
    """For the headline: name, kernel, machine."""
    return f"{platform.node()}, Linux {platform.release()}, {platform.machine()}"
