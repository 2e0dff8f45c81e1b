"""Whether a packet costs more when many messages are under way."""

from __future__ import annotations

from bench import programs
from bench.report import Figure, Report, in_turn, spread

SUMMARY = "cost per packet from 10 to 10,000 messages in flight"
NEEDS_LAB = False
COUNTS = (10, 100, 1_000, 10_000)
BLOCKS = 4
MOST = 1.5


def run(*, quick: bool) -> Report:
    repeats, packets = (2, 200_000) if quick else (5, 1_000_000)
    report = Report("in_flight", {"blocks per message": BLOCKS, "repeats": repeats, "packets": packets})
    table = report.table(
        "ns per data packet, sender + receiver: median (lowest–highest)",
        ["messages", *(f"{count:,}" for count in COUNTS), "10,000 : 10"],
    )
    for payload in ("virtual", "real"):

        def cost(count: int, payload: str = payload) -> float:
            answer = programs.ask(
                "messages_in_flight", messages=count, blocks=BLOCKS, packets=packets, payload=payload
            )
            return answer["sender_ns"] + answer["receiver_ns"]

        costs = in_turn(repeats, {count: count for count in COUNTS}, cost)
        # Within one repetition the machine was in one mood, so the ratio is taken there.
        worst = Figure.of(max(run) / run[0] for run in zip(*costs.values(), strict=True))
        growth = Figure.of(run[-1] / run[0] for run in zip(*costs.values(), strict=True))
        table.add(f"{payload} payload", *(spread(costs[count], 0) for count in COUNTS), growth.show(2))
        report.at_most(MOST, f"dearest against 10 messages, {payload} payload", worst)
    return report
