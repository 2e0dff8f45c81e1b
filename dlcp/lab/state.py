"""The labs of this user on this machine, a folder each, and the removal of what a killed process left behind.

A lab that a process holds ends with it; a lab without a holder stands until it is taken down. Invariants: a namespace
that belongs to no lab is removed by the next lab that comes up, and by `dlcp lab down`. Nothing is read or deleted in a
folder that another user could have written. A lab has the name of its folder.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcp.lab import namespaces
from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import FabricError, Fault
from dlcp.own_files import folder_fault

DEFAULT_NAME = "lab"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_FILE = "state.json"
# A folder without its file belongs to a lab that is just being made, or to nobody.
_FRESH_S = 30.0
_serial = itertools.count()


def root() -> Path:
    """The folder that holds a folder for each lab; it may not exist yet."""
    if os.geteuid() == 0:
        return Path("/run/dlcp")
    if runtime_folder := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime_folder, "dlcp")
    return Path("/tmp", f"dlcp-{os.geteuid()}")


def private_root() -> Path:
    """`root()`, made if it is missing. FabricError: another user owns it or may write to it."""
    folder = root()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if fault := folder_fault(folder):
        raise FabricError(f"{fault} (XDG_RUNTIME_DIR)")
    return folder


def fresh_name() -> str:
    """A name that no other lab has."""
    return f"p{os.getpid()}n{next(_serial)}"


@dataclass
class LabState:
    """What another process must know of a lab to change it."""

    name: str
    fabric: Fabric
    prefix: str
    """Of its namespaces' names."""
    holder: tuple[int, str] | None
    """Process id and start of who holds it; None: it stands."""
    faults: dict[str, Fault] = field(default_factory=dict)
    """By link, those that are not none."""
    around: list[str] = field(default_factory=list)
    """Cut links that routing knows of."""
    policy: str = ""
    """The switches' policy, as TOML; empty: they obey none."""

    @property
    def directory(self) -> Path:
        """For sockets, logs, compiled programs."""
        return root() / self.name

    @property
    def is_orphan(self) -> bool:
        return self.holder is not None and not namespaces.is_alive(*self.holder)

    def create(self) -> None:
        """Makes the folder. FabricError: the name is malformed, or another lab has it."""
        _check_name(self.name)
        try:
            (private_root() / self.name).mkdir(mode=0o700)
        except FileExistsError:
            raise FabricError(
                f"lab {self.name!r} is up already; give another --name, or take it down: "
                f"dlcp lab down --name {self.name}"
            ) from None
        self.save()

    def save(self) -> None:
        """Writes what it is now; a reader sees the old or the new."""
        table = {
            "fabric": self.fabric.to_table(),
            "prefix": self.prefix,
            "holder": self.holder,
            "faults": {name: fault.to_table() for name, fault in self.faults.items()},
            "around": self.around,
            "policy": self.policy,
        }
        draft = self.directory / f"{_FILE}.new"
        draft.write_text(json.dumps(table, indent=1, default=int))
        draft.replace(self.directory / _FILE)

    def remove(self) -> None:
        """Ends what runs in the lab, and removes it."""
        namespaces.remove(self.prefix)
        shutil.rmtree(self.directory, ignore_errors=True)

    @classmethod
    def load(cls, name: str) -> LabState:
        """The lab of this name. FabricError: it is not up."""
        _check_name(name)
        path = private_root() / name / _FILE
        try:
            table: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError):
            others = ", ".join(state.name for state in each()) or "none"
            raise FabricError(f"lab {name!r} is not up; up: {others}. `dlcp lab up` makes one") from None
        holder = table["holder"]
        return cls(
            name=name,
            fabric=Fabric.from_table(table["fabric"]),
            prefix=table["prefix"],
            holder=None if holder is None else (holder[0], holder[1]),
            faults={link: Fault.from_table(fault) for link, fault in table["faults"].items()},
            around=table.get("around", []),
            policy=table["policy"],
        )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise FabricError(
            f"name is {name!r}; accepted: a small letter, then up to 30 small letters, digits and _"
        )


def each() -> Iterator[LabState]:
    """All labs, orphans too. FabricError: the folder of labs is not this user's alone."""
    for directory in sorted(private_root().iterdir()):
        if (directory / _FILE).exists():
            with contextlib.suppress(FabricError):
                yield LabState.load(directory.name)


def remove_orphans() -> list[str]:
    """Removes the labs whose holder is gone, and returns their names. FabricError: as for `each`."""
    removed = []
    for state in list(each()):
        if state.is_orphan:
            state.remove()
            removed.append(state.name)
    with contextlib.suppress(OSError):
        for directory in private_root().iterdir():
            if (
                not (directory / _FILE).exists()
                and directory.is_dir()
                and time.time() - directory.stat().st_mtime > _FRESH_S
            ):
                shutil.rmtree(directory, ignore_errors=True)
    known = {state.prefix for state in each()}
    for prefix, maker in {(prefix, maker) for _, prefix, maker in namespaces.each()}:
        if prefix not in known and not namespaces.started_at(maker):
            namespaces.remove(prefix)
            removed.append(prefix)
    return removed
