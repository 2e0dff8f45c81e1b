"""Data sets that count how often they are read, over all ranks and their workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch


class FarDataset:
    """Sample i is a tensor of its own; each read adds a line to a file that all processes share."""

    def __init__(self, length: int, reads: Path, numel: int = 8) -> None:
        self.length = length
        self.numel = numel
        self._reads = reads

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        descriptor = os.open(self._reads, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{index}\n".encode())
        os.close(descriptor)
        return index, torch.full((self.numel,), index, dtype=torch.float32)


def reads_of(path: Path) -> list[int]:
    """The indices that were read from a FarDataset, in order."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def halved(sample: tuple[int, torch.Tensor]) -> dict[str, Any]:
    """A decoder."""
    index, values = sample
    return {"index": index, "values": values / 2}
