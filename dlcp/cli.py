# PYTHON_ARGCOMPLETE_OK
"""The `dlcp` command: one door to what people run. Each subcommand is a module of its own, loaded when asked for.

Exit status: what the subcommand says; 2 with one line for bad input, for errors of dlcp and for a missing torch or
compiled module, 130 after Ctrl-C, 141 when nobody reads the output any more. Nothing here knows what a subcommand does.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dlcp import __version__
from dlcp.arguments import (
    Parser,
    add_json,
    complete_behind_command,
    complete_word,
    is_asked_for_completions,
    words_before,
)
from dlcp.errors import ArgumentError
from dlcp.exit_status import exit_status
from dlcp.requirements import missing


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status."""
    options = list(sys.argv[1:] if arguments is None else arguments)
    if is_asked_for_completions():
        options = _words_to_complete()
    if options and options[0] in COMMANDS:
        name, rest = options[0], options[1:]
        return exit_status(f"dlcp {name}", lambda: COMMANDS[name].run(rest))
    return exit_status("dlcp", lambda: _without_command(options))


# --- subcommands ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Command:
    """A subcommand: what it does, in a line, and the function from words to exit status, in its module."""

    summary: str
    module: str
    function: str = "main"

    def run(self, words: list[str]) -> int:
        status: int = getattr(importlib.import_module(self.module), self.function)(words)
        return status


def _version(words: list[str]) -> int:
    parser = Parser(
        prog="dlcp version",
        description="Says the versions that two hosts should have in common. Exit status 1: the engine does not load.",
    )
    add_json(parser)
    as_json = parser.parse_args(words).json
    told: dict[str, object] = {"dlcp": __version__}
    try:
        from dlcp import _native
    except ImportError as error:
        print(json.dumps(told) if as_json else f"dlcp {__version__}")
        print(missing(error) or error, file=sys.stderr)
        return 1
    told |= {"wire_format": _native.WIRE_VERSION}
    told |= {"crypto": _native.fastest_crypto_library(), "ciphers": list(_native.offered_ciphers())}
    from dlcp.transport.plugins import nccl_net_path

    told |= {"nccl_net_plugin": str(nccl_net_path()) if nccl_net_path().exists() else None}
    told |= {"python": platform.python_version(), "linux": platform.release(), "machine": platform.machine()}
    for package in ("torch", "numpy"):
        try:
            told[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            told[package] = None
    if as_json:
        print(json.dumps(told))
        return 0
    print(f"dlcp {__version__}")
    print(f"wire format {told['wire_format']}")
    print(f"packet protection by {told['crypto']}: {', '.join(_native.offered_ciphers())}")
    if told["nccl_net_plugin"]:
        print(f"NCCL_NET_PLUGIN={told['nccl_net_plugin']}")
    print(f"Python {told['python']}, Linux {told['linux']}, {told['machine']}")
    for package in ("torch", "numpy"):
        print(f"{package} {told[package] or 'not installed'}")
    return 0


COMMANDS = {
    "bench": _Command("time collectives between ranks, also beside Gloo; check results", "dlcp.benchmark"),
    "doctor": _Command("look at this host and the paths between ranks; say what to mend", "dlcp.doctor"),
    "hub": _Command("add gradients for the workers of jobs that name this host", "dlcp.hub.command"),
    "lab": _Command("a leaf-spine of namespaces with switches and faults: up, run, down", "dlcp.lab.command"),
    "pays": _Command("estimate a training step over dlcp, by recipe, beside Gloo", "dlcp.transport.pays"),
    "ping": _Command("move data between two hosts and say how it went", "dlcp.transport.ping"),
    "settings": _Command(
        "every setting: its variable, default, range and meaning", "dlcp.transport.settings_reference"
    ),
    "sim": _Command("simulate a network packet by packet: run, compare, sweep, report", "dlcp_sim.command"),
    "study": _Command("what loss does to training; transports on simulated networks", "dlcp.study"),
    "switch": _Command(
        "one policy for all switches: show, render, deploy, run; status", "dlcp.switch.command"
    ),
    "train": _Command("train a model on real data over a lossy network, beside Gloo", "dlcp.train"),
    "version": _Command("versions of dlcp, its wire format and what it runs on", __name__, "_version"),
}


def _words_to_complete() -> list[str]:
    """Words that bring a command to its parser, which completes the line of the shell that asks."""
    words = words_before()
    if not words or words[0] not in COMMANDS:
        complete_word({name: command.summary for name, command in COMMANDS.items()})
    complete_behind_command()
    return [*words[:2], "--help"]


# --- without a command ----------------------------------------------------------------------------------------


def _without_command(options: list[str]) -> int:
    """`dlcp`, `dlcp --help`, `dlcp --version`, and a complaint about anything else."""
    if options in ([], ["-h"], ["--help"], ["help"]):
        print(_HELP)
        return 0 if options else 2
    if options in (["-V"], ["--version"]):
        print(f"dlcp {__version__}")
        return 0
    name = options[0]
    if name.startswith("-"):
        raise ArgumentError(f"unknown option {name!r}; give a command first: `dlcp --help` lists them")
    near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"accepted: {', '.join(COMMANDS)}."
    raise ArgumentError(f"unknown command {name!r}; {hint} `dlcp --help` lists them")


_HELP = """\
usage: dlcp COMMAND [OPTIONS]

A loss-tolerant, priority-aware transport for data-parallel training on ordinary
Ethernet.

{commands}

Something is slow, or does not connect:
  dlcp doctor                                         this host
  torchrun --nnodes 2 ... --no-python dlcp doctor     every path between ranks
  dlcp ping --listen ... and dlcp ping HOST:PORT ...  one path, for any time

In a training script, one word: torch.distributed.init_process_group("dlcp")

Settings: DLCP_* variables, or the [transport] table of the TOML file that
DLCP_CONFIG names. `dlcp settings` lists them.
`dlcp COMMAND --help` says what a command takes.

Exit status: 0 done; 1 done, and not all is as it should be, as the command's
help says; 2 bad input, or an error; 130 Ctrl-C; 141 nobody reads the output.""".format(
    commands="\n".join(f"  {name:<10}{command.summary}" for name, command in COMMANDS.items())
)


if __name__ == "__main__":
    sys.exit(main())
