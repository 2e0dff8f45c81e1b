"""The recipe low_bit between real ranks: what test_conformance.py does not ask of every recipe."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dlcp.torch
from dlcp.torch import codec
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout
from tests.torch import ranks
from tests.torch.gradient.test_exchange import LOSSY, WHOLE, layout_of, same_on_all_ranks, total
from tests.torch.gradient.test_hook import batches, flat, net

LOW: dict[str, Any] = {"recipe": "low_bit", "small_numel": 0, "warmup_steps": 0}


def whole_numbers(numel: int, step: int, rank: int | None = None) -> torch.Tensor:
    """Gradients of which every sum is exact."""
    rank = dist.get_rank() if rank is None else rank
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(-500, 500, (numel,), generator=generator).float()


def kept(state: Any, layout: Layout, side: str) -> torch.Tensor:
    """What this rank keeps of each element of a layout, on one side."""
    dense = torch.zeros(layout.numel, dtype=torch.float64)
    where = {segment.name: segment for segment in layout.segments}
    for batch in state.state_dict()["residual"][side]["batches"]:
        values, at = batch["values"].double() * batch["factor"], 0
        runs = zip(*(batch[key].tolist() for key in ("parameter", "offset", "count")), strict=True)
        for parameter, offset, count in runs:
            begin = where[batch["names"][parameter]].begin + offset
            dense[begin : begin + count] += values[at : at + count]
            at += count
    return dense


# --- mass -------------------------------------------------------------------------------------------------------


def mass(codec_name: str, loss_budget: float, scatter: bool) -> int:
    numel, size = 96_000, dist.get_world_size()
    layout = layout_of(numel)
    state = dlcp.torch.GradientState(codec=codec_name, loss_budget=loss_budget, critical_share=0.0, **LOW)
    exchange = exchange_of(state)
    given = torch.zeros(numel, dtype=torch.float64)
    applied = torch.zeros(numel, dtype=torch.float64)
    for step in range(4):
        gradient = whole_numbers(numel, step)
        given += total(gradient.double())
        if scatter:
            pending = exchange.start_reduce_scatter(gradient, layout, BufferCall(average=True))
            pending.wait()
            own = torch.zeros(numel, dtype=torch.float64)
            begin = dist.get_rank() * (numel // size)
            own[begin : begin + numel // size] = pending.result.double()
            applied += total(own) * size
        else:
            result = exchange.all_reduce(gradient, layout, BufferCall(average=True)).wait()
            same_on_all_ranks(result)
            applied += result.double() * size
    left = total(kept(state, layout, "sender")) + total(kept(state, layout, "owner"))
    assert torch.equal(given, applied + left)
    assert left.any()
    # Padding is no parameter's, and is summed exactly.
    padding = [*range(numel // 3, numel // 3 + 5), *range(numel - 7, numel)]
    assert not left[padding].any()
    return int(state.report()["total"]["abandoned_bytes"])


@pytest.mark.parametrize("scatter", [False, True], ids=["all_reduce", "reduce_scatter"])
@pytest.mark.parametrize("name", ["int2", "int8"])
def test_what_goes_in_is_applied_or_kept_on_either_side(name: str, scatter: bool) -> None:
    ranks.run(mass, 4, codec_name=name, loss_budget=0.0, scatter=scatter, environment=WHOLE)


@pytest.mark.parametrize("scatter", [False, True], ids=["all_reduce", "reduce_scatter"])
def test_what_the_network_lost_is_kept_by_its_sender(scatter: bool) -> None:
    lost = ranks.run(mass, 4, codec_name="int4", loss_budget=0.4, scatter=scatter, environment=LOSSY)
    assert sum(lost) > 0


# --- what it computes -------------------------------------------------------------------------------------------


def as_the_twin() -> None:
    """Every stage in torch's operations, on one rank, gives the bits that the ranks get."""
    numel, size = 20_000, dist.get_world_size()
    layout = Layout.of([("weight", numel)])
    state = dlcp.torch.GradientState(codec="int4", **LOW)
    exchange = exchange_of(state)
    senders = [torch.zeros(numel) for _ in range(size)]
    owner = torch.zeros(numel)
    for step in range(3):
        gradients = [
            torch.randn(numel, generator=torch.Generator().manual_seed(10 * step + rank))
            for rank in range(size)
        ]
        mean = torch.zeros(numel)
        for rank in range(size):
            value = gradients[rank] + senders[rank]
            coded = codec.encode(value, "int4")
            senders[rank] = codec.leave(value, coded, "int4")
            mean += codec.decode(coded, "int4", numel)
        mean = mean / size + owner
        coded = codec.encode(mean, "int4")
        owner = codec.leave(mean, coded, "int4")
        mine = gradients[dist.get_rank()].clone()
        result = exchange.all_reduce(mine, layout, BufferCall(average=True)).wait()
        assert torch.equal(result, codec.decode(coded, "int4", numel)), step


def test_ranks_get_what_the_stages_in_torch_compute() -> None:
    ranks.run(as_the_twin, 3, environment=WHOLE)


def small_and_not_finite() -> None:
    layout = Layout.of([("weight", 5000), ("bias", 10)])
    state = dlcp.torch.GradientState(recipe="low_bit")
    exchange = exchange_of(state)
    for step in range(2):
        gradient = whole_numbers(5010, step)
        if step == 1 and dist.get_rank() == 1:
            gradient[7], gradient[8], gradient[5005] = torch.inf, torch.nan, -torch.inf
        result = exchange.all_reduce(gradient, layout, BufferCall(average=False)).wait()
        expected = sum(whole_numbers(10 + 5000, step, rank)[5000:] for rank in range(dist.get_world_size()))
        finite = result[5000:].isfinite()
        assert torch.equal(result[5000:][finite], expected[finite])
    assert result[7] == torch.inf
    assert result[8].isnan()
    assert result[5005] == -torch.inf
    assert int(result.isfinite().sum()) == 5010 - 3
    assert kept(state, layout, "sender").isfinite().all()


def test_small_parameters_are_exact_and_what_is_not_finite_is_seen_by_all() -> None:
    ranks.run(small_and_not_finite, 3, environment=WHOLE)


# --- what outlives a step ---------------------------------------------------------------------------------------


def hooked_low(model: nn.Module, **options: Any) -> tuple[Any, Any]:
    state = dlcp.torch.GradientState(model, **(LOW | options))
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.05)
    wrapped.register_comm_hook(state, dlcp.torch.gradient_hook)
    return wrapped, state


def trained() -> list[bytes]:
    """Parameters after each step."""
    wrapped, _ = hooked_low(net())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
    found = []
    for batch in batches(6):
        optimizer.zero_grad()
        wrapped(batch).square().mean().backward()
        optimizer.step()
        found.append(flat(wrapped.parameters()).numpy().tobytes())
    return found


def test_a_run_is_repeated_bit_for_bit_on_all_ranks() -> None:
    first, second = ranks.run(trained, 2, environment=WHOLE)
    assert first == second
    assert ranks.run(trained, 2, environment=WHOLE) == [first, second]


def sharded_training() -> list[bytes]:
    from torch.distributed.fsdp import fully_shard

    model = net()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (model.first, model.second, model.branch, model.last):
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = dlcp.torch.GradientState(model, codec="int8", **LOW)
    dlcp.torch.shard_gradients(model, state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in batches(4):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    assert state.step >= 3
    return [parameter.full_tensor().detach().numpy().tobytes() for parameter in model.parameters()]  # type: ignore[attr-defined]


def exact_training() -> list[bytes]:
    model = net()
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for batch in batches(4):
        optimizer.zero_grad()
        wrapped(batch).square().mean().backward()
        optimizer.step()
    return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


def test_fsdp_reduces_in_few_bits() -> None:
    coded, exact = ranks.run(sharded_training, 2), ranks.run(exact_training, 2)
    assert coded[0] != exact[0]
    for one, other in zip(coded[0], exact[0], strict=True):
        values = (torch.frombuffer(bytearray(each), dtype=torch.float32) for each in (one, other))
        torch.testing.assert_close(*values, rtol=0.0, atol=2e-3)


def marked_and_layered() -> None:
    from dlcp.torch.layerwise import LayerwiseOptimizer

    state = dlcp.torch.GradientState(**LOW)
    tensor = whole_numbers(5000, 0)
    with dlcp.torch.gradients(state, name="weight"):
        dist.all_reduce(tensor)
    same_on_all_ranks(tensor)
    exact = total(whole_numbers(5000, 0))
    assert not torch.equal(tensor, exact)
    assert (tensor - exact).abs().max() < 0.3 * exact.abs().max()
    model = net()
    layered = LayerwiseOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05), model, gradients=dlcp.torch.GradientState(model, **LOW)
    )
    for batch in batches(4):
        layered.zero_grad()
        model(batch).square().mean().backward()
        layered.step()
    layered.synchronize()
    for parameter in model.parameters():
        same_on_all_ranks(parameter.detach())


def test_the_other_ways_in_are_the_same_pipeline() -> None:
    ranks.run(marked_and_layered, 2)


# --- bad input --------------------------------------------------------------------------------------------------


def test_what_is_not_accepted_is_named() -> None:
    with pytest.raises(ValueError, match="recipe is 'lowbit'; did you mean low_bit"):
        dlcp.torch.GradientState(recipe="lowbit")
    with pytest.raises(ValueError, match="codec is 'int5'; accepted: bf16"):
        dlcp.torch.GradientState(recipe="low_bit", codec="int5")
    with pytest.raises(ValueError, match="fill is 'zero' under recipe 'low_bit', which does not read it"):
        dlcp.torch.GradientState(recipe="low_bit", fill="zero")
    with pytest.raises(ValueError, match="codec is 'int4' under recipe 'dlcp', which does not read it"):
        dlcp.torch.GradientState(codec="int4")
    with pytest.raises(ValueError, match="loss_budget is 0.1 with codec bf16"):
        dlcp.torch.GradientState(recipe="low_bit", codec="bf16", loss_budget=0.1)
    four, eight = (dlcp.torch.GradientState(recipe="low_bit", codec=name) for name in ("int4", "int8"))
    with pytest.raises(ValueError, match="the state is of codec 'int4'; accepted: 'int8'"):
        eight.load_state_dict(four.state_dict())
    with pytest.raises(ValueError, match="the state is of recipe 'low_bit'; accepted: 'auto'"):
        dlcp.torch.GradientState().load_state_dict(four.state_dict())


def of_different_options(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    state = dlcp.torch.GradientState(**(theirs if dist.get_rank() else ours))
    tensor = torch.ones(5000)
    with dlcp.torch.gradients(state), pytest.raises(dlcp.errors.DlcpError) as caught:
        dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.ones(5000))
    return str(caught.value)


def test_ranks_of_different_recipes_or_options_all_fail_by_name_in_the_first_step() -> None:
    for message in ranks.run(of_different_options, 2, ours={"recipe": "exact"}, theirs=LOW):
        assert "recipe low_bit" in message
        assert "recipe exact" in message
    for message in ranks.run(of_different_options, 3, ours=LOW, theirs=LOW | {"owners": "by_link"}):
        assert "recipe low_bit, options" in message


def test_a_state_of_another_model_is_refused() -> None:
    saved = dlcp.torch.GradientState(nn.Linear(8, 8), **LOW).state_dict()
    batch = {"names": ["weight"], "values": torch.ones(10), "factor": 1.0}
    where = {"parameter": torch.tensor([0]), "offset": torch.tensor([60]), "count": torch.tensor([10])}
    saved["residual"]["sender"]["batches"] = [batch | where]
    with pytest.raises(ValueError, match="it has 70 elements of 'weight'; accepted: up to 64"):
        dlcp.torch.GradientState(nn.Linear(8, 8), **LOW).load_state_dict(saved)
    with pytest.raises(ValueError, match=r"it knows 'weight'; accepted: a state of a model with '0.weight'"):
        dlcp.torch.GradientState(nn.Sequential(nn.Linear(9, 9)), **LOW).load_state_dict(saved)
