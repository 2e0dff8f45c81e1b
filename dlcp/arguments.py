"""The parser of every `dlcp` command: bad input is one line on standard error and exit status 2.

argparse would print the whole usage before the one sentence that matters; here that sentence stands alone and says
where to read more. A shell that asks for completions, as argcomplete has it, gets them from these parsers too.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dlcp.units import parse_fraction


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that complains in one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # A value such as -5G reaches its option, which says what it accepts; argparse lets through plain numbers only.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As the base class does; where a shell asks for completions, it gets this parser's and the process ends."""
        if is_asked_for_completions():
            _complete(self)
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2 and one line that names what is wrong."""
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` says what is accepted\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """As the base class does, but that nobody reads is raised: it decides the exit status (exit_status.py)."""
        print(message, end="", file=file)


# --- completion -----------------------------------------------------------------------------------------------


def is_asked_for_completions() -> bool:
    """Whether it is not a person who calls, but a shell that wants to know how the person's line may go on."""
    return "_ARGCOMPLETE" in os.environ


def words_before() -> list[str]:
    """Those behind the program's name, where a shell asks, without the one that the line breaks off in."""
    line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
    return line.split()[int(os.environ["_ARGCOMPLETE"]) : None if line[-1:].isspace() else -1]


def complete_word(summaries: Mapping[str, str]) -> NoReturn:
    """Names one of these words to the shell; each has its summary, which some shells show."""
    parser = Parser(add_help=False)
    listed = parser.add_subparsers()
    for word, summary in summaries.items():
        listed.add_parser(word, help=summary)
    _complete(parser)


def complete_behind_command() -> None:
    """The parser that is asked next knows the words behind the first one: that is its program."""
    os.environ["_ARGCOMPLETE"] = str(1 + int(os.environ["_ARGCOMPLETE"]))


def _complete(parser: Parser) -> NoReturn:
    try:
        from argcomplete import autocomplete
    except ImportError:  # the shell was set up by another environment
        raise SystemExit(1) from None
    autocomplete(parser)
    raise SystemExit(1)


# --- what commands share: a flag that several have means the same in all (tests/test_commands.py) --------------


def add_json(parser: argparse._ActionsContainer, what: str = "") -> None:
    """`--json`. `what`: of which there is JSON, where that is not all that is printed otherwise."""
    parser.add_argument("--json", action="store_true", help=f"print JSON{what}")


def add_output(
    parser: argparse._ActionsContainer, metavar: str, what: str, default: Path | None = None
) -> None:
    """`--output`: where a command writes; `metavar` says whether that is a folder or which kind of file."""
    shown = what if default is None else f"{what}; default: {default}"
    parser.add_argument("--output", type=Path, default=default, metavar=metavar, help=shown)


def loss(high: float = 1.0) -> Callable[[str], float]:
    """The `type` of every option for a share that is lost, up to `high`: 0.05 is 5%, and 5 is refused."""

    def read_loss(text: str) -> float:
        try:
            ratio = parse_fraction(text)
        except ValueError:
            ratio = -1.0
        if 0 <= ratio <= high:
            return ratio
        if 1 < ratio <= 100 * high and not text.endswith("%"):
            raise argparse.ArgumentTypeError(
                f"{text!r} is no fraction; if it is meant in percent, give {text}% or {ratio / 100:g}"
            )
        accepted = f"0 to {high:g}, or 0% to {100 * high:g}%"
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: {accepted}")

    return read_loss
