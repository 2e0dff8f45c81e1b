"""One path of eight loses 30 % of its packets: whether the other seven still carry what they can."""

from __future__ import annotations

from bench.peers import Exchange, exchange
from bench.report import Figure, Report, in_turn, percentile, ratios, spread
from dlcp.lab import Lab, Loss

SUMMARY = "8 paths, one loses 30 %: goodput against the other seven's share"
NEEDS_LAB = True
RATE_BPS = 10**9
PATHS, BAD_PATH, BAD_LOSS = 8, 3, 0.30
MESSAGE_BYTES = 4 << 20
KEPT = 0.95


def run(*, quick: bool) -> Report:
    repeats, seconds = (2, 3) if quick else (5, 6)
    cases = {
        "no loss": Loss(),
        f"path {BAD_PATH} loses 30 %": Loss(bad_path=BAD_PATH, bad_path_ratio=BAD_LOSS),
    }
    with Lab(rate_bps=RATE_BPS) as lab:

        def send(loss: Loss) -> Exchange:
            lab.set_loss(loss)
            return exchange(lab, "lab_peer", bytes=MESSAGE_BYTES, outstanding=4, paths=PATHS, seconds=seconds)

        found = in_turn(repeats, cases, send)

    def share(e: Exchange) -> float:
        sent = {path["path"]: path["packets_sent"] for path in e.sender["paths"]}
        return sent.get(BAD_PATH, 0) / max(1, sum(sent.values()))

    def repaired(e: Exchange) -> float:
        return e.sender["repair_packets_sent"] / e.sender["data_packets_sent"]

    report = Report("bad_path", {"repeats": repeats, "paths": PATHS, "rate": "1 Gbit/s"})
    table = report.table(
        "4 messages of 4 MiB under way: median (lowest–highest)",
        ["", "goodput Mbit/s", "packets on the path", "packets repaired", "p99 ms", "idle"],
    )
    for name, results in found.items():
        table.add(
            name,
            spread((e.goodput_bps / 1e6 for e in results), 0),
            spread(map(share, results), 4),
            spread(map(repaired, results), 4),
            spread((percentile(e.times_ms, 99) for e in results), 1),
            spread((e.idle_ratio for e in results), 2),
        )
    clean, bad = ([e.goodput_bps for e in results] for results in found.values())
    against_all = ratios(bad, clean)
    seven = (PATHS - 1) / PATHS
    against_seven = Figure(
        *(value / seven for value in (against_all.median, against_all.low, against_all.high))
    )
    report.at_least(KEPT, "goodput / (without the bad path's loss × 7/8)", against_seven)
    report.notes.append(
        f"goodput / without loss: {against_all.show()}; the paths share one link, so 1 is possible"
    )
    return report
