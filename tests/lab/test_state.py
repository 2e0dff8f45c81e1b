"""The folders of labs: whose they are, and that nothing outside them is ever deleted. No root, nothing built."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dlcp.lab import state
from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import FabricError
from dlcp.lab.state import LabState

GONE = (2**22 + 1, "0")
"""A holder that does not exist: above the kernel's largest process id."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of labs, in place of the machine's."""
    own = tmp_path / "labs"
    monkeypatch.setattr(state, "root", lambda: own)
    monkeypatch.setattr("dlcp.lab.namespaces.each", lambda: iter(()))
    return own


def lab(name: str, holder: tuple[int, str] | None = None) -> LabState:
    return LabState(name, Fabric.preset("star"), f"dlcp-1-{name}", holder)


def test_lab_is_found_again_as_it_was_saved(folder: Path) -> None:
    made = lab("mine")
    made.around = ["l0-s1"]
    made.create()
    assert LabState.load("mine") == made
    assert [one.name for one in state.each()] == ["mine"]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_orphan_is_removed_and_a_standing_lab_stays(folder: Path) -> None:
    lab("stands").create()
    lab("left", GONE).create()
    assert state.remove_orphans() == ["left"]
    assert [entry.name for entry in folder.iterdir()] == ["stands"]


def test_file_cannot_name_another_folder(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    lab("planted", GONE).create()
    path = folder / "planted/state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"name": str(precious)}))
    assert state.remove_orphans() == ["planted"]
    assert precious.is_dir()
    assert not path.parent.exists()


@pytest.mark.parametrize("name", ["../precious", "/etc", "", "Lab", "a" * 32])
def test_name_is_not_a_path(name: str) -> None:
    with pytest.raises(FabricError, match="accepted: a small letter"):
        LabState.load(name)


def test_folder_that_others_may_write_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    for use in (state.remove_orphans, lambda: list(state.each()), lab("mine").create):
        with pytest.raises(FabricError, match="other users may write to"):
            use()


def test_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(FabricError, match="is not a folder of this user"):
        state.remove_orphans()


def test_link_in_place_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FabricError, match="is not a folder of this user"):
        state.remove_orphans()


def test_root_without_a_runtime_folder_is_named_after_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert state.root() == Path("/tmp/dlcp-1234")
