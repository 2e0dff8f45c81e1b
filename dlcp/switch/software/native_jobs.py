"""Jobs that the software switch adds for: read from the file of jobs, and as the compiled switch takes them.

The file is that of `dlcp switch jobs deploy`, without `switch`, and ports go by the names that they
have here. It has more than the P4 program can: `lanes`, a hub without `port`, whose address is the switch's own, and
`upper`, a switch above that adds the sums of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlcp import _native
from dlcp.errors import SettingsError
from dlcp.switch.aggregation.entries import NO_PORT, JobRequest, Participant
from dlcp.switch.aggregation.job_file import job_tables


def read_jobs(text: str, ports: Sequence[str]) -> tuple[JobRequest, ...]:
    """[[job]] tables; ports by name. SettingsError names what is wrong."""
    numbers = {name: number for number, name in enumerate(ports)}
    return tuple(
        JobRequest.from_table(table, f"job[{index}]", numbers) for index, table in enumerate(job_tables(text))
    )


def check_unchanged(held: Iterable[JobRequest], wanted: Iterable[JobRequest]) -> None:
    """SettingsError: a job has other workers, or another switch above, under the generation that it has.

    Its sums would be of others than its ranks found by their probe, and no rank would notice.
    """
    by_number = {job.job: job for job in held}
    for job in wanted:
        known = by_number.get(job.job)
        if known is None or not _share_generations(known, job):
            continue
        if (known.workers, known.upper) != (job.workers, job.upper):
            what = "workers are others" if known.workers != job.workers else "upper is another"
            raise SettingsError(
                f"job {job.job}: its {what}; accepted with generations that it has not, from "
                f"{known.generation + known.generations} on"
            )


def _share_generations(one: JobRequest, other: JobRequest) -> bool:
    first = max(one.generation, other.generation)
    return first < min(each.generation + each.generations for each in (one, other))


def to_native(jobs: Iterable[JobRequest]) -> list[_native.AggregationJob]:
    """The same, for the compiled switch."""
    return [_job(job) for job in jobs]


def _job(job: JobRequest) -> _native.AggregationJob:
    out = _native.AggregationJob(
        job.job,
        job.generation,
        job.generations,
        job.slots,
        job.lanes,
        [_place(worker) for worker in job.workers],
        _place(job.hub),
        job.hub.port == NO_PORT,
    )
    if job.upper is not None:
        out.set_upper(_place(job.upper.hub), _place(job.upper.own), job.upper.worker)
    return out


def _place(participant: Participant) -> tuple[int, int, int, int]:
    port = max(participant.port, 0)  # of a hub without one it is not looked at
    return port, participant.mac_number, participant.ip_number, participant.udp_port
