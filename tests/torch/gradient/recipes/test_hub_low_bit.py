"""The recipe low_bit over a hub: the bits of the stages in torch, on all ranks, and what stays at the hub."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import dlcp.torch
from dlcp.torch import codec
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.coding.hub_memory import HubMemory, Sums
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout
from dlcp.transport.coded import GROUP_VALUES
from dlcp.transport.communicator import Communicator
from tests.hub.test_coded import coded, core_groups, summed
from tests.hub.test_service import ranks_of, service
from tests.torch import ranks
from tests.torch.gradient.recipes import test_low_bit
from tests.torch.gradient.recipes.test_low_bit import LOW, hooked_low, kept
from tests.torch.gradient.test_exchange import same_on_all_ranks
from tests.torch.gradient.test_hook import batches, net
from tests.torch.hub import MIB, environment_of_hub


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with environment_of_hub(tmp_path_factory.mktemp("hub"), memory_bytes=256 * MIB) as found:
        yield found | {"DLCP_HUB_BYTES_MIN": "1"}


def rows_at_hub() -> int:
    """How many rows of sums the default group's hub keeps something of, as this rank has it."""
    group: Any = dist.group.WORLD
    assert group.communicator.hub_group is not None
    return len(group.communicator.hub_group._residuals)


def skipping_twin(scattered: bool = False) -> None:
    """The first codec is the warm-up's, the optimizer skips a step, and the loss scale changes."""

    class Scaler:
        scale = 1.0

        def get_scale(self) -> float:
            return self.scale

    size, rank, scaler = dist.get_world_size(), dist.get_rank(), Scaler()
    # A rank's part of a reduce-scatter is whole groups, so the code of the mean is that of its parts.
    count = 256 * GROUP_VALUES
    numel = size * count if scattered else 50_000
    layout = Layout.of([("weight", numel)])
    state = dlcp.torch.GradientState(
        recipe="low_bit", small_numel=0, warmup_steps=2, codec="int4", scaler=scaler
    )
    exchange = exchange_of(state)
    senders, owner = [torch.zeros(numel) for _ in range(size)], torch.zeros(numel)
    for step in range(6):
        name, applied = ("int8" if step < 2 else "int4"), step != 3
        factor = 4.0 if step == 4 else 1.0
        scaler.scale = 4.0 if step >= 4 else 1.0
        gradients = [
            scaler.scale * torch.randn(numel, generator=torch.Generator().manual_seed(10 * step + other))
            for other in range(size)
        ]
        mean, left = torch.zeros(numel), []
        for each, kept_there in zip(gradients, senders, strict=True):
            value = each + factor * kept_there
            code = codec.encode(value, name)
            left.append(codec.leave(value, code, name))
            mean += codec.decode(code, name, numel)
        mean = mean / size + factor * owner
        code = codec.encode(mean, name)
        expected, mine, call = (
            codec.decode(code, name, numel),
            gradients[rank].clone(),
            BufferCall(average=True),
        )
        if scattered:
            pending = exchange.start_reduce_scatter(mine, layout, call)
            pending.wait()
            assert torch.equal(pending.result, expected[rank * count : (rank + 1) * count]), step
        else:
            assert torch.equal(exchange.all_reduce(mine, layout, call).wait(), expected), step
        state.end_step(applied=applied)
        if applied:
            senders, owner = left, codec.leave(mean, code, name)
    assert rows_at_hub() == 1


@pytest.mark.parametrize("scattered", [False, True], ids=["all-reduce", "reduce-scatter"])
def test_ranks_get_what_the_stages_in_torch_compute_whatever_the_step(
    scattered: bool, environment: dict[str, str]
) -> None:
    ranks.run(skipping_twin, 3, scattered=scattered, environment=environment)


def twin_at_hub() -> int:
    test_low_bit.as_the_twin()
    return rows_at_hub()


def test_over_a_hub_and_among_ranks_the_bits_are_the_same(environment: dict[str, str]) -> None:
    assert ranks.run(twin_at_hub, 2, environment=environment | test_low_bit.WHOLE) == [1, 1]


def trained() -> tuple[list[bytes], int]:
    """Parameters after each step of DDP, which cuts its buckets anew after the first."""
    wrapped, _ = hooked_low(net())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
    found = []
    for batch in batches(6):
        optimizer.zero_grad()
        wrapped(batch).square().mean().backward()
        optimizer.step()
        found.append(b"".join(each.detach().numpy().tobytes() for each in wrapped.parameters()))
        for parameter in wrapped.parameters():
            same_on_all_ranks(parameter.detach())
    return found, rows_at_hub()


def test_ddp_trains_over_a_hub_by_the_recipe_alone(environment: dict[str, str]) -> None:
    (first, rows), (second, _) = ranks.run(trained, 2, environment=environment)
    assert first == second
    assert rows > 0
    assert ranks.run(trained, 2, environment=environment)[0] == (first, rows)


def loaded() -> None:
    """A state of ranks that were owners, with what they kept and without: after a step it is the sender's."""
    numel = 20_000
    layout = Layout.of([("weight", numel)])

    def step(state: Any, number: int) -> None:
        gradient = test_low_bit.whole_numbers(numel, number)
        exchange_of(state).all_reduce(gradient, layout, BufferCall(average=False)).wait()

    alone = dlcp.torch.GradientState(codec="int2", by_hosts=False, **LOW)
    alone.pipeline._hub_of = lambda *_: None  # type: ignore[attr-defined]
    for number in range(2):
        step(alone, number)
    saved = alone.state_dict()
    owned = kept(alone, layout, "owner")
    assert owned.any()
    senders = []
    for with_owners in (True, False):
        if not with_owners:
            saved["residual"]["owner"]["batches"] = []
        state = dlcp.torch.GradientState(codec="int2", **LOW)
        state.load_state_dict(saved)
        step(state, 2)
        senders.append(kept(state, layout, "sender"))
        assert not kept(state, layout, "owner").any()
    assert torch.equal(senders[0] - senders[1], owned)


def test_what_owners_had_kept_before_there_was_a_hub_is_not_lost(environment: dict[str, str]) -> None:
    ranks.run(loaded, 2, environment=environment)


def test_rows_are_let_go_where_buffers_are_cut_anew_and_with_the_recipe() -> None:
    def layout(*names: str) -> Layout:
        return Layout.of([(name, 4 * GROUP_VALUES) for name in names])

    with service(cores=1) as hub, ranks_of(hub, 2) as world:
        groups = world.open()
        memories: list[HubMemory] = [HubMemory() for _ in groups]

        def step(group: Communicator, buffers: dict[str, Layout]) -> None:
            assert group.hub_group is not None
            memory = memories[group.rank]
            for key, each in buffers.items():
                found = memory.open(key, each, group.hub_group, Sums("int4", 4, False), 1.0)
                assert found is not None
                row, factor = found
                codes = coded(np.ones(each.numel, np.float32), "int4")
                summed(group, codes, "int4", kept=row, factor=factor)
            memory.end_step(applied=True)

        def rows() -> int:
            (core,) = core_groups(hub)
            return len(core._residuals)

        two = {"first": layout("a"), "second": layout("b", "c")}
        world.each(groups, lambda group: step(group, two))
        world.each(groups, lambda group: step(group, two))
        assert rows() == 2
        anew = {"first": layout("a", "b"), "third": layout("c")}
        for _ in range(2):  # with the next sums the hub hears of what is let go
            world.each(groups, lambda group: step(group, anew))
        assert rows() == 2

        def counted() -> list[int]:
            return [len(group.hub_group._residuals) for group in groups if group.hub_group is not None]

        def sums() -> None:
            for _ in range(2):
                world.each(
                    groups, lambda group: summed(group, coded(np.ones(256, np.float32), "int4"), "int4")
                )

        world.each(groups, lambda group: memories[group.rank].reset(None))
        sums()
        assert (rows(), counted()) == (0, [0, 0])
        world.each(groups, lambda group: step(group, two))
        # What one rank alone has collected counts as before, or ranks would refuse apart.
        memories[0] = HubMemory()
        gc.collect()
        assert counted() == [2, 2]
        memories.clear()
        gc.collect()
        sums()
        assert (rows(), counted()) == (0, [2, 2])


def in_a_callback() -> None:
    """Its communicator has no hub, so ranks are the owners; the state says that it is of no hosts' shards."""
    numel = 20_000
    state = dlcp.torch.GradientState(codec="int8", **LOW)
    first = torch.ones(4)
    work: Any = dist.all_reduce(first, async_op=True)
    rank = dist.get_rank()

    def then(_: Any) -> torch.Tensor:
        gradient = test_low_bit.whole_numbers(numel, rank)
        call = BufferCall(average=False)
        return exchange_of(state).all_reduce(gradient, Layout.of([("weight", numel)]), call).wait()

    same_on_all_ranks(work.get_future().then(then).wait())
    step_over_hub = exchange_of(state).all_reduce(
        test_low_bit.whole_numbers(numel, 3), Layout.of([("other", numel)]), BufferCall(average=False)
    )
    same_on_all_ranks(step_over_hub.wait())
    state.end_step()
    assert rows_at_hub() == 1
    assert state.pipeline.state_dict()["by_hosts"] is None


def test_a_sum_that_begins_in_a_callback_stays_among_ranks(environment: dict[str, str]) -> None:
    ranks.run(in_a_callback, 2, environment=environment)


# --- a hub with too little memory -------------------------------------------------------------------------------


NUMEL = 40_000
"""Of a buffer. At each of the hub's two cores what codes leave of one has room, of two it has not."""


@pytest.fixture
def small_hub(tmp_path: Path) -> Iterator[dict[str, str]]:
    with environment_of_hub(tmp_path, memory_bytes=4 * 2 * 250 * 1024) as found:
        yield found | {"DLCP_HUB_BYTES_MIN": "1"}


def step_of(state: Any, buffers: Sequence[tuple[str, BufferCall]], number: int) -> list[bytes]:
    """The bits of a step with these buffers, in this order."""
    found = []
    for name, call in buffers:
        gradient = test_low_bit.whole_numbers(NUMEL, 10 * number + ord(name))
        layout = Layout.of([(name, NUMEL)])
        found.append((name, exchange_of(state).all_reduce(gradient, layout, call)))
    state.mark_last()
    return [future.wait().numpy().tobytes() for _, future in sorted(found, key=lambda each: each[0])]


def three_buffers() -> tuple[list[list[bytes]], int]:
    state = dlcp.torch.GradientState(codec="int4", by_hosts=False, **LOW)
    buffers = [(name, BufferCall(average=True)) for name in "abc"]
    steps = [step_of(state, buffers, number) for number in range(4)]
    return steps, rows_at_hub() if os.environ.get("DLCP_HUB") else 0


def test_rows_without_room_stay_among_ranks_and_training_has_the_same_bits(small_hub: dict[str, str]) -> None:
    found = ranks.run(three_buffers, 2, environment=small_hub)
    assert [rows for _, rows in found] == [1, 1]
    assert [steps for steps, _ in found] == [steps for steps, _ in ranks.run(three_buffers, 2)]


def numbered_in_any_order() -> tuple[list[list[bytes]], list[str]]:
    """Each rank starts buffers in another order. One has room."""
    state = dlcp.torch.GradientState(codec="int4", by_hosts=False, **LOW)
    group: Any = dist.group.WORLD
    steps = []
    for number in range(4):
        first = group.communicator.reserve(6)
        buffers = [
            (name, BufferCall(average=True, sequence=first + 2 * place)) for place, name in enumerate("abc")
        ]
        steps.append(step_of(state, buffers[:: -1 if dist.get_rank() else 1], number))
    state.end_step()
    rows = state.pipeline._hub._rows.values()  # type: ignore[attr-defined]
    return steps, [name for row in rows if row.is_there for name in row.layout.names()]


def test_of_numbered_buffers_the_steps_end_decides_which_have_room(small_hub: dict[str, str]) -> None:
    (first, rows), (second, others) = ranks.run(numbered_in_any_order, 2, environment=small_hub)
    assert first == second
    assert rows == others == ["a"]
