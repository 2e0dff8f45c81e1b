"""Worlds of ranks, opened once for all tests that leave them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.ranks import World


@pytest.fixture(scope="session")
def world() -> Iterator[Callable[[int], World]]:
    """A world of a size, shared: for tests whose groups end well."""
    with ExitStack() as stack:
        worlds: dict[int, World] = {}

        def of_size(size: int) -> World:
            if size not in worlds:
                worlds[size] = stack.enter_context(World(size))
            return worlds[size]

        yield of_size
