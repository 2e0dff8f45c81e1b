"""The words of `dlcp train`: what they mean, what is refused, and what is left behind.

Exit status: 0 done, 1 the result is wrong (ranks disagree, or loss changed the weights), 2 bad words or a rank that
failed, 130 Ctrl-C or SIGTERM. Bad words are refused before anything starts.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dlcp.arguments import Parser, add_json, add_output, loss
from dlcp.checks import option
from dlcp.requirements import INSTALL_TORCH
from dlcp.signals import raising
from dlcp.train import table
from dlcp.train.errors import TrainError
from dlcp.train.plan import (
    EPOCHS,
    EXCHANGE_EPOCHS,
    EXCHANGES,
    MODELS,
    MODES,
    RECIPES,
    WORLD_SIZE_MAX,
    LabLinks,
    TrainingPlan,
    plan_runs,
)
from dlcp.train.record import Record
from dlcp.train.run_plan import new_record, run_plan
from dlcp.train.view import PlainView, View, open_view
from dlcp.units import parse_rate

if TYPE_CHECKING:
    from dlcp.lab.fabric import Fabric

BACKENDS = ("dlcp", "gloo")
RECORD_NAME, PICTURE_NAME, PAGE_NAME = "record.json", "training.png", "training.html"
# Of a call that was stopped: it leaves the record and the picture of an earlier one as they are.
PARTIAL_NAME = "partial.json"


def run(arguments: Sequence[str] | None) -> int:
    """Does what the words say. Returns the exit status. Raises DlcpError; KeyboardInterrupt after SIGTERM as well."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.draw is not None:
        record = Record.load(options.draw)
        if not record.runs:
            raise TrainError(f"{options.draw} holds no run")
        output = options.output or options.draw.parent
        _make(output)
    else:
        plan = _plan(parser, options)
        output = plan.output
        _make(output)
        record = new_record(plan)
        try:
            # SIGTERM as well, so that ranks and namespaces are cleared away.
            with (
                raising(KeyboardInterrupt, signal.SIGTERM),
                contextlib.closing(_view(options)) as view,
            ):
                run_plan(plan, record, view)
        except (KeyboardInterrupt, TrainError):
            _keep(record, len(plan.runs), output)
            raise
        record.save(output / RECORD_NAME)
    print(record.text() if options.json else "\n".join(["", *table.lines(record)]))
    if not options.no_picture:
        _draw(record, output, sys.stderr if options.json else sys.stdout)
    return 1 if any(line.startswith("WRONG") for line in table.findings(record)) else 0


def _view(options: argparse.Namespace) -> View:
    """Who tells of the runs while they go on; JSON stands alone on standard output."""
    if not options.json:
        return open_view(sys.stdout)
    return PlainView(sys.stderr) if sys.stderr.isatty() else View()


def _make(output: Path) -> None:
    """The folder of the report, before anything is trained. Raises TrainError."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainError(
            f"--output {output}: {error.strerror}; give a folder that can be written to"
        ) from error


def _keep(record: Record, planned: int, output: Path) -> None:
    """Saves the runs that were over when the others were stopped, and says so."""
    record.runs = [one for one in record.runs if one.is_over]
    if not record.runs:
        print(f"\nstopped before the first of {planned} runs was over; no record is kept")
        return
    path = output / PARTIAL_NAME
    record.save(path)
    print(
        f"\nstopped; kept in {path}: {len(record.runs)} of {planned} runs; report on them: dlcp train --draw {path}"
    )


def _draw(record: Record, output: Path, said: TextIO) -> None:
    """The picture and the page; without matplotlib a sentence instead. `said`: where it says what it did."""
    try:
        from dlcp.train.figure import draw
    except ImportError as error:
        print(
            f"\nno picture: {error}; pip install matplotlib, then dlcp train --draw {output / RECORD_NAME}",
            file=said,
        )
        return
    from dlcp.train.page import write_page

    draw(record, output / PICTURE_NAME)
    write_page(record, output / PAGE_NAME)
    print(f"\npicture: {output / PICTURE_NAME}\npage:    {output / PAGE_NAME}", file=said)


# --- words ----------------------------------------------------------------------------------------------------


_EPILOG = """\
models:
  digits      scikit-learn's handwritten digits, by a convolutional network
  language    Python's own library, byte by byte, by a transformer

modes:
  compare     Gloo without loss (with --lab also with it), the backend with
              loss, dlcp with loss and a recipe
  single      only the backend, with loss; with --recipe: of that recipe
  study       for each seed: Gloo, the backend without loss, with loss, dlcp
              with loss and a recipe

exchanges, in place of the runs over the backend, in namespaces (root only);
docs/topology.md says which for what:
  ring          round a ring of all ranks
  hierarchical  ranks of a host among themselves, then between hosts
  hub           `dlcp hub` on a host of its own, whose link is as fast as those
                of all ranks together
  switch        the software switch that joins the hosts

recipes, of gradients whose sums are not exact:
  low_bit     low bits: 4 bits for every value; what they leave is added to the
              next step's gradient
  dlcp        bounded: a rank may abandon the least important of its gradients,
              within --loss-budget
  exact       none: no such run

Exit status: 0, 1 if the result is wrong, 2 for bad input or a rank that failed.
"""
# Of a run with bounded gradients.
LOSS_BUDGET = 0.05
_LOSS_MAX = 0.5
# At which links and not two processors are the limit.
EXCHANGE_RATE_BPS = 10**8


def _parser() -> Parser:
    parser = Parser(
        prog="dlcp train",
        description="Trains small models on real data, data-parallel on ranks of this machine: over\n"
        "Gloo on a network without loss, then over dlcp on one that loses packets, then\n"
        "with gradients of 4 bits per value, side by side.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _say_what_is_trained(parser.add_argument_group("what is trained"))
    _describe_network(parser.add_argument_group("the network"))
    report = parser.add_argument_group("the report")
    folder = f"folder for {RECORD_NAME}, {PICTURE_NAME}, {PAGE_NAME} and logs; default: dlcp-train"
    add_output(report, "DIR", folder)
    add_json(report, ", the record, in place of the tables")
    report.add_argument("--no-picture", action="store_true", help="only the record and the table")
    again = "train nothing; report on a stored record again"
    report.add_argument("--draw", type=Path, metavar="RECORD", help=again)
    return parser


def _say_what_is_trained(group: argparse._ArgumentGroup) -> None:
    which = "default: all whose data is installed"
    group.add_argument("--model", choices=(*MODELS, "all"), default=None, help=which)
    which = "which runs, see below; default: compare"
    group.add_argument("--mode", choices=MODES, default="compare", help=which)
    group.add_argument(
        "--backend", choices=BACKENDS, default="dlcp", help="the backend to look at; default: dlcp"
    )
    ranks = f"ranks, 1 to {WORLD_SIZE_MAX}; default: 4"
    group.add_argument("--world-size", type=option(1, WORLD_SIZE_MAX), default=4, metavar="N", help=ranks)
    epochs = ", ".join(f"{count} for {model}" for model, count in EPOCHS.items())
    epochs += "; with --exchange " + ", ".join(map(str, EXCHANGE_EPOCHS.values()))
    group.add_argument("--epochs", type=option(1, 10_000), metavar="N", help=f"default: {epochs}")
    seeds = "seeds 0 to N - 1; default: 1, in a study 3"
    group.add_argument("--seeds", type=option(1, 100), metavar="N", help=seeds)
    group.add_argument(
        "--recipe",
        choices=tuple(RECIPES),
        help="of the run whose sums are not exact, see below; default: low_bit; with --loss-budget dlcp; with --mode "
        "single exact",
    )
    group.add_argument(
        "--loss-budget",
        type=loss(_LOSS_MAX),
        metavar="LOSS",
        help=f"of its gradients that a rank may abandon in that run, 0.05 or 5%%, up to 50%%; default: {LOSS_BUDGET} "
        "with --recipe dlcp, 0 with low_bit",
    )


def _describe_network(group: argparse._ArgumentGroup) -> None:
    lost = "of the packets that arrive, 0.01 or 1%%, up to 50%%; default: 0.01; 0 with --exchange"
    group.add_argument("--loss", type=loss(_LOSS_MAX), metavar="LOSS", help=lost)
    group.add_argument(
        "--lab",
        action="store_true",
        help="a network namespace per rank, joined by links that are shaped and lose packets (root only); otherwise "
        "loopback, where dlcp's own driver drops them",
    )
    fabric = "the same across switches: leaf-spine, star, or a TOML file as of `dlcp lab` (root only)"
    group.add_argument("--fabric", metavar="SPEC", help=fabric)
    exchange = f"who adds gradients, one or several with commas: {', '.join(EXCHANGES)}; see below"
    group.add_argument("--exchange", type=_exchanges, default=(), metavar="NAMES", help=exchange)
    group.add_argument(
        "--ranks-per-host",
        type=option(1, WORLD_SIZE_MAX),
        metavar="N",
        help="with --exchange; a host has so many, or some more; default: 1, with hierarchical 2",
    )
    rate = "of each link of the lab, such as 200M or 1G bit/s; default: 1G; 100M with --exchange"
    group.add_argument("--rate", type=_rate, metavar="RATE", help=rate)
    delay = "of each link of the lab, one way, 0 to 1000; needs a kernel with netem; default: 0"
    group.add_argument("--delay", type=_milliseconds, metavar="MS", help=delay)
    timeout = "seconds for one all-reduce; default: 60"
    group.add_argument("--timeout", type=option(1, 3600), default=60, metavar="S", help=timeout)


def _plan(parser: Parser, options: argparse.Namespace) -> TrainingPlan:
    """The plan that the words describe. Ends the program with status 2 if they contradict each other."""
    if options.fabric is not None and (options.lab or options.rate or options.delay is not None):
        parser.error("--fabric says itself what its links are; leave out --lab, --rate and --delay")
    if options.loss is None:
        options.loss = 0.0 if options.exchange else 0.01
    _check_exchanges(parser, options)
    links = _links(options)
    options.lab = links is not None
    is_gloo, compares = options.backend == "gloo", options.mode == "compare"
    for contradicts, complaint in (
        (options.rate is not None and not options.lab, "--rate shapes the links of the lab; give --lab too"),
        (options.delay is not None and not options.lab, "--delay is of the links of the lab; give --lab too"),
        (
            options.lab and options.world_size < 2,
            "--world-size 1 has no links to shape; give --lab at least 2 ranks",
        ),
        (
            is_gloo and options.loss and not options.lab and not compares,
            "--loss is injected by dlcp's driver; Gloo loses packets only in the --lab (or give --loss 0)",
        ),
        (
            is_gloo and compares and not options.lab,
            "--backend gloo would be compared with itself; give --mode single --loss 0, or --lab",
        ),
        (is_gloo and options.loss_budget, "--loss-budget is for dlcp; Gloo gives nothing up"),
        (
            is_gloo and options.recipe not in (None, "exact"),
            f"--recipe {options.recipe} is for dlcp; Gloo's sums are exact",
        ),
        (
            options.recipe == "exact" and options.loss_budget,
            "--loss-budget is of --recipe low_bit or dlcp; exact sums give nothing up",
        ),
        (
            options.recipe == "dlcp" and options.loss_budget == 0,
            "--recipe dlcp is bounded by --loss-budget; give it more than 0, or --recipe exact",
        ),
    ):
        if contradicts:
            parser.error(complaint)
    if options.lab:
        _check_lab(parser, options, links)
    models = _models(parser, options.model)
    output = options.output or Path("dlcp-train")
    if output.exists() and not output.is_dir():
        parser.error(f"--output {output} is a file; give a folder")
    seeds = options.seeds or (3 if options.mode == "study" else 1)
    return TrainingPlan(
        runs=plan_runs(
            options.mode,
            models,
            options.backend,
            options.loss,
            range(seeds),
            options.epochs,
            gloo_with_loss=options.lab,
            recipe=_recipe(options),
            loss_budget=_loss_budget(options),
            exchanges=options.exchange,
        ),
        world_size=options.world_size,
        output=output,
        links=links,
        ranks_per_host=options.ranks_per_host or 1,
        step_timeout_s=options.timeout,
    )


def _check_lab(parser: Parser, options: argparse.Namespace, links: LabLinks | Fabric | None) -> None:
    if (reason := _missing(options)) is not None:
        if options.exchange:
            parser.error(f"--exchange: {reason}; exchanges are compared in network namespaces only")
        option = "--lab" if options.fabric is None else "--fabric"
        parser.error(f"{option}: {reason}; without it dlcp's own driver loses the packets")
    if links is not None and not isinstance(links, LabLinks) and links.hosts < options.world_size:
        parser.error(f"--world-size {options.world_size} is more than the fabric's hosts, {links.hosts}")


def _models(parser: Parser, asked: str | None) -> Sequence[str]:
    """The models to train; None: all whose data is installed."""
    models: Sequence[str] = MODELS if asked in (None, "all") else (asked,)
    if importlib.util.find_spec("torch") is None:
        parser.error(f"the models are trained with torch: {INSTALL_TORCH}")
    if "digits" not in models or importlib.util.find_spec("sklearn") is not None:
        return models
    if asked is not None:
        parser.error("--model digits needs scikit-learn: pip install scikit-learn, or give --model language")
    print("digits are left out, which come with scikit-learn: pip install scikit-learn", file=sys.stderr)
    return tuple(model for model in models if model != "digits")


def _links(options: argparse.Namespace) -> LabLinks | Fabric | None:
    """The network of the ranks; None: loopback. FabricError for a fabric that is none."""
    if options.fabric is not None:
        from dlcp.lab.fabric import Fabric

        return Fabric.named(options.fabric)
    usual_bps = EXCHANGE_RATE_BPS if options.exchange else 10**9
    return LabLinks(options.rate or usual_bps, options.delay or 0.0) if options.lab else None


def _check_exchanges(parser: Parser, options: argparse.Namespace) -> None:
    """Ends the program where exchanges contradict other words. With exchanges there is a lab, and places for ranks."""
    chosen: tuple[str, ...] = options.exchange
    if not chosen:
        if options.ranks_per_host is not None:
            parser.error("--ranks-per-host places ranks for --exchange; give --exchange too")
        return
    by_hosts = "hierarchical" in chosen
    options.lab = True
    options.ranks_per_host = options.ranks_per_host or (2 if by_hosts else 1)
    each = options.ranks_per_host
    for contradicts, complaint in (
        (options.backend == "gloo", "--exchange is dlcp's; leave out --backend gloo"),
        (options.fabric is not None, "--exchange makes its own network; leave out --fabric"),
        (
            options.recipe not in (None, "exact") or options.loss_budget,
            "--exchange compares exact sums; leave out --recipe and --loss-budget, or give --recipe exact",
        ),
        (
            "switch" in chosen and options.delay is not None,
            "--exchange switch has links without delay; leave out --delay",
        ),
        (
            by_hosts and each < 2,
            "--exchange hierarchical needs several ranks per host; give --ranks-per-host 2 or more",
        ),
        (
            options.world_size < 2 * each,
            f"--world-size {options.world_size} makes no 2 hosts of {each} ranks each; give {2 * each} or more",
        ),
    ):
        if contradicts:
            parser.error(complaint)


def _missing(options: argparse.Namespace) -> str | None:
    """Why there can be no such network here, or None."""
    if options.fabric is not None or "switch" in options.exchange:
        from dlcp.lab import switched_lab

        return switched_lab.missing()
    from dlcp.lab import missing

    return missing()


def _recipe(options: argparse.Namespace) -> str:
    """Of the run whose sums are not exact; "exact": there is none."""
    if options.exchange:
        return "exact"
    if options.recipe is not None:
        return str(options.recipe)
    if options.loss_budget is not None:
        return "dlcp" if options.loss_budget else "exact"
    return "low_bit" if options.backend == "dlcp" and options.mode != "single" else "exact"


def _loss_budget(options: argparse.Namespace) -> float:
    """Of that run."""
    if options.loss_budget is not None:
        return float(options.loss_budget)
    return LOSS_BUDGET if _recipe(options) == "dlcp" else 0.0


def _exchanges(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in EXCHANGES or names.count(name) > 1:
            accepted = f"accepted, each once: {', '.join(EXCHANGES)}"
            raise argparse.ArgumentTypeError(f"{name!r} is not accepted; {accepted}")
    return names


def _milliseconds(text: str) -> float:
    """Seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: 0 to 1000 milliseconds")
    return value / 1000


def _rate(text: str) -> int:
    rate = parse_rate(text)
    if not 1e6 <= rate <= 1e11:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: 1M to 100G bit/s")
    return rate
