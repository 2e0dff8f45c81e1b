"""What the tests of the switched lab share: load from several hosts into one, and what came through."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlcp.lab.namespaces import NETNS
from dlcp.lab.switched_lab import SwitchedLab
from dlcp.lab.traffic import PacketStream

_TRIES = 6


@dataclass
class Load:
    """What was offered and what arrived, by stream."""

    sent: list[int]
    rate_bps: float
    """Of all senders together, as it came to be."""
    arrived: dict[str, dict[str, int]] = field(default_factory=dict)

    def delivered(self, stream: int) -> float:
        """The part of a stream that arrived."""
        return self.arrived.get(str(stream), {}).get("packets", 0) / self.sent[stream]

    def marked(self, stream: int) -> float:
        """Of what arrived, the part that was marked."""
        one = self.arrived.get(str(stream), {"packets": 1, "marked": 0})
        return one["marked"] / one["packets"]


def offer(
    bed: SwitchedLab,
    streams: Sequence[PacketStream],
    rate_bps: int,
    *,
    senders: Sequence[int] = (0, 1),
    receiver: int = 2,
    seconds: float = 0.7,
    payload_bytes: int = 1400,
    version: int = 4,
) -> Load:
    """Sends the streams from each sender at an equal part of the rate, all to one receiver."""
    traffic: list[Any] = [sys.executable, "-m", "dlcp.lab.traffic"]
    # It ends when its input does, after the senders, and all that was on its way is in.
    sink = bed.start(receiver, [*traffic, "receive", "--quiet", "0.2"], stdin=subprocess.PIPE)
    assert sink.stdout is not None
    assert sink.stdout.readline() == "ready\n"
    address = bed.addresses[receiver] if version == 4 else bed.fabric.address_v6(receiver)
    words = [
        *traffic,
        "send",
        address,
        "--seconds",
        seconds,
        "--bytes",
        payload_bytes,
        "--rate",
        f"{rate_bps / len(senders) / 1e6:.3f}M",
    ]
    for stream in streams:
        words += ["--stream", stream]
    sources = [bed.start(host, [*words, "--wait"], stdin=subprocess.PIPE) for host in senders]
    begin(sources)
    load = Load([0] * len(streams), 0.0)
    for source in sources:
        output, errors = source.communicate(timeout=60)
        assert source.returncode == 0, errors
        told = json.loads(output)
        load.rate_bps += told["rate_bps"]
        load.sent = [a + b for a, b in zip(load.sent, told["sent"], strict=True)]
    output, errors = sink.communicate(timeout=60)
    assert sink.returncode == 0, errors
    load.arrived = json.loads(output)["streams"]
    return load


def offer_all(offered: Callable[[], Load], rate_bps: int) -> Load:
    """What `offered` does, again while the senders did not get the processor time that the rate takes.

    At most a few times: the last is as good as this machine can, for the test to judge.
    """
    for _ in range(_TRIES - 1):
        load = offered()
        if load.rate_bps > 0.97 * rate_bps:
            return load
    return offered()


def offer_light(
    bed: SwitchedLab,
    stream: PacketStream,
    *,
    senders: Sequence[int] = (0,),
    receiver: int,
    seconds: float = 0.3,
    version: int = 4,
) -> Load:
    """Some 1000 packets a second, in 0.3 s less than any queue here holds: one is lost only on its way.

    Of more, a switch that waits for a core finds more than its queue has room for.
    """
    return offer(
        bed,
        [stream],
        1_500_000,
        senders=senders,
        receiver=receiver,
        seconds=seconds,
        payload_bytes=60,
        version=version,
    )


def begin(sources: Sequence[subprocess.Popen[str]]) -> None:
    """Lets senders that wait begin together."""
    for source in sources:
        assert source.stdout is not None
        assert source.stdout.readline() == "ready\n"
    for source in sources:
        assert source.stdin is not None
        source.stdin.write("\n")
        source.stdin.flush()


def namespaces_of(prefix: str) -> list[str]:
    """Names that begin so."""
    return [path.name for path in NETNS.iterdir() if path.name.startswith(prefix)]
