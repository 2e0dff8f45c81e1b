"""Ranks of one process or host that believe to be on several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from unittest import mock

from dlcp.transport.job import Job


@contextlib.contextmanager
def on_hosts(hosts: Sequence[int]) -> Iterator[None]:
    """Rank i of the job is on host hosts[i]."""
    with mock.patch.object(Job, "hosts_of", lambda _, members, *__: tuple(hosts[rank] for rank in members)):
        yield
