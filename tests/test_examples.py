"""The examples run, and end with Gloo's loss. Those that need a framework are skipped where it is not installed."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.torch import ranks

FOLDER = Path(__file__).resolve().parent.parent / "examples"
# What each needs besides torch.
UNDER_TORCHRUN = {
    "fsdp2_gpt2": ["transformers"],
    "hf_trainer": ["accelerate", "transformers"],
    "with_accelerate": ["accelerate"],
    "with_deepspeed": ["deepspeed"],
    "with_lightning": ["lightning"],
}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ALONE = {"ray_train": ["pandas", "ray"], "with_torchft": ["torchft"]}


def loss_in(printed: str) -> float:
    found = re.findall(r"^loss (\S+)$", printed, re.MULTILINE)
    assert len(found) == 1, printed
    return float(found[0])


def printed_by(*words: str, **environment: str) -> str:
    """What a program printed. It is one of Python's, given its arguments."""
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


_KEPT: list[dict[str, Any]] = []
"""What programs over Gloo leave: its group was once seen (torch 2.13) not to return from its destructor."""


def play(name: str) -> str:
    """One rank of an example: what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        left = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    if os.environ.get("BACKEND") == "gloo":
        _KEPT.append(left)
    return printed.getvalue()


def played(name: str, **environment: str) -> str:
    """What rank 0 of two printed."""
    return str(ranks.run(play, backend=None, environment=environment, name=name)[0])


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "mesh_loop"])
def test_loss_is_that_of_gloo(name: str) -> None:
    losses = [loss_in(played(name, BACKEND=backend)) for backend in ("dlcp", "gloo")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_few_bits_are_fewer_bytes_for_about_the_same_loss() -> None:
    exact, low_bit = (played("ddp", RECIPE=recipe) for recipe in ("exact", "low_bit"))
    sent = [float(re.findall(r"^sent (\S+) MB", printed, re.MULTILINE)[0]) for printed in (exact, low_bit)]
    assert sent[1] < 0.25 * sent[0]
    assert loss_in(exact) != loss_in(low_bit) == pytest.approx(loss_in(exact), rel=0.01)


def test_ranks_that_start_again_end_with_the_loss_of_gloo(tmp_path: Path) -> None:
    losses = []
    for backend in ("dlcp", "gloo"):
        (tmp_path / backend).mkdir()
        words = ["--max-restarts", "1", "--monitor-interval", "0.1", str(FOLDER / "elastic.py")]
        printed = printed_by(*TORCHRUN, *words, str(tmp_path / backend), BACKEND=backend)
        assert [f"rank {rank} goes on from step 20" in printed for rank in range(2)] == [True, True]
        losses.append(loss_in(printed))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.timeout(1700)  # DeepSpeed compiles for minutes at its first run
@pytest.mark.parametrize("name", [*UNDER_TORCHRUN, *ALONE])
def test_framework_ends_with_the_loss_of_gloo(name: str) -> None:
    for package in (UNDER_TORCHRUN | ALONE)[name]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    words = [*(TORCHRUN if name in UNDER_TORCHRUN else []), str(FOLDER / f"{name}.py")]
    losses = [loss_in(printed_by(*words, BACKEND=backend)) for backend in ("dlcp", "gloo")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("name", ["numpy_ranks", "with_jax", "with_tensorflow"])
def test_ranks_without_torch_end_with_the_loss_of_one(name: str) -> None:
    package = name.removeprefix("with_")
    if package != name and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    one, two = (loss_in(printed_by(str(FOLDER / f"{name}.py"), number)) for number in "12")
    assert two == pytest.approx(one, rel=1e-6)


def test_simulation_shows_a_time_per_transport_and_loss() -> None:
    rows = re.findall(r"^  \w+ +([\d.]+) +([\d.]+)$", printed_by(str(FOLDER / "simulate.py")), re.MULTILINE)
    assert len(rows) == 3
    # 7/4 of 4 MB at 25 Gbit/s, and not much more.
    assert all(2.24 < float(time_ms) < 4 for row in rows for time_ms in row)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_an_example_is_short_and_listed(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 60
    assert f"`{file.name}`" in (FOLDER / "README.md").read_text()
