"""A run that shows what thresholds are for: twice a port's rate in four classes, and halfway through none any more.

Two hosts send to a third over one software switch. At first each class may wait up to a limit, and the upper two lose
nothing; then the policy has no limits, the class that is served last fills the buffer, and all lose alike at its end.
The switch notes its queues all along: the account is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.lab.fabric import Fabric
from dlcp.lab.namespaces import LabError
from dlcp.lab.switched_lab import SwitchedLab
from dlcp.lab.traffic import PacketStream

if TYPE_CHECKING:
    from dlcp.lab.software import SoftwareSwitches
    from dlcp.switch import Policy

CLASSES = (6, 4, 2, 0)
"""Of the four streams, most urgent first."""
OVERLOAD = 2.0
SAMPLE_S = 0.005
RECEIVER = 2
BUFFER_BYTES, LIMIT_BYTES = 200_000, 40_000
# Before and after the load, so that one sees the queues fill and drain.
_MARGIN_S = 0.25
# By then the load has begun; it brings thousands a second.
_FIRST_PACKETS = 20


@dataclass(frozen=True)
class Moment:
    """What the switch noted of the receiver's port, by class number."""

    time_s: float
    """Since the load began."""
    waiting_bytes: list[int]
    sent: list[int]
    """Packets since the switch started, as `dropped`."""
    dropped: list[int]


@dataclass
class DemoRun:
    """What happened."""

    rate_bps: int
    offered_bps: float
    seconds: float
    change_s: float
    """When the policy changed."""
    moments: list[Moment] = field(default_factory=list)

    def delivered(self, number: int, first_s: float, last_s: float) -> float:
        """Of a class's packets whose fate was decided in this time, the part that was sent; nan of none."""
        inside = [one for one in self.moments if first_s <= one.time_s <= last_s]
        if len(inside) < 2:
            return float("nan")
        sent = inside[-1].sent[number] - inside[0].sent[number]
        dropped = inside[-1].dropped[number] - inside[0].dropped[number]
        return sent / (sent + dropped) if sent + dropped else float("nan")

    def save(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> DemoRun:
        """What save() wrote."""
        table: dict[str, Any] = json.loads(path.read_text())
        return cls(**(table | {"moments": [Moment(**one) for one in table["moments"]]}))


def policies() -> tuple[Policy, Policy]:
    """Before and after."""
    from dlcp.switch.policy import Policy, Thresholds, TrafficClass

    plain = tuple(TrafficClass(number, dscp=(8 * number,)) for number in CLASSES)
    limits = (Thresholds(drop_above_bytes=LIMIT_BYTES),)
    limited = tuple(TrafficClass(number, dscp=(8 * number,), droppable=limits) for number in CLASSES)
    return (
        Policy("a limit for each class", limited, port_bytes=BUFFER_BYTES),
        Policy("no limits", plain, port_bytes=BUFFER_BYTES),
    )


def play(rate_bps: int = 50_000_000, seconds: float = 4.0) -> DemoRun:
    """Does the run. Blocks for its length and a second. Raises what SwitchedLab raises."""
    before, after = policies()
    fabric = Fabric(leaves=1, spines=0, hosts_per_leaf=3, host_rate_bps=rate_bps)
    traffic = [sys.executable, "-m", "dlcp.lab.traffic"]
    with SwitchedLab(fabric, policy=before, sample_s=SAMPLE_S) as lab:
        sink = lab.start(RECEIVER, [*traffic, "receive"], stdin=subprocess.PIPE)
        _await(sink)
        words = [*traffic, "send", lab.addresses[RECEIVER], "--seconds", seconds, "--bytes", 1000]
        words += ["--rate", f"{OVERLOAD * rate_bps / 2e6:.3f}M"]
        for number in CLASSES:
            words += ["--stream", PacketStream(dscp=8 * number, dlcp=0)]
        sources = [lab.start(host, [*words, "--wait"], stdin=subprocess.PIPE) for host in range(RECEIVER)]
        for source in sources:
            _await(source)
        for source in sources:
            _begin(source)
        time.sleep(seconds / 2)
        change_s = time.monotonic()
        lab.set_policy(after)
        offered_bps = sum(json.loads(_finish(source))["rate_bps"] for source in sources)
        _finish(sink)
        switches: SoftwareSwitches = lab.switches  # type: ignore[assignment]
        with switches.control("l0") as control:
            samples = [one for one in control.samples() if one["port"] == f"h{RECEIVER}"]
    # A host says a word or two of its own before.
    offered = [one for one in samples if sum(one["sent"]) + sum(one["dropped"]) > _FIRST_PACKETS]
    if not offered:
        raise LabError("the switch saw no packet of the load")
    begin_s = offered[0]["time_s"]
    moments = [
        Moment(one["time_s"] - begin_s, one["waiting_bytes"], one["sent"], one["dropped"])
        for one in samples
        if -_MARGIN_S <= one["time_s"] - begin_s <= seconds + _MARGIN_S
    ]
    return DemoRun(rate_bps, offered_bps, seconds, change_s - begin_s, moments)


def lines(run: DemoRun) -> list[str]:
    """For people: what each class got with thresholds, and then without."""
    half = f"{run.offered_bps / run.rate_bps:.2f} times the port's rate, four classes"
    shown = [half, "of each class, the part delivered", "class  with thresholds  without"]
    for number in CLASSES:
        before = run.delivered(number, 0.3, run.change_s)
        after = run.delivered(number, run.change_s + 0.3, run.seconds)
        shown.append(f"{number:<7}{before:<17.3f}{after:.3f}")
    return shown


def _await(process: subprocess.Popen[Any]) -> None:
    """Until it says that it is ready."""
    assert process.stdout is not None
    process.stdout.readline()


def _begin(process: subprocess.Popen[Any]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _finish(process: subprocess.Popen[Any]) -> str:
    output, errors = process.communicate(timeout=60)
    if process.returncode:
        raise LabError(f"traffic: {errors.strip().splitlines()[-1] if errors.strip() else 'failed'}")
    return str(output)
