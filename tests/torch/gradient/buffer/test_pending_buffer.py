"""Pending buffers: settled once, by whichever thread comes first."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer, PreparedBuffer
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.tensors import CopyBack


class Over:
    """An operation that has ended well."""

    def wait(self) -> None:
        pass


def prepared(layout: Layout, result: torch.Tensor | None = None) -> PreparedBuffer:
    output, back = torch.ones(layout.numel), CopyBack()
    if result is not None:
        back.add(result, output, "gradients")
    return PreparedBuffer(
        key="key",
        layout=layout,
        step=0,
        memory=torch.zeros(layout.numel),
        output=output,
        result=output if result is None else result,
        back=back,
        factor=None,
    )


def pending(finish: Any, result: torch.Tensor | None = None) -> PendingBuffer:
    one = prepared(Layout.of([("w", 4)]), result)
    return PendingBuffer(one, [Over()], lambda: finish(one))  # type: ignore[list-item]


def test_it_is_finished_once_and_then_copied_back() -> None:
    result, calls = torch.zeros(4), []

    def finish(buffer: PreparedBuffer) -> float:
        assert not result.any()
        calls.append(buffer.output.mul_(3))
        return 36.0

    buffer = pending(finish, result)
    for _ in range(2):
        buffer.wait()
    assert len(calls) == 1
    assert buffer.square == 36.0
    assert torch.equal(result, torch.full((4,), 3.0))


def test_an_error_of_settling_is_raised_every_time() -> None:
    def finish(*_: Any) -> None:
        raise ValueError("broken")

    buffer = pending(finish)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            buffer.settle()
    assert buffer.settled


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        (Layout.of([("w", 4)]), "w"),
        (Layout.of([("w", 4), ("b", 1), ("c", 1)]), "w +2"),
        (Layout((), 4), "padding"),
    ],
)
def test_its_name_is_that_of_its_first_parameter(layout: Layout, name: str) -> None:
    assert prepared(layout).name == name
