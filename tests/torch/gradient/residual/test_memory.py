"""The residual memory: what goes where, and what users may do to it. The books are drawn in test_mass.py."""

from __future__ import annotations

import io
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.torch.gradient.residual.memory import ResidualMemory
from dlcp.torch.gradient.residual.report import ResidualReport
from dlcp.torch.gradient.residual.rule import ResidualRule
from dlcp.torch.gradient.residual.saved import reshard

WHOLE = ResidualRule(decay=1.0)
LAYOUT = Layout.of([("w", 6), ("v", 4)])
ALL = [(0, 10)]


def _step(
    memory: ResidualMemory,
    gradient: Tensor,
    ranges: list[tuple[int, int]],
    layout: Layout = LAYOUT,
    *,
    applied: bool = True,
) -> Tensor:
    """One step with one buffer; what left."""
    buffer = gradient.clone()
    memory.add_to(buffer, layout)
    memory.keep(buffer, layout, ranges)
    memory.end_step(applied)
    return buffer


def _waiting(memory: ResidualMemory, layout: Layout = LAYOUT, dtype: torch.dtype = torch.float32) -> Tensor:
    """What the next step would get. Takes it, and gives it back."""
    buffer = torch.zeros(layout.numel, dtype=dtype)
    memory.add_to(buffer, layout)
    memory.end_step(applied=False)
    return buffer


# --- a step -------------------------------------------------------------------------------------------------


def test_what_was_abandoned_arrives_a_step_later() -> None:
    memory = ResidualMemory(WHOLE)
    ones = torch.ones(10)
    _step(memory, ones, [(2, 8)])
    assert _step(memory, ones, []).tolist() == [1, 1, 2, 2, 2, 2, 2, 2, 1, 1]
    assert memory.report().elements == 0


def test_kept_values_find_their_parameters_in_other_buffers() -> None:
    memory = ResidualMemory(WHOLE)
    _step(memory, torch.arange(10.0), ALL)
    # As torch rebuilds its buckets: other order, other cuts, two buffers, padding.
    first = Layout((Segment("v", 0, 1, 4), Segment("w", 4, 6, 2)), 9)
    second = Layout((Segment("w", 0, 0, 4),), 4)
    buffers = torch.zeros(9), torch.zeros(4)
    memory.add_to(buffers[0], first)
    memory.add_to(buffers[1], second)
    assert buffers[0].tolist() == [0, 6, 7, 8, 9, 0, 4, 5, 0]
    assert buffers[1].tolist() == [0, 1, 2, 3]


def test_padding_is_never_kept() -> None:
    memory = ResidualMemory(WHOLE)
    layout = Layout((Segment("w", 0, 2, 3),), 8)
    _step(memory, torch.full((8,), 7.0), [(0, 4), (6, 8)], layout)
    assert memory.report().elements == 2
    assert _waiting(memory, layout).tolist() == [0, 0, 7, 7, 0, 0, 0, 0]


def test_decay_is_per_step_waited() -> None:
    memory = ResidualMemory(ResidualRule(decay=0.5))
    _step(memory, torch.full((10,), 8.0), [(0, 1)])
    assert _waiting(memory)[0] == 4
    # Two steps in which the parameters are in no buffer.
    memory.end_step()
    memory.end_step()
    assert _waiting(memory)[0] == 1
    assert memory.report().age == 3


def test_age_writes_off_what_was_kept_and_not_what_is_new() -> None:
    memory = ResidualMemory(ResidualRule(decay=1.0, age_max=2))
    for gradient in (1.0, 10.0, 100.0):
        _step(memory, torch.full((10,), gradient), [(0, 2)])
    report = memory.report()
    # 11 waited twice and would have to wait on.
    assert _waiting(memory)[0] == 100
    assert (report.age, report.elements) == (1, 2)
    assert (report.step.expired_elements, report.step.nbytes) == (2, 8)
    assert report.step.expired_norm == pytest.approx(11 * 2**0.5)


def test_a_skipped_step_never_was() -> None:
    memory = ResidualMemory(ResidualRule(decay=0.5, age_max=1))
    _step(memory, torch.full((10,), 4.0), [(0, 4)])
    before, state = _waiting(memory), memory.state_dict()
    overflow = torch.full((10,), float("inf"))
    _step(memory, overflow, ALL, applied=False)
    _step(memory, overflow, [], applied=False)
    memory.end_step(applied=False)
    assert torch.equal(_waiting(memory), before)
    assert _plain(memory.state_dict()) == _plain(state)
    report = memory.report()
    assert (report.total.not_finite_elements, report.total.expired_elements) == (0, 0)
    # _waiting is one, too.
    assert report.skipped == 5


def test_what_is_not_finite_is_written_off_and_poisons_nothing() -> None:
    memory = ResidualMemory(WHOLE)
    _step(memory, torch.full((10,), 2.0), [(0, 3)])
    gradient = torch.ones(10)
    gradient[1], gradient[4] = float("nan"), float("inf")
    _step(memory, gradient, [(0, 5)])
    for written_off in (memory.report().step, memory.report().total):
        assert (written_off.not_finite_elements, written_off.nbytes) == (2, 8)
    # What had been added to element 1 is still there.
    assert _waiting(memory)[:5].tolist() == [3, 2, 3, 1, 0]


def test_kept_values_follow_the_loss_scale() -> None:
    memory = ResidualMemory(WHOLE)
    memory.scale = 1024.0
    _step(memory, torch.full((10,), 3 * 1024.0), [(0, 1)])
    memory.scale = 16.0
    assert _waiting(memory)[0] == 48
    assert memory.report().norm == pytest.approx(3.0)
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="scale is"):
            memory.scale = wrong


def test_gradient_accumulation_brings_the_sum_of_passes_once() -> None:
    memory = ResidualMemory(WHOLE)
    micro = [torch.full((10,), value) for value in (1.0, 2.0, 4.0)]
    # Passes without exchange end in the parameter's gradient; the exchanged one brings all.
    _step(memory, torch.stack(micro).sum(0), [(0, 5)])
    assert _waiting(memory).tolist() == [7.0] * 5 + [0.0] * 5


def test_a_second_exchange_in_a_step_takes_along_what_the_first_gave_up() -> None:
    memory = ResidualMemory(ResidualRule(decay=0.5))
    for expected in (1.0, 2.0):
        buffer = torch.ones(10)
        memory.add_to(buffer, LAYOUT)
        # Undecayed: it has waited no step.
        assert buffer[0] == expected
        memory.keep(buffer, LAYOUT, [(0, 1)])
    memory.end_step()
    assert _waiting(memory)[0] == 1


def test_clipping_comes_after() -> None:
    memory = ResidualMemory(WHOLE)
    averaged = _step(memory, torch.full((10,), 100.0), [(0, 5)])
    averaged[:5] = 0
    torch.nn.utils.clip_grad_norm_([parameter := torch.nn.Parameter(torch.zeros(10))], 1.0)
    parameter.grad = averaged
    torch.nn.utils.clip_grad_norm_([parameter], 1.0)
    # Kept as backward made it, to be clipped with the step it arrives in.
    assert _waiting(memory)[0] == 100


def test_a_parameter_that_is_left_out_waits_in_place() -> None:
    memory = ResidualMemory(ResidualRule(decay=1.0, age_max=50))
    _step(memory, torch.ones(10), ALL)
    without_w = Layout(LAYOUT.segments[1:], LAYOUT.numel)
    for _ in range(20):
        buffer = torch.zeros(10)
        memory.add_to(buffer, without_w)
        memory.keep(buffer, LAYOUT, ALL)
        memory.end_step()
    assert _waiting(memory).tolist() == [1.0] * 10
    report = memory.report()
    assert (report.elements, report.age) == (10, 21)
    # One batch of each parameter, not one a step.
    assert len(memory.state_dict()["batches"]) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_waits_in_single(dtype: torch.dtype) -> None:
    memory = ResidualMemory(ResidualRule(decay=0.9))
    gradient = torch.randn(10, generator=torch.Generator().manual_seed(1)).to(dtype)
    _step(memory, gradient, ALL)
    waiting = memory.state_dict()["batches"][0]
    assert waiting["values"].dtype == torch.float32
    assert memory.report().nbytes == 20
    torch.testing.assert_close(_waiting(memory, dtype=dtype), (gradient.float() * 0.9).to(dtype))


def test_buffers_of_several_threads_do_not_disturb_each_other() -> None:
    memory = ResidualMemory(WHOLE)
    layouts = [Layout.of([(f"w{i}", 100)]) for i in range(24)]
    ranges = [(begin, begin + 5) for begin in range(0, 100, 10)]
    for step in range(10):
        buffers = [torch.ones(100) for _ in layouts]

        def exchange(first: int, buffers: list[Tensor] = buffers) -> None:
            for buffer, layout in list(zip(buffers, layouts, strict=True))[first::4]:
                memory.add_to(buffer, layout)
                memory.keep(buffer, layout, ranges)

        threads = [threading.Thread(target=exchange, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        memory.end_step()
        for buffer in buffers:
            assert buffer.view(10, 10).tolist() == [[step + 1.0] * 5 + [1.0] * 5] * 10


def test_an_empty_layout_and_no_ranges_are_fine() -> None:
    memory = ResidualMemory(WHOLE)
    assert _step(memory, torch.zeros(0), [], Layout((), 0)).numel() == 0
    assert _step(memory, torch.ones(3), [(0, 3)], Layout((Segment("w", 0, 1, 0),), 3)).tolist() == [1, 1, 1]
    assert memory.report().elements == 0


# --- momentum -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [1.0, 0.7])
def test_momentum_is_deep_gradient_compressions_recursion(decay: float) -> None:
    m = 0.9
    memory = ResidualMemory(ResidualRule(decay=decay, momentum=m))
    rng = np.random.default_rng(5)
    velocity, value = np.zeros(10), np.zeros(10)
    for _ in range(30):
        gradient = rng.normal(size=10)
        velocity = m * velocity + gradient
        value = decay * value + velocity
        delivered = rng.random(10) < 0.4
        ranges = [(i, i + 1) for i in np.flatnonzero(~delivered).tolist()]
        sent = _step(memory, torch.from_numpy(gradient), ranges)
        np.testing.assert_allclose(sent.numpy(), value, rtol=1e-9, atol=1e-12)
        # Factor masking.
        velocity[delivered] = value[delivered] = 0


def test_momentum_with_everything_abandoned_is_momentum_sgd() -> None:
    """A run whose rank abandons all for T steps: what arrives then is what SGD with momentum would have moved by."""
    m = 0.9
    memory = ResidualMemory(ResidualRule(decay=1.0, momentum=m))
    parameter = torch.nn.Parameter(torch.zeros(10, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=1.0, momentum=m)
    generator = torch.Generator().manual_seed(3)
    for step in range(12):
        gradient = torch.randn(10, generator=generator, dtype=torch.float64)
        parameter.grad = gradient.clone()
        optimizer.step()
        sent = _step(memory, gradient, ALL if step < 11 else [])
    torch.testing.assert_close(-sent, parameter.detach())


def test_decay_by_the_optimizers_momentum_keeps_its_velocity() -> None:
    """What ResidualMemory says of an optimizer with momentum: a late value is worth what it would have been by then."""
    m, lr = 0.9, 0.1
    memory = ResidualMemory(ResidualRule(decay=m))
    parameters = [torch.nn.Parameter(torch.zeros(10, dtype=torch.float64)) for _ in range(2)]
    optimizers = [torch.optim.SGD([each], lr=lr, momentum=m) for each in parameters]
    generator = torch.Generator().manual_seed(7)
    for step in range(8):
        gradient = torch.randn(10, generator=generator, dtype=torch.float64)
        lost = step in (2, 3, 5)
        sent = _step(memory, gradient, ALL if lost else [])
        parameters[0].grad, parameters[1].grad = gradient.clone(), torch.zeros_like(sent) if lost else sent
        for optimizer in optimizers:
            optimizer.step()
        if not lost:
            one, other = (
                optimizer.state[parameter]["momentum_buffer"]
                for optimizer, parameter in zip(optimizers, parameters, strict=True)
            )
            torch.testing.assert_close(one, other)


# --- what outlives the run ----------------------------------------------------------------------------------


def _plain(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {key: value.tolist() if isinstance(value, Tensor) else value for key, value in batch.items()}
        for batch in state["batches"]
    ]


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_a_resumed_run_goes_on_bit_by_bit(momentum: float | None) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rule = ResidualRule(decay=0.9, age_max=3, momentum=momentum)
        memory = ResidualMemory(rule)
        other = ResidualMemory(rule)
        # Other names first, so that parameters have other numbers there.
        _step(other, torch.ones(6), [(0, 6)], Layout.of([("v", 4), ("x", 2)]))
        resume = int(rng.integers(1, 8))
        for step in range(10):
            gradient = torch.from_numpy(rng.normal(size=10)).float()
            ranges = [(i, i + 1) for i in range(10) if rng.random() < 0.6]
            sent = _step(memory, gradient, ranges)
            if step > resume:
                assert torch.equal(_step(other, gradient, ranges), sent)
            if step == resume:
                file = io.BytesIO()
                torch.save(memory.state_dict(), file)
                file.seek(0)
                other.load_state_dict(torch.load(file, weights_only=True))
                # "x" was forgotten with the rest.
                assert other.report().elements == memory.report().elements


def test_a_state_is_a_copy() -> None:
    memory = ResidualMemory(WHOLE)
    _step(memory, torch.ones(10), ALL)
    state = memory.state_dict()
    state["batches"][0]["values"].zero_()
    assert _waiting(memory)[0] == 1
    state = memory.state_dict()
    memory.load_state_dict(state)
    state["batches"][0]["values"].zero_()
    assert _waiting(memory)[0] == 1


def test_a_state_is_refused_inside_a_step_and_loading_ends_it() -> None:
    memory = ResidualMemory(WHOLE)
    _step(memory, torch.ones(10), ALL)
    state = memory.state_dict()
    memory.add_to(torch.zeros(10), LAYOUT)
    for call in (memory.state_dict, lambda: memory.retain({"w": 6})):
        with pytest.raises(RuntimeError, match=r"after end_step\(\)"):
            call()
    memory.load_state_dict(state)
    assert _waiting(memory).tolist() == [1.0] * 10


def test_a_state_that_is_none_is_refused() -> None:
    memory = ResidualMemory(WHOLE)
    _step(memory, torch.ones(10), [(0, 2), (4, 10)])
    good = memory.state_dict()
    with pytest.raises(ValueError, match="version of residuals is 7; accepted: 1"):
        memory.load_state_dict({"version": 7, "batches": []})
    changes: list[dict[str, Any]] = [
        {"values": torch.zeros(3)},
        {"values": torch.full((8,), float("nan"))},
        {"values": torch.zeros(8, dtype=torch.float16)},
        {"count": torch.tensor([2, 0, 6])},
        {"parameter": torch.tensor([0, 0, 5])},
        {"offset": torch.tensor([0, -4, 0])},
        {"offset": torch.tensor([0, 1, 0])},
        {"names": ["w", "w"]},
        {"age": torch.zeros(1, dtype=torch.int64)},
    ]
    for change in changes:
        with pytest.raises(ValueError, match="accepted"):
            memory.load_state_dict({"version": 1, "batches": [good["batches"][0] | change]})
        # Nothing was touched.
        assert memory.report().elements == 8


def test_reset_writes_off_and_counts() -> None:
    memory = ResidualMemory(WHOLE)
    _step(memory, torch.full((10,), 3.0), ALL)
    memory.reset(["v", "never seen"])
    assert _waiting(memory).tolist() == [3.0] * 6 + [0.0] * 4
    total = memory.report().total
    assert (total.dropped_elements, total.nbytes, total.dropped_norm) == (4, 16, pytest.approx(6.0))
    memory.reset()
    assert _waiting(memory).tolist() == [0.0] * 10
    assert memory.report().total.dropped_elements == 10


def test_reset_inside_a_step_stays_when_the_step_is_taken_back() -> None:
    memory = ResidualMemory(WHOLE)
    _step(memory, torch.full((10,), 3.0), ALL)
    memory.add_to(torch.zeros(10), LAYOUT)
    memory.reset(["w"])
    memory.end_step(applied=False)
    assert _waiting(memory).tolist() == [0.0] * 6 + [3.0] * 4


def test_retain_writes_off_what_is_of_no_parameter_or_beyond_it() -> None:
    memory = ResidualMemory(WHOLE)
    _step(memory, torch.arange(10.0), [(1, 5), (6, 10)])
    memory.retain({"w": 3, "new": 100, "empty": 0})
    assert _waiting(memory).tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 0, 0]
    assert memory.report().total.dropped_elements == 6


# --- other ranks --------------------------------------------------------------------------------------------


def _states(size: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    states = []
    for _ in range(size):
        memory = ResidualMemory(ResidualRule(decay=0.5))
        _step(
            memory,
            torch.from_numpy(rng.normal(size=10)),
            [(i, i + 1) for i in range(10) if rng.random() < 0.5],
        )
        states.append(memory.state_dict())
    return states


def _loaded(states: list[dict[str, Any]]) -> list[Tensor]:
    waiting = []
    for state in states:
        memory = ResidualMemory(WHOLE)
        memory.load_state_dict(state)
        waiting.append(_waiting(memory, dtype=torch.float64))
    return waiting


@pytest.mark.parametrize("average", [True, False])
def test_other_numbers_of_ranks_keep_what_will_arrive(average: bool) -> None:
    for old in range(1, 7):
        for new in range(1, 9):
            states = _states(old, np.random.default_rng(100 * old + new))
            before, after = _loaded(states), _loaded(reshard(states, new, average=average))
            assert len(after) == new
            weights = (1 / old, 1 / new) if average else (1.0, 1.0)
            torch.testing.assert_close(sum(after) * weights[1], sum(before) * weights[0])
            # Whoever stays keeps its own, and a leaver's is not lost.
            for rank in range(new):
                share = sum(before[rank::new], torch.zeros(10, dtype=torch.float64))
                torch.testing.assert_close(after[rank], share * (new / old if average else 1.0))


def test_reshard_renames_and_leaves_out() -> None:
    (state,) = _states(1, np.random.default_rng(0))
    (before,) = _loaded([state])
    names: dict[str, str | None] = {"w": "module.w", "v": None}
    (after,) = reshard([state], 1, rename=names.__getitem__)
    memory = ResidualMemory(WHOLE)
    memory.load_state_dict(after)
    layout = Layout.of([("v", 4), ("module.w", 6)])
    buffer = torch.zeros(10, dtype=torch.float64)
    memory.add_to(buffer, layout)
    assert buffer[:4].tolist() == [0] * 4
    assert torch.equal(buffer[4:], before[:6])
    with pytest.raises(ValueError, match="two parameters one name"):
        reshard([state], 1, rename=lambda name: "same")
    with pytest.raises(ValueError, match="0 states for 1 ranks"):
        reshard([], 1)


# --- mistakes -----------------------------------------------------------------------------------------------


def test_buffers_that_do_not_fit_are_refused() -> None:
    memory = ResidualMemory(WHOLE)
    for wrong in (torch.zeros(9), torch.zeros(2, 5), torch.zeros(20)[::2]):
        with pytest.raises(ValueError, match="10 elements as the layout"):
            memory.add_to(wrong, LAYOUT)
        with pytest.raises(ValueError, match="10 elements as the layout"):
            memory.keep(wrong, LAYOUT, [])
    with pytest.raises(TypeError, match=r"int64; accepted: float32"):
        memory.add_to(torch.zeros(10, dtype=torch.int64), LAYOUT)
    twice = Layout((Segment("w", 0, 0, 4), Segment("w", 3, 4, 2)), 6)
    with pytest.raises(ValueError, match="each element of a parameter once"):
        memory.add_to(torch.zeros(6), twice)


def test_a_report_of_nothing_is_zero() -> None:
    report = ResidualMemory(WHOLE).report()
    assert isinstance(report, ResidualReport)
    assert (report.nbytes, report.norm, report.age, report.total.nbytes, report.total.norm) == (0, 0, 0, 0, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device and torch with CUDA")
def test_values_move_between_devices() -> None:
    rng = np.random.default_rng(2)
    memory, twin = (ResidualMemory(ResidualRule(decay=0.5, age_max=2)) for _ in range(2))
    for step in range(8):
        gradient = torch.from_numpy(rng.normal(size=10)).float()
        ranges = [(i, i + 1) for i in range(10) if rng.random() < 0.6]
        device = ("cuda", "cpu")[step % 3 == 2]
        sent = _step(memory, gradient.to(device), ranges).cpu()
        torch.testing.assert_close(sent, _step(twin, gradient, ranges))
