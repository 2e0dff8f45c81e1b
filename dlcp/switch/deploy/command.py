"""`dlcp switch deploy`: the differences first, then the policy onto every switch of a topology, or onto none.

Exit status: 0 done, or nothing to do; 2 refused or failed, and every switch holds what it held, unless the line says
NOT BROUGHT BACK.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.arguments import add_json
from dlcp.signals import handled
from dlcp.switch.deploy.packages import require
from dlcp.switch.entries import desired_entries
from dlcp.switch.limits import refuse
from dlcp.switch.policy_file import PolicyFile
from dlcp.switch.topology import SwitchTarget, Topology

if TYPE_CHECKING:
    from dlcp.switch.deploy.errors import DeployError
    from dlcp.switch.deploy.transaction import Comparison, DesiredState, OpenSession

MAX_TIMEOUT_S = 600.0
LEAST_FRAME_BYTES = 42  # Ethernet, IPv4, UDP


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "deploy",
        description="Brings a policy onto the switches of a topology over P4Runtime. All are connected, read and "
        "compared before the first write; what is written is read back; if one switch fails, all are brought back "
        "to what they held. Doing it twice writes nothing the second time.",
    )
    add_target(parser)
    parser.add_argument("policy", type=Path, help="the policy, a TOML file")
    parser.add_argument("--dry-run", action="store_true", help="show the differences, write nothing")
    parser.add_argument(
        "--take-over", action="store_true", help="become primary where another controller is connected"
    )
    parser.add_argument(
        "--replace-pipeline",
        action="store_true",
        help="where another program runs, throw it out with all it holds",
    )
    parser.add_argument(
        "--accept",
        metavar="LINE",
        action="append",
        default=[],
        help="go on though the switches cannot do this line of the policy (the error names it); may be repeated",
    )
    parser.add_argument(
        "--via",
        choices=("finsy", "shell"),
        default="finsy",
        help="finsy: gRPC from here. shell: p4runtime-shell, one process per switch, under --shell-python",
    )
    parser.add_argument(
        "--shell-python",
        metavar="PYTHON",
        type=Path,
        help="the Python of an environment with the packages of the extra p4shell",
    )
    add_json(parser, ", of the differences")


def add_target(parser: argparse.ArgumentParser) -> None:
    """Which switches, and how long to wait for them."""
    parser.add_argument(
        "--target",
        metavar="TOPOLOGY",
        type=Path,
        required=True,
        help="the switches, a TOML file: docs/switch.md",
    )
    parser.add_argument(
        "--only", metavar="SWITCH", nargs="+", default=[], help="only these switches of the topology"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        default=10.0,
        help="how long a switch may take for an answer (10)",
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"{text!r}: accepted: a number above 0, at most {MAX_TIMEOUT_S:g}")
    return value


def run(options: argparse.Namespace) -> int:
    with signals_undo("dlcp switch"):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    file = PolicyFile.load(options.policy)
    topology = Topology.load(options.target)
    topology.check_policy(file.policy)
    require()
    from dlcp.switch.deploy import report, transaction
    from dlcp.switch.deploy.errors import several

    desired_states, notes = _orders(file, topology.only(options.only), options.accept)
    open_session = opener(options)
    settings = transaction.Settings(options.take_over, options.replace_pipeline, undo_s=3 * options.timeout)
    refused: list[DeployError] = []

    def show(comparisons: list[Comparison]) -> None:
        if not options.json:
            print("\n".join([*(f"note: {note}" for note in notes), report.text(comparisons)]), flush=True)

    if options.dry_run:
        seen = transaction.compare(desired_states, open_session)
        refused = transaction.refusals(seen, settings)
        show(seen)
    else:
        seen = transaction.deploy(desired_states, open_session, settings, show)
    count = sum(one.changes for one in seen)
    if options.json:
        told = [str(error) for error in refused]
        print(json.dumps(report.document(seen, told, notes, deployed=not options.dry_run), indent=2))
    elif count and not options.dry_run:
        print(
            f"{count} {'switch holds' if count == 1 else 'switches hold'} the policy now, read back and verified"
        )
    if refused:
        raise several(refused)
    return 0


def _orders(
    file: PolicyFile, topology: Topology, accepted: Sequence[str]
) -> tuple[list[DesiredState], list[str]]:
    """What each switch is to hold, and what it will not do of it. UnsupportedError: more than was accepted."""
    from dlcp.switch import programs
    from dlcp.switch.deploy.pipeline import Pipeline
    from dlcp.switch.deploy.transaction import DesiredState

    pipelines = {name: Pipeline.of(programs.load(name)) for name in {t.program for t in topology.switches}}
    desired_states, notes = [], []
    for target in topology.switches:
        found = desired_entries(file.policy, target)
        refuse(found.limits, accepted, file.text, file.path)
        notes += [limit.text(file.text, file.path) for limit in found.limits]
        notes += _room(file, target)
        desired_states.append(DesiredState.of(target, pipelines[target.program], found.entries))
    return desired_states, list(dict.fromkeys(notes))


def _room(file: PolicyFile, target: SwitchTarget) -> Iterator[str]:
    """What BMv2's queues, which P4Runtime has no words for, must hold, lest they drop before the policy does."""
    for name in ("port_bytes", "shared_bytes"):
        if target.program == "v1model" and (value := getattr(file.policy, name)) is not None:
            yield (
                f"BMv2: each queue must hold more than {value // LEAST_FRAME_BYTES} packets, {name} / "
                f"{LEAST_FRAME_BYTES} (set_queue_depth over Thrift; 64 without it): p4/README.md"
            )


def opener(options: argparse.Namespace) -> OpenSession:
    """What opens the sessions that the options ask for."""
    if options.via == "shell":
        from dlcp.switch.deploy.shell_session import ShellSession, check_python

        python = check_python(options.shell_python)
        return partial(ShellSession, python=python, timeout_s=options.timeout)
    from dlcp.switch.deploy.grpc_session import GrpcSession

    return partial(GrpcSession, timeout_s=options.timeout)


@contextmanager
def signals_undo(who: str) -> Iterator[None]:
    """SIGTERM and SIGHUP end a deployment as Ctrl-C does: what was written is undone, and a line of `who` says so."""

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    try:
        with handled(interrupt, signal.SIGTERM, signal.SIGHUP):
            yield
    except KeyboardInterrupt:  # comes out of the deployment when all is undone
        print(f"{who}: interrupted; every switch holds what it held before", file=sys.stderr)
        raise
