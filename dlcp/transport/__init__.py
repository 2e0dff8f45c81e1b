"""Endpoints that exchange messages between the ranks of a job, and their settings.

    from dlcp.transport import Endpoint

    with Endpoint(rank=0) as endpoint:
        endpoint.connect(1, "127.0.0.1:7000")
        endpoint.send(1, gradient, delivery="bounded", loss_ratio=0.01)

`python -m dlcp.transport.ping` moves data between two hosts and says how it went.
"""

from dlcp.transport.endpoint import IMPORTANCE_CRITICAL, IMPORTANCE_DEFAULT, Endpoint
from dlcp.transport.settings import Settings
from dlcp.transport.statistics import (
    EndpointStatistics,
    EngineCounters,
    IoCounters,
    LogEntry,
    PathStatistics,
    PeerStatistics,
)
from dlcp.transport.transfer import Outcome, TransferFuture

__all__ = [
    "IMPORTANCE_CRITICAL",
    "IMPORTANCE_DEFAULT",
    "Endpoint",
    "EndpointStatistics",
    "EngineCounters",
    "IoCounters",
    "LogEntry",
    "Outcome",
    "PathStatistics",
    "PeerStatistics",
    "Settings",
    "TransferFuture",
]
