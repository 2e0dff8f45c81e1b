"""Hosts in namespaces around a software switch, and raw frames between them: sent at a pace, collected and told apart.

Host `h` has `eth0`, by which it meets port `eth<h>` of the switch's namespace; `ways` of them, `eth0` to `eth<n>`, meet
`eth<h>w<n>`. Frames are dlcp packets whose message id counts them. Needs root.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlcp.switch.policy import Policy
from dlcp.switch.software import SwitchProcess, start
from tests.support import frame_builder
from tests.support.namespaces import Namespace

ETH_P_ALL = 3
FRAME_BYTES = 1250
PATIENCE_S = 60.0
"""Ends what would hang; far above what anything here takes."""
ADDRESSES = {"02:00:00:00:00:01": "eth0", "02:00:00:00:00:02": "eth1"}
"""Hosts 0 and 1 where each has one cable: told to a switch, nothing is flooded."""
_RECEIVE_BUFFER = 64 << 20
_SO_RCVBUFFORCE = 33
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23


def mac(host: int) -> bytes:
    """Of a host's raw frames."""
    return bytes([2, 0, 0, 0, 0, host])


@dataclass(frozen=True)
class Bed:
    """A switch's namespace and its hosts'."""

    switch: Namespace
    hosts: tuple[Namespace, ...]

    def start(self, policy: Policy, ports: Sequence[str], **options: object) -> SwitchProcess:
        """The switch, forwarding between these ports of its namespace."""
        return start(policy, ports, prefix=self.switch.command(), **options)  # type: ignore[arg-type]


@contextlib.contextmanager
def bed(hosts: int, ways: Sequence[int] = ()) -> Iterator[Bed]:
    """`hosts` namespaces around one; `ways`: how many cables each has, one if not said."""
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(Namespace())
        # Nothing of its own: a TAP would look for neighbours.
        silent = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        switch.run(lambda: silent.write_text("1"))
        found = tuple(stack.enter_context(Namespace()) for _ in range(hosts))
        for number, host in enumerate(found):
            count = ways[number] if ways else 1
            for way in range(count):
                name = f"eth{number}w{way}" if count > 1 else f"eth{number}"
                host.join(switch, f"eth{way}", name)
                host.ip(f"link set eth{way} up")
                switch.ip(f"link set {name} up")
        yield Bed(switch, found)


class RawSocket:
    """All frames of one interface of a namespace, those that it sends itself apart."""

    def __init__(self, namespace: Namespace, interface: str = "eth0") -> None:
        self.socket = namespace.run(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        self.socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        namespace.run(lambda: self.socket.bind((interface, ETH_P_ALL)))

    def __enter__(self) -> RawSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send_at(self, rate_bps: float, frames: Iterable[bytes]) -> float:
        """Sends the frames so fast, counted as on the wire: 24 bytes more for each. Answers the time it took.

        Time that was lost is not made good, since the burst would fill queues that the pace does not.
        """
        start = due = time.monotonic()
        for frame in frames:
            due += (len(frame) + 24) * 8 / rate_bps
            now = time.monotonic()
            due = max(due, now - 0.001)
            if due > now + 0.002:
                time.sleep(0.001)
            self.socket.send(frame)
        return time.monotonic() - start


class Collector:
    """Takes what comes in by interfaces, in threads of its own, from `with` to `stop`."""

    def __init__(self, sockets: Sequence[RawSocket]) -> None:
        self.frames: list[list[bytes]] = [[] for _ in sockets]
        self._sockets = sockets
        self._last = time.monotonic()
        self._ended = False
        self._threads = [
            threading.Thread(target=self._take, args=(raw, frames), daemon=True)
            for raw, frames in zip(sockets, self.frames, strict=True)
        ]

    def __enter__(self) -> Collector:
        for raw in self._sockets:
            raw.socket.settimeout(0.05)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, quiet_s: float = 0.3) -> list[list[bytes]]:
        """What came, by socket, once nothing has come for so long."""
        self._last = time.monotonic()
        while not self._ended and time.monotonic() < self._last + quiet_s:
            time.sleep(0.02)
        self._ended = True
        for thread in self._threads:
            thread.join()
        return self.frames

    def _take(self, raw: RawSocket, frames: list[bytes]) -> None:
        while not self._ended:
            try:
                frames.append(raw.socket.recv(2048))
            except TimeoutError:
                continue
            self._last = time.monotonic()


def packet(
    number: int,
    *,
    source: int = 0,
    destination: int = 1,
    dscp: int = 0,
    ecn: int = 0,
    importance: int = 128,
    path: int = 0,
    ipv6: bool = False,
    size: int = FRAME_BYTES,
    port: int = 40000,
) -> bytes:
    """Frame `number` from host to host: dlcp data, of `size` bytes."""
    head = 14 + (40 if ipv6 else 20) + 8 + 64
    content = frame_builder.dlcp(size - head, importance=importance, path=path, message_id=number)
    build = frame_builder.ipv6 if ipv6 else frame_builder.ipv4
    ip = build(frame_builder.udp(content, source=port), tos=dscp << 2 | ecn)
    kind = frame_builder.IPV6 if ipv6 else frame_builder.IPV4
    return frame_builder.ethernet(ip, kind, mac(destination + 1), mac(source + 1))


def number_of(frame: bytes) -> int:
    """Which frame it is."""
    at = (42 if frame[12:14] == b"\x08\x00" else 62) + 40
    return int.from_bytes(frame[at : at + 4], "big")


def read_pcap(path: Path) -> list[bytes]:
    """The frames of a capture with nanoseconds."""
    data = path.read_bytes()
    assert data[:4] == struct.pack("<I", 0xA1B23C4D)
    frames, at = [], 24
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        frames.append(data[at + 16 : at + 16 + size])
        at += 16 + size
    return frames
