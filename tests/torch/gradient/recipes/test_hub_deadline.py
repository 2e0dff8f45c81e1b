"""The recipe exact over a hub that does not wait for a late rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import dlcp.torch
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout
from tests.torch import ranks
from tests.torch.gradient.recipes.test_low_bit import whole_numbers
from tests.torch.hub import MIB, environment_of_hub

NUMEL = 40_000


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with environment_of_hub(tmp_path_factory.mktemp("hub"), memory_bytes=256 * MIB) as found:
        yield found | {"DLCP_HUB_BYTES_MIN": "1"}


def late() -> dict[str, Any]:
    """Rank 1 begins when rank 0 has the mean."""
    state = dlcp.torch.GradientState(recipe="exact", deadline_s=0.02)
    store: Any = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["over"])
    gradient = whole_numbers(NUMEL, 0)
    call = BufferCall(average=True, last_of_step=True)
    result = exchange_of(state).all_reduce(gradient, Layout.of([("weight", NUMEL)]), call).wait()
    if dist.get_rank() == 0:
        store.set("over", "")
    assert torch.equal(result, whole_numbers(NUMEL, 0, rank=0))
    state.end_step()
    return dict(state.report()["total"])


def test_the_mean_is_of_those_in_time_and_what_a_late_rank_brings_is_counted(
    environment: dict[str, str],
) -> None:
    first, second = ranks.run(late, 2, environment=environment)
    assert first["abandoned_bytes"] == 0
    assert second["abandoned_bytes"] == second["contributed_bytes"] >= 4 * NUMEL
    assert first["budget_bytes"] == second["budget_bytes"] == second["contributed_bytes"]
