"""Losses on arrival at an interface: fault.bpf.c there, filled and read through its map."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dlcp.lab import bpf_map
from dlcp.lab.fault import Burst

_LAYOUT = struct.Struct("=9Q")  # struct fault of fault.bpf.c
_PACKETS, _LOST = 6, 7  # places in it
_WHOLE = 2**32
_NO_PATH = 0x10000


@dataclass(frozen=True)
class Loss:
    """What share of arriving packets is dropped, in [0, 1]."""

    ratio: float = 0.0
    bad_path: int | None = None  # a dlcp path id that loses `bad_path_ratio` instead
    bad_path_ratio: float = 0.0

    def __post_init__(self) -> None:
        for name in ("ratio", "bad_path_ratio"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted: 0 to 1")

    def __bool__(self) -> bool:
        return self.ratio > 0 or (self.bad_path is not None and self.bad_path_ratio > 0)


NO_LOSS = Loss()


@dataclass(frozen=True)
class Arrivals:
    """IP packets that the loss programs of one host's link have seen since its loss was set."""

    packets: int = 0
    dropped: int = 0

    @property
    def loss_ratio(self) -> float:
        return self.dropped / self.packets if self.packets else 0.0


def set_loss(
    namespace: str, interface: str, program: Path, loss: Loss = NO_LOSS, burst: Burst | None = None
) -> None:
    """What arrives there is lost so from now on, and counted from zero. `program`: compiled there if it is missing.

    Raises LabError: a command failed, or the system refuses BPF.
    """
    if not loss and burst is None:
        removal = ["tc", "-n", namespace, "filter", "del", "dev", interface, "ingress"]
        subprocess.run(removal, capture_output=True)
        return
    if not program.exists():
        bpf_map.compile_program("fault", program)
    bursts = (0.0, 0.0, 0.0) if burst is None else (burst.enter_ratio, burst.leave_ratio, burst.loss_ratio)
    chances = [round(ratio * _WHOLE) for ratio in (loss.ratio, *bursts)]
    path = _NO_PATH if loss.bad_path is None else loss.bad_path
    attached = bpf_map.attach(namespace, interface, "ingress", program)
    with bpf_map.Map(attached, "fault") as values:
        values.write(_LAYOUT.pack(*chances, path, round(loss.bad_path_ratio * _WHOLE), 0, 0, 0))


def count_arrivals(namespace: str, interface: str) -> Arrivals:
    """What arrived there since the loss was set; zeros without loss."""
    program = bpf_map.attached(namespace, interface, "ingress")
    if program is None:
        return Arrivals()
    with bpf_map.Map(program, "fault") as values:
        counted = _LAYOUT.unpack(values.read())
    return Arrivals(counted[_PACKETS], counted[_LOST])


def missing() -> str | None:
    """Why there can be no BPF programs here, or None."""
    if shutil.which("clang") is None:
        return "clang compiles the BPF program (Debian: clang)"
    if not Path("/usr/include/bpf/bpf_helpers.h").exists():
        return "the BPF program needs bpf/bpf_helpers.h (Debian: libbpf-dev)"
    return bpf_map.refused()
