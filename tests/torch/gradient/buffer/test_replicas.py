"""The comparison of replicas."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dlcp.torch.gradient.buffer.replicas import ReplicaError, compare, digest


class Ranks:
    """A communicator whose other ranks give back what this one sends, but for those of `wrong`."""

    def __init__(self, size: int, wrong: tuple[int, ...] = ()) -> None:
        self.size = size
        self._wrong = wrong

    def all_gather(self, output: Any, source: Any, *, keep: Any) -> Any:
        everybody, own = keep
        everybody.copy_(own.expand(self.size, -1))
        for rank in self._wrong:
            everybody[rank] += 1
        return self

    def wait(self) -> None:
        pass


def test_equal_replicas_pass() -> None:
    compare(Ranks(3), 7, [b"a", b"b"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "wrong", "text"),
    [
        (3, (1,), "step 7: the gradients of group ranks 1 differ from those of ranks 0, 2"),
        (24, tuple(range(10)), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more differ from those of"),
    ],
)
def test_the_fewer_are_named(size: int, wrong: tuple[int, ...], text: str) -> None:
    with pytest.raises(ReplicaError, match=text):
        compare(Ranks(size, wrong), 7, [b"a"])  # type: ignore[arg-type]


def test_a_digest_sees_every_bit() -> None:
    values = torch.arange(100.0)
    before = digest(values)
    assert digest(values.clone()) == before
    values[50] = -values[50]
    assert digest(values) != before
