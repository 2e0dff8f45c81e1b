"""Packets per second through one switch between two cables: the software switch, and BMv2 with the shipped program.

A sender in one namespace, the switch in another, the far cable's end in a third, where the interface counts what
arrives and nobody takes it. Every load runs for a while; what counts is the highest one of which 99 of 100 arrive, and
packets per second of the switch's processor time, since all share the same cores. What the kernel does for a frame
up to the switch's receive ring is paid by the sender, up to the far end's interface by the switch.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.programs import path
from bench.programs import run as run_program
from bench.report import Figure, Report, spread
from dlcp.lab import simple_switch
from dlcp.switch.policy import Policy, Thresholds, TrafficClass
from dlcp.switch.software import start

SUMMARY = "kpps through the software switch on veth, and through BMv2 where it is on PATH"
NEEDS_LAB = True
DELIVERED = 0.99
FRAME_BYTES = (100, 1400)
LOADS_KPPS = (160, 240, 320, 400, 560, 800, 1120)
BMV2_LOADS_KPPS = (6, 8, 12, 16, 24, 32, 48, 64, 96)
BMV2_KPPS = 16.0  # of a build with logging, the best that was seen: what "20 times" was said of
TIMES = 20.0
SENDER, RECEIVER = "02:00:00:00:00:01", "02:00:00:00:00:02"

POLICY = Policy(
    "benchmark",
    (
        TrafficClass(
            1,
            dscp=(0,),
            critical=Thresholds(mark_from_bytes=500_000),
            droppable=(Thresholds(drop_above_bytes=1_000_000),),
        ),
    ),
    port_bytes=4_000_000,
)


@dataclass(frozen=True)
class Passed:
    """One load: what was sent, what arrived, in how long, and the switch's processor time meanwhile."""

    sent: int
    arrived: int
    seconds: float
    busy_s: float

    @property
    def kpps(self) -> float:
        return self.arrived / self.seconds / 1e3

    @property
    def kpps_per_cpu(self) -> float:
        return self.arrived / self.busy_s / 1e3 if self.busy_s else float("nan")

    @property
    def delivered(self) -> float:
        return self.arrived / self.sent


class Cables:
    """Three namespaces and two cables: eth0 – sw1, sw2 – eth0. A context manager."""

    def __enter__(self) -> Cables:
        self._names = [f"dlcp-{os.getpid()}-bench{part}" for part in ("a", "b", "s")]
        self._exits = contextlib.ExitStack()
        for name in self._names:
            run_program(["ip", "netns", "add", name])
            self._exits.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True)
            run_program(f"ip -n {name} link set lo up".split())  # BMv2 is reached by it
            for which in ("all", "default"):
                setting = f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6"
                run_program([*self._in(name), "sh", "-c", f"echo 1 > {setting}"])
        for host, port in ((0, "sw1"), (1, "sw2")):
            near, switch = self._names[host], self._names[2]
            run_program(f"ip -n {near} link add eth0 type veth peer name {port} netns {switch}".split())
            run_program(f"ip -n {near} link set eth0 up".split())
            run_program(f"ip -n {switch} link set {port} up".split())
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def prefix(self) -> list[str]:
        """Words before a command that is to run where the switch is."""
        return self._in(self._names[2])

    @property
    def sender(self) -> list[str]:
        """The same, where frames come from."""
        return self._in(self._names[0])

    def load(self, frame_bytes: int, kpps: float, seconds: float, cpu_s: Callable[[], float]) -> Passed:
        """Sends, and counts what arrives at the far interface."""
        counter = [*self._in(self._names[1]), "cat", "/sys/class/net/eth0/statistics/rx_packets"]
        before, busy = int(run_program(counter)), cpu_s()
        words = [*self._in(self._names[0]), str(path("raw_frames"))]
        words += ["--bytes", str(frame_bytes), "--kpps", str(kpps), "--seconds", str(seconds)]
        told = json.loads(run_program(words))
        run_program(["sleep", "0.2"])
        arrived = int(run_program(counter)) - before
        return Passed(told["sent"], arrived, told["seconds"], cpu_s() - busy)

    @staticmethod
    def _in(name: str) -> list[str]:
        return ["ip", "netns", "exec", name]


def run(*, quick: bool) -> Report:
    seconds, repeats = (0.5, 1) if quick else (1.0, 3)
    report = Report("software switch", {"ports": "veth", "flows": 16, "seconds": seconds, "repeats": repeats})
    ours = _measure("software", _software, LOADS_KPPS, seconds, repeats, report)
    reason = _bmv2_missing()
    if reason is None:
        theirs = _measure("BMv2", _bmv2, BMV2_LOADS_KPPS, seconds, repeats, report)
        for frame_bytes in FRAME_BYTES:
            report.notes.append(f"{frame_bytes} B: " + _compare(frame_bytes, ours, theirs))
    else:
        report.notes.append(f"BMv2 was not measured: {reason}")
    what = f"kpps of which {DELIVERED} arrive, of {FRAME_BYTES[0]} B: {TIMES:g} times BMv2's {BMV2_KPPS:g}"
    report.at_least(TIMES * BMV2_KPPS, what, ours[0][FRAME_BYTES[0]])
    return report


def _measure(
    name: str,
    switch: Callable[[Cables], contextlib.AbstractContextManager[Callable[[], float]]],
    loads: Sequence[float],
    seconds: float,
    repeats: int,
    report: Report,
) -> tuple[dict[int, Figure], dict[int, Figure]]:
    """By frame length: the highest load that arrives, and packets per CPU second. A table goes into the report."""
    table = report.table(
        f"{name}: median (lowest–highest)", ["offered kpps", "bytes", "kpps", "delivered", "kpps/CPU-s"]
    )
    highest: dict[int, list[float]] = {frame_bytes: [] for frame_bytes in FRAME_BYTES}
    per_cpu: dict[int, list[float]] = {frame_bytes: [] for frame_bytes in FRAME_BYTES}
    with Cables() as cables, switch(cables) as cpu_s:
        cables.load(FRAME_BYTES[0], loads[0], 0.2, cpu_s)  # everything is there and known once
        for frame_bytes in FRAME_BYTES:
            rows: dict[float, list[Passed]] = {load: [] for load in (*loads, 0)}
            for _ in range(repeats):
                for load, passed in rows.items():
                    passed.append(cables.load(frame_bytes, load, seconds, cpu_s))
                good = [passed[-1].kpps for passed in rows.values() if passed[-1].delivered >= DELIVERED]
                highest[frame_bytes].append(max(good, default=0.0))
            for load, passed in rows.items():
                per_cpu[frame_bytes] += [p.kpps_per_cpu for p in passed]
                table.add(
                    "all it can" if load == 0 else f"{load:g}",
                    str(frame_bytes),
                    spread((p.kpps for p in passed), 0),
                    spread(p.delivered for p in passed),
                    spread((p.kpps_per_cpu for p in passed), 0),
                )
    return _figures(highest), _figures(per_cpu)


def _compare(
    frame_bytes: int, ours: tuple[dict[int, Figure], ...], theirs: tuple[dict[int, Figure], ...]
) -> str:
    load, work = (
        one[frame_bytes].median / max(two[frame_bytes].median, 1e-9)
        for one, two in zip(ours, theirs, strict=True)
    )
    by_load = f"{load:.0f} times this BMv2 by the highest load delivered"
    if not theirs[0][frame_bytes].median:
        by_load = "this BMv2 delivered no load whole"
    return f"{by_load}, {work:.0f} times by packets per CPU second (medians of all loads)"


def _figures(found: dict[int, list[float]]) -> dict[int, Figure]:
    return {frame_bytes: Figure.of(values) for frame_bytes, values in found.items()}


@contextlib.contextmanager
def _software(cables: Cables) -> Iterator[Callable[[], float]]:
    # A ring for what comes while another process has the core.
    more = ["--ring-frames", "16384"]
    known = {SENDER: "sw1", RECEIVER: "sw2"}
    with start(POLICY, ["sw1", "sw2"], prefix=cables.prefix, addresses=known, arguments=more) as process:
        yield lambda: float(process.control.status()["busy_s"])


def _bmv2_missing() -> str | None:
    try:
        from dlcp.switch.deploy.packages import require

        require()
    except Exception as error:
        return str(error)
    return simple_switch.missing()


@contextlib.contextmanager
def _bmv2(cables: Cables) -> Iterator[Callable[[], float]]:
    from dlcp.switch import programs
    from dlcp.switch.deploy import transaction
    from dlcp.switch.deploy.grpc_session import GrpcSession
    from dlcp.switch.deploy.pipeline import Pipeline
    from dlcp.switch.entries import desired_entries
    from dlcp.switch.topology import BridgeEntry, SwitchTarget

    with simple_switch.SimpleSwitch({1: "sw1", 2: "sw2"}, prefix=cables.prefix) as switch:
        target = SwitchTarget(
            "bmv2",
            switch.address,
            {"sw1": 1, "sw2": 2},
            device_id=switch.device_id,
            bridge=(BridgeEntry(SENDER, port="sw1"), BridgeEntry(RECEIVER, port="sw2")),
        )
        pipeline = Pipeline.of(programs.load("v1model"))
        order = transaction.DesiredState.of(target, pipeline, desired_entries(POLICY, target).entries)
        transaction.deploy([order], GrpcSession, transaction.Settings())
        yield lambda: _processor_s(switch.pid)


def _processor_s(pid: int) -> float:
    """User and system time of a process: fields 14 and 15 of proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
