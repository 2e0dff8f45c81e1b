"""`dlcp lab`: its subcommands, what they do and what they refuse. switched_lab.py says what a lab is.

Exit status: 0; of `run` and `exec` that of the command; 2 with one line for bad input and for what the system refuses;
130 after Ctrl-C and 143 after SIGTERM, after the lab has been taken down and a line has said so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlcp.arguments import Parser
from dlcp.exit_status import raising
from dlcp.lab import show, state, unprivileged
from dlcp.lab.fabric import SWITCHES, Fabric
from dlcp.lab.fault import NO_FAULT, Burst, FabricError, Fault, rate_words
from dlcp.lab.ranks import exit_status, parse_hosts, run_ranks
from dlcp.lab.switched_lab import SwitchedLab
from dlcp.units import parse_rate

_EPILOG = """\
SPEC is leaf-spine (2 leaves, 2 spines, 2 hosts each), star (4 hosts on one switch), or a TOML file:

  leaves = 2
  spines = 2
  hosts_per_leaf = 2
  host_rate_bps = 100_000_000
  fabric_rate_bps = 100_000_000
  switch = "software"            # kernel, bmv2, none
  policy = "policy.toml"         # beside this file; without: dlcp's usual thresholds

  [[link]]
  name = "l0-s1"
  rate_bps = 20_000_000
  fault = {loss_ratio = 0.01}

examples:
  dlcp lab run star --rate 200M -- python train.py
  dlcp lab up leaf-spine; dlcp lab fault l0-s1 --down; dlcp lab exec h0 -- ping 10.78.0.4; dlcp lab down
"""


def main(words: Sequence[str]) -> int:
    """The command. Returns the exit status."""
    unprivileged.settle_in()
    if not words:
        _parser().print_help()
        return 2
    own, command = _split(list(words))
    if own[:1] in (["run"], ["exec"]) and not command and not {"-h", "--help"} & set(own):
        # Before anything is parsed: a command that stands without -- is taken for something else.
        form = "run SPEC -- python train.py" if own[0] == "run" else "exec h0 -- ping 10.78.0.4"
        raise FabricError(f"no command; give one behind --, such as: dlcp lab {form}")
    options = _parser().parse_args(own)
    if options.word not in ("run", "exec") and command:
        raise FabricError(f"{options.word} runs no command; leave out {' '.join(['--', *command])}")
    options.command = command
    if options.word in ("run", "demo") and os.geteuid() != 0:
        unprivileged.run_again(["lab", *words])
    try:
        with raising(_Terminated, signal.SIGTERM, signal.SIGHUP):
            return int(options.function(options))
    except _Terminated:
        return 143


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


class _Terminated(KeyboardInterrupt):
    """SIGTERM: ends as Ctrl-C does, through the end of every `with`."""


# --- what the words do ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _says_when_interrupted() -> Iterator[None]:
    """Around a lab that ends with its `with`: says that it did."""
    try:
        yield
    except KeyboardInterrupt:
        print("dlcp lab: interrupted; the lab is taken down", file=sys.stderr)
        raise


def _up(options: argparse.Namespace) -> int:
    lab = SwitchedLab(_fabric(options), name=_name(options))
    with _says_when_interrupted(), contextlib.ExitStack() as stack:
        stack.enter_context(lab)
        lab.let_stand()
        stack.pop_all()
    fabric = lab.fabric
    print(
        f"lab {lab.name} is up: {fabric.hosts} hosts at {rate_words(fabric.host_rate_bps)}, "
        f"{len(fabric.switch_names)} switches: {fabric.switch}"
    )
    for note in lab.switches.notes():
        print(f"note: {note}")
    print(f"hosts: {', '.join(f'{n} {a}' for n, a in zip(fabric.host_names, lab.addresses, strict=True))}")
    return 0


def _run(options: argparse.Namespace) -> int:
    fabric = _fabric(options)
    hosts = None if options.hosts is None else parse_hosts(options.hosts, fabric.hosts)
    with _says_when_interrupted(), SwitchedLab(fabric, name=options.name) as lab:
        for note in lab.switches.notes():
            print(f"note: {note}", file=sys.stderr)
        status = run_ranks(lab, options.command, hosts)
        if options.status:
            print("\n".join(show.lines(lab, notes=False)))
    return status


def _exec(options: argparse.Namespace) -> int:
    lab = SwitchedLab.find(_name(options))
    host = parse_hosts(options.host, lab.hosts)[0] if options.host[:1] not in "ls" else None
    node = options.host if host is None else f"h{host}"
    if host is None and node not in lab.fabric.switch_names:
        names = ", ".join((*lab.fabric.host_names, *lab.fabric.switch_names))
        raise FabricError(f"no host {node!r}; accepted: {names}")
    with subprocess.Popen(lab.network.command(node, options.command)) as process:
        try:
            return exit_status(process.wait())
        except KeyboardInterrupt:
            process.terminate()
            raise


def _fault(options: argparse.Namespace) -> int:
    lab = SwitchedLab.find(_name(options))
    link = lab.fabric.link(options.link)
    changes: dict[str, Any] = {
        key: value
        for key, value in {
            "loss_ratio": options.loss,
            "burst": options.burst,
            "rate_bps": options.rate,
            "down": options.down,
        }.items()
        if value is not None
    }
    if not changes and not options.clear:
        raise FabricError("no fault; accepted: --loss, --burst, --rate, --down, --up, --clear")
    if options.rate is not None and options.rate >= link.rate_bps:
        raise FabricError(
            f"rate is {rate_words(options.rate)}; accepted: less than the {rate_words(link.rate_bps)} that "
            f"{link.name} has"
        )
    before = NO_FAULT if options.clear else lab.faults.get(link.name, NO_FAULT)
    if lab.fabric.switch == "software":
        _check_losses(link.name, before, options)
    if changes.get("down") and link.lower.startswith("h") and options.converge is not None:
        raise FabricError(f"{link.name} is a host's only link: nothing converges; leave out --converge")
    fault = replace(before, **changes)
    was_down = lab.faults.get(link.name, NO_FAULT).down
    at_once = options.converge in (None, 0.0)
    lab.set_fault(link.name, fault, converge=at_once)
    print(f"{link.name}: {lab.faults.get(link.name, NO_FAULT)}", flush=True)
    if not at_once and options.converge != math.inf and fault.down != was_down:
        time.sleep(options.converge)
        lab = SwitchedLab.find(lab.name)  # others may have changed it meanwhile
        lab.converge()
    for line in show.lost_words(lab):
        print(f"note: {line}")
    return 0


def _check_losses(link: str, before: Fault, options: argparse.Namespace) -> None:
    """FabricError: losses and bursts together, which software switches cannot."""
    if options.burst is not None and before.loss_ratio and options.loss is None:
        raise FabricError(
            f"{link} already loses {before.loss_ratio:g}, and bursts beside that only kernel switches can; add --clear"
        )
    if options.loss and before.burst is not None and options.burst is None:
        raise FabricError(
            f"{link} already loses in bursts, and other losses beside that only kernel switches can; add --clear"
        )


def _policy(options: argparse.Namespace) -> int:
    from dlcp.switch.policy import Policy

    lab = SwitchedLab.find(_name(options))
    try:
        policy = Policy.load(options.policy)
    except OSError as error:
        raise FabricError(f"policy {options.policy}: {error.strerror}") from None
    lab.set_policy(policy)
    print(f"lab {lab.name}: policy {policy.name or options.policy}")
    return 0


def _status(options: argparse.Namespace) -> int:
    if options.name is None and "DLCP_LAB" not in os.environ:
        names = [one.name for one in state.each() if not one.is_orphan]
        if not names:
            print("no lab is up")
            return 0
        if len(names) == 1:
            options.name = names[0]
    lab = SwitchedLab.find(_name(options))
    print(json.dumps(show.to_json(lab), indent=1) if options.json else "\n".join(show.lines(lab)))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from dlcp.lab import demo

    scene = demo.play(options.rate)
    print("\n".join(demo.lines(scene)))
    try:
        from dlcp.lab.figure import draw
    except ImportError as error:
        print(f"no picture: {error}; pip install '.[demo]' in a checkout of dlcp")
        return 0
    draw(scene, options.output)
    print(f"picture: {options.output}")
    return 0


def _down(options: argparse.Namespace) -> int:
    removed = state.remove_orphans()
    if options.all:
        labs = [one for one in state.each() if one.holder is None]
        for one in labs:
            SwitchedLab.find(one.name).take_down()
        names = [*removed, *(one.name for one in labs)]
        print(f"down: {', '.join(names) or 'nothing was up'}")
        return 0
    name = _name(options)
    if name not in removed:
        lab = SwitchedLab.find(name)
        if lab.holder is not None:
            raise FabricError(f"lab {name!r} is held by process {lab.holder}, and ends with it")
        lab.take_down()
    print(f"lab {name} is down")
    return 0


def _name(options: argparse.Namespace) -> str:
    return str(options.name or os.environ.get("DLCP_LAB") or state.DEFAULT_NAME)


def _fabric(options: argparse.Namespace) -> Fabric:
    fabric = Fabric.named(options.spec)
    changes = {
        name: getattr(options, name)
        for name in ("leaves", "spines", "hosts_per_leaf", "mtu", "switch", "policy")
        if getattr(options, name) is not None
    }
    for name in ("host_rate_bps", "fabric_rate_bps"):
        if (rate_bps := getattr(options, name) or options.rate) is not None:
            changes[name] = rate_bps
    return replace(fabric, **changes)


# --- words ----------------------------------------------------------------------------------------------------


def _parser() -> Parser:
    parser = Parser(
        prog="dlcp lab",
        description="A leaf-spine of network namespaces on this machine: shaped links, switches that obey a policy, "
        "and faults on command.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words = parser.add_subparsers(dest="word", required=True, metavar="WORD", parser_class=Parser)
    named = Parser(add_help=False)
    named.add_argument("--name", metavar="NAME", help="which lab; default: $DLCP_LAB, or lab")
    shaped = _shaped()

    up = words.add_parser("up", parents=[named, shaped], help="make a lab that stays until it is taken down")
    up.set_defaults(function=_up)
    run = words.add_parser(
        "run", parents=[shaped], help="make a lab, run a command on every host as a rank, take the lab down"
    )
    run.add_argument(
        "--name", metavar="NAME", help="for `dlcp lab fault` and `status` meanwhile; default: a new one"
    )
    run.add_argument("--hosts", metavar="LIST", help="run it on some only, such as 0-2,5; default: on all")
    run.add_argument("--status", action="store_true", help="at the end, print what `dlcp lab status` would")
    run.set_defaults(function=_run)
    down = words.add_parser("down", parents=[named], help="take a lab down, and what killed ones left")
    down.add_argument("--all", action="store_true", help="all labs that stand")
    down.set_defaults(function=_down)
    execute = words.add_parser("exec", parents=[named], help="run a command on one host or switch of a lab")
    execute.add_argument("host", metavar="HOST", help="h0, l0, s0, …")
    execute.set_defaults(function=_exec)
    fault = words.add_parser("fault", parents=[named], help="make a link lossy, slow, cut or whole")
    fault.add_argument("link", metavar="LINK", help="such as h0-l0 or l0-s1")
    fault.add_argument(
        "--loss", type=_ratio, metavar="RATIO", help="of the packets of each direction, 0 to 1"
    )
    fault.add_argument(
        "--burst",
        type=_burst,
        metavar="ENTER,LEAVE[,LOSS]",
        help="Gilbert's bursts: with what probability a packet begins one and ends one, and the loss in it (1)",
    )
    fault.add_argument("--rate", type=parse_rate, metavar="RATE", help="a lower rate, such as 20M")
    cable = fault.add_mutually_exclusive_group()
    cable.add_argument("--down", action="store_true", default=None, help="pull the cable")
    cable.add_argument("--up", dest="down", action="store_false", default=None, help="plug it in again")
    fault.add_argument(
        "--converge",
        type=_converge,
        metavar="SECONDS",
        help="how long after --down or --up the other leaves learn it, and this command ends; or never, so that they "
        "go on sending by the spine that misses a leaf. Default: at once",
    )
    fault.add_argument("--clear", action="store_true", help="mend everything first")
    fault.set_defaults(function=_fault)
    policy = words.add_parser("policy", parents=[named], help="give all switches another policy, live")
    policy.add_argument("policy", type=Path, metavar="POLICY", help="a TOML file")
    policy.set_defaults(function=_policy)
    status = words.add_parser(
        "status", parents=[named], help="links, faults, queues, shares of equal next hops"
    )
    status.add_argument("--json", action="store_true", help="for programs")
    status.set_defaults(function=_status)
    demo = words.add_parser(
        "demo", help="twice a port's rate in four classes, with and without thresholds: a picture"
    )
    demo.add_argument(
        "--rate", type=parse_rate, default=50_000_000, metavar="RATE", help="of each link; default: 50M"
    )
    demo.add_argument(
        "--output", type=Path, default=Path("queue.png"), metavar="FILE", help="default: queue.png"
    )
    demo.set_defaults(function=_demo)
    return parser


def _shaped() -> Parser:
    """The words that describe a fabric."""
    parser = Parser(add_help=False)
    parser.add_argument("spec", nargs="?", default="leaf-spine", metavar="SPEC", help="default: leaf-spine")
    parser.add_argument("--leaves", type=int, metavar="N")
    parser.add_argument("--spines", type=int, metavar="N")
    parser.add_argument("--hosts-per-leaf", type=int, metavar="N")
    parser.add_argument("--rate", type=parse_rate, metavar="RATE", help="of all links, such as 100M")
    parser.add_argument(
        "--host-rate", dest="host_rate_bps", type=parse_rate, metavar="RATE", help="of hosts' links"
    )
    parser.add_argument(
        "--fabric-rate",
        dest="fabric_rate_bps",
        type=parse_rate,
        metavar="RATE",
        help="between leaves and spines",
    )
    parser.add_argument("--mtu", type=int, metavar="BYTES")
    parser.add_argument("--switch", choices=SWITCHES)
    parser.add_argument("--policy", type=Path, metavar="FILE", help="a policy file in TOML")
    return parser


def _converge(text: str) -> float:
    try:
        seconds = math.inf if text == "never" else float(text)
    except ValueError:
        seconds = -1.0
    if not (0 <= seconds <= 3600 or text == "never"):
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: 0 to 3600 seconds, or never")
    return seconds


def _ratio(text: str) -> float:
    try:
        return Fault(loss_ratio=float(text)).loss_ratio
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: 0 to 1") from None


def _burst(text: str) -> Burst:
    try:
        return Burst(*(float(word) for word in text.split(",")))
    except (ValueError, TypeError) as error:
        words = str(error) if isinstance(error, FabricError) else f"{text!r} is not ENTER,LEAVE[,LOSS]"
        raise argparse.ArgumentTypeError(words) from None
