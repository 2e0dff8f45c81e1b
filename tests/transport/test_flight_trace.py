"""Where a flight recorder writes, and that nobody else can write there.

What it writes, torch's own tool reads in test_flight_recorder.py.
"""

from __future__ import annotations

import math
import os
import pickle
import tempfile
from pathlib import Path

import pytest

from dlcp.transport.flight_recorder import FlightRecorder
from dlcp.transport.flight_trace import dump_path, own_folder


def test_place_follows_setting_then_torch_then_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", "/traces/nccl_")
    assert dump_path(3, str(tmp_path), 7) == (tmp_path / "rank_3", False)
    assert dump_path(3, None, 7) == (Path("/traces/nccl_3"), False)
    monkeypatch.delenv("TORCH_FR_DUMP_TEMP_FILE")
    places = {dump_path(rank, None, job) for rank in (0, 1) for job in (7, 8)}
    assert len(places) == 4
    assert len({place.parent for place, _ in places}) == 2
    assert {place.name for place, _ in places} == {"rank_0", "rank_1"}
    assert {own for _, own in places} == {True}


def test_own_folder_is_made_once_for_all_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "dlcp-0-1"
    assert [own_folder(folder), own_folder(folder)] == [folder, folder]
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("trap", ["writable", "link", "file"])
def test_folder_that_others_can_write_to_is_left_alone(tmp_path: Path, trap: str) -> None:
    folder = tmp_path / "dlcp-0-1"
    match trap:
        case "writable":
            folder.mkdir()
            folder.chmod(0o777)
        case "link":
            (tmp_path / "elsewhere").mkdir()
            folder.symlink_to(tmp_path / "elsewhere")
        case "file":
            folder.touch()
    found = own_folder(folder)
    assert found.name.startswith("dlcp-0-1-")
    assert (found.parent, found.stat().st_mode & 0o777) == (tmp_path, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folder_of_another_user_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "dlcp-0-1"
    folder.mkdir(0o700)
    os.chown(folder, 65534, 65534)
    assert own_folder(folder) != folder


def test_recorder_says_where_it_wrote_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_FR_DUMP_TEMP_FILE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path, own = dump_path(0, None, 1)
    path.parent.mkdir()
    path.parent.chmod(0o777)
    recorder = FlightRecorder(0, path=path, own_folder=own)
    written = recorder.group_failed(recorder.open_group("0", [0, 1]), "lost")
    assert written is not None
    assert (written, written.name) == (recorder.path, "rank_0")
    assert not any(path.parent.iterdir())
    assert recorder.dump() == written, "the same folder the next time"


@pytest.mark.parametrize("timeout_s", [math.inf, math.nan])
def test_timeout_that_is_no_limit_is_written_as_none(tmp_path: Path, timeout_s: float) -> None:
    recorder = FlightRecorder(0, path=tmp_path / "rank_0")
    group = recorder.open_group("0", [0, 1])
    recorder.record(recorder.facts(group, 0, "barrier", timeout_s=timeout_s))
    assert recorder.group_failed(group, "lost") == tmp_path / "rank_0"
    (entry,) = pickle.loads((tmp_path / "rank_0").read_bytes())["entries"]
    assert entry["timeout_ms"] == 0
