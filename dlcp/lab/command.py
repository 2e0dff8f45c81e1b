"""`dlcp lab`: its subcommands, what they do and what they refuse. switched_lab.py says what a lab is.

Exit status: 0, or 2 with one line for bad input and for what the system refuses. `run` and `exec` return that of the
command, 127 if there is none of its name. After Ctrl-C it is 130 and after SIGTERM 143, after the lab has been taken
down and a line has said so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path

from dlcp.arguments import Parser, add_json, add_output, loss
from dlcp.errors import SettingsError
from dlcp.lab import policies, show, state, unprivileged
from dlcp.lab.fabric import SWITCHES, Fabric
from dlcp.lab.fault import NO_FAULT, Burst, FabricError, Fault, rate_words
from dlcp.lab.ranks import parse_hosts, run_ranks
from dlcp.lab.switched_lab import SwitchedLab
from dlcp.progress import shown
from dlcp.rank_processes import exit_status
from dlcp.signals import raising
from dlcp.units import parse_fraction, parse_rate, plural

_EPILOG = """\
SPEC is leaf-spine (2 leaves, 2 spines, 2 hosts each), star (4 hosts on one
switch), or a TOML file:

  leaves = 2
  spines = 2
  hosts_per_leaf = 2
  host_rate_bps = 100_000_000
  fabric_rate_bps = 100_000_000
  switch = "software"            # kernel, bmv2, none
  policy = "policy.toml"         # beside this file; default: usual thresholds

  [[link]]
  name = "l0-s1"
  rate_bps = 20_000_000
  fault = {loss_ratio = 0.01}

examples:
  dlcp lab run star --rate 200M -- python train.py
  dlcp lab jobs star >jobs.toml
  dlcp lab run star --jobs jobs.toml -- python train.py
  dlcp lab up leaf-spine; dlcp lab fault l0-s1 --down
  dlcp lab exec h0 -- ping 10.78.0.4; dlcp lab down

Exit status: 0; of run and exec that of the command, 127 if it is not found; 2
for bad input and for what the system refuses.
"""


def main(words: Sequence[str]) -> int:
    """The command. Returns the exit status."""
    unprivileged.settle_in()
    if not words:
        _parser().print_help()
        return 2
    at = words.index("--") if "--" in words else len(words)
    own, command = list(words[:at]), list(words[at + 1 :])
    if own[:1] in (["run"], ["exec"]) and not command and not {"-h", "--help"} & set(own):
        # Before anything is parsed: a command that stands without -- is taken for something else.
        form = "run SPEC -- python train.py" if own[0] == "run" else "exec h0 -- ping 10.78.0.4"
        raise FabricError(f"no command; give one behind --, such as: dlcp lab {form}")
    options = _parser().parse_args(own)
    if options.word not in ("run", "exec") and command:
        raise FabricError(f"{options.word} runs no command; leave out {' '.join(['--', *command])}")
    options.command = command
    if command and (status := _not_a_command(command[0])):
        return status
    if options.word in ("run", "demo") and os.geteuid() != 0:
        unprivileged.run_again(["lab", *words])
    try:
        with raising(_Terminated, signal.SIGTERM, signal.SIGHUP):
            return int(options.function(options))
    except _Terminated:
        return 143


def _not_a_command(name: str) -> int:
    """What a shell says and ends with if it cannot run `name`; 0: it can. Before a lab is made for it."""
    if shutil.which(name) is not None:
        return 0
    is_there = "/" in name and Path(name).exists()
    print(f"dlcp lab: {name}: {'Permission denied' if is_there else 'command not found'}", file=sys.stderr)
    return 126 if is_there else 127


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
        _made(stack, lab)
        setting = _add(lab, options.jobs)
        lab.let_stand()
        stack.pop_all()
    fabric = lab.fabric
    print(
        f"lab {lab.name} is up: {fabric.hosts} hosts at {rate_words(fabric.host_rate_bps)}, "
        f"{plural(len(fabric.switch_names), 'switch')}: {fabric.switch}"
    )
    for note in lab.switches.notes():
        print(f"note: {note}")
    print(f"hosts: {', '.join(f'{n} {a}' for n, a in zip(fabric.host_names, lab.addresses, strict=True))}")
    if setting:
        print(f"switches add for ranks with DLCP_AGGREGATION='{setting}'")
    named = f" --name {options.name}" if options.name else ""
    print(f"next: dlcp lab exec{named} {fabric.host_names[0]} -- COMMAND; at the end: dlcp lab down{named}")
    return 0


def _made(stack: contextlib.ExitStack, lab: SwitchedLab) -> SwitchedLab:
    """Makes a lab, which takes seconds, and says so meanwhile; the stack takes it down."""
    with shown() as show:
        show(f"making {lab.fabric.hosts} hosts and {plural(len(lab.fabric.switch_names), 'switch')}")
        return stack.enter_context(lab)


def _add(lab: SwitchedLab, jobs: Path | None) -> str:
    """Has the switches add for the jobs of a file: the ranks' setting. Empty: there is no file."""
    if jobs is None:
        return ""
    from dlcp.lab.switch_jobs import set_jobs

    try:
        return set_jobs(lab, jobs.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SettingsError) as error:
        raise FabricError(f"{jobs}: {getattr(error, 'strerror', None) or error}") from None


def _jobs(options: argparse.Namespace) -> int:
    from dlcp.lab.switch_jobs import file_text, jobs_of
    from dlcp.switch.aggregation.job_command import NUMBERS

    fabric = _fabric(options)
    hosts = range(fabric.hosts) if options.hosts is None else parse_hosts(options.hosts, fabric.hosts)
    if options.ranks_per_host < 1:
        raise FabricError(f"--ranks-per-host is {options.ranks_per_host}; accepted: 1 or more")
    host_of = [host for host in hosts for _ in range(options.ranks_per_host)]
    numbers = {name: getattr(options, name) for name in NUMBERS}
    print(file_text(fabric, jobs_of(fabric, host_of, udp_port=options.udp_port, **numbers)), end="")
    return 0


def _run(options: argparse.Namespace) -> int:
    fabric = _fabric(options)
    hosts = None if options.hosts is None else parse_hosts(options.hosts, fabric.hosts)
    with _says_when_interrupted(), contextlib.ExitStack() as stack:
        lab = _made(stack, SwitchedLab(fabric, name=options.name))
        for note in lab.switches.notes():
            print(f"note: {note}", file=sys.stderr)
        setting = _add(lab, options.jobs)
        variables = {"DLCP_AGGREGATION": setting} if setting else {}
        status = run_ranks(lab, options.command, hosts, variables)
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
    given = {field.name: getattr(options, field.name) for field in fields(Fault)}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes and not options.clear:
        raise FabricError("no fault; accepted: --loss, --burst, --rate, --down, --up, --clear")
    if options.rate_bps is not None and options.rate_bps >= link.rate_bps:
        accepted = f"less than the {rate_words(link.rate_bps)} that {link.name} has"
        raise FabricError(f"rate is {rate_words(options.rate_bps)}; accepted: {accepted}")
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
    only = "beside that only kernel switches can; add --clear"
    if options.burst is not None and before.loss_ratio and options.loss_ratio is None:
        raise FabricError(f"{link} already loses {before.loss_ratio:g}, and bursts {only}")
    if options.loss_ratio and before.burst is not None and options.burst is None:
        raise FabricError(f"{link} already loses in bursts, and other losses {only}")


def _policy(options: argparse.Namespace) -> int:
    lab = SwitchedLab.find(_name(options))
    policy = policies.read(options.policy)
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

    run = demo.play(options.rate)
    print("\n".join(demo.lines(run)))
    try:
        from dlcp.lab.figure import draw
    except ImportError as error:
        print(f"no picture: {error}; pip install '.[demo]' in a checkout of dlcp")
        return 0
    draw(run, options.output)
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
        description="A leaf-spine of network namespaces on this machine: shaped links, switches that\n"
        "obey a policy, and faults on command.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words = parser.add_subparsers(dest="word", required=True, metavar="WORD", parser_class=Parser)
    named, shaped = Parser(add_help=False), Parser(add_help=False)
    named.add_argument("--name", metavar="NAME", help="which lab; default: $DLCP_LAB, or lab")
    _describe_fabric(shaped)

    def word(
        name: str, function: Callable[[argparse.Namespace], int], summary: str, *parents: Parser
    ) -> Parser:
        added: Parser = words.add_parser(name, parents=parents, help=summary)
        added.set_defaults(function=function)
        return added

    up = word("up", _up, "make a lab that stays until it is taken down", named, shaped)
    run = word("run", _run, "make a lab, run a command on every host as a rank, take the lab down", shaped)
    run.add_argument(
        "--name", metavar="NAME", help="for `dlcp lab fault` and `status` meanwhile; default: a new one"
    )
    run.add_argument("--hosts", metavar="LIST", help="run it on some only, such as 0-2,5; default: on all")
    run.add_argument("--status", action="store_true", help="at the end, print what `dlcp lab status` would")
    for each in (up, run):
        what = "jobs that the software switches add for, as `dlcp lab jobs` writes them"
        each.add_argument("--jobs", type=Path, metavar="FILE", help=what)
    jobs = word("jobs", _jobs, "print the file of jobs with which the switches add for the ranks", shaped)
    jobs.add_argument("--hosts", metavar="LIST", help="of the ranks, in their order; default: all")
    _describe_job(jobs)
    down = word("down", _down, "take a lab down, and what killed ones left", named)
    down.add_argument("--all", action="store_true", help="all labs that stand")
    execute = word("exec", _exec, "run a command on one host or switch of a lab", named)
    execute.add_argument("host", metavar="HOST", help="h0, l0, s0, …")
    _describe_fault(word("fault", _fault, "make a link lossy, slow, cut or whole", named))
    policy = word("policy", _policy, "give all switches another policy, live", named)
    policy.add_argument("policy", type=Path, metavar="POLICY", help="a TOML file")
    status = word("status", _status, "links, faults, queues, shares of equal next hops", named)
    add_json(status)
    demo = word("demo", _demo, "twice a port's rate in four classes, with and without thresholds: a picture")
    rate = "of each link; default: 50M"
    demo.add_argument("--rate", type=parse_rate, default=50_000_000, metavar="RATE", help=rate)
    add_output(demo, "FILE", "the picture", Path("queue.png"))
    return parser


def _describe_job(parser: Parser) -> None:
    """The words for the numbers of a job that switches add for."""
    from dlcp.switch.aggregation.job_command import add_numbers

    add_numbers(parser, slots=512)


def _describe_fault(parser: Parser) -> None:
    """The words that describe a fault, and when others learn of it."""
    parser.add_argument("link", metavar="LINK", help="such as h0-l0 or l0-s1")
    lost = "of the packets of each direction, 0.01 or 1%%"
    parser.add_argument("--loss", dest="loss_ratio", type=loss(), metavar="LOSS", help=lost)
    parser.add_argument(
        "--burst",
        type=_burst,
        metavar="ENTER,LEAVE[,LOSS]",
        help="Gilbert's bursts: with what probability a packet begins one and ends one, and the loss in it (1); each "
        "0.01 or 1%%",
    )
    rate = "a lower rate, such as 20M"
    parser.add_argument("--rate", dest="rate_bps", type=parse_rate, metavar="RATE", help=rate)
    cable = parser.add_mutually_exclusive_group()
    cable.add_argument("--down", action="store_true", default=None, help="pull the cable")
    cable.add_argument("--up", dest="down", action="store_false", default=None, help="plug it in again")
    parser.add_argument(
        "--converge",
        type=_converge,
        metavar="S",
        help="how long after --down or --up the other leaves learn it, and this command ends; or never, so that they "
        "go on sending by the spine that misses a leaf. Default: at once",
    )
    parser.add_argument("--clear", action="store_true", help="mend everything first")


def _describe_fabric(parser: Parser) -> None:
    """The words that describe a fabric."""
    parser.add_argument("spec", nargs="?", default="leaf-spine", metavar="SPEC", help="default: leaf-spine")
    for count in ("--leaves", "--spines", "--hosts-per-leaf"):
        parser.add_argument(count, type=int, metavar="N")
    for name, of in (
        ("rate", "of all links, such as 100M"),
        ("host_rate_bps", "of hosts' links"),
        ("fabric_rate_bps", "between leaves and spines"),
    ):
        flag = f"--{name.removesuffix('_bps').replace('_', '-')}"
        parser.add_argument(flag, dest=name, type=parse_rate, metavar="RATE", help=of)
    parser.add_argument("--mtu", type=int, metavar="BYTES")
    parser.add_argument("--switch", choices=SWITCHES)
    parser.add_argument("--policy", type=Path, metavar="FILE", help="a policy file in TOML")


def _converge(text: str) -> float:
    try:
        seconds = math.inf if text == "never" else float(text)
    except ValueError:
        seconds = -1.0
    if not (0 <= seconds <= 3600 or text == "never"):
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: 0 to 3600 seconds, or never")
    return seconds


def _burst(text: str) -> Burst:
    try:
        return Burst(*(parse_fraction(word) for word in text.split(",")))
    except (ValueError, TypeError) as error:
        words = str(error) if isinstance(error, FabricError) else f"{text!r} is not ENTER,LEAVE[,LOSS]"
        raise argparse.ArgumentTypeError(words) from None
