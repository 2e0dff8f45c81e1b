"""A run for chrome://tracing and Perfetto: flows and computation as slices per host, queues as counters per link.

The Trace Event Format (Google, "Trace Event Format", JSON object form). Times are microseconds there, written with six
places, so that no picosecond is lost. Flows of a host that overlap are put on lanes, since slices of one thread must
nest; a flow that did not finish lasts to the end of the run and says so. Written as a stream: the file may be large,
the memory that it takes is not.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlcp_sim.result import Result

COMPUTATION_LANE = 1
"""Lanes of a host from this number on: computation, a lane per job; then sent flows."""
LINKS = "links"


def write_chrome_trace(result: Result, path: Path | str) -> Path:
    """Writes the trace, compressed if the path ends in .gz, and returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        gzip.open(path, "wt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open("w", encoding="utf-8") as file
    ):
        _write(result, file)
    return path


def _write(result: Result, file: TextIO) -> None:
    about = {"title": str(result.metadata.get("title", result.name)), "seed": result.seed}
    file.write('{"displayTimeUnit": "ns", "otherData": ' + json.dumps(about) + ', "traceEvents": [\n')
    separator = ""
    for event in _events(result):
        file.write(separator + event)
        separator = ",\n"
    file.write("\n]}\n")


def _events(result: Result) -> Iterator[str]:
    names = result.ports.node_names
    hosts = sorted({int(host) for host in result.flows.source} | _computing_hosts(result))
    for host in hosts:
        yield _named("process_name", host, 0, names[host])
        yield json.dumps(
            {"ph": "M", "name": "process_sort_index", "pid": host, "tid": 0, "args": {"sort_index": host}}
        )
    yield from _computation(result)
    yield from _flows(result, COMPUTATION_LANE + len(_jobs(result)))
    yield from _queues(result)


def _flows(result: Result, first_lane: int) -> Iterator[str]:
    """A slice per flow, at its source."""
    flows = result.flows
    end_s = result.simulated_s
    begin = flows.start_s
    until = np.where(flows.finished, begin + flows.completion_s, end_s)
    names = result.ports.node_names
    for host in np.unique(flows.source):
        chosen = np.flatnonzero((flows.source == host) & np.isfinite(begin))
        chosen = chosen[np.argsort(begin[chosen], kind="stable")]
        lanes = _lanes(begin[chosen], until[chosen])
        for lane in range(max(lanes, default=-1) + 1):
            yield _named(
                "thread_name", int(host), first_lane + lane, f"sends {lane + 1}" if lane else "sends"
            )
        for flow, lane in zip(chosen, lanes, strict=True):
            label = flows.labels[int(flows.label[flow])] if flows.labels else "flow"
            finished = bool(flows.finished[flow])
            about = {
                "flow": int(flow),
                "bytes": int(flows.bytes[flow]),
                "destination": names[int(flows.destination[flow])],
                "slowdown": round(float(flows.slowdown[flow]), 4) if finished else None,
                "abandoned_bytes": int(flows.abandoned_bytes[flow]),
                "retransmitted_packets": int(flows.retransmitted_packets[flow]),
                "timeouts": int(flows.timeouts[flow]),
                "finished": finished,
            }
            name = f"{label} → {names[int(flows.destination[flow])]}"
            yield _slice(name, "flow", int(host), first_lane + lane, begin[flow], until[flow], about)


def _computation(result: Result) -> Iterator[str]:
    """A slice per layer and pass, at each worker; a lane per job."""
    from dlcp_sim.workloads.training import training_report

    for number, job in enumerate(_jobs(result)):
        report = training_report(result, number)
        lane = COMPUTATION_LANE + number
        for worker, host in enumerate(job["hosts"]):
            yield _named("thread_name", int(host), lane, f"computes {job.get('name', number)}")
            for kind, start, end in (
                ("forward", report.forward_start_s, report.forward_end_s),
                ("backward", report.backward_start_s, report.backward_end_s),
            ):
                for pass_number in range(start.shape[0]):
                    for layer, name in enumerate(report.layers):
                        low, high = start[pass_number, worker, layer], end[pass_number, worker, layer]
                        if np.isfinite(low) and np.isfinite(high):
                            about = {"layer": name, "pass": pass_number}
                            yield _slice(f"{kind} {name}", kind, int(host), lane, low, high, about)


def _queues(result: Result) -> Iterator[str]:
    """A counter per sampled link: bytes that wait, a series per class that ever had some."""
    samples = result.samples
    if samples is None:
        return
    process = len(result.ports.node_names)  # after all nodes
    yield _named("process_name", process, 0, LINKS)
    times = [_us(time) for time in samples.time_s]
    for place, port in enumerate(samples.ports):
        depth = samples.depth_bytes[:, place]
        present = np.flatnonzero(depth.any(axis=0))
        if not len(present):
            continue
        name = json.dumps(f"{result.ports.name(int(port))}, waiting bytes", ensure_ascii=False)
        # A counter keeps its value until the next event: only changes are written.
        changed = np.flatnonzero(np.r_[True, (np.diff(depth.astype(np.int64), axis=0) != 0).any(axis=1)])
        for i in changed:
            series = ", ".join(f'"class {c}": {int(depth[i, c])}' for c in present)
            yield f'{{"ph": "C", "name": {name}, "pid": {process}, "tid": 0, "ts": {times[i]}, "args": {{{series}}}}}'


def _jobs(result: Result) -> Sequence[Mapping[str, Any]]:
    return result.metadata.get("jobs") or ()


def _computing_hosts(result: Result) -> set[int]:
    return {int(host) for job in _jobs(result) for host in job["hosts"]}


def _lanes(begin: NDArray[np.float64], end: NDArray[np.float64]) -> list[int]:
    """For intervals in order of their begin, the lowest lane each that is free then."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes = []
    for low, high in zip(begin, end, strict=True):
        while busy and busy[0][0] <= low:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (float(high), lane))
        lanes.append(lane)
    return lanes


def _slice(
    name: str, category: str, process: int, thread: int, begin_s: float, end_s: float, about: dict[str, Any]
) -> str:
    """A complete event; its duration is that between the written times, so that neighbours do not overlap."""
    begin_ps, end_ps = _ps(begin_s), _ps(end_s)
    arguments = json.dumps(about, ensure_ascii=False)
    return (
        f'{{"ph": "X", "name": {json.dumps(name, ensure_ascii=False)}, "cat": "{category}", "pid": {process}, '
        f'"tid": {thread}, "ts": {_text(begin_ps)}, "dur": {_text(end_ps - begin_ps)}, "args": {arguments}}}'
    )


def _named(what: str, process: int, thread: int, name: str) -> str:
    event = {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
    return json.dumps(event, ensure_ascii=False)


def _ps(time_s: float) -> int:
    return round(float(time_s) * 1e12)


def _us(time_s: float) -> str:
    return _text(_ps(time_s))


def _text(time_ps: int) -> str:
    """Microseconds with all picoseconds, as JSON."""
    return f"{time_ps // 10**6}.{time_ps % 10**6:06d}"
