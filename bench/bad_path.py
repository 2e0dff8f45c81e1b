"""One path of eight loses 30 % of its packets: whether the other seven still carry what they can."""

from __future__ import annotations

from bench.peers import Exchange, exchange
from bench.report import Bar, Figure, Report, Table, percentile
from dlcp.lab import Lab, Loss

SUMMARY = "8 paths, one loses 30 %: goodput against the other seven's share"
NEEDS_LAB = True
RATE_BPS = 10**9
PATHS, BAD_PATH, BAD_LOSS = 8, 3, 0.30
MESSAGE_BYTES = 4 << 20
KEPT = 0.95


def run(*, quick: bool) -> Report:
    repeats, seconds = (2, 3) if quick else (5, 6)
    clean: list[Exchange] = []
    bad: list[Exchange] = []
    with Lab(rate_bps=RATE_BPS) as lab:
        for _ in range(repeats):
            for loss, into in ((Loss(), clean), (Loss(bad_path=BAD_PATH, bad_path_ratio=BAD_LOSS), bad)):
                lab.set_loss(loss)
                into.append(
                    exchange(
                        lab, "lab_peer", bytes=MESSAGE_BYTES, outstanding=4, paths=PATHS, seconds=seconds
                    )
                )

    def share(e: Exchange) -> float:
        sent = {path["path"]: path["packets_sent"] for path in e.sender["paths"]}
        return sent.get(BAD_PATH, 0) / max(1, sum(sent.values()))

    table = Table(
        "4 messages of 4 MiB under way: median (lowest–highest)",
        ["", "goodput Mbit/s", "packets on the path", "packets repaired", "p99 ms", "idle"],
    )
    for name, results in (("no loss", clean), (f"path {BAD_PATH} loses 30 %", bad)):
        table.add(
            name,
            Figure.of([e.goodput_bps / 1e6 for e in results]).show(0),
            Figure.of([share(e) for e in results]).show(4),
            Figure.of(
                [e.sender["repair_packets_sent"] / e.sender["data_packets_sent"] for e in results]
            ).show(4),
            Figure.of([percentile(e.times_ms, 99) for e in results]).show(1),
            Figure.of([e.idle_ratio for e in results]).show(2),
        )
    against_all = Figure.of([b.goodput_bps / c.goodput_bps for b, c in zip(bad, clean, strict=True)])
    seven = (PATHS - 1) / PATHS
    against_seven = Figure(
        *(value / seven for value in (against_all.median, against_all.low, against_all.high))
    )
    return Report(
        "bad_path",
        {"repeats": repeats, "paths": PATHS, "rate": "1 Gbit/s"},
        [table],
        [Bar("goodput / (without the bad path's loss × 7/8)", KEPT, None, against_seven)],
        [f"goodput / without loss: {against_all.show()}; the paths share one link, so 1 is possible"],
    )
