"""The examples run, and end with Gloo's loss. Those that need a framework are skipped where it is not installed."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

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
ALONE = {"ray_train": ["pandas", "pydantic", "ray"], "with_torchft": ["torchft"]}


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


def play(name: str, words: tuple[str, ...]) -> str:
    """One rank of an example: what it printed."""
    sys.argv = [name, *words]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        left = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    if os.environ.get("BACKEND") == "gloo":
        _KEPT.append(left)
    return printed.getvalue()


def played(name: str, *words: str, **environment: str) -> str:
    """What rank 0 of two printed. Both are given the words as arguments."""
    return str(ranks.run(play, backend=None, environment=environment, name=name, words=words)[0])


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
    """Of a training over Gloo in which none dies: where one does, Gloo's ranks do not always find each other again."""
    options = ["--max-restarts", "1", "--monitor-interval", "0.1"]
    printed = printed_by(*TORCHRUN, *options, str(FOLDER / "elastic.py"), str(tmp_path))
    assert [f"rank {rank} goes on from step 20" in printed for rank in range(2)] == [True, True]
    (tmp_path / "gloo").mkdir()
    whole = played("elastic", str(tmp_path / "gloo"), BACKEND="gloo")
    assert loss_in(printed) == pytest.approx(loss_in(whole), rel=1e-6)


@pytest.mark.timeout(1700)  # DeepSpeed compiles for minutes at its first run
@pytest.mark.parametrize("name", [*UNDER_TORCHRUN, *ALONE])
def test_framework_ends_with_the_loss_of_gloo(name: str) -> None:
    for package in (UNDER_TORCHRUN | ALONE)[name]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    words = [*(TORCHRUN if name in UNDER_TORCHRUN else []), str(FOLDER / f"{name}.py")]
    losses = [loss_in(printed_by(*words, BACKEND=backend)) for backend in ("dlcp", "gloo")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def linear() -> float:
    """What numpy_ranks trains, by DDP over dlcp."""
    rank, size = dist.get_rank(), dist.get_world_size()
    samples = np.random.default_rng(0)
    inputs = samples.normal(size=(4096, 64))
    outputs = inputs @ samples.normal(size=64) + 0.1 * samples.normal(size=4096)
    model = nn.Linear(64, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    batches = [(torch.from_numpy(inputs[rank::size]), torch.from_numpy(outputs[rank::size, None]))] * 20
    return trained(model, batches, rate=0.25)  # numpy_ranks takes half the gradient of the squares


def two_layers(first: Any, second: Any) -> float:
    """What with_jax and with_tensorflow train, each from weights of its own, by DDP over dlcp."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(nn.Linear(32, 128, bias=False), nn.Tanh(), nn.Linear(128, 1, bias=False))
    for weight, given in zip(model.parameters(), (first, second), strict=True):
        weight.data = torch.tensor(given, dtype=torch.float32).T.contiguous()
    samples = np.random.default_rng(0)
    inputs = [torch.tensor(samples.normal(size=(128, 32))[rank::size]).float() for _ in range(40)]
    return trained(model, [(each, each[:, :1].sin()) for each in inputs], rate=0.1)


def trained(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], rate: float) -> float:
    """The last step's loss, of all ranks."""
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for inputs, outputs in batches:
        loss = nn.functional.mse_loss(replica(inputs), outputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.all_reduce(total := loss.detach())
    return total.item() / dist.get_world_size()


def in_torch(name: str) -> float:
    """The loss with which the same training ends in torch."""
    if name == "numpy_ranks":
        return float(ranks.run(linear)[0])
    if name == "with_jax":
        weights = json.loads(printed_by("-c", JAX_WEIGHTS))
    else:
        seeds = np.random.default_rng(0)
        weights = [seeds.normal(size=(32, 128)) / 8, seeds.normal(size=(128, 1)) / 16]
    return float(ranks.run(two_layers, first=weights[0], second=weights[1])[0])


# In a process of its own: JAX's threads do not go well with ranks that are forked later.
JAX_WEIGHTS = """
import json, jax
first, second = jax.random.split(jax.random.key(0))
weights = [jax.random.normal(first, (32, 128)) / 8, jax.random.normal(second, (128, 1)) / 16]
print(json.dumps([each.tolist() for each in weights]))
"""


@pytest.mark.parametrize("name", ["numpy_ranks", "with_jax", "with_tensorflow"])
def test_ranks_without_torch_end_with_the_loss_of_one_and_of_torch(name: str) -> None:
    package = name.removeprefix("with_")
    if package != name and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    one, two = (loss_in(printed_by(str(FOLDER / f"{name}.py"), number)) for number in "12")
    assert two == pytest.approx(one, rel=1e-6)
    assert two == pytest.approx(in_torch(name), rel=1e-6)


def test_simulation_shows_a_time_per_transport_and_loss() -> None:
    rows = re.findall(r"^  \w+ +([\d.]+) +([\d.]+)$", printed_by(str(FOLDER / "simulate.py")), re.MULTILINE)
    assert len(rows) == 3
    # 7/4 of 4 MB at 25 Gbit/s, and not much more.
    assert all(2.24 < float(time_ms) < 4 for row in rows for time_ms in row)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_an_example_is_short_and_listed(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 60
    assert f"`{file.name}`" in (FOLDER / "README.md").read_text()
