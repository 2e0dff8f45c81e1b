"""Where the transport's own tests open their endpoints: on loopback, or over another driver in the same tests.

DLCP_TEST_ENDPOINTS: settings of the endpoint of rank 0, 1, …, as a JSON list. Tests with the mark `loopback` are to be
left out then: `pytest -m "not loopback"`; what the mark is given says why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Protocol

from dlcp.transport import Endpoint

VARIABLE = "DLCP_TEST_ENDPOINTS"
TESTS = "tests/transport/endpoint"
"""The tests that run so."""
KEY = bytes(range(32))
PATIENCE_S = 60.0
"""Ends what would hang; far above what anything there takes."""


class Open(Protocol):
    """Opens the endpoint of a rank, as Endpoint does."""

    def __call__(self, rank: int, **arguments: Any) -> Endpoint: ...


def open_endpoint(rank: int, **arguments: Any) -> Endpoint:
    """The endpoint of a rank on loopback, or where the environment says."""
    places = json.loads(os.environ.get(VARIABLE, "[]"))
    return Endpoint(rank, **((places[rank] if places else {}) | arguments))


def to_environment(places: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The variable that puts endpoints there."""
    # Most of these tests have no key, and these addresses are no loopback.
    return {VARIABLE: json.dumps([{"allow_unauthenticated": True} | place for place in places])}
