"""Endpoints that exchange messages, jobs whose ranks find each other, collectives among them; and their settings.

    from dlcp.transport import Endpoint

    with Endpoint(rank=0) as endpoint:
        endpoint.connect(1, "127.0.0.1:7000")
        endpoint.send(1, gradient, delivery="bounded", loss_ratio=0.01)

    from dlcp.transport import DataType, FileStore, Job, Span

    with Job(FileStore("/shared/run-1"), rank, size) as job:
        group = job.open_communicator("all")
        group.all_reduce(Span.of(gradient), DataType.f32).wait()

`python -m dlcp.transport.ping` moves data between two hosts and says how it went.
"""

from dlcp.transport.communicator import Communicator, DataType, Reduction, Span, Work
from dlcp.transport.endpoint import IMPORTANCE_CRITICAL, IMPORTANCE_DEFAULT, Endpoint
from dlcp.transport.job import Job
from dlcp.transport.outcome import Outcome
from dlcp.transport.settings import Settings
from dlcp.transport.statistics import (
    EndpointStatistics,
    EngineCounters,
    IoCounters,
    LogEntry,
    PathStatistics,
    PeerStatistics,
)
from dlcp.transport.store import FileStore, MemoryStore, PrefixStore, Store
from dlcp.transport.transfer import TransferFuture

__all__ = [
    "IMPORTANCE_CRITICAL",
    "IMPORTANCE_DEFAULT",
    "Communicator",
    "DataType",
    "Endpoint",
    "EndpointStatistics",
    "EngineCounters",
    "FileStore",
    "IoCounters",
    "Job",
    "LogEntry",
    "MemoryStore",
    "Outcome",
    "PathStatistics",
    "PeerStatistics",
    "PrefixStore",
    "Reduction",
    "Settings",
    "Span",
    "Store",
    "TransferFuture",
    "Work",
]
