"""torch.profiler beside collectives: it may stop at any moment of one, and names what it saw."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from tests.torch import ranks

ROUNDS = 5
COLLECTIVES = 4


def stopped(moment: str) -> None:
    """Records several collectives, and stops recording at one moment of them all; again and again."""
    rank = dist.get_rank()
    store = dist.PrefixStore(moment, dist.distributed_c10d._get_default_store())
    for round_ in range(ROUNDS):
        tensors = [torch.full((64, 16), rank + 1.0) for _ in range(COLLECTIVES)]

        def start(tensors: list[torch.Tensor] = tensors) -> list[dist.Work]:
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            for work in works:
                assert work is not None
                work.get_future()
            return works  # type: ignore[return-value]

        if rank == 1 and moment == "after start":
            # The others' collectives are not over before this one comes.
            store.wait([f"stopped {round_}"])
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            works = [] if moment == "before start" else start()
            if moment == "after completion":
                while not all(work.is_completed() for work in works):
                    pass
            if moment == "after wait":
                for work in works:
                    work.wait()
        if rank == 0:
            store.set(f"stopped {round_}", "")
        del profiler
        gc.collect()
        for work in works or start():
            work.wait()
        for tensor in tensors:
            assert torch.equal(tensor, torch.full((64, 16), 3.0))


@pytest.mark.parametrize("moment", ["before start", "after start", "after completion", "after wait"])
def test_profiler_stops_at_any_moment_of_a_collective(moment: str) -> None:
    ranks.run(stopped, moment=moment)


def recorded() -> None:
    """Each collective is in the trace by name, with the shapes of its tensors; so is the wait for it."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(torch.ones(30, 7))
        work = dist.broadcast(torch.ones(10), 0, async_op=True)
        dist.all_gather([torch.empty(3), torch.empty(3)], torch.ones(3))
        dist.barrier()
        assert work is not None
        work.wait()
    events = [event for event in profiler.events() if event.name.startswith("dlcp:")]
    # A range that ends on another thread than it began on is what crashes.
    assert not any(event.is_async for event in events)
    shapes = {event.name: event.input_shapes for event in events}
    assert shapes["dlcp:all_reduce"] == [[30, 7]]
    assert shapes["dlcp:broadcast"] == [[10]]
    assert shapes["dlcp:all_gather"] == [[3], [3], [3]]
    assert {"dlcp:barrier", "dlcp:all_reduce wait", "dlcp:broadcast wait"} <= set(shapes)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        assert "dlcp:all_reduce" in Path(file.name).read_text()


def test_profiler_shows_collectives_by_name_and_shape() -> None:
    ranks.run(recorded)
