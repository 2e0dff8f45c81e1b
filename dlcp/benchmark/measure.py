"""What runs on every rank: calls of a collective, each after a barrier, timed, and each result compared.

Backends alternate in turns of many calls: within a turn one finds its memory and threads warm, and no other's are at
work. The values are small integers, whose sums are exact in any order.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from dlcp.benchmark.samples import TimedCalls
from dlcp.progress import left
from dlcp.units import size

TURNS, WARMUP, CALLS_MIN, CALLS_MAX = 5, 3, 5, 2000
Tell = Callable[[str], None]
# Newer torch warns of the older names.
_ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class _Case:
    """A collective of one size on this rank."""

    start: Callable[[Any, bool], Any]
    """Starts it in a group; whether it gives a work."""
    result: torch.Tensor
    before: torch.Tensor | float
    """What stands in `result` before a call: what this rank contributes, or what is nobody's."""
    expected: torch.Tensor
    nbytes: int
    """Of the larger of its two buffers."""

    def once(self, group: Any) -> tuple[float, int]:
        """How long one call took, and how many values are wrong."""
        self.result[:] = self.before
        dist.barrier(group)
        start_s = time.perf_counter()
        self.start(group, False)
        took_s = time.perf_counter() - start_s
        return took_s, int((self.result != self.expected).sum())


def hosts() -> int:
    """How many hosts the ranks are on. All ranks call it."""
    names: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(names, socket.gethostname())
    return len(set(names))


def measure(
    collective: str, sizes: Sequence[int], backends: Sequence[str], seconds: float, tell: Tell
) -> Iterator[list[TimedCalls]]:
    """Per size a sample of each backend, the first of which is the default group's. All ranks iterate alike.

    `seconds`: about so long for each size and backend. `tell`: is told how far it is.
    """
    groups = {name: dist.new_group(backend=name) if place else None for place, name in enumerate(backends)}
    begin_s, turns, done = time.monotonic(), TURNS * len(groups) * len(sizes), 0
    for nbytes in sizes:
        case = _case(collective, nbytes, dist.get_rank(), dist.get_world_size())
        calls, algorithms, wrong = {}, {}, dict.fromkeys(groups, 0)
        times_s: dict[str, list[float]] = {name: [] for name in groups}

        def once(name: str, case: _Case = case, wrong: dict[str, int] = wrong) -> float:
            took_s, values = case.once(groups[name])
            wrong[name] += values
            return took_s

        for name, group in groups.items():
            work = case.start(group, True)
            work.wait()
            algorithms[name] = getattr(work, "algorithm", "")
            warm_s = sorted(once(name) for _ in range(WARMUP))[WARMUP // 2]
            slowest_s = _agreed([warm_s], dist.ReduceOp.MAX)[0]
            calls[name] = -(-min(CALLS_MAX, max(CALLS_MIN, int(seconds / slowest_s))) // TURNS)
        for _ in range(TURNS):
            for name in groups:
                tell(f"{size(nbytes)} over {name}{left(begin_s, done / turns)}")
                once(name)  # the other backend had the caches
                times_s[name] += [once(name) for _ in range(calls[name])]
                done += 1
        yield [
            TimedCalls(
                collective,
                dist.get_world_size(),
                name,
                case.nbytes,
                _agreed(times_s[name], dist.ReduceOp.MAX),
                int(_agreed([wrong[name]], dist.ReduceOp.SUM)[0]),
                algorithms[name],
            )
            for name in groups
        ]


def _case(collective: str, nbytes: int, rank: int, ranks: int) -> _Case:
    """The collective with buffers of about so many bytes: all ranks' parts of them have one size."""
    part = max(1, nbytes // 4 // ranks)
    base = torch.arange(part * ranks, dtype=torch.float32) % 97
    own, total = base + rank, base * ranks + ranks * (ranks - 1) / 2
    mine = slice(rank * part, (rank + 1) * part)
    whole, one = torch.empty_like(base), torch.empty(part)
    given = own[mine].clone()
    sender = torch.arange(ranks, dtype=torch.float32).repeat_interleave(part)
    cases: dict[str, tuple[torch.Tensor, torch.Tensor | float, torch.Tensor, Any]] = {
        "all_reduce": (whole, own, total, lambda g, a: dist.all_reduce(whole, group=g, async_op=a)),
        "broadcast": (whole, own, base, lambda g, a: dist.broadcast(whole, 0, group=g, async_op=a)),
        "all_gather": (
            *(whole, math.nan, base + sender),
            lambda g, a: _ALL_GATHER(whole, given, group=g, async_op=a),
        ),
        "reduce_scatter": (
            *(one, math.nan, total[mine]),
            lambda g, a: _REDUCE_SCATTER(one, own, group=g, async_op=a),
        ),
        "all_to_all": (
            *(whole, math.nan, base[mine].repeat(ranks) + sender),
            lambda g, a: dist.all_to_all_single(whole, own, group=g, async_op=a),
        ),
    }
    result, before, expected, start = cases[collective]
    return _Case(start, result, before, expected, base.nbytes)


def _agreed(values: Sequence[float], op: Any) -> list[float]:
    """The values of all ranks, reduced one by one."""
    reduced = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(reduced, op)
    return reduced.tolist()
