"""Two endpoints of this process over loopback: whether the engine works at all, and how fast on this host."""

from __future__ import annotations

import secrets

from dlcp.doctor.probe import RankPair, Responder, probe
from dlcp.transport import Endpoint, Settings


def loopback_pair() -> RankPair:
    """What one measures towards the other. Raises DlcpError: none opens."""
    settings = Settings(key=secrets.token_bytes(32))
    with (
        Endpoint(1, settings=settings) as answering,
        Responder(answering),
        Endpoint(0, settings=settings) as asking,
    ):
        return probe(asking, 0, 1, 1, answering.address, timeout_s=5.0)
