"""Research on what dlcp does: the studies of `dlcp study`. Nothing else of dlcp uses them.

`training`: what loss and rounding do to training and to one tensor, in one process, without a network. `network`: how
transports do on simulated networks. The two do not use each other. Here are the words of the command.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dlcp.arguments import Parser, add_json, add_output
from dlcp.checks import option
from dlcp.errors import ArgumentError


def main(arguments: Sequence[str]) -> int:
    """`dlcp study NAME …`. Returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.output.exists() and not options.output.is_dir():
        options.parser.error(f"--output {options.output} is a file; give a folder")
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--output {options.output}: {error.strerror or error}") from None
    options.study(options)
    return 0


def _parser() -> Parser:
    from dlcp.study import network
    from dlcp.study.training import command
    from dlcp.study.training.precision.command import precision

    parser = Parser(
        prog="dlcp study",
        description="Studies on this machine and without a network: what loss and rounding do to training, and how "
        "transports do on simulated networks.",
    )
    listed = parser.add_subparsers(required=True, metavar="STUDY", parser_class=Parser)

    def add(
        name: str, run: Callable[[argparse.Namespace], None], summary: str, description: str = ""
    ) -> Parser:
        study: Parser = listed.add_parser(name, help=summary, description=description or summary)
        study.set_defaults(study=run, parser=study)
        add_output(study, "DIR", "folder for tables and pictures", Path("dlcp-study"))
        return study

    tolerance = add(
        "tolerance",
        command.tolerance,
        "how much of its gradients a training may lose before it needs more rounds",
        "The largest loss at which a training needs no extra rounds: by model, by who is dropped, by what becomes "
        "of it. Goes on where it was stopped. In full about an hour of one processor.",
    )
    seeds = "some models take N two or three times; default: 3, with --quick 2"
    _training_words(tolerance, "one small model, fewer losses: a minute or two", seeds)
    threads = "trainings at a time; default: 1"
    tolerance.add_argument("--threads", type=option(1, 64), metavar="N", default=1, help=threads)
    bits = add(
        "precision",
        precision,
        "how many bits a gradient needs, and who should decide",
        "How well trainings end whose gradients are exchanged in few bits, flat or in layers of which as many "
        "arrive as the network carries. Goes on where it was stopped. In full about an hour of one processor.",
    )
    seeds = "2 to 100, core ones at least 6; default: 3, with --quick 2"
    _training_words(bits, "one small model, three exchanges: a minute", seeds)
    mse = add(
        "mse",
        command.mse,
        "how far one aggregated tensor is from the truth under equal drops",
        "Mean squared error of one aggregated tensor, by how it is aggregated, under equal drops.",
    )
    entries = "of the tensor; in pieces, so memory does not grow with it; default: 50000000"
    mse.add_argument(
        "--entries", type=option(10_000, 2_000_000_000), default=50_000_000, metavar="N", help=entries
    )
    mse.add_argument("--ranks", type=option(2, 64), default=8, metavar="N", help="2 to 64; default: 8")
    mse.add_argument("--no-picture", action="store_true", help="only tables and numbers")
    add_json(mse)
    for name, module in network.studies().items():
        study = add(name, partial(network.run, module), module.SUMMARY)
        study.add_argument("--quick", action="store_true", help="fewer and smaller runs: a minute or two")
        seeds = f"1 to 1000; default: {network.DEFAULT_SEEDS}, quick: 1"
        study.add_argument("--seeds", type=option(1, 1000), metavar="N", help=seeds)
        add_json(study)
    return parser


def _training_words(study: Parser, quick: str, seeds: str) -> None:
    """What both studies of trainings take, with the meaning of two words."""
    add_json(study)
    for word, meaning in (
        ("--quick", quick),
        ("--draw", "train nothing; report on what is in --output again"),
        ("--no-picture", "only tables and numbers"),
    ):
        study.add_argument(word, action="store_true", help=meaning)
    study.add_argument("--seeds", type=option(2, 100), metavar="N", help=seeds)
    minutes = "stop after M; the report says what is missing"
    study.add_argument("--minutes", type=option(1, 10_000), metavar="M", help=minutes)
