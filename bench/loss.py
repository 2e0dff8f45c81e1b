"""Completion times and goodput of messages across a link that loses packets, beside TCP on the same link."""

from __future__ import annotations

from bench.peers import Exchange, exchange
from bench.report import Figure, Report, percentile, ratios, spread
from dlcp.lab import Lab, Loss, tcp_fill

SUMMARY = "1 Gbit/s, 1 % loss: p50 and p99 of 4 MB messages, goodput, TCP cubic beside"
NEEDS_LAB = True
RATE_BPS = 10**9
LOSS_RATIO = 0.01
MESSAGE_BYTES = 4 << 20
BUDGET = 0.02
TAIL_RELIABLE, TAIL_BOUNDED, GOODPUT_KEPT = 2.0, 1.3, 0.95

# Name, loss on the link, program, options.
CASES = (
    ("TCP cubic, no loss", 0.0, "tcp_peer", {}),
    ("TCP cubic, 1 %", LOSS_RATIO, "tcp_peer", {}),
    ("reliable, no loss", 0.0, "lab_peer", {}),
    ("reliable, 1 %", LOSS_RATIO, "lab_peer", {}),
    ("bounded 2 %, no loss", 0.0, "lab_peer", {"mode": "bounded", "loss_ratio": BUDGET}),
    ("bounded 2 %, 1 %", LOSS_RATIO, "lab_peer", {"mode": "bounded", "loss_ratio": BUDGET}),
)


def run(*, quick: bool) -> Report:
    repeats, times_s, goodput_s = (2, 3, 2) if quick else (5, 6, 3)
    single: dict[str, list[Exchange]] = {case[0]: [] for case in CASES}
    stream: dict[str, list[Exchange]] = {case[0]: [] for case in CASES}
    seen_loss: list[float] = []
    with Lab(rate_bps=RATE_BPS) as lab:
        fill = tcp_fill.measure(lab)
        for _ in range(repeats):
            for name, loss_ratio, program, options in CASES:
                lab.set_loss(Loss(loss_ratio))
                single[name].append(exchange(lab, program, bytes=MESSAGE_BYTES, seconds=times_s, **options))
                stream[name].append(
                    exchange(lab, program, bytes=MESSAGE_BYTES, seconds=goodput_s, outstanding=4, **options)
                )
                if loss_ratio:
                    seen_loss.append(lab.arrivals(0).loss_ratio)

    def tails(name: str) -> Figure:
        return Figure.of(percentile(e.times_ms, 99) / percentile(e.times_ms, 50) for e in single[name])

    settings = {"repeats": repeats, "rate": "1 Gbit/s", "message": "4 MiB"}
    report = Report("lab", settings, fills={"": fill})
    table = report.table(
        "one message at a time; goodput and processor time with 4 under way: median (lowest–highest)",
        [
            *("", "messages", "p50 ms", "p99 ms", "longest ms", "p99/p50"),
            *("goodput Mbit/s", "CPU s/GB tx", "CPU s/GB rx", "idle"),
        ],
    )
    for name, *_ in CASES:
        one, several = single[name], stream[name]
        gigabytes = [e.sender["messages"] * MESSAGE_BYTES / 1e9 for e in several]
        table.add(
            name,
            str(sum(len(e.times_ms) for e in one)),
            *(spread((percentile(e.times_ms, percent) for e in one), 1) for percent in (50, 99)),
            f"{max(max(e.times_ms) for e in one):.1f}",
            tails(name).show(2),
            spread((e.goodput_bps / 1e6 for e in several), 0),
            ratios((e.sender["cpu_s"] for e in several), gigabytes).show(2),
            ratios((e.receiver["cpu_s"] for e in several), gigabytes).show(2),
            spread((e.idle_ratio for e in one), 2),
        )
    lossy, clean = ([e.goodput_bps for e in stream[f"reliable, {loss}"]] for loss in ("1 %", "no loss"))
    report.at_most(TAIL_RELIABLE, "reliable at 1 % loss, p99 / p50", tails("reliable, 1 %"))
    report.at_most(TAIL_BOUNDED, "bounded 2 % at 1 % loss, p99 / p50", tails("bounded 2 %, 1 %"))
    report.at_least(GOODPUT_KEPT, "reliable, goodput at 1 % loss / without", ratios(lossy, clean))
    bounded = (*single["bounded 2 %, 1 %"], *stream["bounded 2 %, 1 %"])
    abandoned = sum(e.receiver["abandoned_bytes"] for e in bounded)
    total = sum(e.sender["messages"] * MESSAGE_BYTES for e in bounded)
    report.notes += [
        f"link lost {spread(seen_loss, 4)} of packets; bounded messages went without "
        f"{abandoned / total:.4f} of their bytes",
        f"TCP was {'/'.join(sorted({e.sender['congestion'] for e in single['TCP cubic, 1 %']}))}; "
        f"its p99 / p50 at 1 % loss: {tails('TCP cubic, 1 %').show(2)}",
        f"what this machine's scheduling makes of p99 / p50 without loss: reliable "
        f"{tails('reliable, no loss').show(2)}, bounded {tails('bounded 2 %, no loss').show(2)}",
    ]
    return report
