"""Points of a sweep on a Ray cluster. Ray is loaded when a sweep asks for it: `pip install '.[ray]'`.

Tasks carry a scenario and bring back a result, both plain data; dlcp is installed on the nodes, of the same version.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

from dlcp import __version__
from dlcp.errors import ArgumentError, DlcpError
from dlcp_sim.points import Point, SweepOutcome

LOCAL = "local"
AHEAD = 2
"""Tasks handed to the cluster per processor that it has: the queue is never empty, and never the whole sweep."""
REACH_S = 5.0
"""How long an address may take to answer."""


class ClusterError(DlcpError):
    """The Ray cluster cannot be reached, or has another version of dlcp."""


def run_on_ray(points: Sequence[Point], address: str, jobs: int | None = None) -> Iterator[SweepOutcome]:
    """Runs points on the cluster at `address`, `jobs` at a time; "local": a cluster of this host's cores.

    Yields what became of each as it ends. A task whose process dies or whose node is lost has an outcome with an error.
    """
    try:
        import ray
    except ImportError as error:
        raise ArgumentError(
            f"ray is not installed ({error}); pip install '.[ray]' in a checkout of dlcp"
        ) from None
    if ray.is_initialized():
        raise ArgumentError(
            "this process is connected to a Ray cluster already; disconnect it: ray.shutdown()"
        )
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == LOCAL:
        options |= {"address": "local", "num_cpus": jobs, "include_dashboard": False}
    else:
        options |= {"address": address}
        _check_reachable(address)
    try:
        ray.init(**options)
    except Exception as error:
        raise ClusterError(f"no Ray cluster at {address!r}: {_line(error)}") from None
    try:
        threads = max(int(point.tables.get("threads", 1)) for point in points)
        task = ray.remote(num_cpus=threads, max_retries=0)(_simulate)
        processors = int(ray.cluster_resources().get("CPU", 1))
        if processors < threads:
            raise ArgumentError(f"threads is {threads}; accepted: up to {processors}, what the cluster has")
        ahead = jobs or AHEAD * max(1, processors // threads)
        waiting = list(reversed(points))
        under_way: dict[Any, Point] = {}
        while waiting or under_way:
            while waiting and len(under_way) < ahead:
                point = waiting.pop()
                under_way[task.remote(dict(point.tables), point.modules, __version__)] = point
            ready, _ = ray.wait(list(under_way), num_returns=1)
            for reference in ready:
                point = under_way.pop(reference)
                try:
                    outcome = SweepOutcome(point, *ray.get(reference))
                except Exception as failure:
                    outcome = SweepOutcome(point, None, f"its Ray task was lost: {_line(failure)}", 0.0)
                yield outcome
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises ClusterError unless somebody listens there; Ray itself would try for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not colon or not port.isdecimal():
        raise ArgumentError(f"ray is {address!r}; accepted: local, auto, host:port, ray://host:port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"no Ray cluster at {address!r}: {error}") from None


def _simulate(
    tables: dict[str, Any], modules: Sequence[str], version: str
) -> tuple[bytes | None, str, float]:
    """On a node: the result of a scenario as a block, or what went wrong; and how long it took."""
    from dlcp_sim.worker import explained, simulate

    begin = time.monotonic()
    try:
        if version != __version__:
            raise ClusterError(f"this node has dlcp {__version__}, the sweep {version}; install the same")
        return simulate(tables, modules), "", time.monotonic() - begin
    except Exception as error:
        return None, explained(error), time.monotonic() - begin


def _line(error: BaseException) -> str:
    """The first line of an error, with its kind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
