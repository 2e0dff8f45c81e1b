"""DistributedDataParallel with the hook, under loss: what is trained, what is kept, what is counted."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp.torch.gradient.hook import gradient_hook
from dlcp.torch.gradient.residual.rule import ResidualRule
from tests.torch import ranks
from tests.torch.gradient.test_exchange import LOSSY, WHOLE, same_on_all_ranks

STEPS = 4
# All but biases may be lost, whenever the network likes.
OPEN: dict[str, Any] = {"small_numel": 0, "critical_share": 0.0, "loss_budget": 0.3}


class Net(nn.Module):
    """A few layers of some packets each; `branch` is used if asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 128)
        self.branch = nn.Linear(128, 128)
        self.last = nn.Linear(128, 8)
        self.with_branch = True

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.second(torch.relu(self.first(batch))))
        if self.with_branch:
            hidden = hidden + torch.relu(self.branch(hidden))
        return self.last(hidden)


def net() -> Net:
    torch.manual_seed(1)
    return Net()


def batches(steps: int = STEPS) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        yield torch.randn(16, 64, generator=generator)


def hooked(model: nn.Module, ddp: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
    """The model in DDP with the hook, several buckets, and its state."""
    import dlcp.torch

    state = dlcp.torch.GradientState(model, **(OPEN | options))
    wrapped = DistributedDataParallel(model, **({"bucket_cap_mb": 0.05} | (ddp or {})))
    wrapped.register_comm_hook(state, dlcp.torch.gradient_hook)
    return wrapped, state


def flat(tensors: Iterator[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


# --- alike on all ranks -------------------------------------------------------------------------------------

DDP_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bucket_view": {"gradient_as_bucket_view": True},
    "unused_parameters": {"find_unused_parameters": True},
    "static_graph": {"static_graph": True},
}


def train(ddp: dict[str, Any], fill: str = "residual") -> int:
    """Trains under loss; the bytes that this rank abandoned."""
    model = net()
    model.with_branch = not ddp.get("find_unused_parameters", False)
    wrapped, state = hooked(model, ddp, verify=True, fill=fill)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
    for batch in batches():
        optimizer.zero_grad()
        wrapped(batch).square().mean().backward()
        optimizer.step()
        same_on_all_ranks(flat(model.parameters()))
    assert state.step == STEPS - 1
    state.end_step()
    return int(state.report()["total"]["abandoned_bytes"])


@pytest.mark.parametrize("name", DDP_OPTIONS)
def test_training_is_alike_on_all_ranks_under_loss(name: str) -> None:
    assert sum(ranks.run(train, 3, ddp=DDP_OPTIONS[name], environment=LOSSY)) > 0


@pytest.mark.parametrize("fill", ["rescale", "zero", "hadamard"])
def test_training_with_other_fills_is_alike_on_all_ranks(fill: str) -> None:
    assert sum(ranks.run(train, 3, ddp={}, fill=fill, environment=LOSSY)) > 0


def exact(ddp: dict[str, Any]) -> None:
    """Where nothing is lost, gradients are those of a plain DDP."""
    expected, found = net(), net()
    plain = DistributedDataParallel(expected, process_group=dist.new_group(backend="gloo"))
    wrapped, _ = hooked(found, ddp)
    for batch in batches():
        for each in (plain, wrapped):
            each.zero_grad()
            each(batch).square().mean().backward()
        for ours, theirs in zip(found.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", DDP_OPTIONS)
def test_without_loss_gradients_are_those_of_plain_ddp(name: str) -> None:
    ranks.run(exact, 2, ddp=DDP_OPTIONS[name], environment=WHOLE)


# --- mass, whatever DDP does with its buckets ---------------------------------------------------------------


def mass(accumulate: bool, unused_in: int | None) -> int:
    """Gradients made = gradients applied + kept, over steps in which buckets change. What was abandoned, in bytes."""
    model, shadow = net(), net()
    wrapped, state = hooked(
        model, {"find_unused_parameters": unused_in is not None}, residual=ResidualRule(decay=1.0)
    )
    made = torch.zeros(sum(parameter.numel() for parameter in model.parameters()), dtype=torch.float64)
    applied = torch.zeros_like(made)
    for step, batch in enumerate(batches()):
        model.with_branch = shadow.with_branch = step != unused_in
        wrapped.zero_grad()
        shadow.zero_grad()
        parts = batch.chunk(2) if accumulate else [batch]
        for part in parts[:-1]:
            with wrapped.no_sync():
                wrapped(part).square().mean().backward()
        wrapped(parts[-1]).square().mean().backward()
        for part in parts:
            shadow(part).square().mean().backward()
        made += flat(_gradients(shadow))
        applied += flat(_gradients(model)) * dist.get_world_size()
        same_on_all_ranks(flat(_gradients(model)))
    dist.all_reduce(made)
    state.end_step()
    kept = dense(state.residual.state_dict(), {name: each.numel() for name, each in model.named_parameters()})
    dist.all_reduce(kept)
    torch.testing.assert_close(applied + kept, made, rtol=1e-5, atol=1e-6)
    return int(state.report()["total"]["abandoned_bytes"])


def _gradients(model: nn.Module) -> Iterator[torch.Tensor]:
    return (
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in model.parameters()
    )


@pytest.mark.parametrize("accumulate", [False, True])
def test_gradients_are_applied_or_kept(accumulate: bool) -> None:
    assert sum(ranks.run(mass, 3, accumulate=accumulate, unused_in=None, environment=LOSSY)) > 0


def test_residuals_of_a_parameter_that_no_rank_uses_wait() -> None:
    assert sum(ranks.run(mass, 3, accumulate=False, unused_in=2, environment=LOSSY)) > 0


def buckets_rebuilt() -> None:
    wrapped, state = hooked(net())
    steps: list[list[Any]] = [[]]
    enter = state.enter

    def noting(key: Any, last_of_step: bool) -> Any:
        steps[-1].append(key[2].names())
        if last_of_step:
            steps.append([])
        return enter(key, last_of_step)

    state.enter = noting
    for batch in batches(3):
        wrapped(batch).square().mean().backward()
    first, second, third, rest = steps
    assert rest == []
    assert first != second
    assert second == third
    everything = sorted(name for name, _ in wrapped.module.named_parameters())
    for step in (first, second):
        assert sorted(name for names in step for name in names) == everything


def test_buckets_are_rebuilt_and_names_stay() -> None:
    ranks.run(buckets_rebuilt, 2, environment=WHOLE)


def uneven() -> None:
    """Ranks with more batches than others; those that have ended take part with zeros."""
    wrapped, state = hooked(net())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    with wrapped.join():
        for batch in batches(2 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            wrapped(batch).square().mean().backward()
            optimizer.step()
    same_on_all_ranks(flat(wrapped.parameters()))
    state.end_step()
    assert state.step == 4


def test_uneven_inputs() -> None:
    ranks.run(uneven, 2, environment=LOSSY)


# --- AMP ----------------------------------------------------------------------------------------------------


def overflow() -> None:
    """A step that the scaler skips leaves what was kept before it, and what is kept is unscaled."""
    model = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    wrapped, state = hooked(model, scaler=scaler, residual=ResidualRule(decay=1.0))
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    norms = []
    for step, batch in enumerate(batches(5)):
        optimizer.zero_grad()
        loss = wrapped(batch).square().mean()
        if step == 2:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        before = flat(model.parameters())
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, flat(model.parameters())) == (step == 2)
        assert torch.isfinite(flat(model.parameters())).all()
        same_on_all_ranks(flat(model.parameters()))
        norms.append(_kept_norm(state))
        assert scaler.get_scale() == (1024.0 if step < 2 else 512.0)
    assert norms[2] == norms[1]
    assert all(norm < 10.0 for norm in norms)
    assert state.residual.report().skipped == 1


def _kept_norm(state: Any) -> float:
    """Of what is kept when the step is over."""
    state.state_dict()
    return float(state.residual.report().norm)


def test_an_overflow_step_poisons_nothing() -> None:
    ranks.run(overflow, 2, environment=LOSSY)


# --- resume -------------------------------------------------------------------------------------------------


def resumed(cut: int | None, folder: str) -> list[bytes]:
    """Parameters after each step of a run that is cut at `cut`, saved, and goes on from there."""
    found = []

    def begin() -> tuple[Any, Any, Any]:
        wrapped, state = hooked(net())
        return wrapped, state, torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)

    wrapped, state, optimizer = begin()
    for step, batch in enumerate(batches(5)):
        if step == cut:
            path = f"{folder}/{dist.get_rank()}.pt"
            torch.save([wrapped.state_dict(), optimizer.state_dict(), state.state_dict()], path)
            wrapped, state, optimizer = begin()
            for each, saved in zip((wrapped, optimizer, state), torch.load(path), strict=True):
                each.load_state_dict(saved)
        optimizer.zero_grad()
        wrapped(batch).square().mean().backward()
        optimizer.step()
        found.append(flat(wrapped.parameters()).numpy().tobytes())
    return found


def test_a_resumed_run_gives_the_same_bits_where_nothing_is_lost(tmp_path: Any) -> None:
    whole = ranks.run(resumed, 2, cut=None, folder=str(tmp_path), environment=WHOLE)
    assert ranks.run(resumed, 2, cut=3, folder=str(tmp_path), environment=WHOLE) == whole


def shrunk(folder: str) -> None:
    """Two of three ranks go on with what the three had kept."""
    import dlcp.torch
    from dlcp.torch.gradient.reshard import reshard

    model = net()
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    if dist.get_world_size() == 3:
        wrapped, state = hooked(model)
        for batch in batches(3):
            wrapped(batch).square().mean().backward()
        torch.save(state.state_dict(), f"{folder}/{dist.get_rank()}.pt")
        return
    saved = [torch.load(f"{folder}/{rank}.pt") for rank in range(3)]
    state = dlcp.torch.GradientState(model, **OPEN)
    state.load_state_dict(reshard(saved, 2)[dist.get_rank()])
    assert state.step == 3
    now = dense(state.state_dict()["residual"], sizes)
    dist.all_reduce(now)
    before = sum(dense(each["residual"], sizes) for each in saved)
    # In an average of two, two thirds weigh what the whole did in one of three.
    torch.testing.assert_close(now, before * 2 / 3)
    assert before.any()


def dense(residual: dict[str, Any], sizes: dict[str, int]) -> torch.Tensor:
    """What is kept of each parameter's elements, one after the other."""
    found, offset, at = torch.zeros(sum(sizes.values()), dtype=torch.float64), {}, 0
    for name, numel in sizes.items():
        offset[name] = at
        at += numel
    for batch in residual["batches"]:
        begin = 0
        runs = zip(*(batch[key].tolist() for key in ("parameter", "offset", "count")), strict=True)
        for parameter, first, count in runs:
            to = offset[batch["names"][parameter]] + first
            found[to : to + count] += batch["values"][begin : begin + count].double() * batch["factor"]
            begin += count
    return found


def test_fewer_ranks_go_on_with_what_all_had_kept(tmp_path: Any) -> None:
    ranks.run(shrunk, 3, folder=str(tmp_path), environment=LOSSY)
    ranks.run(shrunk, 2, folder=str(tmp_path), environment=WHOLE)


def copied() -> None:
    model = net()
    wrapped, state = hooked(model, recipe="low_bit")
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    for batch in batches(2):
        wrapped(batch).square().mean().backward()
    kept = dense(state.state_dict()["residual"]["sender"], sizes)
    assert kept.any()
    for copy_of in (
        copy.deepcopy,
        torch.optim.swa_utils.AveragedModel,
        lambda one: pickle.loads(pickle.dumps(one)),
    ):
        other = copy_of(wrapped)
        other = other if isinstance(other, DistributedDataParallel) else other.module
        (_, again), *_ = other._comm_hooks
        assert again.names.model is other.module
        assert torch.equal(dense(again.state_dict()["residual"]["sender"], sizes), kept)
        other.register_comm_hook(again, gradient_hook)
        other(next(batches(1))).square().mean().backward()
        same_on_all_ranks(flat(_gradients(other)))


def test_a_model_in_ddp_can_be_copied_with_its_hook() -> None:
    ranks.run(copied, 2)


# --- what else passes ---------------------------------------------------------------------------------------


def other_types(build: str) -> None:
    model: nn.Module
    if build == "sparse":
        model = nn.Sequential(nn.EmbeddingBag(50, 8, sparse=True, mode="sum"), nn.Linear(8, 4))
        batch = torch.arange(20).view(4, 5) + dist.get_rank()
    else:
        model = nn.Linear(64, 64, dtype=torch.complex64)
        batch = torch.randn(4, 64, dtype=torch.complex64)
    wrapped, state = hooked(model)
    for _ in range(3):
        wrapped.zero_grad()
        wrapped(batch).abs().square().mean().backward()
    for parameter in model.parameters():
        gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
        same_on_all_ranks(torch.view_as_real(gradient) if gradient.is_complex() else gradient)
    assert state.step <= 2


@pytest.mark.parametrize("build", ["sparse", "complex"])
def test_what_cannot_be_lost_in_part_travels_exactly(build: str) -> None:
    ranks.run(other_types, 2, build=build, environment=WHOLE)


def alone() -> None:
    wrapped, state = hooked(net())
    for batch in batches():
        wrapped(batch).square().mean().backward()
    state.end_step()
    assert state.report()["total"]["abandoned_bytes"] == 0


def test_a_world_of_one() -> None:
    ranks.run(alone, 1)


def refused(case: str) -> str:
    import dlcp.torch

    model = net()
    match case:
        case "state":
            state: Any = "no state"
        case "model":
            state = dlcp.torch.GradientState(nn.Linear(3, 3))
        case "backend":
            state = dlcp.torch.GradientState(model, dist.new_group(backend="gloo"))
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(state, dlcp.torch.gradient_hook)
    with pytest.raises(Exception, match="accepted") as caught:
        wrapped(next(batches())).sum().backward()
    return str(caught.value)


REFUSALS: dict[str, Callable[[str], bool]] = {
    "state": lambda text: "the hook's state is a str; accepted: dlcp.torch.GradientState" in text,
    "model": lambda text: "belongs to no parameter of the model that GradientState was given" in text,
    "backend": lambda text: "the group's backend is gloo; accepted for gradients: dlcp" in text,
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_wrong_state_is_named(case: str) -> None:
    assert REFUSALS[case](ranks.run(refused, 1, case=case)[0])
