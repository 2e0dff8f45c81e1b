"""What runs on every rank: all-reduces one after the other, timed as `bench_allreduce` of the field does it.

Each iteration fills the buffer anew and times one dist.all_reduce; the one before is the barrier. Sums are of small
integers, so they are exact and lost or doubled data shows.
"""

from __future__ import annotations

import functools
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcp.lab.namespaces import interface_bytes

ITERATIONS_MIN, ITERATIONS_MAX, WARMUP = 5, 2000, 3
_TCP = {"RetransSegs", "TCPTimeouts", "TCPLossProbes", "TCPLostRetransmit"}
_UDP = {"RcvbufErrors", "SndbufErrors", "InDatagrams", "OutDatagrams"}


@dataclass(frozen=True)
class Timing:
    """One rank's account of one size."""

    nbytes: int
    times_s: list[float]
    """Of each all-reduce."""
    wall_s: float
    """Of all of them with what is between."""
    cpu_s: float
    """Of this process, all threads, in `wall_s`, less what filling the buffers took."""
    wrong: int
    """Elements of the last result that are not the sum."""
    wire_bytes: int
    """What left this rank's network namespace through its interface, headers and others' packets included."""
    kernel: dict[str, int]
    """Counters of this namespace's kernel that grew."""
    engine: dict[str, int]
    """Counters of dlcp's engine that grew; empty for others."""
    path: dict[str, float]
    """dlcp's view of the way to its first peer at the end; empty for others."""


def time_all_reduce(
    sizes: list[int],
    seconds: float,
    interface: str,
    iterations_max: int = ITERATIONS_MAX,
    precision: str | None = None,
    device: str = "cpu",
) -> list[Timing]:
    """Timings of each size on this rank, for about `seconds` each. `precision`: of dlcp's; None: exact.

    `device`: where the tensors are, as `synchronizer` has it.
    """
    import torch
    import torch.distributed as dist

    all_reduce: Any = dist.all_reduce
    if precision is not None:
        import dlcp.torch

        all_reduce = functools.partial(dlcp.torch.all_reduce, precision=precision)
    rank, world = dist.get_rank(), dist.get_world_size()
    synchronize = synchronizer(device)
    found = []
    for nbytes in sizes:
        source = (torch.arange(nbytes // 4, dtype=torch.float32, device=device) % 97) + rank
        buffer = torch.empty_like(source)

        def once(source: Any = source, buffer: Any = buffer) -> tuple[float, float]:
            """Seconds of the all-reduce, and processor time of what was before it."""
            cpu_s = time.thread_time()
            buffer.copy_(source)
            synchronize()
            cpu_s, start_s = time.thread_time() - cpu_s, time.perf_counter()
            all_reduce(buffer)
            synchronize()
            return time.perf_counter() - start_s, cpu_s

        warm = sorted(once()[0] for _ in range(WARMUP))
        plans: list[Any] = [None] * world
        dist.all_gather_object(plans, warm[WARMUP // 2])
        wanted = int(seconds / max(max(plans), 1e-6))
        iterations = min(iterations_max, max(ITERATIONS_MIN, wanted))
        dist.barrier()
        kernel, wire, engine = kernel_counters(), interface_bytes(interface), engine_counters()
        cpu_s, start_s = _cpu_s(), time.perf_counter()
        times_s, filling_s = zip(*(once() for _ in range(iterations)), strict=True)
        wall_s, cpu_s = time.perf_counter() - start_s, _cpu_s() - cpu_s - sum(filling_s)
        expected = (torch.arange(nbytes // 4, dtype=torch.float32) % 97) * world + world * (world - 1) / 2
        found.append(
            Timing(
                nbytes=nbytes,
                times_s=list(times_s),
                wall_s=wall_s,
                cpu_s=cpu_s,
                wrong=_wrong(buffer.cpu(), expected, precision),
                wire_bytes=interface_bytes(interface) - wire,
                kernel=_grown(kernel, kernel_counters()),
                engine=_grown(engine, engine_counters()),
                path=path_state(),
            )
        )
    return found


def synchronizer(device: str) -> Callable[[], object]:
    """What waits for the device of this rank, which it makes the current one: of "cuda" each rank's own."""
    if device == "cpu":
        return lambda: None
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count() if device == "cuda" else device)
    return torch.cuda.synchronize


def _wrong(found: Any, expected: Any, precision: str | None) -> int:
    """Elements that are not the sum; in few bits, those that are off by more than a quarter of the largest."""
    if precision is None:
        return int((found != expected).sum())
    return int(((found - expected).abs() > expected.max() / 4).sum())


# --- counters -------------------------------------------------------------------------------------------------


def kernel_counters() -> dict[str, int]:
    """A few counters of this network namespace's TCP and UDP."""
    found = {}
    for path in ("/proc/self/net/snmp", "/proc/self/net/netstat"):
        lines = Path(path).read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            protocol = names.split(":")[0]
            wanted = {"Tcp": _TCP, "TcpExt": _TCP, "Udp": _UDP}.get(protocol, set())
            for name, value in zip(names.split()[1:], values.split()[1:], strict=True):
                if name in wanted:
                    found[name] = int(value)
    return found


def _endpoint() -> Any:
    import torch.distributed as dist

    communicator = getattr(dist.group.WORLD, "communicator", None)
    return None if communicator is None else communicator.job.endpoint


def engine_counters() -> dict[str, int]:
    """What dlcp's engine and driver have counted; nothing if the default group is another's."""
    endpoint = _endpoint()
    if endpoint is None:
        return {}
    counted = endpoint.runtime.statistics()
    parts = {**counted["engine"], **counted["io"], **counted}
    return {name: value for name, value in parts.items() if isinstance(value, int)}


def path_state() -> dict[str, float]:
    """The way to the first peer as dlcp sees it."""
    endpoint = _endpoint()
    if endpoint is None or not endpoint.peers:
        return {}
    seen = endpoint.runtime.peer_statistics(endpoint.peers[0])
    return {name: value for name, value in seen.items() if isinstance(value, int | float)}


def _grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {
        name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)
    }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
