"""`dlcp hub`: bad input is one line and status 2."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dlcp.cli import main
from dlcp.errors import ArgumentError
from dlcp.hub.keys import DRAW, read_keys, warnings_of
from dlcp.transport.key_warnings import key_fault
from dlcp.transport.settings import read_key_file

KEY = bytes(range(32)).hex()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.touch(0o600)
    path.write_text(f"# jobs\n\njob {KEY}\nother {'ab' * 32}  # as well\n")
    return path


def test_keys_that_can_be_guessed_and_their_file_are_named(keys: Path) -> None:
    keys.chmod(0o640)
    mode, guessed = warnings_of(keys, read_keys(keys))
    assert "is open to other users (mode 640); chmod 600" in mode
    assert (
        "the key of job 'other' has only 1 different bytes and can be guessed; draw another: head -c"
        in guessed
    )


def test_the_command_of_the_guide_draws_a_key(tmp_path: Path, repository: Path) -> None:
    drawn, listed, *_ = (
        line for line in (repository / "docs" / "hub.md").read_text().splitlines() if "hub.key" in line
    )
    assert drawn.startswith(f"{DRAW} > hub.key ")
    subprocess.run(["sh", "-ec", f"{drawn}\n{listed}"], cwd=tmp_path, check=True)
    key = read_key_file(tmp_path / "hub.key")
    assert key_fault(key) is None
    assert read_keys(tmp_path / "hub.keys") == {"job": key}


def test_the_file_of_keys_is_read(keys: Path) -> None:
    assert read_keys(keys) == {"job": bytes(range(32)), "other": b"\xab" * 32}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no job"),
        ("job 12", "line 1: accepted: the name of a job and 64 hexadecimal digits"),
        (f"job {KEY}\njob {KEY}", "line 2: job 'job' is there twice"),
        (f"{KEY}", "line 1: accepted"),
    ],
)
def test_what_is_no_file_of_keys_is_refused_and_not_shown(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=said) as caught:
        read_keys(path)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--bind", "0.0.0.0:7100"],
            "'0.0.0.0:7100' is no place for a hub; accepted: an address of this host",
        ),
        (["--bind", "7100"], "is no place for a hub"),
        (["--bind", "127.0.0.1:0", "--memory-max", "lots"], "'lots' is no size; accepted: such as 512M"),
        (["--bind", "127.0.0.1:0", "--cores", "0"], "--cores is 0; accepted: an integer from 1 to 256"),
        (["--bind", "127.0.0.1:0", "--memory-max", "1M", "--job-memory", "2M"], "--job-memory is 2097152"),
        (["--bind", "127.0.0.1:0", "--memory-max", "1"], "--memory-max is 1; accepted: an integer from"),
        (["--bind", "127.0.0.1:0", "--memory-max", "99999T"], "--memory-max is 109"),
        (
            ["--bind", "127.0.0.1:0", "--cores", "2", "--ports", "7-9"],
            "--ports has 3 ports; accepted: at least 4",
        ),
        (["--bind", "127.0.0.1:0", "--ports", "9-1"], "port_range"),
        (["--bind", "127.0.0.1:0", "--keys", "nofile"], "dlcp hub: nofile: No such file or directory\n"),
        (["--bind", "203.0.113.7:7100"], "the hub cannot listen at 203.0.113.7:7100"),
    ],
)
def test_bad_input_is_one_line(
    keys: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    try:
        status = main(["hub", "--keys", str(keys), *words])
    except SystemExit as ended:
        status = int(ended.code or 0)
    complaint = capsys.readouterr().err
    assert (status, complaint.count("\n")) == (2, 1), complaint
    assert said in complaint
