"""What was measured of one tensor, as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from dlcp.study.training.mse import KINDS, OURS, OURS_STEPS, PUBLISHED, RATES, STEPS, TAR, Found
from dlcp.study.training.report import Rows, pipes, plain

COMPARABLE = (
    "Published: OptiReduce, 500 M entries, equal drops. Its unit, rate and pattern of drops are not stated in what we",
    "have, so only ratios between its figures compare. With independent drops per packet and hop, theory gives N / 2",
    "for ring over TAR and N / (N - 1) for a server over TAR, and the measurements agree. The published ratios of",
    "5.9 and 4.0 need drops that are not independent. Our second half is repaired in full, so only the first half's",
    "losses are left.",
)
# The rate at which ways are compared.
MIDDLE = RATES[1]


def tables(found: Found) -> Iterator[tuple[str, Rows]]:
    rates, at = [f"{100 * rate:g} %" for rate in RATES], f"at {100 * MIDDLE:g} %"
    for kind, ways in found.mse.items():
        head = ["method", *rates, f"over TAR {at}", "published, over TAR", f"worst block {at}"]
        rows = [
            [
                way,
                *(f"{ways[way][rate]:.3g}" for rate in RATES),
                f"{ways[way][MIDDLE] / ways[TAR][MIDDLE]:.2f}",
                f"{PUBLISHED[way] / PUBLISHED[TAR]:.2f}" if way in PUBLISHED else "-",
                f"{found.worst[kind][way][MIDDLE]:.3g}",
            ]
            for way in (*PUBLISHED, *OURS)
        ]
        yield f"One tensor, blocks {_kind(kind)}:", [head, *rows]
    for kind, fills in found.steps.items():
        rows = [
            [
                fill,
                *(f"{fills[fill][rate]:.3g}" for rate in RATES),
                f"{fills[fill][MIDDLE] / fills['zero'][MIDDLE]:.2f}",
            ]
            for fill in OURS_STEPS
        ]
        yield (
            f"Sum over {STEPS} steps, per step, blocks {_kind(kind)}:",
            [["ours", *rates, f"over zero {at}"], *rows],
        )


def text(found: Found) -> str:
    about = f"One tensor of {found.entries} entries, sum over {found.ranks} ranks"
    about += "; mean squared error, 1: knowing nothing"
    return "\n\n".join(
        [about, *(f"{title}\n{plain(rows)}" for title, rows in tables(found)), "\n".join(COMPARABLE)]
    )


def markdown(found: Found) -> Iterator[str]:
    yield "# How far one aggregated tensor is from the truth under equal drops"
    yield (
        f"`dlcp study mse --entries {found.entries} --ranks {found.ranks}`: mean squared error of the sum, per unit of "
        "its variance, at equal drop rates per packet and hop."
    )
    for title, rows in tables(found):
        yield f"**{title}**"
        yield pipes(rows)
    yield " ".join(COMPARABLE)


def _kind(kind: str) -> str:
    return f"of scales that differ (log-normal, {KINDS[kind]:g})" if KINDS[kind] else "all alike"
