"""The ranks as processes: one that dies or fails ends the run with its words, and nothing is left running."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dlcp.train.data import prepare
from dlcp.train.errors import RankError
from dlcp.train.plan import Configuration, Run
from dlcp.train.ranks import TrainingRanks

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}
# A machine with other work takes its time to start ranks.
PATIENCE_S = 250.0
LONG = Run("digits", Configuration("gloo"), 0, 10_000)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare("digits", tmp_path_factory.mktemp("data"))


def test_a_killed_rank_ends_the_run_with_its_name(tmp_path: Path, digits: Path) -> None:
    with TrainingRanks(2, tmp_path, environment=LOOPBACK) as ranks:
        pids = ranks.pids

        def kill_at_first_epoch(rank: int, report: dict[str, Any]) -> None:
            if report["event"] == "epoch":
                os.kill(pids[1], signal.SIGKILL)

        with pytest.raises(RankError, match="rank 1 was killed by SIGKILL"):
            ranks.train(LONG, digits, options={}, timeout_s=20, listen=kill_at_first_epoch)
    assert not any(map(is_running, pids))


def test_a_rank_that_cannot_start_shows_its_last_lines(tmp_path: Path, digits: Path) -> None:
    def broken(rank: int, words: list[str]) -> list[str]:
        return words if rank == 0 else [sys.executable, "-c", "raise SystemExit('no such device')"]

    with (
        TrainingRanks(2, tmp_path, environment=LOOPBACK, command=broken) as ranks,
        pytest.raises(RankError, match=r"(?s)rank 1 ended with status 1\n.*no such device"),
    ):
        ranks.train(LONG, digits, options={}, timeout_s=20, listen=lambda *_: None)


def test_an_error_of_all_ranks_is_told_once(tmp_path: Path) -> None:
    with TrainingRanks(2, tmp_path, environment=LOOPBACK) as ranks, pytest.raises(RankError) as caught:
        ranks.train(LONG, tmp_path / "absent.npy", options={}, timeout_s=20, listen=lambda *_: None)
    assert "rank 0, 1 failed: FileNotFoundError" in str(caught.value)
    assert "absent.npy" in str(caught.value)


def test_ranks_do_not_outlive_their_driver(tmp_path: Path, digits: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from dlcp.train.plan import Run
from dlcp.train.ranks import TrainingRanks
with TrainingRanks(2, Path({str(tmp_path)!r}), environment={LOOPBACK!r}) as ranks:
    def die(rank, report):
        if report["event"] == "epoch":
            print(*ranks.pids, flush=True)
            os._exit(9)
    ranks.train(Run.from_dict({asdict(LONG)!r}), Path({str(digits)!r}), options={{}}, timeout_s=20, listen=die)
"""
    driver = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert driver.returncode == 9, driver.stderr
    pids = [int(word) for word in driver.stdout.split()]
    assert len(pids) == 2
    # They are nobody's children here, so there is nothing to wait on but their end; the test's time limit bounds it.
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it is gone already
            descriptor = os.pidfd_open(pid)
            assert select.select([descriptor], [], [], PATIENCE_S)[0], f"rank {pid} still runs"
            os.close(descriptor)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_and_its_ranks(number: signal.Signals, tmp_path: Path) -> None:
    words = ["--backend", "gloo", "--mode", "single", "--loss", "0", "--model", "digits", "--epochs", "10000"]
    words += ["--world-size", "2", "--output", str(tmp_path)]
    driver = subprocess.Popen(
        [sys.executable, "-m", "dlcp", "train", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    while "epoch  1/10000" not in driver.stdout.readline():
        assert driver.poll() is None
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    driver.send_signal(number)
    output, errors = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 130, errors
    assert errors == ""
    assert output.endswith("stopped before the first of 1 runs was over; no record is kept\n")
    assert not list(tmp_path.rglob("*.npy"))
    assert len(children) == 2
    assert not any(is_running(int(pid)) for pid in children)
