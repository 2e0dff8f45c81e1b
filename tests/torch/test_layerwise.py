"""LayerwiseOptimizer: the numbers of the plain loop, bit for bit, whatever order gradients and updates come in."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp.errors import DlcpError
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.state import GradientState
from dlcp.torch.layerwise import LayerwiseOptimizer
from dlcp.transport.layer_order import P3, ByteScheduler, Fifo, LayerPriority, OrderMaker
from tests.torch import ranks
from tests.torch.gradient.test_conformance import gradient, kept
from tests.torch.gradient.test_exchange import total
from tests.torch.layerwise_models import (
    MODELS,
    OPTIMIZERS,
    PlainAverage,
    Tied,
    batches,
    groups_of,
    made,
    same_bits,
    same_on_all_ranks,
    train,
)

ORDERS: dict[str, OrderMaker] = {
    "fifo": Fifo,
    "p3": P3,
    "byte_scheduler": partial(ByteScheduler, partition_bytes=512, credit_bytes=1024),
    "layer_priority": LayerPriority,
}


def pair(model: str, optimizer: str, order: OrderMaker = LayerPriority) -> Any:
    """The plain loop's model, optimizer and average; and ours."""
    plain, layered = made(model), made(model)
    theirs = OPTIMIZERS[optimizer](groups_of(plain))
    ours = LayerwiseOptimizer(OPTIMIZERS[optimizer](groups_of(layered)), layered, order=order)
    return (plain, theirs, PlainAverage(plain, theirs, order)), (layered, ours)


def check_numbers(model: str, optimizer: str, order: str = "layer_priority", **how: Any) -> None:
    (plain, theirs, average), (layered, ours) = pair(model, optimizer, ORDERS[order])
    expected = train(plain, theirs, average, **how)
    found = train(layered, ours, None, **how)
    same_bits(found, expected)
    same_bits(layered.state_dict(), plain.state_dict())
    same_bits(ours.state_dict()["state"], theirs.state_dict()["state"])
    same_bits([one.grad for one in layered.parameters() if one.grad is not None],
              [one.grad for one in plain.parameters() if one.grad is not None])  # fmt: skip


# --- the numbers ----------------------------------------------------------------------------------------------


def numbers_of_optimizers(model: str) -> None:
    for optimizer in OPTIMIZERS:
        check_numbers(model, optimizer)


@pytest.mark.parametrize("model", MODELS)
def test_numbers_are_those_of_the_plain_loop(model: str) -> None:
    ranks.run(numbers_of_optimizers, model=model)


def numbers_of_zeroing(zeros: list[str]) -> None:
    for zero in zeros:
        for model in ("stack", "tied", "branches"):
            check_numbers(model, "momentum", zero=zero)


def test_gradients_may_be_cleared_in_any_way_and_place() -> None:
    ranks.run(numbers_of_zeroing, zeros=["none", "zero", "after", "model", "never"])


def numbers_of_orders(order: str) -> None:
    for model in ("stack", "branches"):
        check_numbers(model, "adam", order)


@pytest.mark.parametrize("order", ORDERS)
def test_numbers_are_the_same_in_every_order(order: str) -> None:
    ranks.run(numbers_of_orders, 4, order=order)


def numbers_of_one() -> None:
    for order in ORDERS:
        check_numbers("branches", "adam", order)


def test_a_world_of_one() -> None:
    ranks.run(numbers_of_one, 1)


def numbers_with_clipping() -> None:
    for clip in (0.01, 1e6):
        check_numbers("stack", "adamw", clip=clip)
        check_numbers("branches", "momentum", clip=clip)


def test_clipping_by_the_global_norm() -> None:
    ranks.run(numbers_with_clipping)


def accumulation() -> None:
    (plain, theirs, average), (layered, ours) = pair("branches", "momentum")
    for _ in range(3):
        for model, optimizer in ((plain, theirs), (layered, ours)):
            optimizer.zero_grad()
            *early, last = batches(model, 3)
            for batch in early:
                if optimizer is ours:
                    with ours.no_sync():
                        model(batch).square().mean().backward()
                else:
                    model(batch).square().mean().backward()
            model(last).square().mean().backward()
            if optimizer is theirs:
                average()
            optimizer.step()
        same_bits(layered.state_dict(), plain.state_dict())


def test_gradients_accumulate_under_no_sync() -> None:
    ranks.run(accumulation)


def mixed_precision() -> None:
    (plain, theirs, average), (layered, ours) = pair("stack", "adam")
    for model, optimizer in ((plain, theirs), (layered, ours)):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=2)
        for step, batch in enumerate(batches(model, 5)):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            if step == 2 and dist.get_rank() == 1:
                # One rank overflows; all skip the step.
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            if optimizer is theirs:
                average()
            if step == 3:
                scaler.unscale_(optimizer)
                parameters = [one for group in optimizer.param_groups for one in group["params"]]
                torch.nn.utils.clip_grad_norm_(parameters, 0.1)
            scaler.step(optimizer)
            scaler.update()
        # 16, doubled after two steps, halved by the overflow, doubled again.
        assert scaler.get_scale() == 32.0
    same_bits(layered.state_dict(), plain.state_dict())


def test_gradient_scaler() -> None:
    ranks.run(mixed_precision)


def unused_layers() -> None:
    model = nn.ModuleList([nn.Linear(8, 16, bias=False) for _ in range(2)])
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    state = GradientState(model, recipe="low_bit", warmup_steps=0, small_numel=0)
    optimizer = LayerwiseOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model, gradients=state)
    given = torch.zeros(2, 128, dtype=torch.float64)
    for number in range(9):
        optimizer.zero_grad()
        output = torch.zeros(())
        for place, layer in enumerate(model[: 2 - number % 3 // 2]):
            factor = gradient(8, number + 100 * place, most=40)
            output = output + layer(factor).sum()
            given[place] += total(factor.double()).repeat(16)
        output.backward()
        optimizer.step()
    optimizer.synchronize()
    layout = Layout.of((name, parameter.numel()) for name, parameter in model.named_parameters())
    applied = torch.cat([-parameter.detach().double().view(-1) for parameter in model.parameters()])
    assert torch.equal(applied * dist.get_world_size() + total(kept(state, layout)), given.view(-1))


def test_what_is_kept_of_layers_that_no_rank_uses_waits() -> None:
    ranks.run(unused_layers, 2)


# --- gradients that may be lost -----------------------------------------------------------------------------------


def bounded(order: str) -> int:
    """Trains with gradients that may be lost; bytes that were."""
    model = made("stack")
    state = GradientState(model, loss_budget=0.2, small_numel=16)
    optimizer = LayerwiseOptimizer(
        OPTIMIZERS["momentum"](groups_of(model)), model, order=ORDERS[order], gradients=state
    )
    # A thousand slices a step: one round is more collectives than the others' five.
    rounds = 1 if order == "byte_scheduler" else 5
    for _ in range(rounds):
        train(model, optimizer, None)
    optimizer.synchronize()
    same_on_all_ranks([one.detach() for one in model.parameters()])
    if state.report()["total"]["abandoned_bytes"] == 0:
        plain = made("stack")
        theirs = OPTIMIZERS["momentum"](groups_of(plain))
        average = PlainAverage(plain, theirs, ORDERS[order])
        for _ in range(rounds):
            train(plain, theirs, average)
        same_bits(model.state_dict(), plain.state_dict())
    return int(state.report()["total"]["abandoned_bytes"])


@pytest.mark.parametrize("order", ORDERS)
def test_bounded_gradients_are_exact_where_nothing_is_lost(order: str) -> None:
    assert ranks.run(bounded, order=order) == [0, 0]


@pytest.mark.parametrize("order", ["layer_priority", "byte_scheduler"])
def test_bounded_gradients_keep_replicas_alike(order: str) -> None:
    lossy = {"DLCP_SHM": "0", "DLCP_INJECT_LOSS_RATIO": "0.05", "DLCP_MAX_DATAGRAM_BYTES": "1472"}
    abandoned = ranks.run(bounded, order=order, environment=lossy)
    # Slices of half a kilobyte are one block, which is never abandoned.
    assert (sum(abandoned) > 0) == (order == "layer_priority")


# --- when what happens ----------------------------------------------------------------------------------------


def deferral() -> None:
    model = made("stack")
    optimizer = LayerwiseOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    before = [one.detach().clone() for one in model.parameters()]
    (batch,) = batches(model, 1)
    model(batch).square().mean().backward()
    optimizer.step()
    same_bits([one.detach() for one in model.parameters()], before)
    at_last: list[bool] = []
    model.last.register_forward_pre_hook(
        lambda module, _: at_last.append(not torch.equal(module.weight, before[-1]))
    )
    model(batch)
    assert at_last == [True]
    changed = [not torch.equal(one, old) for one, old in zip(model.parameters(), before, strict=True)]
    assert changed == [one.requires_grad for one in model.parameters()]


def test_updates_wait_until_forward_needs_them() -> None:
    ranks.run(deferral)


LOOKS: list[Callable[[nn.Module, torch.optim.Optimizer], Any]] = [
    lambda model, _: model.state_dict(),
    lambda model, _: model.layer.state_dict(),
    lambda model, optimizer: (optimizer.state_dict()["state"], list(model.parameters())),
    lambda model, optimizer: (len(optimizer.state), list(model.parameters())),
]


def looking_on() -> None:
    for look in LOOKS:
        (plain, theirs, average), (layered, ours) = pair("attention", "adam")
        seen = []
        for model, optimizer in ((plain, theirs), (layered, ours)):
            (batch,) = batches(model, 1)
            model(batch).square().mean().backward()
            if optimizer is theirs:
                average()
            optimizer.step()
            seen.append(look(model, optimizer))
        same_bits(seen[1], seen[0])


def test_whoever_looks_sees_what_is_updated() -> None:
    ranks.run(looking_on)


def going_on_from_a_checkpoint() -> None:
    (plain, theirs, average), (layered, ours) = pair("stack", "adamw")
    train(plain, theirs, average)
    train(layered, ours, None)
    file = io.BytesIO()
    torch.save((layered.state_dict(), ours.state_dict()), file)
    file.seek(0)
    saved = torch.load(file)
    again = made("stack")
    resumed = LayerwiseOptimizer(OPTIMIZERS["adamw"](groups_of(again)), again)
    # Something is under way when it loads.
    again(next(batches(again))).sum().backward()
    resumed.step()
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    resumed.zero_grad()
    theirs.zero_grad()
    train(plain, theirs, average)
    train(again, resumed, None)
    same_bits(again.state_dict(), plain.state_dict())


def test_resuming_from_state_dicts() -> None:
    ranks.run(going_on_from_a_checkpoint)


def throwing_away() -> None:
    for set_to_none in (True, False):
        (plain, theirs, average), (layered, ours) = pair("branches", "momentum")
        for model, optimizer in ((plain, theirs), (layered, ours)):
            for batch in batches(model, 2):
                model(batch).sum().backward()
                optimizer.zero_grad(set_to_none)
        train(plain, theirs, average)
        train(layered, ours, None)
        same_bits(layered.state_dict(), plain.state_dict())


def test_gradients_may_be_thrown_away_before_step() -> None:
    ranks.run(throwing_away)


def beginning() -> None:
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    with torch.no_grad():
        model[1].running_mean.add_(dist.get_rank())
    LayerwiseOptimizer(torch.optim.SGD(model.parameters()), model)
    flat = torch.cat([one.detach().float().reshape(-1) for one in model.state_dict().values()])
    others = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(others, flat)
    same_bits(others, [flat] * len(others))


def test_all_ranks_begin_with_those_of_rank_0() -> None:
    ranks.run(beginning)


def leaving() -> None:
    model = made("stack")
    inside = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = LayerwiseOptimizer(inside, model)
    (batch,) = batches(model, 1)
    model(batch).sum().backward()
    optimizer.step()
    optimizer.detach()
    optimizer.detach()
    before = model.last.weight.detach().clone()
    inside.zero_grad()
    model(batch).sum().backward()
    own = model.last.weight.grad.clone()
    inside.step()
    same_bits(model.last.weight.detach(), before.add(own, alpha=-0.1))


def test_detaching_leaves_a_plain_optimizer() -> None:
    ranks.run(leaving)


def copying() -> None:
    model = made("stack")
    optimizer = LayerwiseOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    train(model, optimizer, None)
    optimizer.synchronize()
    for twin in (copy.deepcopy(model), torch.optim.swa_utils.AveragedModel(model).module):
        (batch,) = batches(model, 1)
        twin(batch).sum().backward()
        assert all(one.grad is not None for one in twin.parameters() if one.requires_grad)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.deepcopy(optimizer)


def test_a_copy_of_the_model_is_nobodys() -> None:
    ranks.run(copying)


def two_at_once() -> None:
    """As in adversarial training: the ranks' backwards of the two come in one order, their slices in any."""
    pairs = [pair("stack", "adam"), pair("tied", "momentum")]
    for _ in range(3):
        for (plain, theirs, average), (layered, ours) in pairs:
            for model, optimizer in ((plain, theirs), (layered, ours)):
                optimizer.zero_grad()
                (batch,) = batches(model, 1)
                model(batch).square().mean().backward()
                if optimizer is theirs:
                    average()
                optimizer.step()
    for (plain, _, _), (layered, _) in pairs:
        same_bits(layered.state_dict(), plain.state_dict())


def test_two_optimizers_of_one_group() -> None:
    ranks.run(two_at_once)


# --- what is refused ------------------------------------------------------------------------------------------


def refusals() -> None:
    model = made("tied")
    inside = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="2 parameters that the model does not have"):
        LayerwiseOptimizer(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), model, broadcast=False)
    frozen = made("tied").requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter that requires a gradient"):
        LayerwiseOptimizer(torch.optim.SGD(frozen.parameters(), lr=0.1), frozen, broadcast=False)
    with pytest.raises(TypeError, match="accepted: a group of the backend dlcp"):
        LayerwiseOptimizer(inside, model, group=dist.new_group(backend="gloo"))
    wrapped = DistributedDataParallel(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="has a DistributedDataParallel in it"):
        LayerwiseOptimizer(torch.optim.SGD(wrapped.parameters(), lr=0.1), wrapped)
    optimizer = LayerwiseOptimizer(inside, model)
    with pytest.raises(ValueError, match="given a closure"):
        optimizer.step(lambda: 0.0)
    with pytest.raises(RuntimeError, match="takes no more parameters"):
        optimizer.add_param_group({"params": []})
    (batch,) = batches(model, 1)
    model(batch).sum().backward()
    with pytest.raises(RuntimeError, match="a second gradient before step"):
        model(batch).sum().backward()
    # What is left of this step is thrown away, and the next one works.
    optimizer.zero_grad()
    train(model, optimizer, None)


def test_mistakes_are_refused() -> None:
    ranks.run(refusals)


class Borrowing(Tied):
    """Uses a module's parameter from the second step on without its forward."""

    borrows = False

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.borrows:
            return nn.functional.linear(batch, self.twice.weight)
        return super().forward(batch)


def borrowing() -> None:
    torch.manual_seed(7)
    model = Borrowing()
    optimizer = LayerwiseOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    (batch,) = batches(model, 1)
    model(batch).sum().backward()
    optimizer.step()
    model.borrows = True
    with pytest.raises(RuntimeError, match=r"twice\.weight has got a gradient before its update"):
        model(batch).sum().backward()
    optimizer.synchronize()
    model(batch).sum().backward()
    optimizer.step()
    optimizer.synchronize()


def test_a_parameter_that_nobody_waited_for_is_noticed() -> None:
    ranks.run(borrowing)


# --- failures -------------------------------------------------------------------------------------------------


def failing(order: str) -> str:
    model = made("stack")
    optimizer = LayerwiseOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, order=ORDERS[order])
    train(model, optimizer, None)
    optimizer.synchronize()
    before = copy.deepcopy(model.state_dict())
    (batch,) = batches(model, 1)
    optimizer.zero_grad()
    if dist.get_rank() == 1:
        optimizer._communicator.abort("a test")
        with pytest.raises(dist.DistBackendError):
            model(batch).sum().backward()
        return ""

    def step() -> None:
        model(batch).sum().backward()
        optimizer.step()
        model(batch)

    # Whether backward, step or forward is first to know of it is a matter of time; that one does is not.
    with pytest.raises(dist.DistBackendError) as caught:
        step()
    assert isinstance(caught.value, DlcpError)
    with pytest.raises(dist.DistBackendError):
        step()
    same_bits(dict(model.named_parameters()), {name: before[name] for name, _ in model.named_parameters()})
    return str(caught.value)


@pytest.mark.parametrize("order", ["layer_priority", "byte_scheduler"])
def test_a_failed_collective_raises_the_transports_error(order: str) -> None:
    assert "group 0.layerwise0" in ranks.run(failing, order=order)[0]


# --- arguments ----------------------------------------------------------------------------------------------


def wrong_arguments() -> None:
    model, other = nn.Linear(4, 4), nn.Linear(4, 4)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    def refused(kind: type[Exception], text: str, *arguments: Any, **named: Any) -> None:
        with pytest.raises(kind, match=text):
            LayerwiseOptimizer(*arguments, **named)

    refused(TypeError, "optimizer and model are swapped", model, sgd)
    refused(TypeError, "optimizer is a int; accepted", 5, model)
    refused(TypeError, "model is a int; accepted", sgd, 5)
    refused(TypeError, "optimizer is an LBFGS", torch.optim.LBFGS(model.parameters()), model)
    refused(TypeError, "order is 5; accepted", sgd, model, order=5)
    refused(ValueError, "algorithm is 'x'; accepted", sgd, model, algorithm="x")
    refused(TypeError, "gradients is a str; accepted", sgd, model, gradients="x")
    state = GradientState(other)
    refused(ValueError, "GradientState of another model", sgd, model, gradients=state)
    first = LayerwiseOptimizer(sgd, model)
    refused(ValueError, "belongs to another LayerwiseOptimizer", sgd, model)
    first.detach()
    LayerwiseOptimizer(sgd, model)


def test_wrong_arguments_are_named() -> None:
    ranks.run(wrong_arguments, 1)
