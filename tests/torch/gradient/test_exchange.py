"""The exchange between real ranks whose packets are lost: sums, alike everywhere, and what is lost accounted for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.residual.rule import ResidualRule
from tests.torch import ranks

# Small packets, so that there are many to lose.
LOSSY = {"DLCP_SHM": "0", "DLCP_INJECT_LOSS_RATIO": "0.05", "DLCP_MAX_DATAGRAM_BYTES": "1472"}
WHOLE = {"DLCP_SHM": "0"}
STEPS = 4
# Nothing is critical but what a test says.
OPEN: dict[str, Any] = {"critical": (), "small_numel": 0, "critical_share": 0.0, "loss_budget": 0.3}


def same_on_all_ranks(tensor: torch.Tensor) -> None:
    """Bit for bit."""
    others = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(others, tensor)
    assert all(torch.equal(other.view(torch.uint8), tensor.view(torch.uint8)) for other in others)


def total(tensor: torch.Tensor) -> torch.Tensor:
    """The sum over ranks, exact for what it is compared with."""
    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor


def kept(state: Any, layout: Layout) -> torch.Tensor:
    """What this rank keeps of each element of a layout."""
    dense = torch.zeros(layout.numel, dtype=torch.float64)
    where = {segment.name: segment for segment in layout.segments}
    for batch in state.residual.state_dict()["batches"]:
        values = batch["values"].double() * batch["factor"]
        at = 0
        runs = zip(*(batch[key].tolist() for key in ("parameter", "offset", "count")), strict=True)
        for parameter, offset, count in runs:
            segment = where[batch["names"][parameter]]
            begin = segment.begin + offset - segment.offset
            dense[begin : begin + count] += values[at : at + count]
            at += count
    return dense


def gradient(numel: int, step: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(numel, generator=generator).to(dtype)


def layout_of(numel: int) -> Layout:
    """Two parameters with padding between them and behind."""
    first = numel // 3
    return Layout((Segment("first", 0, 0, first), Segment("second", 0, first + 5, numel - first - 12)), numel)


# --- mass ---------------------------------------------------------------------------------------------------


def mass(numel: int, average: bool, scatter: bool, dtype: torch.dtype = torch.float32) -> int:
    """Inputs = applied + kept, per element; how many bytes were abandoned in all."""
    from dlcp.torch.gradient.buffer.pending_buffer import GradientWork
    from dlcp.torch.gradient.state import GradientState

    size = dist.get_world_size()
    numel -= numel % size
    state = GradientState(residual=ResidualRule(decay=1.0), **OPEN)
    exchange, layout = exchange_of(state), layout_of(numel)
    inputs = torch.zeros(numel, dtype=torch.float64)
    applied = torch.zeros(numel, dtype=torch.float64)
    inside = torch.zeros(numel, dtype=torch.bool)
    for segment in layout.segments:
        inside[segment.begin : segment.end] = True
    for step in range(STEPS):
        buffer = gradient(numel, step, dtype).mul_(inside)
        inputs += buffer.double()
        if scatter:
            pending = exchange.start_reduce_scatter(buffer, layout, BufferCall(average=average))
            GradientWork([pending], [pending.result]).wait()
            whole = torch.empty(numel, dtype=dtype)
            dist.all_gather_into_tensor(whole, pending.result)
        else:
            whole = exchange.all_reduce(buffer, layout, BufferCall(average=average, last_of_step=True)).wait()
            same_on_all_ranks(whole)
        applied += whole.double() * (size if average else 1)
    state.end_step()
    missing = total(inputs) - applied - total(kept(state, layout))
    scale = total(inputs.abs()).clamp(min=1.0)
    # Of bfloat16 each sum keeps 8 bits.
    tolerance = 1e-6 if dtype == torch.float32 else 5e-2
    assert float((missing.abs() / scale).max()) < tolerance
    return int(state.report()["total"]["abandoned_bytes"])


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("scatter", [True, False])
def test_inputs_are_applied_or_kept(average: bool, scatter: bool) -> None:
    abandoned = ranks.run(mass, 3, numel=90_000, average=average, scatter=scatter, environment=LOSSY)
    assert sum(abandoned) > 0


def test_inputs_of_bfloat16_are_applied_or_kept() -> None:
    ranks.run(mass, 2, numel=90_000, average=True, scatter=False, dtype=torch.bfloat16, environment=LOSSY)


def test_one_rank_alone() -> None:
    assert ranks.run(mass, 1, numel=5_000, average=True, scatter=False) == [0]
    assert ranks.run(mass, 1, numel=5_000, average=True, scatter=True) == [0]


# --- fills --------------------------------------------------------------------------------------------------


def fill(name: str) -> float:
    """The relative error of sums under loss."""
    from dlcp.torch.gradient.state import GradientState

    state = GradientState(fill=name, **OPEN)
    exchange, layout = exchange_of(state), layout_of(60_000)
    errors = []
    for step in range(STEPS):
        buffer = gradient(60_000, step)
        expected = total(buffer.double())
        result = exchange.all_reduce(buffer, layout, BufferCall(average=False, last_of_step=True)).wait()
        same_on_all_ranks(result)
        errors.append(float((result - expected).norm() / expected.norm()))
    return max(errors)


@pytest.mark.parametrize("name", ["residual", "rescale", "zero", "hadamard"])
def test_without_loss_every_fill_gives_the_sum(name: str) -> None:
    assert max(ranks.run(fill, 3, name=name, environment=WHOLE)) < 1e-5


@pytest.mark.parametrize("name", ["rescale", "zero", "hadamard"])
def test_under_loss_every_fill_gives_nearly_the_sum(name: str) -> None:
    assert 0.0 < max(ranks.run(fill, 3, name=name, environment=LOSSY)) < 0.6


# --- what is never lost -------------------------------------------------------------------------------------


def critical(options: dict[str, Any]) -> float:
    """The error of the first parameter, which is critical."""
    from dlcp.torch.gradient.state import GradientState

    state = GradientState(fill="zero", **(OPEN | options))
    exchange, layout = exchange_of(state), layout_of(60_000)
    error = 0.0
    for step in range(STEPS):
        buffer = gradient(60_000, step)
        expected = total(buffer.double())
        result = exchange.all_reduce(buffer, layout, BufferCall(average=False, last_of_step=True)).wait()
        error = max(error, float((result - expected)[: layout.segments[0].end].abs().max()))
    return error


@pytest.mark.parametrize(
    "options",
    [{"critical": ["first"]}, {"loss_budget": {"second": 0.4}}, {"loss_budget": 0.0}],
    ids=["named", "other_budget", "no_budget"],
)
def test_a_critical_parameter_arrives_whole(options: dict[str, Any]) -> None:
    assert max(ranks.run(critical, 2, options=options, environment=LOSSY)) < 1e-5


def budget(scope: str) -> tuple[float, float]:
    """What a rank sent over all steps, and what of it was abandoned."""
    from dlcp.torch.gradient.state import GradientState

    state = GradientState(budget_scope=scope, **(OPEN | {"loss_budget": 0.02}))
    exchange = exchange_of(state)
    sent = 0
    layouts = [Layout.of([(f"layer {index}", 30_000)]) for index in range(4)]
    for step in range(STEPS):
        futures = []
        for index, layout in enumerate(layouts):
            buffer = gradient(layout.numel, 10 * step + index)
            sent += buffer.nbytes * (dist.get_world_size() - 1) // dist.get_world_size()
            futures.append(
                exchange.all_reduce(buffer, layout, BufferCall(average=True, last_of_step=index == 3))
            )
        for future in futures:
            same_on_all_ranks(future.wait())
    state.end_step()
    abandoned = state.report()["total"]["abandoned_bytes"]
    metrics = dist.group.WORLD.communicator.job.metrics.snapshot()["gradients"]
    assert metrics["gradients"]["total"]["abandoned_bytes"] == abandoned
    return float(sent), float(abandoned)


@pytest.mark.parametrize("scope", ["step", "buffer"])
def test_no_more_than_the_budget_is_abandoned(scope: str) -> None:
    for sent, abandoned in ranks.run(budget, 2, scope=scope, environment=LOSSY):
        # A sixteenth for parts that are not all alike in size.
        assert 0 <= abandoned <= 0.02 * sent * (1 + 1 / 16)


# --- steps --------------------------------------------------------------------------------------------------


def skipped() -> None:
    from dlcp.torch.gradient.state import GradientState

    state = GradientState(residual=ResidualRule(decay=1.0), **OPEN)
    exchange, layout = exchange_of(state), layout_of(60_000)
    exchange.all_reduce(gradient(60_000, 0), layout, BufferCall(average=True)).wait()
    state.end_step()
    before = kept(state, layout)
    exchange.all_reduce(gradient(60_000, 1), layout, BufferCall(average=True)).wait()
    state.end_step(applied=False)
    assert torch.equal(kept(state, layout), before)
    assert state.step == 2


def test_a_skipped_step_leaves_residuals_as_they_were() -> None:
    ranks.run(skipped, 2, environment=LOSSY)


def overlapping() -> None:
    """A step that nobody waits for ends when the next begins."""
    from dlcp.torch.gradient.state import GradientState

    state = GradientState(residual=ResidualRule(decay=1.0), **OPEN)
    exchange, layout = exchange_of(state), layout_of(60_000)
    for step in range(3):
        future = exchange.all_reduce(gradient(60_000, step), layout, BufferCall(average=True))
        assert state.step == step
    same_on_all_ranks(future.wait())
    state.end_step()
    assert state.step == 3
    state.end_step()
    assert state.step == 3


def test_a_step_ends_when_its_buffer_comes_again() -> None:
    ranks.run(overlapping, 2, environment=LOSSY)


def resumed(steps: int, cut: int) -> list[bytes]:
    """Results of a run that is cut and goes on from its state, as bytes."""
    import io

    from dlcp.torch.gradient.state import GradientState

    layout, results = layout_of(60_000), []
    state = GradientState(**OPEN)
    for step in range(steps):
        if step == cut:
            file = io.BytesIO()
            torch.save(state.state_dict(), file)
            file.seek(0)
            state = GradientState(**OPEN)
            state.load_state_dict(torch.load(file))
            assert state.step == cut
        result = exchange_of(state).all_reduce(
            gradient(layout.numel, step), layout, BufferCall(average=True, last_of_step=True)
        )
        results.append(result.wait().numpy().tobytes())
    return results


def test_a_resumed_run_gives_the_same_bits_where_nothing_is_lost() -> None:
    whole = ranks.run(resumed, 2, steps=4, cut=-1, environment=WHOLE)
    assert ranks.run(resumed, 2, steps=4, cut=2, environment=WHOLE) == whole


def residual_survives() -> None:
    import io

    from dlcp.torch.gradient.state import GradientState

    layout = layout_of(60_000)
    state = GradientState(**OPEN)
    for step in range(3):
        exchange_of(state).all_reduce(gradient(layout.numel, step), layout, BufferCall(average=True)).wait()
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    file.seek(0)
    again = GradientState(**OPEN)
    again.load_state_dict(torch.load(file))
    assert torch.equal(kept(again, layout), kept(state, layout))
    again.reset(["first"])
    first = layout.segments[0]
    assert not kept(again, layout)[: first.end].any()
    assert torch.equal(kept(again, layout)[first.end :], kept(state, layout)[first.end :])


def test_residuals_survive_in_the_state() -> None:
    ranks.run(residual_survives, 2, environment=LOSSY)


# --- errors -------------------------------------------------------------------------------------------------


def replicas_differ() -> str:
    from dlcp.torch.gradient.buffer import replicas
    from dlcp.torch.gradient.buffer.replicas import ReplicaError
    from dlcp.torch.gradient.state import GradientState

    state = GradientState(verify=True, **OPEN)
    layout = layout_of(6_000)
    exchange_of(state).all_reduce(
        gradient(6_000, 0), layout, BufferCall(average=True, last_of_step=True)
    ).wait()
    if dist.get_rank() == 1:
        # As if memory of rank 1 had a fault.
        replicas.digest = lambda result: b"other bits"
    with pytest.raises(ReplicaError) as caught:
        exchange_of(state).all_reduce(gradient(6_000, 1), layout, BufferCall(average=True, last_of_step=True))
    return str(caught.value)


def test_replicas_that_differ_are_named_by_all() -> None:
    expected = "step 1: the gradients of group ranks 1 differ from those of ranks 0, 2"
    assert ranks.run(replicas_differ, 3) == [expected] * 3


def refused() -> None:
    from dlcp.torch.gradient.state import GradientState

    state = GradientState(**OPEN)
    exchange, layout = exchange_of(state), layout_of(600)
    with pytest.raises(
        TypeError, match="dtype is torch.int32; accepted: float32, float64, float16, bfloat16"
    ):
        exchange.all_reduce(torch.zeros(600, dtype=torch.int32), layout, BufferCall(average=True))
    with pytest.raises(ValueError, match=r"shape \(20, 30\).*accepted: one dimension"):
        exchange.all_reduce(torch.zeros(20, 30), layout, BufferCall(average=True))
    with pytest.raises(ValueError, match="layout is of 600 elements; accepted: 500"):
        exchange.all_reduce(torch.zeros(500), layout, BufferCall(average=True))
    with pytest.raises(ValueError, match="601 elements; accepted: a multiple of 2"):
        exchange.start_reduce_scatter(torch.zeros(601), Layout((), 601), BufferCall(average=True))
    with pytest.raises(TypeError, match="backend is gloo; accepted for gradients: dlcp"):
        exchange_of(state, dist.new_group(backend="gloo"))
    with pytest.raises(ValueError, match="version of the gradients' state is 7; accepted: 1"):
        state.load_state_dict({"version": 7})


def test_what_cannot_be_meant_is_refused() -> None:
    ranks.run(refused, 2)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="loss_budget is 1.5"):
        GradientOptions(loss_budget=1.5)
