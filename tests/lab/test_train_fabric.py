"""`dlcp train --fabric`: the demo's ranks on hosts of a fabric, and words for it that contradict each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dlcp.lab.switched_lab import missing

# A machine with other work takes its time to start ranks.
PATIENCE_S = 250.0
TRAIN = [sys.executable, "-m", "dlcp", "train"]
pytest.importorskip("torch")


def train(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TRAIN, *words], capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--fabric", "ring"], "no fabric 'ring'; accepted: leaf-spine, star, or a TOML file"),
        (["--fabric", "star", "--lab"], "--fabric says itself what its links are"),
        (["--fabric", "star", "--rate", "1G"], "--fabric says itself what its links are"),
        pytest.param(
            ["--fabric", "star", "--world-size", "5"],
            "--world-size 5 is more than the fabric's hosts, 4",
            marks=[
                pytest.mark.needs_root,
                pytest.mark.skipif((why := missing()) is not None, reason=why or ""),
            ],
        ),
    ],
)
def test_bad_words_are_one_line(words: list[str], complaint: str) -> None:
    done = train("--model", "language", *words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.needs_root
@pytest.mark.skipif((why := missing()) is not None, reason=why or "")
def test_loss_of_a_fabric_is_what_was_asked_and_changes_no_bit(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    pytest.importorskip("dlcp._native", reason="the extension module is not built")
    from dlcp.train.record import Record

    words = ["--model", "digits", "--mode", "single", "--epochs", "1", "--world-size", "2", "--loss", "2%"]
    done = train("--fabric", "star", *words, "--output", str(tmp_path), "--no-picture")
    assert done.returncode == 0, done.stdout + done.stderr
    (one,) = Record.load(tmp_path / "record.json").runs
    assert one.links is not None
    assert 0.01 < one.links.loss_ratio < 0.03
    assert len(set(one.digests)) == 1
    assert one.network[0].injected_packets == 0
