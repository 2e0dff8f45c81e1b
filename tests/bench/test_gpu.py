"""`bench gpu`: what it says where there is no GPU, and what it makes of times that were measured on one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import ddp, gpu
from bench.collectives.compare import Comparison
from bench.collectives.timing import Timing
from bench.gpu import all_reduce, gradients, kernels, steps
from bench.report import Report
from dlcp.torch.selectors import SELECTORS
from tests.torch import ranks


def test_without_a_device_it_says_so_and_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = gpu.run(quick=True)
    assert "skipped: no CUDA device" in report.show()
    assert (report.tables, report.bars) == ([], [])


@pytest.mark.parametrize("devices", [1, 2])
def test_an_all_reduce_is_judged_beside_gloo_and_where_it_runs_beside_nccl(devices: int) -> None:
    found = Comparison()
    for backend, time_s in zip(all_reduce.backends(devices), (0.4, 0.2, 0.1, 0.1), strict=False):
        times_s = [time_s] * 3
        found.add(
            backend, all_reduce.PLACE, [[Timing(all_reduce.NBYTES, times_s, 1.0, 1.0, 0, 0, {}, {}, {})]]
        )
    report = Report("gpu", {})
    all_reduce.judge(report, found, devices)
    assert [bar.figure.median for bar in report.bars] == (
        [0.5, 0.25] if devices == 1 else [0.5, 2.0, 0.25, 1.0]
    )
    assert ("refuses two ranks of one GPU" in report.show()) == (devices == 1)


def test_a_codec_is_judged_by_all_bytes_that_it_moves() -> None:
    assert kernels.moved_bytes("int8", kernels.DECODE) == pytest.approx(1.25 * kernels.NBYTES, rel=0.03)
    assert kernels.moved_bytes("int8", kernels.ENCODE) == pytest.approx(2.25 * kernels.NBYTES, rel=0.03)
    names = [f"{codec}: {work}" for codec in kernels.CODECS for work in (kernels.ENCODE, kernels.DECODE)]
    found = {name: [0.002, 0.002] for name in (kernels.COPY, *names, kernels.TOPK, *kernels.SELECTORS)}
    report = Report("gpu", {})
    kernels.judge(report, found)
    # As long as a copy, which reads and writes all: an encode moves a little more.
    assert [bar.what.split(": of")[0] for bar in report.bars] == names[:4]
    assert [bar.met for bar in report.bars] == [True, False, True, False]
    assert set(kernels.SELECTORS) == set(SELECTORS)


def test_gradients_and_steps_are_ratios() -> None:
    report = Report("gpu", {})
    cases = [
        (variant.label, time_s) for variant, time_s in zip(gradients.VARIANTS, (0.4, 0.2, 0.1), strict=True)
    ]
    exchanges = {("2", "dlcp", label): [[gradients.Exchanges([time_s], 0)] * 2] for label, time_s in cases}
    gradients.judge(report, exchanges)
    assert [row[2] for row in report.tables[0].rows] == ["1.000", "0.500", "0.250"]
    times = dict(zip(steps.VARIANTS, (0.4, 0.2, 0.2, 0.1, 0.3), strict=True))
    found = {label: [[ddp.Steps(25_600_000, [time_s], 0.5)] * 2] for label, time_s in times.items()}
    steps.judge(report, found)
    assert [bar.figure.median for bar in report.bars] == pytest.approx([0.5, 0.5, 0.5, 1.5])
    assert [bar.met for bar in report.bars] == [True, True, True, False]


def test_a_step_is_trained_with_a_recipe() -> None:
    exact, coded = (
        ranks.run(ddp.train, seconds=0.0, width=64, samples=4, options=options)
        for options in ({"recipe": "exact"}, steps.LOW)
    )
    assert exact[0].parameters == coded[0].parameters == ddp.LAYERS * (64 * 64 + 64)
    assert coded[0].last_loss == pytest.approx(exact[0].last_loss, rel=0.1)
    assert pytest.approx(25_557_032, rel=1e-3) == steps.WIDTH * (steps.WIDTH + 1) * ddp.LAYERS  # ResNet-50's


def test_make_gpu_says_so_without_a_device(repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, ".ci/gpu.py"],
        cwd=repository,
        capture_output=True,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert (done.returncode, done.stdout[:15], done.stderr) == (3, "no CUDA device:", "")
