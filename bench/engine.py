"""What the engine costs per packet with nothing around it: memory for a network, virtual time."""

from __future__ import annotations

from bench import programs
from bench.report import Report, in_turn, spread

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
    return report
