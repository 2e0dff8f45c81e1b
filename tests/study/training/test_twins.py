"""What the study simulates is what ships: its batched twins against the marker and the residual memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlcp.study.training.fills import Filling, hadamard_
from dlcp.study.training.importance import Importance
from dlcp.torch.gradient.importance.marker import Marker
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.residual.memory import ResidualMemory
from dlcp.torch.gradient.residual.rule import ResidualRule
from dlcp_sim.cosimulation.models import BLOCK
from dlcp_sim.cosimulation.tasks import WORKERS

BLOCKS_OF_PARAMETERS = (3, 1, 9, 40)
BLOCKS = sum(BLOCKS_OF_PARAMETERS)
LAYOUT = Layout.of((f"p{i}", count * BLOCK) for i, count in enumerate(BLOCKS_OF_PARAMETERS))
RUNS = 2


def gradients(draw: torch.Generator) -> torch.Tensor:
    """[RUNS, WORKERS, elements]: blocks and parameters of different scales, as gradients have."""
    values = torch.randn(RUNS, WORKERS, BLOCKS, BLOCK, generator=draw)
    values *= torch.randn(RUNS, WORKERS, BLOCKS, 1, generator=draw).exp()
    scales = torch.repeat_interleave(torch.tensor([1.0, 1e-3, 40.0, 0.1]), torch.tensor(BLOCKS_OF_PARAMETERS))
    return (values * scales[:, None]).flatten(2)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 1.0])
def test_importance_codes_and_thresholds_are_the_markers(share: float) -> None:
    draw = torch.Generator().manual_seed(3)
    parameter_of_block = torch.repeat_interleave(
        torch.arange(len(BLOCKS_OF_PARAMETERS)), torch.tensor(BLOCKS_OF_PARAMETERS)
    )
    twin = Importance(parameter_of_block, torch.full((RUNS,), share))
    options = GradientOptions(critical_share=share)
    markers = [[Marker(options) for _ in range(WORKERS)] for _ in range(RUNS)]
    for _ in range(5):
        values = gradients(draw)
        codes, critical = twin.codes(values).numpy(), twin.critical().numpy()
        for run in range(RUNS):
            for worker in range(WORKERS):
                (marks,) = markers[run][worker].mark(
                    values[run, worker], LAYOUT, (), [(0, LAYOUT.numel)], [4 * BLOCK], None
                )
                assert marks is not None
                np.testing.assert_array_equal(marks == 255, critical[run, worker])
                droppable = marks != 255
                np.testing.assert_array_equal(marks[droppable], codes[run, worker][droppable])
                markers[run][worker].end_step()
        twin.end_step()


@pytest.mark.parametrize(
    ("fill", "decay"), [("residual", 0.5), ("residual", 0.9), ("residual", 1.0), ("masked", 1.0)]
)
def test_residuals_are_the_memorys(fill: str, decay: float) -> None:
    draw = torch.Generator().manual_seed(4)
    twin = Filling(fill, torch.full((RUNS,), decay))  # type: ignore[arg-type]
    rule = ResidualRule(decay=decay, momentum=0.9 if fill == "masked" else None)
    memories = [[ResidualMemory(rule) for _ in range(WORKERS)] for _ in range(RUNS)]
    for step in range(6):
        values = gradients(draw)
        lost = torch.rand(RUNS, WORKERS, BLOCKS, generator=draw) < 0.6
        buffers = values.clone()
        sent = twin.compensate(values, step)
        mean = twin.settle(sent, lost, step)
        delivered = torch.zeros_like(mean)
        for run in range(RUNS):
            for worker in range(WORKERS):
                buffer, memory = buffers[run, worker], memories[run][worker]
                memory.add_to(buffer, LAYOUT)
                torch.testing.assert_close(buffer, sent[run, worker], rtol=1e-5, atol=1e-5)
                blocks = lost[run, worker].nonzero().flatten().tolist()
                memory.keep(buffer, LAYOUT, [(block * BLOCK, (block + 1) * BLOCK) for block in blocks])
                memory.end_step()
                came = (~lost[run, worker]).repeat_interleave(BLOCK)
                delivered[run] += buffer * came / WORKERS
        torch.testing.assert_close(mean, delivered, rtol=1e-5, atol=1e-5)


def test_rescaled_mean_is_of_what_came() -> None:
    values = gradients(torch.Generator().manual_seed(5))
    lost = torch.zeros(RUNS, WORKERS, BLOCKS, dtype=torch.bool)
    lost[:, 1:, 0] = True
    lost[:, :, 1] = True
    lost[:, 2, 2] = True
    twin = Filling("rescale", torch.ones(RUNS))
    mean = twin.settle(twin.compensate(values, 0), lost, 0).view(RUNS, BLOCKS, BLOCK)
    blocks = values.view(RUNS, WORKERS, BLOCKS, BLOCK)
    torch.testing.assert_close(mean[:, 0], blocks[:, 0, 0])
    torch.testing.assert_close(mean[:, 1], torch.zeros(RUNS, BLOCK))
    torch.testing.assert_close(mean[:, 2], blocks[:, [0, 1, 3], 2].mean(1))
    torch.testing.assert_close(mean[:, 3:], blocks[:, :, 3:].mean(1))


def test_hadamard_without_loss_changes_nothing() -> None:
    values = gradients(torch.Generator().manual_seed(6))
    truth = values.mean(1)
    twin = Filling("hadamard", torch.ones(RUNS))
    sent = twin.compensate(values.clone(), 9)
    assert not torch.allclose(sent, values)
    mean = twin.settle(sent, torch.zeros(RUNS, WORKERS, BLOCKS, dtype=torch.bool), 9)
    torch.testing.assert_close(mean, truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [1, 2, 64, 100, 1000])
def test_hadamard_is_orthonormal(length: int) -> None:
    matrix = hadamard_(torch.eye(length))
    torch.testing.assert_close(matrix @ matrix, torch.eye(length), rtol=0, atol=1e-5)
    assert length < 2 or (matrix.abs() > 1e-6).float().mean() > 1 / length
