"""When the workers of a training job computed and communicated, from the times of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlcp.errors import ArgumentError
from dlcp.units import PS_PER_S

Array = NDArray[Any]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingReport:
    """When a job's workers computed and communicated. All times in seconds; NaN: it did not come to it."""

    job: Mapping[str, Any]
    layers: tuple[str, ...]
    units: tuple[tuple[int, int], ...]
    """Layers whose gradients travel together, first and last."""
    forward_start_s: Numbers
    """[passes, workers, layers]; there is one pass more than iterations."""
    forward_end_s: Numbers
    backward_start_s: Numbers
    backward_end_s: Numbers
    ready_s: Numbers
    """[iterations, workers, units]: backward has made the gradients."""
    communication_start_s: Numbers
    communication_end_s: Numbers
    iteration_s: Numbers
    """[iterations], on average over workers: from the end of a backward pass to the end of the next."""
    compute_s: Numbers
    """[iterations, workers]: what of it the worker computed."""
    exposed_s: Numbers
    """[iterations, workers]: what of it the worker waited."""

    @property
    def samples_per_s(self) -> float:
        """Of all workers, over all iterations."""
        mean_s = float(np.mean(self.iteration_s))
        return float(self.job["batch"] * len(self.job["hosts"]) / mean_s)

    def summary(self) -> str:
        """The job in a line."""
        step, wait = float(np.mean(self.iteration_s)), float(np.mean(self.exposed_s))
        return (
            f"{self.job['name']}: {1e3 * step:.2f} ms per iteration, {1e3 * wait:.2f} ms of it exposed communication "
            f"({100 * wait / step:.1f} %), {self.samples_per_s:.0f} samples/s"
        )


def report_in(metadata: Mapping[str, Any], arrays: Mapping[str, Array], job: int = 0) -> TrainingReport:
    """The report of a job of a run, in what its result holds. Raises ArgumentError if the workload had no such job."""
    jobs = metadata.get("jobs") or []
    if not 0 <= job < len(jobs):
        raise ArgumentError(f"job is {job}; accepted: 0 to {len(jobs) - 1}, the workload's jobs")
    found = {name: arrays[f"job.{job}.{name}"] for name in ("forward", "backward", "start", "done")}
    return report_of(jobs[job], found, arrays["task.started_ps"], arrays["task.finished_ps"])


def report_of(
    job: Mapping[str, Any], tasks: Mapping[str, Array], started_ps: Array, finished_ps: Array
) -> TrainingReport:
    """The report from the job's tasks and the times of all tasks."""

    def seconds(times_ps: Array, rows: Array) -> Numbers:
        chosen = np.asarray(times_ps, np.int64)[rows]
        return np.where(chosen < 0, np.nan, chosen / PS_PER_S)

    forward, backward = tasks["forward"], tasks["backward"]
    forward_start, forward_end = seconds(started_ps, forward), seconds(finished_ps, forward)
    backward_start, backward_end = seconds(started_ps, backward), seconds(finished_ps, backward)
    units = tuple((int(first), int(last)) for first, last in job["units"])
    first = [unit[0] for unit in units]
    ready = backward_end[:-1][:, :, first]
    pieces = np.asarray(job["pieces"])
    # Of a piece that waits for nothing but its gradients the task is the backward that made them; it leaves at its end.
    begun = seconds(started_ps, tasks["start"]).transpose(0, 2, 1)
    is_backward = np.isin(tasks["start"], backward).transpose(0, 2, 1)
    begun = np.where(is_backward, seconds(finished_ps, tasks["start"]).transpose(0, 2, 1), begun)
    start = np.stack([begun[:, :, pieces == unit].min(axis=2) for unit in range(len(units))], axis=2)
    end = seconds(finished_ps, tasks["done"]).transpose(0, 2, 1)
    compute = np.nansum(forward_end - forward_start, axis=2) + np.nansum(
        backward_end - backward_start, axis=2
    )
    steps = np.diff(backward_end[:, :, 0], axis=0)
    return TrainingReport(
        job=job,
        layers=tuple(job["layers"]),
        units=units,
        forward_start_s=forward_start,
        forward_end_s=forward_end,
        backward_start_s=backward_start,
        backward_end_s=backward_end,
        ready_s=ready,
        communication_start_s=start,
        communication_end_s=end,
        iteration_s=np.array(iteration_times_s(backward, finished_ps)),
        compute_s=compute[1:],
        exposed_s=steps - compute[1:],
    )


def iteration_times_s(backward: Array, finished_ps: Array) -> list[float]:
    """From the end of one backward pass to the end of the next, on average over workers.

    `backward`: tasks by pass, worker, layer. Nothing of a pass is in flight when the next one ends its backward, so
    each of these holds one whole round of communication, overlapped on both sides.
    """
    ends = np.asarray(finished_ps, np.int64)[backward[:, :, 0]]
    if (ends < 0).any():
        ends = ends[: int(np.argmax((ends < 0).any(axis=1)))]
    return [float(step) / PS_PER_S for step in np.diff(ends, axis=0).mean(axis=1)]
