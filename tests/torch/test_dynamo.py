"""torch.compile leaves the backend's own frames alone."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from torch import nn

from tests.torch import ranks

LAYERS = 3


def compiled_with_layerwise_updates() -> None:
    import torch._dynamo
    from torch._dynamo.utils import get_compilation_metrics

    import dlcp.torch

    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(LAYERS)))
    optimizer = dlcp.torch.LayerwiseOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model
    )
    compiled = torch.compile(model, backend="eager")
    for step in range(3):
        optimizer.zero_grad()
        compiled(torch.full((4, 8), dist.get_rank() + step + 1.0)).square().sum().backward()
        optimizer.step()
    optimizer.synchronize()
    frames = {(metrics.co_filename, metrics.co_name) for metrics in get_compilation_metrics()}
    assert frames
    foreign = {frame for frame in frames if "dlcp" in str(frame[0]) or "torch/optim" in str(frame[0])}
    assert not foreign, foreign


@pytest.mark.timeout(180)
def test_layerwise_updates_are_not_compiled() -> None:
    ranks.run(compiled_with_layerwise_updates, timeout_s=150)
