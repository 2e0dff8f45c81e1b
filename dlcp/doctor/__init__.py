"""`dlcp doctor`: checks this host and the pairs of ranks of a job, and says what to mend.

It runs alone; as every rank of a launcher (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set), where rank 0 prints;
or with `--listen` on each host and `--peers` on one. Exit status: 0; 1 if a finding fails; 2 for bad input and for an
error that ends the examination, which is one line.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlcp.arguments import Parser
from dlcp.checks import option
from dlcp.doctor.launcher import LAUNCHER, look_at_launcher

if TYPE_CHECKING:
    from dlcp.doctor.report import Examination
    from dlcp.transport.store import Store


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status. Raises DlcpError: it cannot look."""
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(parser, options)
    try:
        from dlcp import _native  # noqa: F401
    except ImportError as error:
        print(
            f"  fail  engine  the compiled engine does not load: {error}\n"
            "        → in a checkout of dlcp, pip install --no-deps --force-reinstall --no-cache-dir ."
        )
        return 1
    # What endpoints warn of is among the findings; DLCP_LOG_LEVEL shows it still.
    logging.getLogger("dlcp").addHandler(logging.NullHandler())
    if options.listen:
        return _listen(options)
    if options.peers:
        return _report(options, _examine_peers(options))
    if not options.alone and all(map(os.environ.get, LAUNCHER)) and os.environ["WORLD_SIZE"] != "1":
        found = _examine_ranks(options, os.environ)
        return 0 if found is None else _report(options, found)
    return _alone(options)


# --- its three forms -------------------------------------------------------------------------------------------


def _alone(options: argparse.Namespace) -> int:
    from dlcp.doctor.host import look_at_host
    from dlcp.doctor.report import Examination, Host
    from dlcp.doctor.software import describe_host

    found = [] if options.alone else look_at_launcher(os.environ)
    found += look_at_host(options.toward, _environ(options))
    return _report(options, Examination([], [Host(describe_host(), found)], [], []))


def _listen(options: argparse.Namespace) -> int:
    from dlcp.doctor.hosts import Listener
    from dlcp.transport import Settings

    try:
        with Listener(Settings.load(**_changes(options))) as listener:
            print(
                f"listening on {listener.address}; on one host: dlcp doctor --peers {listener.address}",
                flush=True,
            )
            listener.join()
    except KeyboardInterrupt:
        pass
    return 0


def _examine_peers(options: argparse.Namespace) -> Examination:
    from dlcp.doctor.hosts import examine_hosts
    from dlcp.transport import Settings

    return examine_hosts(options.peers, Settings.load(**_changes(options)), options.timeout)


def _examine_ranks(options: argparse.Namespace, environ: Mapping[str, str]) -> Examination | None:
    from dlcp.doctor.ranks import examine_ranks
    from dlcp.errors import JobError

    store, rank, size = _rendezvous(environ)
    # Loaded by now.
    from torch.distributed import DistError

    try:
        return examine_ranks(
            store,
            rank,
            size,
            toward=environ["MASTER_ADDR"],
            environ=_environ(options),
            timeout_s=options.timeout,
            changes=_changes(options),
        )
    except DistError as error:
        reason = str(error).partition("\n")[0]
        raise JobError(
            f"rank {rank} lost the launcher's store: {reason}; see whether rank 0 has died"
        ) from error


def _rendezvous(environ: Mapping[str, str]) -> tuple[Store, int, int]:
    """The launcher's store, as torch.distributed would find it, rank and size. Raises JobError: it is not there."""
    import datetime

    # Its own lines would stand between the findings; what fails is said below.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from torch.distributed import DistNetworkError
    from torch.distributed.rendezvous import rendezvous

    from dlcp.errors import JobError

    address = f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
    try:
        store, rank, size = next(rendezvous("env://", timeout=datetime.timedelta(seconds=60)))
    except (DistNetworkError, OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise JobError(
            f"rank {environ['RANK']} does not reach the launcher's store at {address} (TCP): {reason}; see that"
            f" MASTER_ADDR is rank 0's address and TCP port {environ['MASTER_PORT']} is let in: nc -vz"
            f" {environ['MASTER_ADDR']} {environ['MASTER_PORT']}"
        ) from error
    return store, rank, size


# --- what comes out -------------------------------------------------------------------------------------------


def _report(options: argparse.Namespace, found: Examination) -> int:
    from dlcp.doctor.finding import Verdict, worst
    from dlcp.doctor.report import wants_colour

    if options.json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        for line in found.lines(verbose=options.verbose, colour=wants_colour()):
            print(line)
    return 1 if worst(found.everything) == Verdict.FAIL else 0


# --- what is asked for ----------------------------------------------------------------------------------------


def _parser() -> Parser:
    parser = Parser(
        prog="dlcp doctor",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Checks this host and the pairs of ranks, and says what to mend.",
        epilog="between the ranks of a job:\n"
        "  torchrun --nnodes 2 --nproc-per-node 1 --rdzv-endpoint HOST:29500 --no-python dlcp doctor\n"
        "without a launcher, on each host and then on one:\n"
        "  dlcp doctor --listen --key-file KEY\n"
        "  dlcp doctor --peers hostA:7010,hostB:7010 --key-file KEY\n\n"
        "Exit status: 0, 1 if something fails, 2 for bad input. DLCP_* variables count as in a job.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--verbose", action="store_true", help="between hosts: also what is in order on each")
    parser.add_argument("--alone", action="store_true", help="this host only, also under a launcher")
    parser.add_argument(
        "--toward", metavar="HOST", help="alone: a host of the job, for the choice of interface"
    )
    parser.add_argument("--listen", action="store_true", help="answer until Ctrl-C")
    parser.add_argument("--peers", type=_peers, metavar="HOST:PORT,…", help="listeners to look at")
    parser.add_argument("--timeout", type=_seconds, default=5.0, metavar="S", help="to wait for a peer (5)")
    where = parser.add_argument_group("endpoint")
    own_address = "own address (default: of the interface that leads to the others)"
    where.add_argument("--bind", dest="bind_host", metavar="HOST", help=own_address)
    where.add_argument("--port", type=option(1, 65535), metavar="N", help="with --listen: UDP port (7010)")
    where.add_argument("--interface", metavar="PATTERN", help="such as eth0, eth,ib, =eth0 or ^docker,lo")
    where.add_argument("--key-file", metavar="FILE", help="job key; a launcher's ranks draw their own")
    where.add_argument("--allow-unauthenticated", action="store_true", default=None, help="do without a key")
    return parser


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if options.listen and options.peers:
        parser.error("--listen and --peers are both given; one host asks, the others listen")
    if options.port is not None and not options.listen:
        parser.error("--port is for --listen; peers are named with their ports")
    if options.toward is not None and (options.listen or options.peers):
        parser.error("--toward is for this host alone; leave it out")
    if options.json and options.listen:
        parser.error("--json is for the host that asks; a listener prints nothing of note")


# Options that are settings.
_SETTINGS = ("bind_host", "port", "interface", "key_file", "allow_unauthenticated")


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in _SETTINGS}
    return {name: value for name, value in given.items() if value is not None}


def _environ(options: argparse.Namespace) -> dict[str, str]:
    """The environment as if the options had been in it, for findings about settings."""
    changed = {f"DLCP_{name.upper()}": str(value) for name, value in _changes(options).items()}
    return {**os.environ, **changed}


def _peers(text: str) -> list[str]:
    peers = [word.strip() for word in text.split(",") if word.strip()]
    for peer in peers:
        host, _, port = peer.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise argparse.ArgumentTypeError(f"{peer!r}; accepted: host:port, such as node1:7010")
    if not peers:
        raise argparse.ArgumentTypeError("no peer; accepted: host:port, such as node1:7010,node2:7010")
    return peers


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: more than 0 seconds")
    return value
