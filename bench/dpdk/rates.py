"""Packets per processor second of the dpdk driver's table beside DPDK alone, and beside sockets.

Each side is measured against the same other one: a sender with DPDK alone as its receiver, a receiver with DPDK alone
as its sender. What DPDK alone does per packet is written in dpdk_limit.cpp: that of testpmd's txonly and rxonly.

Two measures stand side by side. Packets per second of processor time are what is asked for and what bars are about:
all that the process spends counts, so also the polls of a receiver that find nothing. Cycles per packet are of those
calls alone that moved some. Where the two ratios differ, as they do for a receiver whose sender is slower or shares its
core with others, the former is about waiting and the latter about the work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.dpdk import ends
from bench.dpdk.ends import AF_PACKET, MEMIF, NULL, Device, Ends, Words
from bench.report import Figure, Report, spread

KEPT = 0.8  # of DPDK alone
TIMES = 5.0  # sockets without segmentation offload
BURSTS = (1, 8, 32, 64)
TRIES = 3
ADDRESSED: Words = {"from": ends.ADDRESSES[0], "to": ends.ADDRESSES[1], "port": ends.PORT}
BODY = "payload written"
SUMS = "payload and checksum"

# Payload of dpdk_limit, of driver_rate, and the driver's checksum option.
SENDERS: dict[str, tuple[Words, Words, str]] = {
    "as txonly": ({"payload": "none"}, {"payload": "none"}, "checksum=none"),
    BODY: ({"payload": "body"}, {"payload": "body"}, "checksum=none"),
    SUMS: ({"payload": "body", "checksum": 1}, {"payload": "body"}, "checksum=software"),
}

Sample = tuple[dict, dict]  # what sender and receiver said
Case = Callable[[], Sample]


@dataclass(frozen=True)
class Sampling:
    repeats: int
    seconds: float

    def words(self, device: Device) -> Words:
        return {"seconds": self.seconds, "window": device.window}


def take(cases: dict[str, Case], repeats: int) -> dict[str, list[Sample]]:
    """Every case once per repetition, in an order that turns by one each time."""
    found: dict[str, list[Sample]] = {name: [] for name in cases}
    names = list(cases)
    for repeat in range(repeats):
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            for _ in range(TRIES):
                sample = cases[name]()
                # None moved if one end was not let run for so long: nothing was measured.
                if all(said.get("packets", 1) for said in sample):
                    break
            found[name].append(sample)
    return found


def _limit(device: Device, end: int, memory: str, words: Words) -> tuple[str, Words]:
    return "dpdk_limit", {"eal": ends.eal(device, end, memory), **words}


def _driver(device: Device, end: int, memory: str, options: str, words: Words) -> tuple[str, Words]:
    return "driver_rate", {**ends.driver(device, end, options, memory), **words}


def pairs(
    device: Device, memory: str = ends.NO_PAGES, what: Sequence[str] = ()
) -> dict[str, tuple[tuple[str, Words], tuple[str, Words]]]:
    """Senders and receivers on one device: "bare: …", "driver: …" by kind of sender, and "driver receives"."""
    addressed = ADDRESSED | {"to_mac": ends.MACS[1]}
    listening = _limit(device, 1, memory, {"port": ends.PORT})
    found = {}
    for kind, (bare, own, options) in SENDERS.items():
        if what and kind not in what:
            continue
        found[f"bare: {kind}"] = _limit(device, 0, memory, {**addressed, **bare}), listening
        found[f"driver: {kind}"] = _driver(device, 0, memory, options, own), listening
    found["driver receives"] = (
        _limit(device, 0, memory, {**addressed, **SENDERS["as txonly"][0]}),
        _driver(device, 1, memory, "checksum=none poll=spin", {}),
    )
    return found


def beside_dpdk(
    where: Ends, device: Device, sampling: Sampling, memory: str = ends.NO_PAGES, what: Sequence[str] = ()
) -> dict[str, Case]:
    """The pairs of one device as cases."""
    return {
        name: lambda s=sender, r=receiver: where.move(s, r, **sampling.words(device))
        for name, (sender, receiver) in pairs(device, memory, what).items()
    }


def by_burst(where: Ends, sampling: Sampling) -> dict[str, Case]:
    """Cases on shared memory whose both ends move so many packets at a time: what a call costs beside a packet."""
    more = {**sampling.words(MEMIF), "seconds": min(0.2, sampling.seconds)}
    cases = {}
    for burst in BURSTS:
        for name, (sender, receiver) in pairs(MEMIF, ends.NO_PAGES, ("as txonly",)).items():
            cases[f"{name}|{burst}"] = lambda s=sender, r=receiver, b=burst: where.move(s, r, **more, burst=b)
    return cases


def into_null(where: Ends, sampling: Sampling) -> dict[str, Case]:
    """The same senders into a device that frees what it is given."""
    more: Words = {"seconds": sampling.seconds}
    cases: dict[str, Case] = {}
    for kind, (bare, own, options) in SENDERS.items():
        for side, (program, words) in {
            "bare": _limit(NULL, 0, ends.NO_PAGES, {**ADDRESSED, **bare}),
            "driver": _driver(NULL, 0, ends.NO_PAGES, options, own),
        }.items():
            cases[f"{side}: {kind}"] = lambda p=program, w=words: (where.send(p, w, **more), {})
    return cases


def whole(where: Ends, sampling: Sampling, options: str, polls: bool = False) -> Case:
    """The driver at both ends of shared memory.

    A receiver that finds nothing waits, as an engine's does and as that of sockets(), or polls on.
    """
    sender = _driver(MEMIF, 0, ends.NO_PAGES, options, {"payload": "body"})
    receiver = _driver(MEMIF, 1, ends.NO_PAGES, options, {"sleep": int(not polls)})
    return lambda: where.move(sender, receiver, **sampling.words(MEMIF))


def sockets(where: Ends, sampling: Sampling, offload: bool, cable: bool) -> Case:
    """The UDP driver at both ends."""
    words = [
        {"driver": "udp", "bind": ends.KERNEL_ADDRESSES[end] if cable else "127.0.0.1", "offload": offload}
        for end in (0, 1)
    ]
    sender = ("driver_rate", {**words[0], "payload": "body"})
    receiver = ("driver_rate", {**words[1], "sleep": 1})
    return lambda: where.move(sender, receiver, **sampling.words(MEMIF))


def judge_devices(found: dict[str, dict[str, list[Sample]]], report: Report) -> None:
    """Table and bars of the driver beside DPDK alone; by device, then by case."""
    table = report.table(
        "the dpdk driver's table beside DPDK alone, 1472 B: thousand packets per CPU second, empty polls included;\n"
        "cycles of a packet in bursts that moved some; the driver's part of DPDK's rate by either, a bar being about\n"
        "the former: median (lowest–highest)",
        ["", "alone kpps/CPU-s", "driver", "part", "alone cycles", "driver", "part"],
    )
    for device, cases in found.items():
        rows = [("sender", kind, 0, f"bare: {kind}", f"driver: {kind}") for kind in SENDERS]
        rows.append(("receiver", "as rxonly", 1, "bare: as txonly", "driver receives"))
        for end, kind, side, bare, own in rows:
            if bare not in cases or not cases[bare][0][side]:
                continue
            alone = [sample[side] for sample in cases[bare]]
            driver = [sample[side] for sample in cases.get(own, [])]
            name = f"{device}, {end}, {kind}"
            by_cpu, by_cycles = "", ""
            if driver:
                part = ratios(driver, alone, "kpps_per_cpu_s")
                report.at_least(KEPT, f"{name}: part of DPDK's packets per CPU second", part)
                by_cpu, by_cycles = part.show(2), ratios(alone, driver, "busy_cycles").show(2)
            kpps, cycles = (
                [show(said, key) if said else "" for said in (alone, driver)]
                for key in ("kpps_per_cpu_s", "busy_cycles")
            )
            table.add(name, *kpps, by_cpu, *cycles, by_cycles)


def show_bursts(found: dict[str, list[Sample]], report: Report) -> None:
    """Table of a packet's cycles by how many move at a time."""
    table = report.table(
        "cycles per packet on memif by packets per call, no payload written",
        ["", *(str(burst) for burst in BURSTS)],
    )
    for name, case, side in (
        ("sender, alone", "bare: as txonly", 0),
        ("sender, driver", "driver: as txonly", 0),
        ("receiver, alone", "bare: as txonly", 1),
        ("receiver, driver", "driver receives", 1),
    ):
        if f"{case}|{BURSTS[0]}" in found:
            cells = ([sample[side] for sample in found[f"{case}|{burst}"]] for burst in BURSTS)
            table.add(name, *(show(answers, "busy_cycles") for answers in cells))


def judge_sockets(found: dict[str, list[Sample]], own: str, against: Sequence[str], report: Report) -> None:
    """Table of the driver at both ends beside sockets, and bars against those named. `own` may not be there."""
    table = report.table(
        "both ends through a driver's table, 1472 B: thousand packets per CPU second, empty polls included; cycles of\n"
        "a packet in bursts that moved some; times by either, a bar being about the former: median (lowest–highest)",
        [
            *("", "sender kpps/CPU-s", "receiver", "sender cycles", "receiver", "kpps"),
            *("times by CPU-s, sender", "receiver", "by cycles, sender", "receiver"),
        ],
    )
    for name, samples in found.items():
        sender, receiver = [s[0] for s in samples], [s[1] for s in samples]
        base = found.get(own, samples)
        ours, theirs = ([[s[side] for s in one] for side in (0, 1)] for one in (base, samples))
        by_cpu = [ratios(a, b, "kpps_per_cpu_s") for a, b in zip(ours, theirs, strict=True)]
        by_cycles = [ratios(b, a, "busy_cycles") for a, b in zip(ours, theirs, strict=True)]
        table.add(
            name,
            *(show(end, key) for key in ("kpps_per_cpu_s", "busy_cycles") for end in (sender, receiver)),
            show(receiver, "kpps"),
            *(times.show(1) for times in by_cpu + by_cycles),
        )
        if own in found and name in against:
            for side, times in zip(("sender", "receiver"), by_cpu, strict=True):
                report.at_least(TIMES, f"{side}, {own}: times the packets per CPU second of {name}", times)


def show(answers: Sequence[dict], key: str, digits: int = 0) -> str:
    return spread((answer[key] for answer in answers), digits)


def ratios(above: Sequence[dict], below: Sequence[dict], key: str) -> Figure:
    return Figure.of(a[key] / max(b[key], 1e-9) for a, b in zip(above, below, strict=True))


def run(report: Report, sampling: Sampling, driver: bool) -> None:
    """Everything of packets per processor second; without the driver, what is there without it."""
    with contextlib.ExitStack() as exits:
        host = exits.enter_context(ends.here())
        cable = None
        if reason := ends.no_cable():
            report.notes.append(f"no veth: {reason}")
        else:
            cable = exits.enter_context(ends.cable())
        groups: dict[str, dict[str, Case]] = {}
        if ends.without_dpdk() is None:
            groups["memif"] = beside_dpdk(host, MEMIF, sampling)
            if cable:
                groups["af_packet"] = beside_dpdk(cable, AF_PACKET, sampling, what=("as txonly", BODY))
            groups["null"] = into_null(host, sampling)
            groups["bursts"] = by_burst(host, sampling)
            if reason := exits.enter_context(ends.pages()):
                report.notes.append(reason)
            else:
                groups["memif, 2 MB pages"] = beside_dpdk(
                    host, MEMIF, sampling, ends.PAGES, ("as txonly", BODY)
                )
        groups["both"] = {
            OWN: whole(host, sampling, "checksum=none"),
            f"{OWN}, receiver polls": whole(host, sampling, "checksum=none", polls=True),
            f"{OWN}, checksum in software": whole(host, sampling, "checksum=software"),
        }
        against = []
        for place, where in (("loopback", host), ("veth", cable)):
            if where is None:
                continue
            against.append(f"UDP on {place}, no offload")
            groups["both"][against[-1]] = sockets(where, sampling, False, where is cable)
            groups["both"][f"UDP on {place}, GSO and GRO"] = sockets(where, sampling, True, where is cable)
        cases = {
            f"{group}|{name}": case
            for group, more in groups.items()
            for name, case in more.items()
            if driver or not name.startswith("driver")
        }
        samples = take(cases, sampling.repeats)
    found = {
        group: {name: samples[f"{group}|{name}"] for name in more if f"{group}|{name}" in samples}
        for group, more in groups.items()
    }
    both, bursts = found.pop("both"), found.pop("bursts", {})
    judge_devices(found, report)
    show_bursts(bursts, report)
    judge_sockets(both, OWN, against, report)


OWN = "driver on memif"
