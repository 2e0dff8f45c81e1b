"""`dlcp doctor`: checks this host and the pairs of ranks of a job, and says what to mend.

It runs alone; as every rank of a launcher (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set), where rank 0 prints;
or with `--listen` on each host and `--peers` on one. `--hub` says what limits this host as a hub. Exit status: 0; 1 if
a finding fails; 2 for bad input and for an error that ends the examination, which is one line.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dlcp.arguments import Parser, add_json
from dlcp.checks import option
from dlcp.requirements import missing

_HUB_DEFAULTS = {"workers": 4, "worker_gbps": 10.0, "hub_gbps": None}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status. Raises DlcpError: it cannot look."""
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(parser, options)
    try:
        from dlcp import _native  # noqa: F401
    except ImportError as error:
        print(f"  fail  engine  {missing(error) or error}")
        return 1
    from dlcp.doctor.command import run

    return run(options)


def _parser() -> Parser:
    parser = Parser(
        prog="dlcp doctor",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Checks this host and the pairs of ranks, and says what to mend.",
        epilog="between the ranks of a job:\n"
        "  torchrun --nnodes 2 --rdzv-endpoint HOST:29500 --no-python dlcp doctor\n"
        "without a launcher, on each host and then on one:\n"
        "  dlcp doctor --listen --key-file KEY\n"
        "  dlcp doctor --peers hostA:7010,hostB:7010 --key-file KEY\n\n"
        "Exit status: 0, 1 if something fails, 2 for bad input. DLCP_* variables count as\n"
        "in a job.",
    )
    add_json(parser)
    parser.add_argument("--verbose", action="store_true", help="also what is in order, a line each")
    parser.add_argument("--alone", action="store_true", help="this host only, also under a launcher")
    parser.add_argument(
        "--toward", metavar="HOST", help="alone: a host of the job, for the choice of interface"
    )
    parser.add_argument("--listen", action="store_true", help="answer until Ctrl-C")
    parser.add_argument("--peers", type=_peers, metavar="HOST:PORT,…", help="listeners to look at")
    parser.add_argument("--timeout", type=_seconds, default=5.0, metavar="S", help="to wait for a peer (5)")
    hub = parser.add_argument_group("hub")
    hub.add_argument("--hub", action="store_true", help="which limit binds if this host is a hub (seconds)")
    hub.add_argument("--workers", type=option(1, 4096), metavar="K", help="that it serves (4)")
    hub.add_argument("--worker-gbps", type=_gbps, metavar="N", help="link of each worker, Gbit/s (10)")
    hub.add_argument(
        "--hub-gbps", type=_gbps, metavar="N", help="the hub's links together (default: as the card says)"
    )
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

    if options.hub and (options.listen or options.peers):
        parser.error("--hub is for this host alone; leave --listen and --peers out")
    for name, default in _HUB_DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
        elif not options.hub:
            parser.error(f"--{name.replace('_', '-')} is for --hub")


def _gbps(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e5:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: more than 0, at most 100000 Gbit/s")
    return value


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
