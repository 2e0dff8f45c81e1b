"""`dlcp switch render` and `dlcp switch apply`: a policy as text for another system, or onto this host's interfaces.

The configuration goes to standard output or a file, what differs from the policy to standard error. Exit status 2 and
one line if anything prevents it, and then nothing was written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dlcp.arguments import add_output
from dlcp.switch.policy_file import PolicyFile
from dlcp.switch.port_names import PortNames
from dlcp.switch.render.base import RENDERERS, render, renderer
from dlcp.switch.render.caveat import RenderError, sentences
from dlcp.switch.toml_lines import toml_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlcp.switch.render.apply import Change


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    word = subparsers.add_parser(
        "render",
        description="Writes the policy as the configuration of a switch. What the system cannot do as the policy "
        "asks goes to standard error, by field and line of the policy.",
    )
    word.add_argument("policy", nargs="?", metavar="POLICY", help="the policy, a TOML file")
    word.add_argument("--os", metavar="NAME", help=f"{', '.join(RENDERERS)}; tofino, for p4/tofino.p4")
    word.add_argument(
        "--ports",
        metavar="A,B",
        help="the ports to configure, A=NAME where the policy calls A so; default: the policy's. "
        "Of a Tofino: NAME=DEVICE_PORT,…",
    )
    add_output(word, "FILE", "write here; JSON gets its notes beside it, in FILE.txt")
    word.add_argument(
        "--shape", action=argparse.BooleanOptionalAction, help="hold ports at the policy's rates"
    )
    word.add_argument("--strict", action="store_true", help="what differs from the policy is an error")
    word.add_argument("--list", action="store_true", help="the systems, and what each is for")

    word = subparsers.add_parser(
        "apply",
        description="Replaces the queues of interfaces by the policy's: all of them, or none. As root.",
    )
    word.add_argument(
        "policy", nargs="?", metavar="POLICY", help="the policy, a TOML file; not needed for --remove"
    )
    word.add_argument(
        "--dev",
        metavar="IFACE",
        nargs="+",
        help="interfaces, IFACE=NAME where the policy calls it NAME; default: the policy's ports",
    )
    word.add_argument(
        "--dry-run", action="store_true", help="rehearse on a scratch interface, show, change nothing"
    )
    word.add_argument(
        "--remove", action="store_true", help="give the interfaces the system's default queues back"
    )
    word.add_argument(
        "--qdisc", default="red", metavar="NAME", help="red; or htb, which does not mark or choose"
    )
    word.add_argument("--strict", action="store_true", help="what differs from the policy is an error")


def run(args: argparse.Namespace) -> int:
    return _apply(args) if args.word == "apply" else _render(args)


# ---- render ----


def _render(args: argparse.Namespace) -> int:
    if args.list:
        for name, module in RENDERERS.items():
            print(f"{name:<9}{module.SYSTEM.title}; ports like {module.SYSTEM.port_example}")
        print("tofino   a Tofino that runs p4/tofino.p4; ports like 1/0=132")
        return 0
    if args.policy is None or args.os is None:
        raise RenderError(f"give a POLICY and --os; accepted: {', '.join((*RENDERERS, 'tofino'))}")
    if args.os == "tofino":
        return _render_tofino(args)
    renderer(args.os)  # a name that is wrong is wrong whatever the policy says
    file = PolicyFile.load(args.policy)
    policy, ports = file.policy, None
    if args.ports is not None:
        names = PortNames.parse([args.ports], "--ports")
        policy, ports = names.applied(policy), names.ports
    done = render(policy, args.os, ports, source=file.text, shape=args.shape, strict=args.strict)
    if args.output is None:
        _say(args.policy, done.complaints())
        sys.stdout.write(done.text)
        if done.system.comment is None:
            sys.stderr.write(done.notes)
        return 0
    _write(args.output, done.text)
    if done.system.comment is None:
        _write(args.output.with_name(f"{args.output.name}.txt"), done.notes)
    _say(args.policy, done.complaints())
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RenderError(f"{path}: {error.strerror}") from None


def _render_tofino(args: argparse.Namespace) -> int:
    """For a switch that runs p4/tofino.p4: a script that dlcp/switch/tofino.py writes."""
    from dlcp.switch.tofino import dev_ports_from, render_tofino

    file = PolicyFile.load(args.policy)
    done = render_tofino(file.policy, dev_ports_from(args.ports))
    lines = toml_lines(file.text)
    if args.strict and done.differences:
        raise RenderError(f"Tofino: {done.differences[0].text(lines)}", done.differences)
    if args.output is not None:
        _write(args.output, done.text)
    _say(args.policy, [f"caveat: {text}" for text in sentences(done.differences, lines)])
    if args.output is None:
        sys.stdout.write(done.text)
    return 0


def _say(path: str, complaints: Iterable[str]) -> None:
    for complaint in complaints:
        print(f"{path}: {complaint}", file=sys.stderr)


# ---- apply ----


def _apply(args: argparse.Namespace) -> int:
    from dlcp.switch.render import apply as tc_apply
    from dlcp.switch.render.base import refuse
    from dlcp.switch.render.tc import SYSTEM

    if args.policy is None and not (args.remove and args.dev):
        raise RenderError("give a POLICY, or --remove and --dev")
    names = PortNames.parse(args.dev or (), "--dev")
    if args.policy is None:
        _report(tc_apply.remove(names.ports, dry_run=args.dry_run), args.dry_run, removed=True)
        return 0
    file = PolicyFile.load(args.policy)
    policy = names.applied(file.policy)
    interfaces = names.ports if args.dev else [port.name for port in policy.ports]
    if args.remove:
        _report(tc_apply.remove(interfaces, dry_run=args.dry_run), args.dry_run, removed=True)
        return 0
    done = render(policy, "tc", interfaces, source=file.text, strict=args.strict)
    own = tc_apply.caveats_for(policy, interfaces, args.qdisc)
    refuse(own, SYSTEM, toml_lines(file.text), args.strict)
    changes = tc_apply.apply(policy, interfaces, args.qdisc, dry_run=args.dry_run)
    _say(args.policy, [f"caveat: {f.text(done.lines)}" for f in own] if own else done.complaints())
    _report(changes, args.dry_run, removed=False)
    return 0


def _report(changes: Sequence[Change], dry_run: bool, removed: bool) -> None:
    for change in changes:
        if removed:
            state = "had no queues of dlcp" if change.before == "none" else "default queues"
        elif change.before == "same":
            state = "unchanged"
        else:
            place = "in place of another policy" if change.before == "ours" else "new"
            state = f"{len(change.commands)} lines, {place}"
        print(f"{change.interface}: {'would be: ' if dry_run else ''}{state}")
        if dry_run and change.before != "same":
            for line in change.commands:
                print(f"  tc {line}")
