"""CUDA tensors over dlcp: the right values, in the order of the streams. Needs a GPU, which all ranks share."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.torch import ranks

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device and torch with CUDA"
)
DEVICE = "cuda:0"
# Older torch has them under other names.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def collectives() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((100_000,), rank + 1.0, device=DEVICE)
    dist.all_reduce(tensor)
    assert torch.equal(tensor.cpu(), torch.full((100_000,), float(sum(range(1, size + 1)))))
    output = torch.empty(size, 10, device=DEVICE)
    all_gather_single(output, torch.full((10,), float(rank), device=DEVICE))
    assert torch.equal(output.cpu(), torch.arange(float(size))[:, None].expand(size, 10))
    share = torch.empty(5, device=DEVICE)
    reduce_scatter_single(share, torch.ones(5 * size, device=DEVICE))
    assert torch.equal(share.cpu(), torch.full((5,), float(size)))
    dist.broadcast(strided := torch.full((4, 6), float(rank), device=DEVICE).t(), 0)
    assert not strided.cpu().any()
    other = (rank + 1) % size
    received = torch.empty(7, device=DEVICE)
    works = [dist.isend(torch.full((7,), float(rank), device=DEVICE), other), dist.irecv(received)]
    for work in works:
        work.wait()
    assert torch.equal(received.cpu(), torch.full((7,), float((rank - 1) % size)))
    dist.barrier()
    gathered: list[object] = [None] * size
    dist.all_gather_object(gathered, rank)
    assert gathered == list(range(size))


def test_collectives() -> None:
    ranks.run(collectives)


def order_of_streams() -> None:
    size = dist.get_world_size()
    stream = torch.cuda.Stream(DEVICE)
    with torch.cuda.stream(stream):
        # Long enough for a collective that does not wait for it to read something else.
        torch.cuda._sleep(200_000_000)
        tensor = torch.ones(1000, device=DEVICE)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        doubled = tensor * 2
    assert torch.equal(doubled.cpu(), torch.full((1000,), 2.0 * size))
    # A future's callback sees the result, and what it starts comes before whoever waits for it.
    tensor = torch.ones(1000, device=DEVICE)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 3)
    assert torch.equal(future.wait().cpu(), torch.full((1000,), 3.0 * size))
    # What the current stream still writes to an output comes before the result.
    with torch.cuda.stream(stream):
        output = torch.empty(1000, device=DEVICE)
        torch.cuda._sleep(200_000_000)
        output.fill_(-1.0)
        dist.broadcast(output if dist.get_rank() else output.fill_(5.0), 0)
        seen = output + 0
    assert torch.equal(seen.cpu(), torch.full((1000,), 5.0))


def test_order_of_streams() -> None:
    ranks.run(order_of_streams)


def ddp() -> None:
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 5)).to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        torch.manual_seed(step * 10 + dist.get_rank())
        model(torch.randn(8, 10, device=DEVICE)).square().mean().backward()
        optimizer.step()
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).cpu()
    others = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(others, flat)
    assert all(torch.equal(flat, other) for other in others)


@pytest.mark.parametrize("backend", ["dlcp", "cuda:dlcp"])
def test_ddp(backend: str) -> None:
    ranks.run(ddp, backend=backend)
