"""The state of one rank: what it saves, and phases as buffers meet them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.loss.phase import PhaseRule
from dlcp.torch.gradient.state import GradientState
from tests.torch import ranks
from tests.torch.gradient.test_exchange import OPEN, WHOLE, gradient, layout_of, same_on_all_ranks
from tests.torch.gradient.test_hook import batches, flat, hooked, net


def test_a_state_of_another_fill_brings_no_residuals() -> None:
    saved = GradientState(fill="zero").state_dict()
    state = GradientState(recipe="dlcp")
    state.load_state_dict(saved)
    assert state.report()["total"]["abandoned_bytes"] == 0


# --- phases -------------------------------------------------------------------------------------------------


def phases() -> list[int]:
    """What a rank may lose in each step, in bytes; gradients jump in step 4."""
    state = GradientState(phase=PhaseRule(interval_steps=2, change=0.5, critical_scale=0.25), **OPEN)
    layout = layout_of(60_000)
    for step in range(8):
        buffer = gradient(layout.numel, step).mul_(100.0 if step >= 4 else 1.0)
        exchange_of(state).all_reduce(buffer, layout, BufferCall(average=True, last_of_step=True)).wait()
    state.end_step()
    return [each.total.budget_bytes for each in state.ledger.history]


def test_a_critical_phase_narrows_the_budget() -> None:
    for budgets in ranks.run(phases, 2, environment=WHOLE):
        narrow, wide = min(budgets), max(budgets)
        assert narrow == pytest.approx(wide / 4, rel=0.01)
        assert [budget == pytest.approx(narrow, rel=0.01) for budget in budgets] == [
            *(True, True, True, True),  # until two intervals can be compared
            *(False, False),
            *(True, True),  # the jump
        ]


# --- beside torch.compile -----------------------------------------------------------------------------------


def compiled(what: str) -> None:
    from torch._inductor import config

    config.compile_threads = 1
    wrapped, state = hooked(net(), {"bucket_cap_mb": 25})
    model: Any = torch.compile(wrapped, backend="aot_eager") if what == "ddp" else wrapped
    if what == "inner":
        wrapped.module.compile(backend="aot_eager")
    for batch in batches(3):
        model.zero_grad()
        model(batch).square().mean().backward()
        same_on_all_ranks(flat(parameter.grad for parameter in wrapped.parameters()))
    state.end_step()
    assert state.step == 3


@pytest.mark.parametrize("what", ["ddp", "inner"])
@pytest.mark.timeout(180)
def test_compiled_models(what: str) -> None:
    ranks.run(compiled, 2, what=what, environment=WHOLE, timeout_s=150)


# --- what goes wrong ----------------------------------------------------------------------------------------


def broken_off() -> None:
    """A backward that fails in the middle: what was kept before it is kept again."""
    state = GradientState(**OPEN)
    layouts = [Layout.of([("second", 60_000)]), Layout.of([("first", 60_000)])]

    def start(step: int, buffer: int) -> None:
        exchange_of(state).all_reduce(
            gradient(60_000, 10 * step + buffer),
            layouts[buffer],
            BufferCall(average=True, last_of_step=buffer == 1),
        )

    for buffer in range(2):
        start(0, buffer)
    start(1, 0)
    # The last of step 1 never comes.
    start(2, 0)
    start(2, 1)
    state.end_step()
    assert [(each.step, each.applied) for each in state.ledger.history] == [
        (0, True),
        (1, False),
        (2, True),
    ]


def test_a_step_that_broke_off_was_not_applied() -> None:
    ranks.run(broken_off, 2, environment=WHOLE)
