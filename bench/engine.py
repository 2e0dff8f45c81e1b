"""What the engine costs per packet with nothing around it: memory for a network, virtual time; few, many messages."""

from __future__ import annotations

from bench import programs
from bench.report import Figure, Report, in_turn, spread

SUMMARY = "ns per packet of the engine alone, sender and receiver"
NEEDS_LAB = False
CASES = {
    "virtual payload": {"payload": "virtual"},
    "real payload": {"payload": "real"},
    "real, authenticated": {"payload": "real", "authenticate": 1},
    "real, encrypted": {"payload": "real", "encrypt": 1},
}
# Columns, and what answers call them.
COLUMNS = {
    "sender": "sender_ns",
    "transmit": "sender_transmit_ns",
    "acks": "sender_arrive_ns",
    "receiver": "receiver_ns",
    "arrive": "receiver_arrive_ns",
    "acks out": "receiver_transmit_ns",
}
COUNTS = (10, 100, 1_000, 10_000)
MOST = 1.5


def run(*, quick: bool) -> Report:
    repeats, packets = (2, 200_000) if quick else (5, 1_000_000)
    found = in_turn(
        repeats,
        CASES,
        lambda options: programs.ask(
            "messages_in_flight", messages=4, blocks=3000, packets=packets, **options
        ),
    )
    report = Report("engine", {"repeats": repeats, "packets": packets})
    table = report.table(
        "ns per data packet of processor time: median (lowest–highest)",
        ["4 messages of 3000 blocks", *COLUMNS],
    )
    for name, answers in found.items():
        table.add(name, *(spread((a[key] for a in answers), 0) for key in COLUMNS.values()))
    table = report.table(
        "messages of 4 blocks: ns per data packet, sender + receiver",
        ["messages", *(f"{count:,}" for count in COUNTS), "10,000 : 10"],
    )
    for payload in ("virtual", "real"):

        def cost(count: int, payload: str = payload) -> float:
            answer = programs.ask(
                "messages_in_flight", messages=count, blocks=4, packets=packets, payload=payload
            )
            return answer["sender_ns"] + answer["receiver_ns"]

        costs = in_turn(repeats, {count: count for count in COUNTS}, cost)
        # Within one repetition the machine was in one mood, so the ratio is taken there.
        turns = list(zip(*costs.values(), strict=True))
        growth = Figure.of(turn[-1] / turn[0] for turn in turns)
        table.add(f"{payload} payload", *(spread(costs[count], 0) for count in COUNTS), growth.show(2))
        worst = Figure.of(max(turn) / turn[0] for turn in turns)
        report.at_most(MOST, f"dearest against 10 messages, {payload} payload", worst)
    return report
