"""What tests/switch/rendered holds: policies, and each in every language; `python -m tests.support.render_golden`.

A policy there names its ports PORT1, PORT2 …, which become names of the system that it is rendered for. The version of
dlcp is written as VERSION, so that a release does not change the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dlcp import __version__
from dlcp.switch import Policy
from dlcp.switch.render import RENDERERS, Rendered, render

DIRECTORY = Path(__file__).resolve().parent.parent / "switch" / "rendered"
POLICIES = ("selective", "simple", "trimming")
PORTS = {
    "tc": ("eth1", "eth2", "eth3"),
    "sonic": ("Ethernet0", "Ethernet4", "Ethernet8"),
    "cumulus": ("swp1", "swp2", "swp3s0"),
    "nvue": ("swp1", "swp2", "swp3s0"),
    "eos": ("Ethernet1/1", "Ethernet2/1", "Ethernet3"),
    "nxos": ("Ethernet1/1", "Ethernet1/2", "Ethernet1/3/1"),
}


def source(policy: str, system: str) -> str:
    """The TOML text of a policy for a system."""
    text = (DIRECTORY / f"{policy}.toml").read_text(encoding="utf-8")
    for index, port in enumerate(PORTS[system], start=1):
        text = text.replace(f"PORT{index}", port)
    return text


def rendered(policy: str, system: str) -> Rendered:
    """A golden policy in the language of a system."""
    text = source(policy, system)
    return render(Policy.from_toml(text), system, source=text)


def files() -> Iterator[tuple[str, str]]:
    """Name and text of every golden file."""
    for policy in POLICIES:
        for system in RENDERERS:
            done = rendered(policy, system)
            name = f"{policy}.{system}.{done.system.suffix}"
            yield name, _versionless(done.text)
            if done.system.comment is None:
                yield f"{name}.txt", _versionless(done.notes)


def _versionless(text: str) -> str:
    return text.replace(f"dlcp {__version__} ", "dlcp VERSION ")


def main() -> None:
    """Writes them, and removes what is not written any more."""
    kept = set()
    for name, text in files():
        (DIRECTORY / name).write_text(text, encoding="utf-8")
        kept.add(name)
    for file in DIRECTORY.iterdir():
        if file.name not in kept and file.suffix != ".toml":
            file.unlink()


if __name__ == "__main__":
    main()
