"""A program between ports in virtual time: queues per port and class, and links that take time.

The traffic manager is the hardware's, not simple_switch's: one link per port, the highest queue first. (BMv2 applies a
port's rate to each of its queues, so that its classes never compete: p4lang/behavioral-model issues 907, 1067.) The
egress control runs when a packet's transmission starts; a queue's depth does not count the packet on the wire. Same
seed and same calls, same packets at the same times.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from .packet import Packet
from .program import Program
from .v1model import Depths, Queued

SECOND_NS = 10**9


@dataclass(frozen=True)
class PortRate:
    """How fast a port sends: so many bytes or so many packets per second; neither: at once."""

    bytes_per_s: float | None = None
    packets_per_s: float | None = None
    overhead_bytes: int = 0  # per packet on the wire besides its own: preamble, checksum, gap (Ethernet: 24)

    def time_ns(self, size_bytes: int) -> int:
        """What a packet occupies the link for."""
        if self.packets_per_s is not None:
            return round(SECOND_NS / self.packets_per_s)
        if self.bytes_per_s is not None:
            return round((size_bytes + self.overhead_bytes) * SECOND_NS / self.bytes_per_s)
        return 0


@dataclass(frozen=True)
class Sent:
    """A packet that has left: when its last byte did, by which port, and what it was then."""

    time_ns: int
    port: int
    data: bytes
    priority: int
    handle: int


@dataclass
class _Waiting:
    queued: Queued
    since_ns: int
    depth: int


class _Port:
    def __init__(self, rate: PortRate, queues: int) -> None:
        self.rate = rate
        self.queues: list[deque[_Waiting]] = [deque() for _ in range(queues)]
        self.free_ns = 0  # when the packet on the wire will be gone


class Switch:
    """A switch. `send` puts packets in, in order of time; `run` moves the clock; `sent` is what came out."""

    def __init__(
        self,
        program: Program,
        ports: Mapping[int, PortRate] | None = None,
        queues: int = 8,
        depth_packets: int | None = None,
    ) -> None:
        self.program = program
        self.now_ns = 0
        self.sent: list[Sent] = []
        # Dropped because no queue took them: no such port or priority, or a queue at its depth.
        self.overflowed: list[Queued] = []
        self._queue_count = queues
        self._depth = depth_packets
        self._known_ports = None if ports is None else dict(ports)
        self._ports: dict[int, _Port] = {}
        self._busy: list[tuple[int, int]] = []  # (when, port) where something waits
        self._count = 0
        for number, rate in (ports or {}).items():
            self._ports[number] = _Port(rate, queues)

    def send(self, time_ns: int, data: bytes, port: int) -> int:
        """A packet comes in at a port; answers its handle, which `sent` tells again."""
        if time_ns < self.now_ns:
            raise ValueError(f"{time_ns} ns is past: it is {self.now_ns} ns")
        self.run(time_ns)
        self._count += 1
        for queued in self.program.model.ingress(data, port, self._us(), self._count):
            self._enqueue(queued)
        self.run(time_ns)  # a port that is free starts at once
        return self._count

    def run(self, until_ns: int | None = None) -> None:
        """Sends what can be sent until then; None: all that waits."""
        while self._busy and (until_ns is None or self._busy[0][0] <= until_ns):
            time_ns, number = heapq.heappop(self._busy)
            self.now_ns = max(self.now_ns, time_ns)
            self._start(number, self._ports[number])
        if until_ns is not None:
            self.now_ns = max(self.now_ns, until_ns)

    def depth_packets(self, port: int, priority: int) -> int:
        """How many packets wait there."""
        return len(self._ports[port].queues[priority]) if port in self._ports else 0

    def _us(self) -> int:
        return self.now_ns // 1000

    def _enqueue(self, queued: Queued) -> None:
        port = self._ports.get(queued.port)
        if port is None and self._known_ports is None:
            port = self._ports[queued.port] = _Port(PortRate(), self._queue_count)
        if port is None or queued.priority >= self._queue_count:
            self.overflowed.append(queued)
            return
        queue = port.queues[queued.priority]
        if self._depth is not None and len(queue) >= self._depth:
            self.overflowed.append(queued)
            return
        if not any(port.queues):
            heapq.heappush(self._busy, (max(self.now_ns, port.free_ns), queued.port))
        queue.append(_Waiting(queued, self.now_ns, len(queue)))

    def _start(self, number: int, port: _Port) -> None:
        priority = max(i for i in range(self._queue_count) if port.queues[i])
        waiting = port.queues[priority].popleft()
        depths = Depths(waiting.since_ns // 1000, self._us(), waiting.depth, len(port.queues[priority]))
        left = self.program.model.egress(waiting.queued, depths)
        if left.sent is not None:
            packet: Packet = waiting.queued.packet
            port.free_ns = self.now_ns + port.rate.time_ns(len(left.sent[1]))
            self.sent.append(Sent(port.free_ns, number, left.sent[1], priority, packet.handle))
        # What egress drops takes no time on the link.
        if any(port.queues):
            heapq.heappush(self._busy, (max(self.now_ns, port.free_ns), number))
        for queued in left.queued:
            self._enqueue(queued)
        if left.recirculated is not None:
            for queued in self.program.model.reenter(left.recirculated, self._us()):
                self._enqueue(queued)
