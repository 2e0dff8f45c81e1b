"""Paced datagrams between hosts of a lab, and what arrived of them: load for tests, pictures and benchmarks.

    python -m dlcp.lab.traffic receive             says "ready", then a line of JSON at the end
    python -m dlcp.lab.traffic send 10.78.0.2 --rate 200M --seconds 2 --stream dscp=0 --stream dscp=8,ecn=2

SIGTERM ends a sender early. Streams take turns, in rounds, so each is offered the same. A packet has dlcp's
header (native/engine/wire.hpp) with the stream's importance, then number of stream and packet; nobody answers it. Rates
are of the wire: the frame and 24 bytes for checksum, preamble and gap. It is no benchmark of a transport.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlcp.checks import integer
from dlcp.lab.fault import FabricError

PORT = 7700
_VERSION = 2
_HEADER = struct.Struct(">BBBBBxH50xH4x")  # version, type, flags, class, importance, path, payload_bytes
assert _HEADER.size == 64
_NUMBERS = struct.Struct(">HI")  # stream and packet
# What is behind the payload on the wire: UDP, IPv4, Ethernet, and checksum, preamble, gap.
WIRE_BYTES = 64 + 8 + 20 + 14 + 24
# A sender that was not scheduled for longer does not send all of it at once; what it does, its host's cable spreads.
_CREDIT_S = 0.02
_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True)
class PacketStream:
    """What is alike in a stream's packets."""

    dscp: int = 0
    ecn: int = 0
    """1 or 2: critical."""
    importance: int = 128
    paths: int = 1
    """Ids that its packets take in turn, each with a source port of its own."""
    dlcp: int = 1
    """0: the header is no version of dlcp's, so the packet tells no importance, and nobody may trim it."""

    def __post_init__(self) -> None:
        for name, most in (("dscp", 63), ("ecn", 3), ("importance", 255)):
            integer(f"stream.{name}", getattr(self, name), 0, most, error=FabricError)
        integer("stream.paths", self.paths, 1, 1024, error=FabricError)
        integer("stream.dlcp", self.dlcp, 0, 1, error=FabricError)

    @classmethod
    def parse(cls, text: str) -> PacketStream:
        """From "dscp=8,ecn=2"."""
        values: dict[str, int] = {}
        for word in text.split(","):
            key, _, value = word.partition("=")
            if key not in cls.__dataclass_fields__ or not value.isdecimal():
                raise FabricError(
                    f"stream has {word!r}; accepted: dscp=N, ecn=N, importance=N, paths=N, dlcp=N"
                )
            values[key] = int(value)
        return cls(**values)

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" for key, value in asdict(self).items())


def send(
    address: str,
    streams: Sequence[PacketStream],
    rate_bps: int,
    seconds: float,
    payload_bytes: int,
    enough: threading.Event | None = None,
) -> dict[str, Any]:
    """Sends for so long, or until it is `enough`. Returns what was sent, by stream, and how fast."""
    enough = enough or threading.Event()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    wire_bytes = payload_bytes + WIRE_BYTES + (20 if family == socket.AF_INET6 else 0)
    sockets = [[_open(family, address, stream) for _ in range(stream.paths)] for stream in streams]
    padding = bytes(payload_bytes - _NUMBERS.size)
    headers = [
        [
            _HEADER.pack(
                _VERSION if stream.dlcp else 0, 1, 0, stream.dscp >> 3, stream.importance, path, payload_bytes
            )
            for path in range(stream.paths)
        ]
        for stream in streams
    ]
    interval_s = wire_bytes * 8 / rate_bps
    counts, refused = [0] * len(streams), 0
    # In rounds, each in an order of its own: in a fixed one a full queue drops the same stream again and again.
    draw = random.Random(str(sockets[0][0].getsockname()[0]))
    turns: list[int] = []
    start_s = next_s = time.perf_counter()
    while (now_s := time.perf_counter()) < start_s + seconds and not enough.is_set():
        if now_s < next_s:
            time.sleep(min(next_s - now_s, 0.001))
            continue
        next_s = max(next_s, now_s - _CREDIT_S) + interval_s
        turns = turns or draw.sample(range(len(streams)), len(streams))
        turn = turns.pop()
        number = counts[turn]
        path = number % len(sockets[turn])
        try:
            sockets[turn][path].send(headers[turn][path] + _NUMBERS.pack(turn, number) + padding)
        except OSError:  # a full queue of the host's own, or a port that nobody listens at
            refused += 1
        counts[turn] += 1
    elapsed_s = time.perf_counter() - start_s
    return {
        "sent": counts,
        "refused": refused,
        "rate_bps": sum(counts) * wire_bytes * 8 / elapsed_s,
        "seconds": elapsed_s,
    }


def receive(quiet_s: float, first_s: float) -> dict[str, Any]:
    """Counts what arrives, by stream, until standard input has ended and it has been quiet for so long.

    Nothing at all for `first_s` ends it as well.
    """
    ended, heard_s = False, time.monotonic()
    counts: dict[int, dict[str, int]] = {}
    last: dict[tuple[int, Any], int] = {}
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as inlet:
        inlet.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        inlet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        inlet.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        inlet.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        inlet.bind(("::", PORT))
        print("ready", flush=True)
        inlet.settimeout(quiet_s)
        while True:
            try:
                data, notes, _, source = inlet.recvmsg(2048 + 8192, 256)
            except TimeoutError:
                if (ended and counts) or time.monotonic() - heard_s > first_s:
                    break
                ended = ended or _is_over(sys.stdin.fileno())
                continue
            heard_s = time.monotonic()
            if len(data) < _HEADER.size + _NUMBERS.size:
                # Of a trimmed packet only the header is left.
                stream, number = -1, 0
            else:
                stream, number = _NUMBERS.unpack_from(data, _HEADER.size)
            one = counts.setdefault(stream, {"packets": 0, "marked": 0, "late": 0})
            one["packets"] += 1
            one["marked"] += any(value[0] & 3 == 3 for _, _, value in notes)
            one["late"] += last.get((stream, source), -1) > number
            last[stream, source] = max(last.get((stream, source), -1), number)
    return {"streams": counts}


def _is_over(descriptor: int) -> bool:
    """Whether there is nothing more to read, and never will be."""
    ready, _, _ = select.select([descriptor], [], [], 0)
    return bool(ready) and not os.read(descriptor, 4096)


def _open(family: int, address: str, stream: PacketStream) -> socket.socket:
    outlet = socket.socket(family, socket.SOCK_DGRAM)
    tos = stream.dscp << 2 | stream.ecn
    if family == socket.AF_INET6:
        outlet.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
    else:
        outlet.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    outlet.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    outlet.connect((address, PORT))
    return outlet


def main() -> int:
    """The program."""
    from dlcp.units import parse_rate

    parser = argparse.ArgumentParser(prog="python -m dlcp.lab.traffic", description=__doc__.split("\n", 1)[0])
    words = parser.add_subparsers(dest="word", required=True)
    sender = words.add_parser("send")
    sender.add_argument("address")
    sender.add_argument("--stream", dest="streams", type=PacketStream.parse, action="append", required=True)
    sender.add_argument("--rate", type=parse_rate, required=True)
    sender.add_argument("--seconds", type=float, default=1.0)
    sender.add_argument("--wait", action="store_true", help='say "ready", and begin when a line comes in')
    sender.add_argument("--bytes", type=int, default=1400, help="of payload; default: 1400")
    receiver = words.add_parser("receive")
    receiver.add_argument("--quiet", type=float, default=0.5, help="seconds; default: 0.5")
    receiver.add_argument(
        "--first", type=float, default=20.0, help="seconds of silence that end it at all; default: 20"
    )
    options = parser.parse_args()
    if options.word == "send" and options.wait:
        print("ready", flush=True)
        sys.stdin.readline()
    if options.word == "send":
        enough = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: enough.set())
        how = (options.address, options.streams, options.rate, options.seconds, options.bytes)
        result = send(*how, enough)
    else:
        result = receive(options.quiet, options.first)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
