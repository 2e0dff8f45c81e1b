"""`dlcp pays`: how long a training step would take over Gloo's ring, and over dlcp exactly, in 8 and in 4 bits.

Closed forms (schedule/estimate.py) over links of one speed that nobody else uses and that limit the exchange.
docs/pays.md says how far off they are; a test holds them to measured rows. Where processors are the limit they are too
good for everybody. torch is not needed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlcp.arguments import Parser, add_json, loss
from dlcp.checks import option
from dlcp.transport.coded import GROUP_VALUES, codec_traits
from dlcp.transport.schedule.choose import choose
from dlcp.transport.schedule.estimate import RANKS_MAX, Network, time_ns
from dlcp.transport.settings import LINE_RATE_BPS_MIN
from dlcp.units import aligned, duration, grouped, parse_rate, plural, rate

_FLOAT_BYTES = 4
# What an interface carries for a byte of gradients in frames of 1500 bytes. TCP: 1514 bytes for 1448; dlcp: as measured
# (docs/topology.md, "What a link carries").
_TCP_FRAMES, _DLCP_FRAMES = 1514 / 1448, 1.08
# To code, add and decode: 64 MB in 4 bits with residuals took 65 ms over shared memory, 4 ranks on two cores
# (docs/gradients.md, its first table).
_CODING_NS = 65e6 / (64 * 2**20 / _FLOAT_BYTES)
# Two cores moved 64 MB among 4 ranks in 105 ms over loopback (the same table), which is 7.7 Gbit/s of a rank.
_PROCESSORS_BPS = 5e9


@dataclass(frozen=True)
class Training:
    """What is trained, and on what."""

    parameters: int
    step_s: float
    """Without any exchange: forward, backward, optimizer."""
    rate_bps: float
    """Of each host's link."""
    ranks: int
    per_host: int = 1
    loss_ratio: float = 0.0

    @property
    def hosts(self) -> tuple[int, ...]:
        """Per rank the number of its host."""
        return tuple(rank // self.per_host for rank in range(self.ranks))


def exchange_s(training: Training) -> dict[str, float]:
    """By name, the time of a step's exchange, in the order of the report."""
    nbytes = training.parameters * _FLOAT_BYTES
    between, inside = Network(training.hosts, training.rate_bps), Network((0,) * training.per_host)
    algorithm = choose("all_reduce", training.ranks, nbytes, network=lambda: between)
    again = 1 / (1 - training.loss_ratio)

    def coded(codec: str) -> float:
        # Ranks of a host add exactly first; then each has a share of the host's sum, for the same share elsewhere.
        few = between._replace(hosts=tuple(dict.fromkeys(between.hosts)))
        carried = round(nbytes * share(codec) * _DLCP_FRAMES * again)
        found = time_ns("coded_all_reduce", "direct", carried, few)
        if training.per_host > 1:
            found += time_ns("all_reduce", "ring", nbytes, inside)
        return found + training.parameters * _CODING_NS

    found_ns = {
        "Gloo": time_ns("all_reduce", "ring", round(nbytes * _TCP_FRAMES * again), between),
        "exact": time_ns("all_reduce", algorithm, round(nbytes * _DLCP_FRAMES * again), between),
        "8 bits": coded("int8"),
        "4 bits": coded("int4"),
    }
    return {name: found / 1e9 for name, found in found_ns.items()}


def share(codec: str) -> float:
    """Of float32's bytes, what values in this codec take, scales included."""
    return codec_traits(codec).group_bytes / (GROUP_VALUES * _FLOAT_BYTES)


def figures(training: Training) -> dict[str, dict[str, float]]:
    """By name, of a step: the share of float32's bytes, the exchange's time, the step's, and that beside Gloo's."""
    exchanges = exchange_s(training)
    gloo_s = training.step_s + exchanges["Gloo"]
    shares = {"8 bits": share("int8"), "4 bits": share("int4")}
    return {
        name: {
            "bytes_ratio": shares.get(name, 1.0),
            "exchange_s": seconds,
            "step_s": training.step_s + seconds,
            "gloo_ratio": (training.step_s + seconds) / gloo_s,
        }
        for name, seconds in exchanges.items()
    }


def to_json(training: Training) -> dict[str, Any]:
    """As `--json` prints it: what was given, and the figures."""
    return asdict(training) | {"estimates": figures(training)}


def report(training: Training) -> Iterator[str]:
    """The lines that the command prints."""
    hosts = len(set(training.hosts))
    where = f"{plural(training.ranks, 'rank')} on {plural(hosts, 'host')}, {rate(training.rate_bps)} each"
    yield f"{grouped(training.parameters)} parameters; {where};"
    yield f"{duration(training.step_s)} without an exchange\n"
    rows = [("", "bytes", "exchange", "step", "beside Gloo's")]
    for name, found in figures(training).items():
        times = (duration(found["exchange_s"]), duration(found["step_s"]))
        rows.append((name, f"{found['bytes_ratio']:.1%}", *times, f"{found['gloo_ratio']:.2f}"))
    yield from aligned(rows)
    yield ""
    yield "Gloo    a flat ring over TCP that fills its links"
    yield "exact   every bit (recipe exact), by the algorithm that dlcp would take"
    yield "8 bits  recipe auto, where it finds that 8 bits are quicker"
    yield "4 bits  recipe low_bit, after its first 20 steps"
    yield "all     the exchange waits for the whole backward pass;"
    yield "        links are the limit, and every link is as fast"
    if training.loss_ratio:
        yield "loss    lost packets go again; that TCP slows down besides is left out,"
        yield "        so Gloo takes longer than this"
    if training.rate_bps > _PROCESSORS_BPS:
        yield "rate    at more than 5 Gb/s processors may be the limit,"
        yield "        and all of this too good: measure"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status."""
    parser = Parser(
        prog="dlcp pays",
        description="Estimates a step of data-parallel training over Gloo, and over dlcp by recipe.",
        epilog="docs/pays.md says what was measured, and how far these estimates are off.",
    )
    count = _amount(
        {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}, 1, 1e12, "1 to 1000B, such as 350k, 25M, 7B"
    )
    parser.add_argument("--parameters", type=count, required=True, metavar="N", help="such as 25M")
    seconds = _amount({"ms": 1e-3, "s": 1.0}, 0, 1e6, "such as 100ms, 1.5s")
    alone = "a step without any exchange, such as 100ms"
    parser.add_argument("--step", type=seconds, required=True, metavar="TIME", help=alone)
    link = "of each host's link, such as 1G"
    parser.add_argument("--rate", type=parse_rate, required=True, metavar="RATE", help=link)
    ranks = f"2 to {RANKS_MAX}"
    parser.add_argument("--ranks", type=option(2, RANKS_MAX), required=True, metavar="N", help=ranks)
    per_host = "ranks on each host; default: 1"
    parser.add_argument("--per-host", type=option(1, RANKS_MAX), default=1, metavar="N", help=per_host)
    lost = "of the packets on their way, such as 0.01 or 1%%; default: 0"
    parser.add_argument("--loss", type=loss(0.5), default=0.0, metavar="LOSS", help=lost)
    add_json(parser)
    given = parser.parse_args(arguments)
    if given.ranks % given.per_host or given.ranks == given.per_host:
        parser.error(f"--per-host {given.per_host}: accepted: a divisor of --ranks, not all of them")
    if given.rate < LINE_RATE_BPS_MIN:
        parser.error(f"--rate: {given.rate:g} bits a second; accepted: at least 1M, such as 25G")
    words = (given.step, given.rate, given.ranks, given.per_host, given.loss)
    training = Training(int(given.parameters), *words)
    print(json.dumps(to_json(training), indent=2) if given.json else "\n".join(report(training)))
    return 0


def _amount(units: dict[str, float], low: float, high: float, accepted: str) -> Callable[[str], float]:
    """The `type` of an option that takes a number and a unit."""

    def read(text: str) -> float:
        found = re.fullmatch(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(units)})", text)
        value = float(found[1]) * units[found[2]] if found else -1.0
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: {accepted}")
        return value

    return read
