"""Steps that are ended from outside, thrown away or broken off, and calls that come between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dlcp.torch
from dlcp.torch.gradient.context import gradients
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.state import GradientState
from dlcp.torch.layerwise import LayerwiseOptimizer
from dlcp.torch.process_group import ProcessGroup
from dlcp.transport.layer_order import P3
from tests.torch import ranks


class Scale:
    """As much of a GradScaler as is asked."""

    value = 1024.0

    def get_scale(self) -> float:
        return self.value


def layered(**how: Any) -> tuple[nn.Module, GradientState, LayerwiseOptimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6)))
    state = GradientState(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return model, state, LayerwiseOptimizer(optimizer, model, gradients=state, **how)


def turn(model: nn.Module, optimizer: LayerwiseOptimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 256)).square().mean().backward()
    optimizer.step()


def saved_between_steps() -> None:
    # P3 limits what is under way, so slices of a step are still to be started when step() returns.
    model, state, optimizer = layered(order=P3)
    for number in range(1, 5):
        turn(model, optimizer)
        state.state_dict()
        assert state.step == number


def test_a_state_may_be_saved_while_slices_are_still_to_leave() -> None:
    ranks.run(saved_between_steps, 2, environment={"DLCP_SHM": "0"})


def calls_in_between() -> None:
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(7)))
    optimizer = LayerwiseOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3), model, gradients=GradientState(model)
    )
    for number in range(3):
        optimizer.zero_grad()
        # Some ranks have no gradient of the last layer in some steps.
        whole = number != 2 or rank == 0
        output = model(torch.ones(2, 256)) if whole else model[:-1](torch.ones(2, 256))
        loss = output.square().mean()
        loss.backward()
        dist.all_reduce(loss.detach().clone())
        optimizer.step()
    optimizer.synchronize()


def test_the_groups_own_collectives_may_come_between_slices() -> None:
    ranks.run(calls_in_between, 2)


def looked_at_and_thrown_away() -> None:
    model, state, optimizer = layered()
    turn(model, optimizer)
    optimizer.synchronize()
    state.end_step()
    optimizer.zero_grad()
    model(torch.ones(2, 256)).sum().backward()
    optimizer.clip_grad_norm_(1.0)
    optimizer.zero_grad()
    assert state.report()["skipped"] == 1


def test_gradients_that_were_looked_at_and_thrown_away_were_not_applied() -> None:
    ranks.run(looked_at_and_thrown_away, 2)


def several_groups() -> None:
    some = dist.new_group([0, 1])
    state = GradientState(patience_s="auto")
    for _ in range(4):
        with gradients(state, name="dense"):
            dist.all_reduce(torch.ones(8192))
        if dist.get_rank() < 2:
            with gradients(state, name="expert"):
                dist.all_reduce(torch.ones(8192), group=some)
        state.end_step()
    assert state.step == 4


def test_patience_with_buffers_of_several_groups() -> None:
    ranks.run(several_groups, 3)


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = Scale()
    state = GradientState(scaler=scaler)
    with gradients(state, name="w"):
        dist.all_reduce(torch.ones(8192))
    scaler.value = 512.0
    state.end_step()
    assert state.report()["skipped"] == 1

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("refused")

    values = torch.arange(8192.0)
    state = GradientState(fill="hadamard", small_numel=1)
    with monkeypatch.context() as patch:
        patch.setattr(ProcessGroup, "starting", refuse)
        with pytest.raises(RuntimeError, match="refused"), gradients(state, name="w"):
            dist.all_reduce(values)
    assert torch.equal(values, torch.arange(8192.0))


def in_one_rank() -> None:
    with pytest.MonkeyPatch.context() as patch:
        alone(patch)


def test_the_scaler_is_asked_and_a_refused_call_changes_nothing() -> None:
    ranks.run(in_one_rank, 1)


def test_a_state_that_cannot_be_loaded_changes_nothing() -> None:
    state = dlcp.torch.GradientState(recipe="dlcp")
    assert state.residual is not None
    state.residual.keep(torch.ones(10), Layout.of([("w", 10)]), [(0, 5)])
    state.residual.end_step()
    before = state.state_dict()
    with pytest.raises(ValueError, match="threshold"):
        state.load_state_dict(before | {"marker": {"mean_squares": {}, "threshold": 9999}})
    assert state.residual.report().elements == 5
