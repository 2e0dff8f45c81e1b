"""Jobs onto aggregating switches, and what these count.

`dlcp switch jobs deploy|status JOBS --target TOPOLOGY`. The topology is that of `dlcp switch deploy`:
addresses and ports. JOBS is a TOML file of [[job]] tables: `switch` by its name in the topology, and what
JobRequest.from_table reads, ports by name. Switches of the topology without a job are left alone. Deploying is a
transaction over all switches, as with policies; doing it twice writes once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dlcp.errors import SettingsError
from dlcp.switch import programs
from dlcp.switch.aggregation.deployment import check_unmoved, wanted_jobs
from dlcp.switch.aggregation.entries import OUTCOMES, JobRequest
from dlcp.switch.aggregation.job_file import job_tables
from dlcp.switch.printable import printable
from dlcp.switch.topology import SwitchTarget, Topology

OUTCOMES_PER_ROW = 16


def add_parsers(roles: Any) -> None:
    from dlcp.switch.deploy.command import add_target

    for role, text in (("deploy", "bring jobs onto switches"), ("status", "what switches counted of jobs")):
        part = roles.add_parser(role, help=text)
        part.add_argument("jobs", type=Path, metavar="JOBS", help="[[job]] tables, a TOML file")
        add_target(part)
        if role == "deploy":
            part.add_argument("--dry-run", action="store_true", help="show the differences, write nothing")
            part.add_argument(
                "--take-over",
                action="store_true",
                help="become primary where another controller is connected",
            )
            part.add_argument(
                "--replace-pipeline", action="store_true", help="throw out another program with all it holds"
            )


def read_jobs(text: str, topology: Topology) -> dict[str, list[JobRequest]]:
    """Switch → its jobs, in the order of the file. SettingsError names what is wrong."""
    ports = {target.name: target.ports for target in topology.switches}
    found: dict[str, list[JobRequest]] = {}
    for index, table in enumerate(job_tables(text)):
        where = f"job[{index}]"
        name = table.get("switch")
        if not isinstance(name, str) or name not in ports:
            raise SettingsError(
                f"{where}.switch is {name!r}; accepted: a switch of the topology: {', '.join(ports)}"
            )
        rest = {key: value for key, value in table.items() if key != "switch"}
        found.setdefault(name, []).append(JobRequest.from_table(rest, where, ports[name]))
    return found


def _load(options: argparse.Namespace) -> list[tuple[SwitchTarget, list[JobRequest]]]:
    topology = Topology.load(options.target).only(options.only)
    try:
        jobs = read_jobs(options.jobs.read_text(encoding="utf-8"), topology)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{options.jobs}: {error}") from None
    except SettingsError as error:
        raise SettingsError(printable(f"{options.jobs}: {error}")) from None
    except ValueError as error:  # a number of thousands of digits cannot even be shown
        raise SettingsError(f"{options.jobs}: {error}") from None
    return [(target, jobs[target.name]) for target in topology.switches if target.name in jobs]


def run_deploy(options: argparse.Namespace) -> int:
    places = _load(options)
    from dlcp.switch.deploy.packages import require

    require()
    from dlcp.switch.deploy import report, transaction
    from dlcp.switch.deploy.command import signals_undo
    from dlcp.switch.deploy.errors import several
    from dlcp.switch.deploy.grpc_session import GrpcSession
    from dlcp.switch.deploy.pipeline import Pipeline

    pipeline = Pipeline.of(programs.load("aggregation"))
    desired_states = [
        transaction.DesiredState.of(
            replace(target, program="aggregation"), pipeline, wanted_jobs(target, requests)
        )
        for target, requests in places
    ]
    settings = transaction.Settings(options.take_over, options.replace_pipeline, undo_s=3 * options.timeout)

    open_session = partial(GrpcSession, timeout_s=options.timeout)

    def show(seen: list[transaction.Comparison]) -> None:
        print(report.text(seen), flush=True)
        for one in seen:
            check_unmoved(one.desired.target, one.held, one.wanted)

    if options.dry_run:
        seen = transaction.compare(desired_states, open_session)
        show(seen)
        if refused := transaction.refusals(seen, settings):
            raise several(refused)
        return 0
    with signals_undo("dlcp"):
        transaction.deploy(desired_states, open_session, settings, show)
    count = len(desired_states)
    words = "1 switch holds its jobs" if count == 1 else f"{count} switches hold their jobs"
    print(f"{words}, read back and verified")
    return 0


def run_status(options: argparse.Namespace) -> int:
    """A line per job, and one for what was of none."""
    places = _load(options)
    from dlcp.switch.deploy.packages import require

    require()
    from dlcp.switch.deploy.errors import DeployError
    from dlcp.switch.deploy.grpc_session import GrpcSession
    from dlcp.switch.deploy.pipeline import Pipeline

    pipeline = Pipeline.of(programs.load("aggregation"))
    worst = 0
    for target, requests in places:
        session = GrpcSession(target, options.timeout)
        try:
            held = session.pipeline()
            if held is None or not held.is_same(pipeline):
                print(f"{target.name}: runs {'nothing' if held is None else 'another pipeline'}")
                worst = 1
                continue
            counts = session.counters(pipeline.schema, "outcomes")
            packets = {index: count for index, (count, _) in counts.items() if count}
            print("\n".join(status_lines(target.name, requests, packets)))
        except DeployError as error:
            print(f"{target.name}: {error}")
            worst = 1
        finally:
            session.close()
    return worst


def status_lines(switch: str, requests: list[JobRequest], packets: dict[int, int]) -> Iterator[str]:
    """What a switch counted, per job. `packets`: by index of the counter `outcomes`."""
    for row in range(len(requests) + 1):
        told = [
            f"{name} {packets[index]}"
            for place, name in enumerate(OUTCOMES)
            if (index := OUTCOMES_PER_ROW * row + place) in packets
        ]
        who = f"job {requests[row - 1].job}" if row else "of no job"
        if row or told:
            yield f"{switch}: {who}: {', '.join(told) or 'nothing yet'}"
