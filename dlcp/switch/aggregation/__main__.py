"""Sets an aggregating switch up and tries it: `python -m dlcp.switch.aggregation deploy|status|hub|worker …`.

`deploy` and `status` speak to switches (switch_command.py). `hub` and `worker` run on the hosts of a job: a worker runs
all-reduces of values that it can predict, checks every result, and prints a line of figures.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from dlcp.errors import DlcpError, SettingsError
from dlcp.switch.aggregation import switch_command
from dlcp.switch.aggregation.result import AggregationResult
from dlcp.switch.aggregation.settings import JobSettings
from dlcp.switch.aggregation.udp import Address, UdpHub, UdpWorker

WARNING = (
    "dlcp: aggregation: nothing is authenticated; this network and its switch may read and falsify the values"
)


def address(text: str) -> Address:
    """HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: IP:PORT")
    return host, int(port)


def count(text: str) -> int:
    """At least one."""
    if not text.isdecimal() or not 1 <= int(text) <= 2**30:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: an integer from 1 to {2**30}")
    return int(text)


def duration(text: str) -> float:
    """Above zero, an hour at most, in milliseconds or seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3.6e6:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a number above 0, at most 3600000")
    return value


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m dlcp.switch.aggregation", description=__doc__)
    roles = made.add_subparsers(dest="role", required=True)
    switch_command.add_parsers(roles)
    for role in ("hub", "worker"):
        part = roles.add_parser(role)
        part.add_argument("--trust-switch", action="store_true", help="must be given: see the package's text")
        part.add_argument("--job", type=int, default=1)
        part.add_argument(
            "--generation", type=int, default=1, help="of the job, as the switch has it; +1 for each start"
        )
        part.add_argument("--slots", type=int, default=128, help="of the job, as the switch has it")
        part.add_argument("--bind", type=address, required=True, metavar="IP:PORT")
        part.add_argument("--deadline-ms", type=duration, help="default: none, all workers are waited for")
        part.add_argument("--quorum", type=int, default=1, help="with a deadline: fewest workers of a result")
        if role == "hub":
            part.add_argument("--workers", type=address, nargs="+", required=True, metavar="IP:PORT")
            part.add_argument("--time-s", type=duration, help="default: until it is interrupted")
        else:
            part.add_argument("--hub", type=address, required=True, metavar="IP:PORT")
            part.add_argument("--worker", type=int, required=True, help="number, from 0")
            part.add_argument("--of", type=int, required=True, help="how many workers there are")
            part.add_argument("--elements", type=count, default=100_000)
            part.add_argument("--repeat", type=count, default=3)
            part.add_argument("--integers", action="store_true", help="int32 instead of float32")
    return made


def settings_of(arguments: argparse.Namespace, workers: int) -> JobSettings:
    deadline = arguments.deadline_ms
    return JobSettings(
        job=arguments.job,
        workers=workers,
        slots=arguments.slots,
        generation=arguments.generation,
        trust_switch=arguments.trust_switch,
        deadline_ns=None if deadline is None else int(deadline * 1e6),
        quorum=arguments.quorum,
    )


def values_of(
    worker: int, elements: int, turn: int, integers: bool
) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """What a worker contributes: whole numbers, so that float sums are exact too."""
    values = (np.arange(elements) * (worker + 1) + turn) % 1001 - 500
    return values.astype(np.int32 if integers else np.float32)


def is_right(result: AggregationResult, workers: int, elements: int, turn: int, integers: bool) -> bool:
    """Whether a result is the sum of those who are in it."""
    inputs = np.array([values_of(w, elements, turn, integers) for w in range(workers)])
    bits = np.repeat(result.contributors, 32)[:elements]
    inside = bits[None, :] >> np.arange(workers, dtype=np.uint32)[:, None] & 1
    return bool(np.array_equal(np.sum(inputs * inside, axis=0), result.values))


def run_worker(arguments: argparse.Namespace) -> int:
    """All-reduces, checked."""
    settings = settings_of(arguments, arguments.of)
    wrong = by_hub = blocks = 0
    in_it: Counter[int] = Counter()
    with UdpWorker(settings, arguments.worker, arguments.bind, arguments.hub) as worker:
        took_s = 0.0
        for turn in range(arguments.repeat):
            values = values_of(arguments.worker, arguments.elements, turn, arguments.integers)
            start = time.monotonic()
            result = worker.all_reduce(values)
            took_s += time.monotonic() - start
            wrong += not is_right(result, arguments.of, arguments.elements, turn, arguments.integers)
            by_hub += result.by_hub
            blocks += len(result.contributors)
            in_it.update(result.counts.tolist())
        worker.linger(5.0)
        counters = dict(worker.engine.counters)
    each_s = took_s / arguments.repeat
    print(
        f"worker {arguments.worker}: {arguments.repeat} all-reduces of {arguments.elements} elements, "
        f"{each_s * 1e3:.1f} ms each, {arguments.elements * 4 / each_s / 1e6:.2f} MB/s; {blocks} blocks, "
        f"{by_hub} by the hub; contributors {dict(sorted(in_it.items()))}; {counters}; wrong: {wrong}"
    )
    return 1 if wrong else 0


def run_hub(arguments: argparse.Namespace) -> int:
    """Serves, and says what there was to do."""
    settings = settings_of(arguments, len(arguments.workers))
    until = None if arguments.time_s is None else time.monotonic() + arguments.time_s
    with UdpHub(settings, arguments.bind, arguments.workers) as hub:
        print("hub: ready", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            hub.serve(lambda: until is not None and time.monotonic() >= until)
        print(f"hub: {dict(hub.engine.counters)}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 if a result was wrong, 2 for a mistake of the caller's or a failed job."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.role == "deploy":
            return switch_command.run_deploy(arguments)
        if arguments.role == "status":
            return switch_command.run_status(arguments)
        print(WARNING, file=sys.stderr)
        return run_hub(arguments) if arguments.role == "hub" else run_worker(arguments)
    except SettingsError as error:
        text = str(error).replace("trust_switch is False; accepted: True", "--trust-switch must be given")
        print(f"dlcp: {text}", file=sys.stderr)
    except DlcpError as error:
        print(f"dlcp: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
