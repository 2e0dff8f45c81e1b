"""What a rank does in a station: an endpoint or a job, messages of known content, collectives.

Content comes from who sends to whom and from a seed, so that the receiver knows what must arrive, byte for byte.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlcp import errors
from dlcp.transport import Endpoint
from dlcp.transport.communicator import Communicator, DataType, Span
from dlcp.transport.job import Job
from dlcp.transport.store import FileStore
from dlcp.transport.transfer import TransferFuture
from tests.support.stations import PATIENCE_S

# Of this process.
_endpoints: dict[int, Endpoint] = {}
_jobs: dict[int, tuple[Job, Communicator]] = {}
_started: dict[str, TransferFuture] = {}
_logs: dict[int, list[tuple[str, str]]] = {}


def open_endpoint(rank: int, **settings: Any) -> str:
    """Opens an endpoint without a key; its address."""
    _endpoints[rank] = Endpoint(rank, **({"allow_unauthenticated": True} | settings))
    return _endpoints[rank].address


def close_endpoint(rank: int) -> None:
    _endpoints.pop(rank).close()


def connect(rank: int, other: int, address: str, timeout_s: float = PATIENCE_S) -> None:
    _endpoints[rank].connect(other, address, timeout_s=timeout_s)


def content(sender: int, receiver: int, seed: int, index: int, size: int) -> np.ndarray:
    """What is in a message."""
    return np.random.default_rng([sender, receiver, seed, index]).integers(0, 256, size, np.uint8)


def exchange(rank: int, other: int, sizes: Sequence[int], seed: int = 0, **how: Any) -> dict[str, int]:
    """Sends messages of these sizes and receives as many, all at once, checked; `how`: isend's words. What came."""
    endpoint = _endpoints[rank]
    got = [np.zeros(size, np.uint8) for size in sizes]
    receives = [endpoint.ireceive(other, buffer, tag=index) for index, buffer in enumerate(got)]
    sends = [
        endpoint.isend(other, content(rank, other, seed, index, size), tag=index, **how)
        for index, size in enumerate(sizes)
    ]
    for send in sends:
        send.result(PATIENCE_S)
    abandoned = 0
    for index, (receive, buffer) in enumerate(zip(receives, got, strict=True)):
        outcome = receive.result(PATIENCE_S)
        wanted = content(other, rank, seed, index, buffer.size)
        for start, end in outcome.abandoned_ranges().tolist():
            wanted[start:end] = 0
        assert outcome.message_bytes == buffer.size
        assert np.array_equal(buffer, wanted), f"message {index} of {buffer.size} bytes, seed {seed}, differs"
        abandoned += outcome.abandoned_bytes
    return {"bytes": sum(sizes), "abandoned_bytes": abandoned}


def start_send(name: str, rank: int, other: int, size: int, tag: int = 99) -> None:
    """Begins one message, for finish()."""
    _started[name] = _endpoints[rank].isend(other, content(rank, other, 0, tag, size), tag=tag)


def start_receive(name: str, rank: int, other: int, size: int, tag: int = 99) -> None:
    """Begins to take one message, for finish()."""
    _started[name] = _endpoints[rank].ireceive(other, np.zeros(size, np.uint8), tag=tag)


def is_over(name: str) -> bool:
    return _started[name].done()


def finish(name: str, timeout_s: float = PATIENCE_S) -> int:
    """The bytes of a message that was begun, once it is over."""
    return _started.pop(name).result(timeout_s).message_bytes


def counters(rank: int) -> dict[str, int]:
    """What the engine and the driver counted, the latter's names with io_."""
    stats = _endpoints[rank].stats() if rank in _endpoints else _jobs[rank][0].endpoint.stats()
    engine = {name: getattr(stats.engine, name) for name in stats.engine.__slots__}
    return engine | {f"io_{name}": getattr(stats.io, name) for name in stats.io.__slots__}


def driver_statistics(rank: int) -> dict[str, int]:
    """What the driver alone counts."""
    return _endpoints[rank].driver_statistics()


def packets_by_path(rank: int, other: int) -> list[int]:
    """Sent on each path to a peer."""
    return [path.packets_sent for path in _endpoints[rank].path_stats(other)]


def events(rank: int) -> list[tuple[str, str]]:
    """Kind and words of everything in the log so far."""
    seen = _logs.setdefault(rank, [])
    endpoint = _endpoints[rank] if rank in _endpoints else _jobs[rank][0].endpoint
    seen += [(entry.kind, getattr(entry, "text", None) or "") for entry in endpoint.drain_log()]
    return seen


def await_event(rank: int, kind: str, timeout_s: float = PATIENCE_S) -> str:
    """The words of the first event of this kind that is not taken yet; takes it and leaves the others."""
    end = time.monotonic() + timeout_s
    while True:
        seen = events(rank)
        for index, (what, text) in enumerate(seen):
            if what == kind:
                del seen[index]
                return text
        assert time.monotonic() < end, f"no event {kind} within {timeout_s:g} s, only {seen}"
        time.sleep(0.01)


# --- jobs ---------------------------------------------------------------------------------------------------


def open_job(store: str, rank: int, size: int, **settings: Any) -> str:
    """A job and a group of all its ranks; this one's address."""
    job = Job(
        FileStore(store, PATIENCE_S),
        rank,
        size,
        **({"timeout_s": PATIENCE_S, "flight_recorder_entries": 0} | settings),
    )
    _jobs[rank] = job, job.open_communicator("all")
    return job.endpoint.address


def close_job(rank: int) -> None:
    _jobs.pop(rank)[0].close()


def all_reduce(rank: int, counts: Sequence[int]) -> list[bytes]:
    """Sums of arrays of so many floats, checked, as bytes: equal on all ranks."""
    job, group = _jobs[rank]
    results = []
    for index, count in enumerate(counts):
        data = _addend(rank, index, count)
        group.all_reduce(Span.of(data), DataType.f32).wait()
        wanted = sum(_addend(member, index, count).astype(np.float64) for member in range(job.size))
        np.testing.assert_allclose(data, wanted, rtol=1e-5, atol=1e-5)
        results.append(data.tobytes())
    return results


def _addend(rank: int, index: int, count: int) -> np.ndarray:
    return np.random.default_rng([rank, index]).standard_normal(count).astype(np.float32)


def reduce_until_failure(rank: int, count: int) -> dict[str, Any]:
    """all_reduce until one fails: how, whom it names, and after how long."""
    _, group = _jobs[rank]
    data = np.ones(count, np.float32)
    while True:
        start = time.monotonic()
        try:
            group.all_reduce(Span.of(data), DataType.f32).wait()
        except errors.CollectiveError as error:
            return {
                "kind": type(error).__name__,
                "culprit": error.culprit,
                "text": str(error),
                "waited_s": time.monotonic() - start,
            }
        data[:] = 1


def process_id() -> int:
    return os.getpid()
