"""What the engine costs per packet with nothing around it: memory for a network, virtual time."""

from __future__ import annotations

from bench import programs
from bench.report import Figure, Report, Table

SUMMARY = "ns per packet of the engine alone, sender and receiver"
NEEDS_LAB = False
CASES = {
    "virtual payload": {"payload": "virtual"},
    "real payload": {"payload": "real"},
    "real, authenticated": {"payload": "real", "authenticate": 1},
    "real, encrypted": {"payload": "real", "encrypt": 1},
}


def run(*, quick: bool) -> Report:
    repeats, packets = (2, 200_000) if quick else (5, 1_000_000)
    found: dict[str, list[dict]] = {name: [] for name in CASES}
    for _ in range(repeats):
        for name, options in CASES.items():
            found[name].append(
                programs.ask("messages_in_flight", messages=4, blocks=3000, packets=packets, **options)
            )

    table = Table(
        "ns per data packet of processor time: median (lowest–highest)",
        ["4 messages of 3000 blocks", "sender", "transmit", "acks", "receiver", "arrive", "acks out"],
    )
    for name, answers in found.items():

        def of(key: str, answers: list[dict] = answers) -> str:
            return Figure.of([a[key] for a in answers]).show(0)

        table.add(
            name,
            of("sender_ns"),
            of("sender_transmit_ns"),
            of("sender_arrive_ns"),
            of("receiver_ns"),
            of("receiver_arrive_ns"),
            of("receiver_transmit_ns"),
        )
    return Report("engine", {"repeats": repeats, "packets": packets}, [table])
