"""What a data packet costs the engine and what it costs the driver, and how the latter depends on bursts and runs.

The driver sends into net_null, which frees what it is given: nothing but the driver is measured, and the engine's cost
stands beside it with the driver's taken out.
"""

from __future__ import annotations

import json
import statistics

from bench import programs
from bench.dpdk import ends
from bench.dpdk.ends import Ends, Words
from bench.dpdk.rates import Sampling, ratios, show, take
from bench.report import Figure, Report

BATCHES = (1, 8, 32, 64, 128, 256)
RUNS: dict[str, Words] = {
    "1 path": {"paths": 1},
    "runs of 16": {"paths": 8, "run": 16},
    "runs of 4": {"paths": 8, "run": 4},
    "runs of 1": {"paths": 8, "run": 1},
    "mixed paths and TOS": {"paths": 8, "mixed": 1},
}
KEYS: dict[str, Words] = {"no key": {}, "tag": {"authenticate": 1}, "encrypted": {"encrypt": 1}}
SECTIONS = ("transmit", "arrive", "acks", "engine", "plain", "put")


def run(report: Report, sampling: Sampling, driver: bool) -> None:
    with ends.here() as host:
        _sections(report, sampling, host, driver)
        if driver:
            _bursts(report, sampling, host)


def _engine(host: Ends, sampling: Sampling, words: Words, driver: bool) -> dict:
    device = ends.NULL_JUMBO if words.get("datagram_bytes", 1472) > 1472 else ends.NULL
    if driver:
        opened = {**ends.driver(device, 0, "checksum=none"), "to": f"{ends.ADDRESSES[1]}:{ends.PORT}"}
        del opened["port"]
    else:
        opened = {"driver": "none"}
    more: Words = {"packets": int(600_000 * sampling.seconds)}
    line = host.line(0, "engine_cost", {**opened, **more, **words})
    return json.loads(programs.run(line).splitlines()[-1])


def _sections(report: Report, sampling: Sampling, host: Ends, driver: bool) -> None:
    kinds: dict[str, Words] = {}
    for datagram_bytes in (1472, 8972):
        for key, words in KEYS.items():
            kinds[f"{datagram_bytes} B, {key}"] = {"datagram_bytes": datagram_bytes, **words}
    for batch in BATCHES:
        kinds[f"1472 B, no key, bursts of {batch}"] = {"batch": batch}
    found = take(
        {name: lambda w=words: (_engine(host, sampling, w, driver), {}) for name, words in kinds.items()},
        sampling.repeats,
    )
    table = report.table(
        "ns per data packet (cycles), sender and receiver in one thread; transmit: poll_transmit, arrive: "
        "handle_packets, plain: memcpy of the payload alone; put: the driver into net_null, not in `engine`",
        ["", *SECTIONS],
    )
    for name, samples in found.items():
        answers = [sample[0] for sample in samples]

        def cell(section: str, answers: list[dict] = answers) -> str:
            ns, cycles = (Figure.of([a[f"{section}_{unit}"] for a in answers]) for unit in ("ns", "cycles"))
            return f"{ns.show(0)} ({cycles.median:.0f})"

        table.add(name, *(cell(section) for section in SECTIONS))


def _bursts(report: Report, sampling: Sampling, host: Ends) -> None:
    seconds = min(0.2, sampling.seconds)
    cases = {}
    for batch in BATCHES:
        for runs, words in RUNS.items():
            for payload in ("none", "body"):
                line = {
                    **ends.driver(ends.NULL, 0, "checksum=none"),
                    **words,
                    "burst": batch,
                    "payload": payload,
                }
                cases[f"{batch}|{runs}|{payload}"] = lambda w=line: (
                    host.send("driver_rate", w, seconds=seconds, warm_up=0.02),
                    {},
                )
    found = take(cases, sampling.repeats)
    for payload, what in (
        ("none", "no payload written"),
        ("body", "1408 B of payload from the caller's memory"),
    ):
        table = report.table(
            f"ns (cycles) per packet of tx_get and tx_put into net_null, {what}, by packets per burst",
            ["", *map(str, BATCHES), f"{BATCHES[0]} : 64"],
        )
        for runs in RUNS:
            by_batch = {b: [s[0] for s in found[f"{b}|{runs}|{payload}"]] for b in BATCHES}
            table.add(
                runs,
                *(
                    f"{show(answers, 'busy_ns', 1)} ({statistics.median(a['busy_cycles'] for a in answers):.0f})"
                    for answers in by_batch.values()
                ),
                ratios(by_batch[BATCHES[0]], by_batch[64], "busy_ns").show(1),
            )
