"""Trainings in lockstep are the trainings one by one, and without loss they are torch's."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from dlcp.study.training.arm import Arm  # noqa: E402
from dlcp.study.training.lockstep import ADAM_SQUARES  # noqa: E402
from dlcp.study.training.training import Run, train  # noqa: E402
from dlcp_sim.cosimulation.models import Model  # noqa: E402
from dlcp_sim.cosimulation.tasks import TASKS, WORKERS, open_task, schedule  # noqa: E402

ARM, PLAIN = Arm("transport", "residual", 0.5), Arm("random", "zero")
RUN = Run("mlp", ARM, 0.3, 1.0, 0, rounds=0.1)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_lossless_run_is_plain_training_by_torch(name: str) -> None:
    task = open_task(name)
    model: Model = task.model
    steps = 6
    (result,) = train([Run(name, PLAIN, 0.0, 0.5, 3, rounds=steps / task.steps)])
    weights = torch.nn.Parameter(model.fresh(3)[None])
    optimizer: torch.optim.Optimizer
    if task.optimizer == "sgd":
        optimizer = torch.optim.SGD([weights], momentum=0.9)
    else:
        optimizer = torch.optim.Adam([weights], betas=(0.9, ADAM_SQUARES))
    draw = torch.Generator().manual_seed(1_000_003 * 3 + 1)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.5 * task.learning_rate * schedule(step, steps)
        inputs, answers = task.batch(draw)
        optimizer.zero_grad()
        # The mean over all workers' examples at once.
        model.losses(weights, inputs.flatten(0, 1)[None], answers.flatten(0, 1)[None]).sum().backward()
        optimizer.step()
    inputs, answers = task.held_out()
    expected = model.losses(weights, inputs[None], answers[None]).item()
    assert result.held_out == pytest.approx(expected, rel=1e-4)
    assert result.abandoned == 0.0


@pytest.mark.parametrize("fill", ["zero", "residual", "hadamard"])
def test_a_run_is_the_same_alone_and_among_others(fill: str) -> None:
    who = "random" if fill == "hadamard" else "transport"
    run = replace(RUN, arm=replace(ARM, fill=fill, who=who))  # type: ignore[arg-type]
    others = [replace(run, seed=2), run, replace(run, loss=0.7), replace(run, rate=0.3)]
    (alone,) = train([run])
    together = train(others)[1]
    assert together.held_out == pytest.approx(alone.held_out, rel=1e-4)
    assert together.abandoned == pytest.approx(alone.abandoned, rel=1e-6)


def test_loss_beyond_nothing_hurts() -> None:
    clean, lossy = (
        train([replace(RUN, arm=replace(ARM, fill="zero", who="random"), loss=loss)])[0]
        for loss in (0.0, 0.9)
    )
    assert lossy.abandoned == pytest.approx(0.9, abs=0.02)
    assert lossy.held_out > clean.held_out


def test_transport_gives_up_its_budget_and_no_more() -> None:
    (result,) = train([replace(RUN, arm=replace(ARM, pressure=2.0), loss=0.2)])
    assert 0.17 < result.abandoned <= 0.2


def test_groups_do_not_mix() -> None:
    with pytest.raises(ValueError, match="common to a group"):
        train([RUN, replace(RUN, arm=replace(ARM, fill="zero"))])


@pytest.mark.parametrize("name", TASKS)
def test_task_is_the_same_for_a_seed(name: str) -> None:
    if name == "cnn":
        pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task = open_task(name)
    first, again, other = (task.batch(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert first[0].shape[:2] == (WORKERS, task.share)
    torch.testing.assert_close(first, again)
    assert not torch.equal(first[0], other[0])
