"""`dlcp hub`: serves as a hub until a signal ends it.

Exit status: 0 ended as asked (Ctrl-C, SIGTERM); 2 bad input, or an address that cannot be bound.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

from dlcp.arguments import Parser
from dlcp.checks import integer
from dlcp.errors import ArgumentError
from dlcp.hub.keys import read_keys, warnings_of
from dlcp.hub.service import HubService
from dlcp.signals import handled
from dlcp.transport.hub.client import CORES_MAX
from dlcp.transport.schedule.hub import KEY_BYTES
from dlcp.transport.settings import Settings
from dlcp.units import parse_size

logger = logging.getLogger("dlcp")

_WILDCARDS = ("", "0.0.0.0", "::", "*")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status."""
    parser = Parser(
        prog="dlcp hub",
        description="Adds for the workers of jobs that name this hub (DLCP_HUB), each job apart from the others.",
    )
    parser.add_argument(
        "--bind",
        type=_place,
        required=True,
        metavar="HOST:PORT",
        help="where ranks reach it: the address of an interface, and the TCP port of control connections",
    )
    parser.add_argument(
        "--keys",
        required=True,
        metavar="FILE",
        help="the jobs that may use it: per line a job's name (DLCP_HUB_JOB) and the key that admits it"
        " (DLCP_HUB_KEY_FILE) in hexadecimal digits",
    )
    parser.add_argument(
        "--cores",
        type=int,
        default=max(1, (os.cpu_count() or 2) // 2),
        metavar="K",
        help="threads that add, per job; keys are shared out among them (default: half of this host's, %(default)s)",
    )
    parser.add_argument(
        "--memory-max",
        type=parse_size,
        default=_memory_of_host() // 2,
        metavar="BYTES",
        help="of all jobs together: 8G, 512M (default: half of this host's)",
    )
    parser.add_argument(
        "--job-memory",
        type=parse_size,
        metavar="BYTES",
        help="that each job has for itself (default: a quarter of --memory-max)",
    )
    parser.add_argument(
        "--ports",
        metavar="LOW-HIGH",
        help="UDP ports of the cores, one each per job (default: any free ones)",
    )
    parser.add_argument(
        "--roots",
        choices=("nearest", "torch"),
        default="nearest",
        help="square roots of Adam: rounded to nearest, or as torch on this host has them, which loads torch (default:"
        " %(default)s)",
    )
    options = parser.parse_args(arguments)
    host, port = options.bind
    keys = read_keys(options.keys)
    changes = {} if options.ports is None else {"port_range": options.ports}
    settings = Settings.load(log_level=os.environ.get("DLCP_LOG_LEVEL", "info"), **changes)
    cores = integer("--cores", options.cores, 1, CORES_MAX)
    least = 2 * KEY_BYTES * cores  # so that a key of two workers finds room at each core
    memory_max = integer("--memory-max", options.memory_max, least, _memory_of_host())
    job_memory = options.job_memory or max(least, memory_max // 4)
    job_memory = integer("--job-memory", job_memory, least, memory_max)
    jobs = min(len(keys), memory_max // job_memory)
    if options.ports and len(settings.ports) < cores * jobs:
        raise ArgumentError(
            f"--ports has {len(settings.ports)} ports; accepted: at least {cores * jobs}, --cores for each job"
        )
    ended = threading.Event()
    with (
        handled(lambda *_: ended.set(), signal.SIGINT, signal.SIGTERM),
        HubService(
            host,
            port,
            keys,
            cores=cores,
            memory_bytes=memory_max,
            job_memory_bytes=job_memory,
            settings=settings,
            vml_square_root=_torch_root() if options.roots == "torch" else None,
        ) as service,
    ):
        for warning in warnings_of(options.keys, keys):
            print(f"dlcp hub: {warning}", file=sys.stderr)
        print(f"ready: hub at {service.address} for jobs {', '.join(keys)}", flush=True)
        ended.wait()
    return 0


def _torch_root() -> int | None:
    """Torch's own square root, where it is another than the nearest."""
    try:
        from dlcp.torch.vml import vml_square_root
    except ImportError as error:
        raise ArgumentError(f"--roots torch: {error}; accepted where torch is installed") from error
    return vml_square_root()


def _place(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdigit() or int(port) >= 1 << 16 or host in _WILDCARDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no place for a hub; accepted: an address of this host and a port, such as 10.0.0.9:7100"
        )
    return host, int(port)


def _memory_of_host() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError) as error:
        raise ArgumentError(
            f"this host does not say how much memory it has ({error}); give --memory-max"
        ) from error
