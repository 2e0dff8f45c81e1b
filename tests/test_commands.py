"""The commands are one family: a flag that several have means the same in all, and every help fits 80 columns.

All parsers are walked, so a command that is new is held to this too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dlcp.arguments import Parser, loss
from dlcp.cli import COMMANDS
from dlcp.switch.command import WORDS


class CaughtError(Exception):
    """A parser that was about to parse."""


def parser_of(name: str, words: list[str]) -> Parser:
    """The parser that a command makes for these words."""

    def catch(parser: Parser, *_: object) -> None:
        raise CaughtError(parser)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parser, "parse_args", catch)
        try:
            COMMANDS[name].run(words)
        except CaughtError as caught:
            return caught.args[0]  # type: ignore[no-any-return]
    raise AssertionError(f"dlcp {name} parses nothing")


def below(parser: Parser) -> Iterator[Parser]:
    """The parser and those of its words."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in dict.fromkeys(action.choices.values()):
                yield from below(each)


@cache
def parsers() -> dict[str, Parser]:
    """All parsers by what begins their usage, such as dlcp lab run."""
    asked = [(name, ["status"]) for name in COMMANDS if name != "switch"]
    asked += [("switch", [word]) for word in WORDS]
    return {each.prog: each for name, words in asked for each in below(parser_of(name, words))}


def options(flag: str) -> list[tuple[str, argparse.Action]]:
    """Of all commands, with the command."""
    return [
        (prog, action)
        for prog, parser in parsers().items()
        for action in parser._actions
        if flag in action.option_strings
    ]


READ_LOSS, READ_INTEGER = "read_loss", "read"
# Flag → the name of the function that reads it (None: a switch), the word that follows it (None: any), how many
# commands have it at least, and words of every help of it.
FAMILY: dict[str, tuple[str | None, str | None, int, str]] = {
    "--json": (None, None, 26, "print JSON"),
    "--quick": (None, None, 3, "a minute"),
    "--no-picture": (None, None, 4, "only"),
    "--dry-run": (None, None, 2, "show"),
    "--output": ("Path", None, 8, ""),
    "--seed": (READ_INTEGER, "N", 3, ""),
    "--seeds": (READ_INTEGER, "N", 4, "default"),
    "--loss": (READ_LOSS, "LOSS", 2, "0.01 or 1%"),
    "--loss-budget": (READ_LOSS, "LOSS", 1, "0.05 or 5%"),
    "--loss-ratio": (READ_LOSS, "LOSS", 1, "0.01 or 1%"),
    "--target": ("Path", "TOPOLOGY", 3, "the switches"),
}


@pytest.mark.parametrize("flag", FAMILY)
def test_a_flag_means_the_same_in_all_commands(flag: str) -> None:
    reader, metavar, count, words = FAMILY[flag]
    found = options(flag)
    assert len(found) >= count
    for prog, action in found:
        if reader is None:
            assert isinstance(action, argparse._StoreTrueAction), prog
        else:
            assert getattr(action.type, "__name__", None) == reader, prog
        assert metavar in (None, action.metavar), prog
        assert words in (action.help or ""), prog


def test_what_is_read_has_one_word_and_what_has_a_word_is_read_alike() -> None:
    """Whatever a flag is called."""
    for prog, parser in parsers().items():
        for action in parser._actions:
            name, flags = getattr(action.type, "__name__", None), action.option_strings
            assert (action.metavar == "LOSS") == (name == READ_LOSS), (prog, flags)
            assert action.metavar not in ("PERCENT", "RATIO", "SECONDS"), (prog, flags)
            if flags[-1:] == ["--timeout"]:
                assert action.metavar == "S", prog
            if "--rate" in flags:
                assert name in ("parse_rate", "_rate"), prog


def test_words_that_were_replaced_are_gone() -> None:
    assert len(parsers()) > 40
    assert options("--out") == []


def test_every_help_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pages = {prog: parser.format_help() for prog, parser in parsers().items()}
    assert COMMANDS["switch"].run(["--help"]) == 0
    pages["dlcp switch"] = capsys.readouterr().out
    wide = [f"{prog}: {line}" for prog, page in pages.items() for line in page.splitlines() if len(line) > 80]
    assert wide == []


@pytest.mark.parametrize("name", ["bench", "doctor", "lab", "train", "version"])
def test_a_status_of_its_own_is_in_the_help(name: str) -> None:
    assert "Exit status" in parsers()[f"dlcp {name}"].format_help()


def test_a_loss_is_a_fraction_or_a_percentage() -> None:
    read = loss()
    assert [read(text) for text in ("0", "0.05", "5%", "5.0 %", "100%", "1", "1e-3")] == [
        *(0, 0.05, 0.05, 0.05, 1, 1, 0.001)
    ]
    for text, complaint in (
        ("5", "'5' is no fraction; if it is meant in percent, give 5% or 0.05"),
        ("101", "'101' is not accepted; accepted: 0 to 1, or 0% to 100%"),
        ("-1%", "accepted: 0 to 1, or 0% to 100%"),
        ("nan%", "accepted: 0 to 1, or 0% to 100%"),
        ("little", "accepted: 0 to 1, or 0% to 100%"),
    ):
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            read(text)
        assert complaint in str(caught.value)
    with pytest.raises(argparse.ArgumentTypeError, match="accepted: 0 to 0.5, or 0% to 50%"):
        loss(0.5)("60%")


def test_output_of_studies_is_still_understood_by_its_old_name() -> None:
    """Argparse takes the beginning of a flag for it."""
    parser = parsers()["dlcp study mse"]
    assert parser.parse_args(["--out", "there"]).output == Path("there")
