"""The words of `dlcp switch`: a policy, written once, shown, turned into configurations, or brought onto switches.

A word belongs to a module that offers `add_parser(subparsers)` for its word or words and `run(options) -> int`, where
`options.word` says which; it is loaded when it is asked for, since `render` needs no gRPC and `show` needs nothing.
Exit status: 0 done; 1 done, but not all is as it should be, as the word's help says; 2 bad input and errors of dlcp.
Nothing here knows what a word does.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from dlcp.arguments import Parser


@dataclass(frozen=True)
class _Word:
    """A word of the command: whose it is, and what it does in a line."""

    module: str
    summary: str

    def load(self) -> ModuleType:
        return importlib.import_module(self.module)


WORDS = {
    "policy": _Word("dlcp.switch.policy_command", "a policy to begin with, for a fabric of one link rate"),
    "show": _Word("dlcp.switch.show", "check a policy, and show it as a table"),
    "deploy": _Word("dlcp.switch.deploy.command", "bring a policy onto P4Runtime switches, all or none"),
    "status": _Word("dlcp.switch.deploy.status", "what P4Runtime switches hold and count, live"),
    "render": _Word(
        "dlcp.switch.render.command", "the policy in the language of a switch's operating system"
    ),
    "apply": _Word("dlcp.switch.render.command", "put the policy onto this host's interfaces, by Linux tc"),
    "run": _Word("dlcp.switch.software.command", "be a switch, between interfaces of this host"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_HELP)
        return 0 if words else 2
    name = words[0]
    if name not in WORDS:
        near = difflib.get_close_matches(name, WORDS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"accepted: {', '.join(WORDS)}."
        print(f"dlcp switch: {name!r} is unknown; {hint} `dlcp switch --help` lists them", file=sys.stderr)
        return 2
    module = WORDS[name].load()
    parser = Parser(prog="dlcp switch")
    module.add_parser(parser.add_subparsers(dest="word", required=True))
    status: int = module.run(parser.parse_args(words))
    return status


_HELP = """\
usage: dlcp switch WORD ...

The switch half of dlcp: one policy file says which DSCP values share a queue, where each queue marks, trims and drops,
and how a path is chosen. It goes onto programmable switches, ordinary ones, or this host.

{words}

To begin with:
  dlcp switch policy --rate 25G > policy.toml
  dlcp switch show policy.toml
  dlcp switch deploy policy.toml --target topology.toml --dry-run

`dlcp switch WORD --help` says what a word takes.""".format(
    words="\n".join(f"  {name:<8}{word.summary}" for name, word in WORDS.items())
)
