"""CUDA tensors over dlcp, as `bench gpu`: all-reduces, gradients, their codec, selection, and steps of DDP.

Ranks share one GPU; where there are several, each rank of an all-reduce has its own. Times contain all copies between
device and host. Meant to take four minutes with one GPU, so that `make gpu` takes ten with all that it
installs; it has not run on one so far.
"""

from __future__ import annotations

from bench.collectives.world import Ranks
from bench.gpu import all_reduce, gradients, kernels, steps
from bench.report import Report

SUMMARY = "CUDA tensors: all-reduces beside NCCL and Gloo, gradients, codec, selection, DDP"
NEEDS_LAB = False
NEEDS_PROGRAMS = False


def run(*, quick: bool) -> Report:
    import torch

    if not torch.cuda.is_available():
        report = Report("gpu", {})
        report.notes.append("skipped: no CUDA device, or torch is built without CUDA")
        return report
    devices = torch.cuda.device_count()
    named = {"device": torch.cuda.get_device_name(0), "devices": devices, "torch": torch.__version__}
    repeats = 1 if quick else 3
    report = Report("gpu", {**named, "repeats": repeats})
    with Ranks() as ranks:
        all_reduce.add(report, ranks, devices, repeats, 1.0 if quick else 3.0)
        kernels.judge(report, kernels.measure(ranks, 6 if quick else 15))
        gradients.judge(report, gradients.measure(ranks, repeats, 6 if quick else 15))
        steps.judge(report, steps.measure(ranks, repeats, 2.0 if quick else 4.0))
    return report
