"""Endpoints over real loopback sockets, or over another driver: what the tests of this folder share.

No test measures time; timeouts are only there to end a test that would hang. Those without the mark `loopback` say
nothing of sockets, and run over other drivers too (tests/support/endpoints.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dlcp.transport import Endpoint
from tests.support.children import Child
from tests.support.endpoints import PATIENCE_S, open_endpoint


@pytest.fixture
def pair() -> Iterator[tuple[Endpoint, Endpoint]]:
    with open_endpoint(0) as a, open_endpoint(1) as b:
        a.connect(1, b.address, timeout_s=PATIENCE_S)
        b.connect(0, a.address, timeout_s=PATIENCE_S)
        yield a, b


@pytest.fixture
def child() -> Iterator[Any]:
    children: list[Child] = []

    def start(script: str) -> Child:
        children.append(Child(script))
        return children[-1]

    yield start
    for one in children:
        one.kill()
