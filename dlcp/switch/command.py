"""The words of `dlcp switch`: a policy, written once, shown, turned into configurations, or brought onto switches.

A word belongs to a module that offers `add_parser(subparsers)` for its word or words and `run(options) -> int`, where
`options.word` says which; it is loaded when it is asked for, since `render` needs no gRPC and `show` needs nothing.
Exit status: 0 done; 1 done, but not all is as it should be, as the word's help says; 2 bad input and errors of dlcp.
Nothing here knows what a word does.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from dlcp.arguments import Parser, complete_word, is_asked_for_completions
from dlcp.checks import did_you_mean

# Word → its module, and what it does in a line.
WORDS = {
    "policy": ("dlcp.switch.policy_command", "a policy to begin with, for a fabric of one link rate"),
    "show": ("dlcp.switch.show", "check a policy, and show it as a table"),
    "deploy": ("dlcp.switch.deploy.command", "bring a policy onto P4Runtime switches, all or none"),
    "status": ("dlcp.switch.deploy.status", "what P4Runtime switches hold and count, live"),
    "render": ("dlcp.switch.render.command", "the policy in the language of a switch's operating system"),
    "apply": ("dlcp.switch.render.command", "put the policy onto this host's interfaces, by Linux tc"),
    "jobs": ("dlcp.switch.aggregation.command", "jobs of the switch that adds: write, deploy, status"),
    "run": ("dlcp.switch.software.command", "be a switch, between interfaces of this host"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if is_asked_for_completions() and words[0] not in WORDS:
        complete_word({word: summary for word, (_, summary) in WORDS.items()})
    if not words or words[0] in ("-h", "--help"):
        print(_HELP)
        return 0 if words else 2
    name = words[0]
    if name not in WORDS:
        hint = did_you_mean(name, WORDS) or f"accepted: {', '.join(WORDS)}. "
        print(f"dlcp switch: {name!r} is unknown; {hint}`dlcp switch --help` lists them", file=sys.stderr)
        return 2
    module = importlib.import_module(WORDS[name][0])
    parser = Parser(prog="dlcp switch")
    module.add_parser(parser.add_subparsers(dest="word", required=True))
    status: int = module.run(parser.parse_args(words))
    return status


_HELP = """\
usage: dlcp switch WORD ...

The switch half of dlcp: one policy file says which DSCP values share a queue,
where each queue marks, trims and drops, and how a path is chosen. It goes onto
programmable switches, ordinary ones, or this host.

{words}

To begin with:
  dlcp switch policy --rate 25G > policy.toml
  dlcp switch show policy.toml
  dlcp switch deploy policy.toml --target topology.toml --dry-run

`dlcp switch WORD --help` says what a word takes.
Exit status: 0 done; 1 done, but not all is as it should be, as the word's help
says; 2 bad input, or an error.""".format(
    words="\n".join(f"  {name:<8}{summary}" for name, (_, summary) in WORDS.items())
)
