"""A P4Runtime server of the tests' own and clients of it, for every file that asks for them.

What needs finsy is imported when a test asks, so that the rest of this folder runs without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.p4runtime import P4RuntimeServer
    from tests.support.p4runtime.client import Client


@pytest.fixture(name="server")
def fixture_server() -> Iterator[P4RuntimeServer]:
    from tests.support.p4runtime import P4RuntimeServer
    from tests.support.p4runtime.client import DEVICE

    with P4RuntimeServer(DEVICE) as server:
        yield server


@pytest.fixture(name="connect")
def fixture_connect(server: P4RuntimeServer) -> Iterator[Callable[[], Client]]:
    from tests.support.p4runtime.client import Client

    clients: list[Client] = []

    def connect() -> Client:
        clients.append(Client(server.address))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture(name="client")
def fixture_client(server: P4RuntimeServer, connect: Callable[[], Client]) -> Client:
    """The primary, with the program pushed."""
    from tests.support.p4runtime.sample import config

    client = connect()
    client.claim(10)
    client.push("VERIFY_AND_COMMIT", config())
    return client
