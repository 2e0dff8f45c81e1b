"""DistributedDataParallel with one rank on DPDK and one on the kernel's sockets: the same training, bit by bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.dpdk import Bed
from tests.support.stations import PATIENCE_S, both

pytestmark = [pytest.mark.needs_root, pytest.mark.slow]
STEPS = 5


def train(rank: int, store: str, settings: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Losses of both ranks together and, when all is over, this rank's sums of parameters; in hexadecimal."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    os.environ |= {f"DLCP_{name.upper()}": str(value) for name, value in settings.items()}
    torch.set_num_threads(1)
    dist.init_process_group(
        "dlcp",
        store=dist.FileStore(store, 2),
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=PATIENCE_S),
    )
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.005)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(2 + rank)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = wrapped(torch.randn(16, 10, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        together = loss.detach().clone()
        dist.all_reduce(together)
        losses.append(float(together).hex())
    sums = [float(parameter.detach().double().sum()).hex() for parameter in model.parameters()]
    dist.destroy_process_group()
    for name in settings:
        del os.environ[f"DLCP_{name.upper()}"]
    return losses, sums


def test_training_is_the_same_whatever_carries_it(bed: Bed, tmp_path: Path) -> None:
    bed.bridge.treat(loss_ratio=0.005)
    sockets, frames = bed.stations[:2]
    ours = bed.hosts[0].udp(shm=0)
    mixed = both(
        sockets, frames, train, (0, 1), (str(tmp_path / "mixed"),) * 2, (ours, bed.hosts[1].dpdk(shm=0))
    )
    # Now the kernel of the other host has its addresses; the DPDK rank has closed its port.
    bed.hosts[1].give_addresses()
    plain = both(
        sockets, frames, train, (0, 1), (str(tmp_path / "plain"),) * 2, (ours, bed.hosts[1].udp(shm=0))
    )
    assert mixed[0] == mixed[1]
    assert mixed == plain
    assert len(set(mixed[0][0])) == STEPS  # it did learn
