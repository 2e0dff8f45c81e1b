"""What is trained: the same examples in the same order on any number of ranks, and models that learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dlcp.train.data import TEXT_BYTES_MIN, library_text  # noqa: E402
from dlcp.train.errors import TrainError  # noqa: E402
from dlcp.train.tasks import Digits, Language, Task  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def table() -> np.ndarray:
    """200 pictures, each of one value by which it is known."""
    return np.column_stack(
        [np.repeat(np.arange(200.0)[:, None] / 200, 64, axis=1), np.arange(200) % 10]
    ).astype(np.float32)


def text() -> np.ndarray:
    return np.frombuffer(b"the quick brown fox " * 2000, np.uint8)


class Seen(torch.nn.Module):
    """A model that notes what it is shown."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.answers = answers
        self.shown: list[torch.Tensor] = []

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.shown.append(batch)
        shape = batch.shape if self.answers == 256 else batch.shape[:1]
        return torch.zeros(*shape, self.answers)


def shown(task: Task, answers: int, steps: int) -> torch.Tensor:
    model = Seen(answers)
    for step in range(steps):
        task.loss(model, step)
    return torch.stack(model.shown)


@pytest.mark.parametrize(("kind", "array", "answers"), [(Digits, table(), 10), (Language, text(), 256)])
def test_ranks_share_what_one_rank_would_see(
    kind: type[Digits] | type[Language], array: np.ndarray, answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "batch", 8)
    alone = shown(kind(array, seed=3, rank=0, world_size=1), answers, 4)
    parts = [shown(kind(array, seed=3, rank=rank, world_size=2), answers, 4) for rank in range(2)]
    assert torch.equal(alone, torch.cat(parts, dim=1))
    assert not torch.equal(alone, shown(kind(array, seed=4, rank=0, world_size=1), answers, 4))


@pytest.mark.parametrize("world_size", [1, 3, 16])
def test_every_digit_is_seen_once_per_epoch_at_most(world_size: int) -> None:
    tasks = [Digits(table(), seed=0, rank=rank, world_size=world_size) for rank in range(world_size)]
    steps = tasks[0].steps_per_epoch
    pictures = torch.cat([shown(task, 10, steps)[..., 0, 0, 0].flatten() for task in tasks])
    assert len(pictures.unique()) == len(pictures) > 100


@pytest.mark.parametrize("world_size", [1, 5, 16])
def test_every_test_example_is_counted_once(world_size: int) -> None:
    for kind, array, answers in (
        (Digits, table(), 40),
        (Language, text(), Language.test_windows * Language.context),
    ):
        counted = [
            kind(array, seed=0, rank=rank, world_size=world_size).evaluate(
                Seen(256 if kind is Language else 10)
            )[2]
            for rank in range(world_size)
        ]
        assert sum(counted) == answers


def test_language_model_learns_a_word() -> None:
    torch.manual_seed(0)
    task = Language(np.frombuffer(b"python " * 5000, np.uint8), seed=0, rank=0, world_size=4)
    model = task.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.learning_rate)
    for step in range(60):
        optimizer.zero_grad()
        task.loss(model, step).backward()
        optimizer.step()
    _, right, answers = task.evaluate(model).tolist()
    assert right / answers > 0.9
    assert task.sample(model, "pyth", 10) == "python python "


def test_the_library_is_there_and_long_enough() -> None:
    found = library_text()
    assert found.dtype == np.uint8
    assert len(found) > 1_000_000
    assert b"def __init__(self" in found.tobytes()


def test_a_library_without_sources_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=rf"holds 0 bytes of Python sources.*needs {TEXT_BYTES_MIN}"):
        library_text(tmp_path)
