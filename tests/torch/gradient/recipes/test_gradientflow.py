"""The recipe gradientflow: which chunks travel, for how long they wait, and sums of several buffers in one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import dlcp.torch
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.flow.chunks import ChunkAgreement, ChunkTable
from dlcp.torch.gradient.layout import Layout, Segment
from tests.torch import ranks
from tests.torch.gradient.test_exchange import WHOLE, same_on_all_ranks
from tests.torch.gradient.test_hook import batches, flat, net

FLOW: dict[str, Any] = {"recipe": "gradientflow", "small_numel": 0, "chunk_numel": 64}
STREAM = Layout((Segment("first", 0, 0, 150), Segment("second", 100, 150, 90)), 240)


# --- which chunks -----------------------------------------------------------------------------------------------


def test_chunks_are_cut_where_parameters_are() -> None:
    table = ChunkTable(STREAM, 64)
    assert table.begin.tolist() == [0, 64, 128, 150, 178]
    assert table.count.tolist() == [64, 64, 22, 28, 62]
    assert [row[1:] for row in table.rows] == [(0, 3), (3, 2)]


def test_a_code_is_a_quarter_of_an_octave_whatever_the_scale_of_the_loss() -> None:
    table = ChunkTable(Layout.of([("weight", 6)]), 1)
    values = torch.tensor([0.0, 1.0, -2.0, 2.0**-60, math.inf, math.nan])
    for scale in (1.0, 1024.0):
        assert table.codes(values * scale, scale).tolist() == [0, 160, 164, 1, 255, 255]


def test_the_important_travel_and_no_chunk_waits_for_ever() -> None:
    chunks, age_max = 100, 20
    agreement = ChunkAgreement(64, age_max)
    table = ChunkTable(Layout.of([("weight", 64 * chunks)]), 64)
    codes = np.arange(chunks).astype(np.uint8)
    assert agreement.chosen(table, 0.1, 0).all()  # nobody knows anything
    agreement.note(table, np.ones(chunks, bool), codes)
    agreement.end_step(applied=True)
    travelled = np.zeros((60, chunks), bool)
    for step in range(60):
        travelled[step] = agreement.chosen(table, 0.1, step)
        agreement.note(table, travelled[step], codes)
        assert agreement.end_step(applied=True) < age_max
    assert (travelled.sum(1) == 10).all()
    # Half of each step's chunks are the most important ones, half the oldest.
    assert travelled[:, -5:].all()
    assert (travelled[:, :50].sum(0) >= 2).all()
    agreement.note(table, np.zeros(chunks, bool), codes)
    assert agreement.end_step(applied=False) < age_max  # it never was
    free = ChunkAgreement(64, None)
    free.note(table, np.ones(chunks, bool), codes)
    free.end_step(applied=True)
    assert np.flatnonzero(free.chosen(table, 0.1, 5)).tolist() == list(range(90, 100))


# --- between ranks ----------------------------------------------------------------------------------------------


def of(state: Any, values: Tensor, **call: Any) -> Tensor:
    layout = Layout.of([("weight", len(values))])
    return (
        exchange_of(state).all_reduce(values.clone(), layout, BufferCall(average=True, **call)).wait().clone()
    )


def chunks_agree() -> None:
    """The same chunks everywhere, none later than age_max; what is not finite is chosen once."""
    rank, numel = dist.get_rank(), 64 * 40
    state = dlcp.torch.GradientState(density=0.1, age_max=6, **FLOW)
    scales = torch.rand(40, generator=torch.Generator().manual_seed(3)).pow(3)
    scales = (scales + 0.01).repeat_interleave(64)
    travelled = []
    for step in range(20):
        values = scales * torch.randn(numel, generator=torch.Generator().manual_seed(100 * step + rank))
        if step == 8 and rank == 0:
            values[64 * 17 + 3] = math.inf
        result = of(state, values)
        same_on_all_ranks(result)
        assert result.isfinite().all() == (step != 8)
        travelled.append((result.nan_to_num(nan=0.0) != 0).view(40, 64).any(1))
        state.end_step()
        assert state.report()["last"]["residual"]["age"] <= 6
    sent = torch.stack(travelled)
    assert sent[0].all()
    assert (sent[1:].sum(1) < 15).all()
    for chunk in range(40):
        gaps = torch.diff(sent[:, chunk].nonzero().squeeze(1))
        assert len(gaps) > 0
        assert gaps.max() <= 7
    assert sent[10:, 17].sum() < 10


def corrected() -> None:
    """What waits accumulates momentum, and none is left where it was sent."""
    momentum, rank, numel = 0.5, dist.get_rank(), 64 * 4
    state = dlcp.torch.GradientState(density=0.25, momentum=momentum, codec="bf16", **FLOW)
    # Of 8 bits of precision, so that codes are exact; the last chunk is the largest.
    sizes = torch.tensor([1.0, 2.0, 4.0, 64.0]).repeat_interleave(64)
    found = [of(state, sizes.clone()) for _ in range(4)]
    expected = [sizes, *[sizes * (sizes == 64.0)] * 3]
    assert all(torch.equal(*each) for each in zip(found, expected, strict=True)), rank
    kept = state.state_dict()["residual"]
    # u = 1 g, 1.5 g, 1.75 g; v = 1 g, 2.5 g, 4.25 g
    for side, factor in (("sender", 4.25), ("velocity", 1.75)):
        values = torch.cat([batch["values"] for batch in kept[side]["batches"]])
        assert torch.equal(values, factor * sizes * (sizes < 64.0)), side
    assert numel == len(values)


def lazily(theta_bytes: int) -> tuple[int, bytes, list[float]]:
    """Collectives of a step, and what a model learns."""
    torch.manual_seed(7)
    model = net()
    state = dlcp.torch.GradientState(model, density=0.3, theta_bytes=theta_bytes, verify=True, **FLOW)
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    wrapped.register_comm_hook(state, dlcp.torch.gradient_hook)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    communicator = exchange_of(state).communicator
    before, losses = 0, []
    for batch in list(batches(1)) * 10:
        optimizer.zero_grad()
        loss = wrapped(batch).square().mean()
        before = communicator.sequence
        loss.backward()
        count = communicator.sequence - before
        optimizer.step()
        losses.append(float(loss.detach()))
    state.end_step()
    same_on_all_ranks(flat(wrapped.parameters()))
    # A step that is broken off leaves nothing that waits for ever.
    exchange = exchange_of(state)
    layout = Layout.of([("first.weight", 640)])
    call = BufferCall(average=True, last_of_step=False)
    pending = exchange.start_all_reduce(torch.ones(640), layout, call)
    state.end_step()
    assert pending.settled
    return count, flat(wrapped.parameters()).detach().numpy().tobytes(), losses


def all_of_it() -> list[tuple[int, bytes, list[float]]]:
    chunks_agree()
    corrected()
    return [lazily(theta_bytes) for theta_bytes in (0, 1, 10**9)]


def test_ranks_agree_on_chunks_and_join_buffers() -> None:
    (single, each, together), other = ranks.run(all_of_it, 2, environment=WHOLE)
    assert [one[:2] for one in other] == [single[:2], each[:2], together[:2]]
    # Three collectives of a batch, whatever it joins.
    assert together[0] == 3
    assert single[0] == each[0] > 3
    assert single[1] == each[1]
    assert together[2][-1] < 0.7 * together[2][0]
    assert together[2] == pytest.approx(single[2], rel=0.05)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"chunk_numel": 100}, "chunk_numel is 100; accepted: a multiple of 64"),
        ({"age_max": 0}, "age_max is 0; accepted"),
        ({"theta_bytes": -1}, "theta_bytes is -1; accepted"),
        ({"codec": "same_sign"}, "codec is 'same_sign'; accepted: bf16"),
        ({"selector": "largest"}, "selector is 'largest' under recipe 'gradientflow'"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dlcp.torch.GradientState(**({"recipe": "gradientflow"} | options))


def test_a_state_of_other_chunks_is_not_loaded() -> None:
    saved = dlcp.torch.GradientState(**FLOW).state_dict()
    with pytest.raises(ValueError, match="the state has chunks of 64 values; accepted: 1024"):
        dlcp.torch.GradientState(recipe="gradientflow").load_state_dict(saved)


def apart() -> None:
    """One rank says that the optimizer skipped a step, so it chooses by other steps than the rest."""
    state = dlcp.torch.GradientState(density=0.1, age_max=4, **FLOW)
    values = torch.randn(6400, generator=torch.Generator().manual_seed(1))
    for step in range(4):
        of(state, values.roll(640 * step))
        state.end_step(applied=not (step == 3 and dist.get_rank() == 1))
    whole = values.clone()
    with pytest.raises(dlcp.torch.ReplicaError, match="ranks chose different chunks"):
        of(state, values)
    assert torch.equal(values, whole)


def test_ranks_that_chose_different_chunks_fail_on_all_of_them() -> None:
    ranks.run(apart, 3, environment=WHOLE)
