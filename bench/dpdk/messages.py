"""Engines over the dpdk driver beside engines over sockets: round trips, what waiting costs, and goodput."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from bench.dpdk import ends
from bench.dpdk.ends import MEMIF, Ends, Words
from bench.dpdk.rates import Sample, Sampling, ratios, show, take
from bench.report import Report, spread

MESSAGE_BYTES = 64 << 20
ANSWER = {"bytes": MESSAGE_BYTES, "answer_bytes": 1, "warm_up_messages": 2}
PING = {"bytes": 64, "answer_bytes": 64, "warm_up_messages": 200}
IDLE = {"mode": "idle"}
POLLS = ("spin", "yield", "sleep", "auto")
LOSSES = ("lost_packets", "spurious_losses", "tx_dropped_packets")
BASE = "UDP on loopback, no offload"

Ask = Callable[..., Sample]


def run(report: Report, sampling: Sampling, driver: bool) -> None:
    with contextlib.ExitStack() as exits:
        host = exits.enter_context(ends.here())
        cable = None if ends.no_cable() else exits.enter_context(ends.cable())
        places: dict[str, Ask] = {}
        if driver:
            for poll in POLLS:
                places[f"memif, poll={poll}"] = _memif(host, f"checksum=none poll={poll}")
            places["memif, checksum in software"] = _memif(host, "checksum=software poll=spin")
        for name, where in (("loopback", host), ("veth", cable)):
            if where is None:
                continue
            places[f"UDP on {name}, no offload"] = _udp(where, False, where is cable)
            places[f"UDP on {name}, GSO and GRO"] = _udp(where, True, where is cable)
        cases: dict[str, Callable[[], Sample]] = {}
        for name, ask in places.items():
            cases[f"ping|{name}"] = lambda a=ask: a(**PING, seconds=sampling.seconds)
            cases[f"idle|{name}"] = lambda a=ask: a(**IDLE, seconds=sampling.seconds)
            cases[f"goodput|{name}"] = lambda a=ask: a(**ANSWER, seconds=2 * sampling.seconds)
        found = take(cases, sampling.repeats)
    _show_round_trips(report, places, found)
    _show_goodput(report, places, found)


def _memif(host: Ends, options: str) -> Ask:
    words = [ends.driver(MEMIF, end, options) for end in (0, 1)]
    return lambda **more: host.ask(words[0], words[1], **more)


def _udp(where: Ends, offload: bool, cable: bool) -> Ask:
    words: list[Words] = [
        {"bind": ends.KERNEL_ADDRESSES[end] if cable else "127.0.0.1", "offload": offload} for end in (0, 1)
    ]
    return lambda **more: where.ask(words[0], words[1], **more)


def _show_round_trips(report: Report, places: dict[str, Ask], found: dict[str, list[Sample]]) -> None:
    table = report.table(
        f"a message of {PING['bytes']} B and its answer, µs; processor time of an endpoint that waits, ms per second",
        ["", "median", "least", "p99", "times faster", "waiting ms/s"],
    )
    base = [sample[0] for sample in found[f"ping|{BASE}"]]
    for name in places:
        asked = [sample[0] for sample in found[f"ping|{name}"]]
        idle = [1e3 * sample[0]["cpu_s"] / sample[0]["wall_s"] for sample in found[f"idle|{name}"]]
        table.add(
            name,
            *(show(asked, key, 1) for key in ("median_us", "least_us", "p99_us")),
            ratios(base, asked, "median_us").show(1),
            spread(idle, 1),
        )


def _show_goodput(report: Report, places: dict[str, Ask], found: dict[str, list[Sample]]) -> None:
    table = report.table(
        f"goodput of a reliable message of {MESSAGE_BYTES >> 20} MiB between two engines; packets held to be lost,\n"
        "those of them that had arrived, and those dropped at either end, in all",
        [
            *("", "Gbit/s", "times", "sender CPU ms/message", "lost", "… wrongly"),
            *("dropped by sender", "by receiver"),
        ],
    )
    base = [sample[0] for sample in found[f"goodput|{BASE}"]]
    for name in places:
        asked, answered = ([sample[side] for sample in found[f"goodput|{name}"]] for side in (0, 1))
        table.add(
            name,
            spread((MESSAGE_BYTES * 8e-3 / a["median_us"] for a in asked), 2),
            ratios(base, asked, "median_us").show(1),
            spread((1e3 * a["cpu_s"] / max(1, a["messages"]) for a in asked), 1),
            *(str(sum(a[key] for a in asked)) for key in LOSSES),
            str(sum(a["rx_dropped_datagrams"] for a in answered)),
        )
