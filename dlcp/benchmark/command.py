"""The words of `dlcp bench`; and a rank's part of it, and that of the process that starts the ranks."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Sequence

from dlcp import rank_processes
from dlcp.arguments import Parser, add_json, add_output
from dlcp.benchmark.samples import BUS_FACTORS, TimedCalls, heading, row
from dlcp.checks import option
from dlcp.errors import DlcpError
from dlcp.progress import terminal_line
from dlcp.requirements import INSTALL_TORCH
from dlcp.signals import raising
from dlcp.units import parse_size, size

_WRONG = 1
_SIZES_MAX, _BYTES_MAX = 64, 1 << 32


def run(arguments: Sequence[str]) -> int:
    """Does what the words say. Returns the exit status. Raises DlcpError; KeyboardInterrupt after SIGTERM as well."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("torch") is None:
        parser.error(f"collectives are torch.distributed's: {INSTALL_TORCH}")
    if options.output is not None:
        if importlib.util.find_spec("matplotlib") is None:
            parser.error("--output is drawn with matplotlib: pip install matplotlib")
        if options.output.suffix not in (".png", ".svg", ".pdf") or not options.output.parent.is_dir():
            parser.error(
                f"--output {options.output}; accepted: FILE.png, .svg or .pdf in a folder that is there"
            )
    with raising(KeyboardInterrupt, signal.SIGTERM):
        if not rank_processes.launched():
            return _start_ranks(arguments, options.ranks or 2)
        if options.ranks is not None and str(options.ranks) != os.environ["WORLD_SIZE"]:
            parser.error("--ranks: the launcher says how many there are; leave it out")
        try:
            return _be_rank(options)
        except RuntimeError as error:  # of another backend; 1 would say that a value was wrong
            raise error if isinstance(error, DlcpError) else DlcpError(str(error)) from None


def _start_ranks(arguments: Sequence[str], ranks: int) -> int:
    """Runs this command as the ranks of this host, in other processes."""
    # Held to the end, or the kernel may give the port to another program before rank 0 has started. Rank 0's store
    # listens on it all the same: both sockets say SO_REUSEADDR, and this one does not listen (socket(7), ip(7)).
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        # Gloo would ask for the address of this host's name, which it may not have.
        given = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **os.environ}
        commands = []
        for rank in range(ranks):
            own = rank_processes.variables(rank, ranks, "127.0.0.1", port, of_one_host=True)
            words = [sys.executable, "-m", "dlcp", "bench", *arguments]
            commands.append(rank_processes.RankCommand(words, {**given, **own}, f"rank {rank}"))
        return rank_processes.run_ranks(commands, marked=False, answer=_WRONG)


def _be_rank(options: argparse.Namespace) -> int:
    """Measures as a rank. The first prints; its status says whether all was right."""
    import torch
    import torch.distributed as dist

    from dlcp.benchmark import measure

    backends = ["dlcp", *([options.beside] if options.beside else [])]
    samples: list[TimedCalls] = []
    torch.set_num_threads(1)  # a process per rank is parallel enough
    dist.init_process_group("dlcp")
    is_first, hosts = dist.get_rank() == 0, measure.hosts()
    line = terminal_line() if is_first else None
    if is_first and not options.json:
        print("\n".join(heading(options.collective, dist.get_world_size(), hosts, backends)), flush=True)
    try:
        found = measure.measure(
            options.collective, options.sizes, backends, options.seconds, line or (lambda _: None)
        )
        for of_size in found:
            samples += of_size
            if line is not None:
                line.clear()
            if is_first and not options.json:
                for place, sample in enumerate(of_size):
                    print(row(sample, of_size[1] if place == 0 and len(of_size) > 1 else None), flush=True)
    finally:
        if line is not None:
            line.clear()
        if is_first:
            _report(options, samples, hosts)
    dist.barrier()
    dist.destroy_process_group()
    return _WRONG if is_first and any(sample.wrong for sample in samples) else 0


def _report(options: argparse.Namespace, samples: Sequence[TimedCalls], hosts: int) -> None:
    """What is said at the end, also at an early one."""
    if options.json:
        print(
            json.dumps({"hosts": hosts, "samples": [one.to_json() for one in samples]}, indent=1), flush=True
        )
    for one in samples:
        if one.wrong:
            what = f"{one.collective} of {size(one.nbytes)} over {one.backend}: {one.wrong} values"
            print(f"WRONG: {what}", file=sys.stderr)
    if options.output is not None and samples:
        from dlcp.benchmark.figure import draw

        draw(samples, options.output)
        print(f"picture: {options.output}", file=sys.stderr)


# --- words ----------------------------------------------------------------------------------------------------


def _parser() -> Parser:
    parser = Parser(
        prog="dlcp bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Times collectives between ranks and checks every result.",
        epilog="on this host, over shared memory and then over its sockets:\n"
        "  dlcp bench --ranks 2 --beside gloo\n"
        "  DLCP_SHM=0 dlcp bench --ranks 2 --beside gloo\n"
        "between hosts, on each of them:\n"
        "  torchrun --nnodes 2 --rdzv-endpoint HOST:29500 --no-python dlcp bench\n\n"
        "A call begins after a barrier and takes as long as its slowest rank. GB/s: bytes\n"
        "of the buffer per median call; bus: what each link carried for it at least, as\n"
        "nccl-tests count (doc/PERFORMANCE.md there). DLCP_* variables count as in a job.\n\n"
        "Exit status: 0, 1 if a value is wrong, 2 for bad input or a rank that failed.",
    )
    ranks = "ranks to start on this host, 1 to 64; default: 2. A launcher starts its own"
    parser.add_argument("--ranks", type=option(1, 64), metavar="N", help=ranks)
    collective = f"{', '.join(BUS_FACTORS)}; default: all_reduce"
    parser.add_argument(
        "--collective", choices=tuple(BUS_FACTORS), default="all_reduce", metavar="NAME", help=collective
    )
    sizes = "of the buffer: 4K-64M, by factors of 4, or 4K,1M; default: 4K-64M"
    parser.add_argument("--sizes", type=_sizes, default=_sizes("4K-64M"), metavar="SIZES", help=sizes)
    parser.add_argument("--beside", choices=("gloo",), help="the same over another backend, in turns")
    seconds = "for each size and backend, about, 1 to 3600; default: 1"
    parser.add_argument("--seconds", type=option(1, 3600), default=1, metavar="S", help=seconds)
    add_json(parser)
    add_output(parser, "FILE.png", "a picture of times and bandwidths")
    return parser


def _sizes(text: str) -> list[int]:
    if match := re.fullmatch("([^-]+)-([^-]+)", text):
        low, high = map(parse_size, match.groups())
        found = [low << 2 * step for step in range(_SIZES_MAX) if low << 2 * step <= high]
    else:
        found = [parse_size(word) for word in text.split(",")]
    if not 0 < len(found) <= _SIZES_MAX or max(found) > _BYTES_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted; accepted: such as 4K-64M or 4K,1M, up to 4G"
        )
    return found
