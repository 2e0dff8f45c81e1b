"""`dlcp switch run`: this host as a switch, until a signal ends it; then a table of what passed.

Exit status: 0 ended as asked (Ctrl-C, SIGTERM, --duration, control socket); 2 bad input, and then nothing is left.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dlcp.arguments import add_json
from dlcp.checks import option
from dlcp.errors import SettingsError
from dlcp.signals import handled
from dlcp.switch.aggregation.entries import JobRequest
from dlcp.switch.policy_file import PolicyFile
from dlcp.switch.port_names import PortNames
from dlcp.switch.printable import printable
from dlcp.switch.software.control import ControlServer
from dlcp.switch.software.native_jobs import read_jobs
from dlcp.switch.software.switch import SoftwareSwitch, SwitchOptions
from dlcp.switch.software.table import table
from dlcp.units import parse_rate

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_ALIVE_S = 0.2  # how often the main thread looks whether the loop still runs
_LOOK_S = 1.0  # how often new failures are printed


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    parser = subparsers.add_parser("run", description=_DESCRIPTION)
    parser.add_argument("policy", metavar="POLICY", help="the policy, a TOML file")
    parser.add_argument(
        "--ports",
        required=True,
        metavar="P,P,…",
        help="interfaces, or tap:NAME to make one; P=NAME where the policy calls it NAME",
    )
    parser.add_argument(
        "--rate",
        type=parse_rate,
        default=0,
        metavar="RATE",
        help="of ports that the policy gives none: 100M, 1G, …",
    )
    parser.add_argument(
        "--control", metavar="PATH", help="a Unix socket by which the switch is asked and changed"
    )
    parser.add_argument(
        "--capture",
        type=_pair,
        action="append",
        default=[],
        metavar="PORT=FILE",
        help="a port's frames, as pcap",
    )
    parser.add_argument(
        "--address",
        type=_pair,
        action="append",
        default=[],
        metavar="MAC=PORT",
        help="lies behind a port or group",
    )
    parser.add_argument(
        "--jobs", type=Path, metavar="FILE", help="[[job]] tables: jobs that the switch adds for"
    )
    parser.add_argument("--duration", type=_seconds, metavar="TIME", help="end by itself: 30, 500ms")
    parser.add_argument(
        "--sample", type=_seconds, metavar="TIME", help="note depths so often, for the control socket"
    )
    parser.add_argument(
        "--salt", type=int, default=0, help="of path choices: another one per switch (default 0)"
    )
    parser.add_argument(
        "--seed", type=option(0, 2**63 - 1), default=0, metavar="N", help="of everything random (default 0)"
    )
    parser.add_argument(
        "--frames", type=int, default=SwitchOptions.frames, help="that may wait (default %(default)s)"
    )
    parser.add_argument(
        "--ring-frames",
        type=int,
        default=SwitchOptions.ring_frames,
        help="per port, that the kernel holds while the switch does something else (default %(default)s)",
    )
    parser.add_argument("--busy-poll", action="store_true", help="never sleep: a whole core for less delay")
    add_json(parser, " at the end, of the counters")


def run(options: argparse.Namespace) -> int:
    names = PortNames.parse([options.ports], "--ports", drop_prefix="tap:")
    policy = PolicyFile.load(options.policy).policy
    names.check(policy)
    jobs = () if options.jobs is None else _load_jobs(options.jobs, names)
    settings = SwitchOptions(
        rate_bps=options.rate,
        salt=options.salt,
        seed=options.seed,
        frames=options.frames,
        ring_frames=options.ring_frames,
        port_names=names.renamed,
        addresses=dict(options.address),
        jobs=jobs,
        busy_poll=options.busy_poll,
    )
    with ExitStack() as stack:
        # Signals first: one that comes while ports are opened ends the switch as well.
        ended = threading.Event()
        stack.enter_context(handled(lambda *_: ended.set(), signal.SIGINT, signal.SIGTERM))
        switch = stack.enter_context(SoftwareSwitch(policy, names.ports, settings))
        if options.sample:
            switch.sample(options.sample)
        if options.control:
            stack.enter_context(ControlServer(switch, options.control, ended))
        # Last, since files are left where something else is refused.
        for port, path in options.capture:
            switch.capture(port, path)
        print(_ready(switch.links(), options.control), flush=True)
        switch.warn()  # from now on, of what changes
        _wait(switch, ended, options.duration)
        switch.warn()
        status = switch.status()
    print(json.dumps(status) if options.json else table(status), flush=True)
    return 0


def _load_jobs(path: Path, names: PortNames) -> tuple[JobRequest, ...]:
    ports = [port.removeprefix("tap:") for port in names.ports]
    try:
        return read_jobs(path.read_text(encoding="utf-8"), ports)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None
    except SettingsError as error:
        raise SettingsError(printable(f"{path}: {error}")) from None


def _ready(links: Mapping[str, bool], control: str | None) -> str:
    ports = ", ".join(name if up else f"{name} (down)" for name, up in links.items())
    down = [name for name, up in links.items() if not up]
    words = "; ".join(f"ip link set {name} up" for name in down)
    remedy = f": {words}, and the other end" if down else ""
    return f"ready: {ports}{remedy}" + (f", control at {control}" if control else "")


def _wait(switch: SoftwareSwitch, ended: threading.Event, duration_s: float | None) -> None:
    end = None if duration_s is None else time.monotonic() + duration_s
    look = time.monotonic() + _LOOK_S
    while not ended.is_set():
        rest = _ALIVE_S if end is None else min(_ALIVE_S, end - time.monotonic())
        if rest <= 0:
            return
        ended.wait(rest)
        switch.check()
        if time.monotonic() >= look:
            look += _LOOK_S
            switch.warn()


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a time, as 30, 30s, 500ms")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def _pair(text: str) -> tuple[str, str]:
    # The last "=" of MAC=PORT, the first of PORT=FILE: neither side before it holds one.
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: two words joined by =")
    return left, right


_DESCRIPTION = """\
Forwards between interfaces by the policy: strict priority, selective drop, marks, trimming, a rate per port, spraying
over groups of equal next hops. Needs root, or a network of one's own (unshare -Urnm). Prints `ready`, and
counters at the end. On hosts behind it: ethtool -K INTERFACE gso off tso off gro off tx-udp-segmentation off."""
