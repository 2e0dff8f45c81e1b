"""Messages across a lab: one receiver and its senders, over dlcp or over TCP, timed the same way."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import programs
from dlcp.lab import Lab

PORT = 7400

# What a full data packet without a tag costs besides its payload: 32 bytes of dlcp, 8 of UDP, 20 of IP, 14 of Ethernet
# as the queueing disciplines count it. It leaves room for a long header, 32 bytes more.
OVERHEAD_BYTES = 32 + 8 + 20 + 14


@dataclass(frozen=True)
class Exchange:
    """What the two ends report: one receiver, and a report per sender in the order given."""

    receiver: dict
    senders: list[dict]
    idle_ratio: float
    """Share of the machine's processor time that nobody used meanwhile; near 0 the machine was the limit."""

    @property
    def sender(self) -> dict:
        return self.senders[0]

    @property
    def times_ms(self) -> list[float]:
        return [time for sender in self.senders for time in sender["times_ms"]]

    @property
    def goodput_bps(self) -> float:
        return sum(8 * s["messages"] * s["message_bytes"] / s["elapsed_s"] for s in self.senders)


def exchange(
    lab: Lab,
    program: str,
    *,
    receiver: int = 0,
    senders: Sequence[int] = (1,),
    seconds: float = 3,
    **options: object,
) -> Exchange:
    """What comes of running `program` (lab_peer or tcp_peer) on the named hosts for `seconds`.

    Every sender sends to the one receiver. Raises ProgramError with the words of the end that failed.
    """

    def start(host: int, role: str, **own: object) -> subprocess.Popen[str]:
        addresses = {"bind": lab.addresses[host], "host": lab.addresses[receiver], "port": PORT}
        return lab.start(host, programs.words(program, {"role": role, **addresses, **own, **options}))

    processes = [start(receiver, "receive")]
    idle_before, total_before = _processor_ticks()
    try:
        assert processes[0].stdout is not None
        if not processes[0].stdout.readline():
            raise programs.ProgramError(f"{program} does not receive: {_last_words(processes[0])}")
        for rank, host in enumerate(senders, start=1):
            own = {"rank": rank} if program == "lab_peer" else {}
            processes.append(start(host, "send", seconds=seconds, **own))
        answers = [_answer(process, seconds) for process in processes[1:]]
        idle, total = _processor_ticks()
        processes[0].terminate()
        idle_ratio = (idle - idle_before) / max(1, total - total_before)
        return Exchange(_answer(processes[0], 0), answers, idle_ratio)
    finally:
        for process in processes:
            process.kill()


def _processor_ticks() -> tuple[int, int]:
    # proc(5), /proc/stat: user nice system idle iowait irq softirq steal; guest time is in user already.
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _answer(process: subprocess.Popen[str], seconds: float) -> dict:
    line = " ".join(map(str, process.args[4:]))  # without `ip netns exec NAMESPACE`
    try:
        output, errors = process.communicate(timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        raise programs.ProgramError(
            f"{line} did not end within {seconds + 60:g} s: {_last_words(process)}"
        ) from None
    if process.returncode:
        raise programs.ProgramError(f"{line} ended with {process.returncode}: {errors.strip()}")
    return json.loads(output.splitlines()[-1])


def _last_words(process: subprocess.Popen[str]) -> str:
    process.kill()
    output, errors = process.communicate()
    return errors.strip() or output.strip() or "no words"
