"""Steps of DistributedDataParallel where one link is bad and another is slow: Gloo, dlcp reliable, dlcp bounded.

Four hosts hang on a switch, a rank each. One cable loses 1 % of the packets, both ways; another carries half of what
the others do. Beside it stands the same network with all links whole. The model is a stack of equal layers whose
gradients fill several buckets; next to no arithmetic, so that a step is its communication. A step takes as long as
its slowest rank; a tail is judged by the steps of all repetitions together. Bounded mode says what it abandoned, and
must end with the same weights on all ranks as every other.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from dataclasses import dataclass
from typing import Any

from bench.collectives.world import DLCP, GLOO, Backend, Place, Ranks
from bench.report import Figure, Report, in_turn, percentile, ratios, slowest, spread
from dlcp.lab import Lab, Link, Loss, tcp_fill
from dlcp.lab.tcp_fill import TcpFill

SUMMARY = "DDP steps of 4 ranks, one link at 1 % loss, one at half rate: Gloo, dlcp, dlcp with bounded loss"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
# What two cores can forward for four hosts without being the limit themselves.
RATE_BPS = 2 * 10**8
LOSSY_HOST, SLOW_HOST = 1, 2
WHOLE_HOSTS = 0, 3
LINKS = {LOSSY_HOST: Link(loss=Loss(0.01)), SLOW_HOST: Link(rate_bps=RATE_BPS // 2)}
TROUBLE = "one lossy, one slow"
LAYERS, WIDTH, BATCH, KINDS = 8, 256, 32, 32
BUCKET_MB = 0.5
LOSS_BUDGET = 0.05
BOUNDED = Backend("dlcp bounded", "dlcp", {"DLCP_SHM": "0"})
IMPATIENT = Backend("dlcp bounded, impatient", "dlcp", {"DLCP_SHM": "0"})
# And what the hook's state is made with; None: there is no hook.
BACKENDS: dict[Backend, dict[str, Any] | None] = {
    GLOO: None,
    DLCP: None,
    BOUNDED: {"loss_budget": LOSS_BUDGET},
    IMPATIENT: {"loss_budget": LOSS_BUDGET, "patience_s": "auto"},
}


@dataclass(frozen=True)
class Account:
    """What one rank's hook says of all its steps."""

    sent_bytes: int
    """To ranks that add them: the budget is a share of this."""
    abandoned_bytes: int
    residual_bytes: int
    """Kept when the last step was over."""


@dataclass(frozen=True)
class Steps:
    """One rank's account."""

    parameters: int
    times_s: list[float]
    last_loss: float
    digest: str
    """Of the weights after the last step."""
    abandoned: Account | None = None
    """None: all gradients had to arrive."""


def run(*, quick: bool) -> Report:
    repeats, steps = (2, 30) if quick else (3, 80)
    # Whole links are there to show what a step takes; nothing is judged by their tail.
    places = {TROUBLE: (LINKS, repeats)} if quick else {"all links whole": ({}, 1), TROUBLE: (LINKS, repeats)}
    found: dict[tuple[str, str], list[list[Steps]]] = {}
    fills: dict[str, TcpFill] = {}
    settings: dict[str, object] = {
        "rate": f"{RATE_BPS / 1e6:g} Mbit/s",
        "loss": "1 %, both ways, of one link",
        "slow": "half rate, of another",
        "budget": LOSS_BUDGET,
        "steps": repeats * steps,
    }
    for words, (links, times) in places.items():
        with Ranks() as ranks, Lab(hosts=4, rate_bps=RATE_BPS, links=links) as lab:
            fills[words] = tcp_fill.measure(lab, *WHOLE_HOSTS)
            place = Place.of_lab(lab, lab.hosts)
            cases = {
                (words, backend.label): (place, backend, steps, options)
                for backend, options in BACKENDS.items()
            }
            found |= in_turn(times, cases, lambda case: ranks.run(train, *case))
            if links:
                settings["loss seen"] = f"{lab.arrivals(LOSSY_HOST).loss_ratio:.4f}"
    return judge(found, settings, fills)


def judge(
    found: dict[tuple[str, str], list[list[Steps]]], settings: dict[str, object], fills: dict[str, TcpFill]
) -> Report:
    """What was found, by network and backend: a world per repetition, a rank's account per rank."""
    parameters = next(iter(found.values()))[0][0].parameters
    report = Report("gradient_lab", settings, fills=fills)
    table = report.table(
        f"{parameters / 1e6:.2f} million parameters, slowest rank; p50 of a repetition: median (lowest–highest)",
        ["", "steps", "p50 ms", "p99 ms", "longest", "p99/p50", "deviation", "last loss", "same weights"],
    )
    tails: dict[tuple[str, str], float] = {}
    for (words, label), runs in found.items():
        times_s, alike = all_times_s(runs), agreeing(runs)
        p50, p99 = percentile(times_s, 50), percentile(times_s, 99)
        tails[words, label] = p99
        table.add(
            f"{words}, {label}",
            str(len(times_s)),
            spread((1e3 * median_s(steps) for steps in runs), 1),
            f"{1e3 * p99:.1f}",
            f"{1e3 * max(times_s):.1f}",
            f"{p99 / p50:.2f}",
            f"{1e3 * statistics.stdev(times_s):.1f}",
            f"{runs[0][0].last_loss:.4f}",
            f"{alike} of {len(runs)}",
        )
        if whole := account_of(runs):
            sent, abandoned = whole.sent_bytes, whole.abandoned_bytes
            report.notes.append(
                f"{words}, {label}: abandoned {abandoned / 1e6:.2f} MB of {sent / 1e6:.0f} MB, {abandoned / sent:.2%}; "
                f"kept at the end by one rank at most {whole.residual_bytes / 1e3:.1f} kB"
            )
        if alike < len(runs):
            report.notes.append(f"WRONG: {words}, {label}: ranks ended with different weights")
    # Not of whole links: there TCP's smaller headers decide.
    for over, under in ((GLOO, DLCP), (DLCP, BOUNDED), (GLOO, BOUNDED), (DLCP, IMPATIENT), (GLOO, IMPATIENT)):
        ratio = ratios(map(median_s, found[TROUBLE, over.label]), map(median_s, found[TROUBLE, under.label]))
        report.at_least(1.0, f"{TROUBLE}: p50, {over.label} / {under.label}", ratio)
        tail = Figure.of([tails[TROUBLE, over.label] / tails[TROUBLE, under.label]])
        report.at_least(1.0, f"{TROUBLE}: p99, {over.label} / {under.label}", tail)
    return report


def slowest_s(steps: list[Steps]) -> list[float]:
    """What each step took: the time of its slowest rank."""
    return slowest(rank.times_s for rank in steps)


def median_s(steps: list[Steps]) -> float:
    """Of one world's steps."""
    return statistics.median(slowest_s(steps))


def all_times_s(runs: list[list[Steps]]) -> list[float]:
    """Of all worlds' steps."""
    return [time_s for steps in runs for time_s in slowest_s(steps)]


def agreeing(runs: list[list[Steps]]) -> int:
    """In how many worlds all ranks ended with the same weights."""
    return sum(len({rank.digest for rank in steps}) == 1 for steps in runs)


def account_of(runs: list[list[Steps]]) -> Account | None:
    """By all ranks of all worlds together, and the most that one kept; None: nothing could be abandoned."""
    accounts = [rank.abandoned for steps in runs for rank in steps if rank.abandoned is not None]
    if not accounts:
        return None
    sent_bytes = sum(one.sent_bytes for one in accounts)
    abandoned_bytes = sum(one.abandoned_bytes for one in accounts)
    return Account(sent_bytes, abandoned_bytes, max(one.residual_bytes for one in accounts))


# --- on every rank --------------------------------------------------------------------------------------------


def train(steps: int, options: dict[str, Any] | None) -> Steps:
    """So many steps after a few that lay out the buckets. `options`: of bounded gradients; None: all arrive."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        linear = nn.Linear(WIDTH, WIDTH)
        nn.init.kaiming_normal_(linear.weight)
        layers += [linear, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    replica = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)
    state = None
    if options is not None:
        from dlcp.torch import GradientState, gradient_hook

        state = GradientState(model, **options)
        replica.register_comm_hook(state, gradient_hook)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.03, momentum=0.9)
    # Points around so many centres, the same on all ranks; each rank draws its own.
    centres = 0.3 * torch.randn(KINDS, WIDTH)
    generator = torch.Generator().manual_seed(dist.get_rank())
    times_s, last_loss = [], 0.0
    # DDP lays its buckets out anew after the first step.
    for step in range(3 + steps):
        kinds = torch.randint(KINDS, (BATCH,), generator=generator)
        batch = centres[kinds] + 0.3 * torch.randn(BATCH, WIDTH, generator=generator)
        start_s = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(replica(batch), kinds)
        loss.backward()
        optimizer.step()
        last_loss = float(loss.detach())
        if step >= 3:
            times_s.append(time.perf_counter() - start_s)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Steps(parameters, times_s, last_loss, digest.hexdigest(), _account(state))


def _account(state: Any) -> Account | None:
    if state is None:
        return None
    state.end_step()
    report = state.report()
    total, residual = report["total"], report["residual"]
    # The other half are the sums on their way back.
    return Account(total["contributed_bytes"], total["abandoned_bytes"], residual["nbytes"])
