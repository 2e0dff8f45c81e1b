"""How much of the bare socket's speed is left with the protocol over it: loopback, 1472-byte datagrams.

The bare sender and receiver (udp_limit, `bare_window`) keep a window as the protocol does and lose nothing.
What they cost depends on the memory they touch: `bare, windowed` sends one buffer again and again and receives
into another, so both stay in the cache; `bare, same memory` reads and fills as much as the `cold` messages do,
which are read from and placed into as much memory as a gradient takes. The bar compares like with like: cold
messages with the same memory; both bare figures are shown.
"""

from __future__ import annotations

import json

from bench import programs
from bench.report import Figure, Report, ratios, spread

SUMMARY = "packets per CPU second on loopback beside bare GSO/GRO, authentication off and on"
NEEDS_LAB = False
HOT = {"bytes": 256 << 10, "outstanding": 2}
COLD = {"bytes": 4 << 20, "outstanding": 4}
CASES: dict[str, dict[str, object]] = {
    "hot, 1 path": {**HOT, "paths": 1},
    "hot, 8 paths": {**HOT, "paths": 8},
    "hot, 1 path, authenticated": {**HOT, "paths": 1, "authenticate": 1},
    "cold, 1 path": {**COLD, "paths": 1},
    "cold, 8 paths": {**COLD, "paths": 8},
    "cold, 1 path, authenticated": {**COLD, "paths": 1, "authenticate": 1},
    "cold, 8 paths, authenticated": {**COLD, "paths": 8, "authenticate": 1},
    "cold, 8 paths, encrypted": {**COLD, "paths": 8, "encrypt": 1},
}
# What does not run the engine: name, and words for udp_limit.
LIMITS = {
    "bare, unlimited": ["--only", "bare_open"],
    "bare, windowed": ["--only", "bare_window"],
    "bare, same memory": [
        "--only",
        "bare_window",
        "--memory-bytes",
        str(COLD["bytes"] * COLD["outstanding"]),
    ],
    "driver alone, 1 path": ["--only", "driver_window", "--run", "256"],
    "driver alone, 8 paths": ["--only", "driver_window", "--paths", "8"],
}
BARE = "bare, same memory"
# Part of the bare rate, by whether packets carry a tag; on one path, as the bare sender has.
JUDGED = (
    ("4 MiB messages, authentication off", "cold, 1 path", 0.6),
    ("4 MiB messages, authentication on", "cold, 1 path, authenticated", 0.5),
)


def _limit(options: list[str], seconds: float) -> tuple[float, float]:
    line = [programs.path("udp_limit"), "--seconds", str(seconds), *options]
    answer = json.loads(programs.run(line).splitlines()[-1])
    return answer["sender_packets_per_cpu_second"], answer["receiver_packets_per_cpu_second"]


def run(*, quick: bool) -> Report:
    repeats, seconds = (2, 1) if quick else (5, 2)
    limits: dict[str, list[tuple[float, float]]] = {name: [] for name in LIMITS}
    engines: dict[str, list[dict]] = {name: [] for name in CASES}
    for _ in range(repeats):
        for name, words in LIMITS.items():
            limits[name].append(_limit(words, seconds))
        for name, options in CASES.items():
            engines[name].append(programs.ask("engine_loopback", seconds=seconds, **options))

    rates = dict(limits)
    for name, answers in engines.items():
        rates[name] = [
            (1e3 * a["sender"][0]["kpps_per_cpu_s"], 1e3 * a["receiver"][0]["kpps_per_cpu_s"])
            for a in answers
        ]

    def part(name: str, side: int) -> Figure:
        return ratios((own[side] for own in rates[name]), (bare[side] for bare in rates[BARE]))

    crypto = engines["cold, 1 path, authenticated"][0]["crypto"]
    report = Report("loopback", {"repeats": repeats, "seconds each": seconds, "crypto": crypto})
    table = report.table(
        "thousand packets per CPU second, and that as a part of bare with the same memory: median (lowest–highest)",
        ["", "sender", "receiver", "sender part", "receiver part", "Gbit/s", "lost"],
    )
    for name, found in rates.items():
        answers = engines.get(name)
        table.add(
            name,
            *(spread((sample[side] / 1e3 for sample in found), 0) for side in (0, 1)),
            *(part(name, side).show(2) for side in (0, 1)),
            spread((a["receiver"][0]["goodput_bps"] / 1e9 for a in answers), 1) if answers else "",
            str(sum(a["sender"][0]["lost_packets"] for a in answers)) if answers else "",
        )
    for what, name, limit in JUDGED:
        for index, side in enumerate(("sender", "receiver")):
            report.at_least(limit, f"{side}, {what}", part(name, index))
    return report
