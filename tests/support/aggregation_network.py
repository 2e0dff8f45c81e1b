"""Workers, hubs and one aggregating switch over links that lose, double and reorder, in virtual time.

The engines are the product's; the switch is the twin or the compiled program in the interpreter: both take the same
entries and frames. One seed decides everything.
"""

from __future__ import annotations

import heapq
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dlcp.switch.aggregation import Failed, Finished, Hub, JobSettings, Participant, Worker
from dlcp.switch.aggregation.entries import JobRequest, bridge_entries, job_entries, place_jobs
from dlcp.switch.aggregation.packet import HUB
from dlcp.switch.entries import Entry, MulticastGroup, TableEntry
from tests.support.aggregation_twin import Frame, keys_of, numbered
from tests.support.bmv2 import Program
from tests.support.bmv2.v1model import Replica

MS = 1_000_000
UDP_PORT = 0xD1C5


class Switch(Protocol):
    """The twin, or the interpreter."""

    def write(self, entries: Sequence[Entry]) -> None: ...
    def process(self, raw: bytes, port: int) -> list[tuple[int, bytes]]: ...


class InterpretedSwitch:
    """The compiled program in the interpreter of BMv2's JSON."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def write(self, entries: Sequence[Entry]) -> None:
        """Adds entries and groups."""
        for entry in entries:
            if isinstance(entry, MulticastGroup):
                replicas = [Replica(port, instance) for port, instance in numbered(entry.ports)]
                self.program.set_group(entry.group_id, replicas)
            elif isinstance(entry, TableEntry):
                self.program.insert(entry.table, keys_of(entry), entry.action, dict(entry.params))

    def process(self, raw: bytes, port: int) -> list[tuple[int, bytes]]:
        """What leaves."""
        return self.program.process(raw, port)


def udp_frame(source: Participant, destination: Participant, payload: bytes, ttl: int = 64) -> bytes:
    """A frame with right checksums."""
    udp = struct.pack(">HHHH", source.udp_port, destination.udp_port, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0x4000, ttl, 17, 0)
    ip += source.ip_number.to_bytes(4, "big") + destination.ip_number.to_bytes(4, "big")
    macs = destination.mac_number.to_bytes(6, "big") + source.mac_number.to_bytes(6, "big")
    return Frame(macs + b"\x08\x00" + ip + udp).with_checksums().raw


def participant(port: int, udp_port: int = UDP_PORT) -> Participant:
    """The host at a port."""
    return Participant(port, f"02:00:00:00:00:{port:02x}", f"10.0.0.{port}", udp_port)


@dataclass
class Link:
    """What happens to a frame on its way between a host and the switch, in either direction."""

    loss_ratio: float = 0.0
    duplicate_ratio: float = 0.0
    delay_ns: int = 10_000
    jitter_ns: int = 0
    """Up to so much more, so that frames overtake each other."""


@dataclass
class Job:
    """One job's engines."""

    settings: JobSettings
    participants: list[Participant]
    hub_at: Participant
    workers: list[Worker] = field(default_factory=list)
    hub: Hub | None = None
    finished: list[dict[int, Finished]] = field(default_factory=list)
    failed: list[Failed | None] = field(default_factory=list)


class Network:
    """All of it."""

    def __init__(self, switch: Switch | None, seed: int, link: Link | None = None) -> None:
        self.switch = switch
        self.random = random.Random(seed)
        self.link = link or Link()
        self.now_ns = 0
        self.jobs: list[Job] = []
        self.frames = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._ports = 0
        self._at_port: dict[int, list[tuple[Participant, Callable[[bytes], None]]]] = {}
        self._down: set[int] = set()
        self._woken: dict[int, int] = {}

    # ---- building ----

    def add_jobs(self, *all_settings: JobSettings, admitted: bool = True) -> None:
        """Hosts for jobs, and their entries; not admitted: the switch only forwards."""
        requests = []
        for settings in all_settings:
            places = [participant(self._ports + i + 1) for i in range(settings.workers + 1)]
            self._ports += len(places)
            job = Job(settings, places[:-1], places[-1])
            job.workers = [Worker(settings, w) for w in range(settings.workers)]
            job.hub = Hub(settings)
            job.finished = [{} for _ in job.workers]
            job.failed = [None for _ in job.workers]
            self.jobs.append(job)
            for index, place in enumerate(job.participants):
                self._at_port[place.port] = [(place, self._receiver(job, index))]
            self._at_port[job.hub_at.port] = [(job.hub_at, self._receiver(job, HUB))]
            requests.append(
                JobRequest(
                    settings.job, tuple(job.participants), job.hub_at, settings.slots, settings.generation
                )
            )
        assert self.switch is not None
        self.switch.write(
            bridge_entries({p.mac_number: port for port, places in self._at_port.items() for p, _ in places})
        )
        if admitted:
            for placement in place_jobs(requests):
                self.switch.write(job_entries(placement))

    def _receiver(self, job: Job, number: int) -> Callable[[bytes], None]:
        def receive(payload: bytes) -> None:
            if number == HUB:
                assert job.hub is not None
                job.hub.handle_packet(payload, self.now_ns)
            else:
                job.workers[number].handle_packet(payload, self.now_ns)
            self._poll(job, number)

        return receive

    def take_down(self, port: int) -> None:
        """Nothing comes from or to this port any more."""
        self._down.add(port)

    # ---- running ----

    def at(self, time_ns: int, call: Callable[[], None]) -> None:
        """Calls something at a time."""
        heapq.heappush(self._events, (time_ns, self._count, call))
        self._count += 1

    def poll(self) -> None:
        """Lets every engine send."""
        for job in self.jobs:
            for number in (*range(len(job.workers)), HUB):
                self._poll(job, number)

    def _poll(self, job: Job, number: int) -> None:
        if number == HUB:
            assert job.hub is not None
            while (sent := job.hub.poll_packet(self.now_ns)) is not None:
                self._send(job.hub_at, job.participants[sent[0]], sent[1])
            next_ns = job.hub.next_time_ns()
        else:
            worker = job.workers[number]
            while (payload := worker.poll_packet(self.now_ns)) is not None:
                self._send(job.participants[number], job.hub_at, payload)
            while (event := worker.poll_event()) is not None:
                if isinstance(event, Finished):
                    assert event.message not in job.finished[number], "a message ends once"
                    job.finished[number][event.message] = event
                else:
                    job.failed[number] = event
            next_ns = worker.next_time_ns()
        if next_ns is not None:
            self.at(max(next_ns, self.now_ns), lambda: self._poll_if_due(job, number, next_ns))

    def _poll_if_due(self, job: Job, number: int, due_ns: int) -> None:
        engine = job.hub if number == HUB else job.workers[number]
        assert engine is not None
        if engine.next_time_ns() == due_ns:
            self._poll(job, number)

    def _send(self, source: Participant, destination: Participant, payload: bytes) -> None:
        frame = udp_frame(source, destination, payload)
        self._over_link(source.port, lambda: self._at_switch(frame, source.port))

    def _over_link(self, port: int, arrive: Callable[[], None]) -> None:
        self.frames += 1
        if port in self._down or self.random.random() < self.link.loss_ratio:
            return
        copies = 2 if self.random.random() < self.link.duplicate_ratio else 1
        for _ in range(copies):
            self.at(self.now_ns + self.link.delay_ns + self.random.randint(0, self.link.jitter_ns), arrive)

    def _at_switch(self, frame: bytes, port: int) -> None:
        assert self.switch is not None
        for out, raw in self.switch.process(frame, port):
            self._over_link(out, lambda out=out, raw=raw: self._at_host(out, raw))  # type: ignore[misc]

    def _at_host(self, port: int, raw: bytes) -> None:
        if port in self._down:
            return
        frame = Frame(raw)
        assert frame.checksums_are_right, "the switch sends right checksums"
        for place, receive in self._at_port[port]:
            to = (raw[:6], raw[30:34], raw[36:38])
            if to == (
                place.mac_number.to_bytes(6, "big"),
                place.ip_number.to_bytes(4, "big"),
                place.udp_port.to_bytes(2, "big"),
            ):
                receive(raw[42:])

    def run(self, until_ns: int, done: Callable[[], bool] | None = None) -> None:
        """Until then, or until `done`."""
        self.poll()
        while self._events and self._events[0][0] <= until_ns:
            self.now_ns, _, call = heapq.heappop(self._events)
            call()
            if done is not None and done():
                return
        self.now_ns = until_ns

    def all_finished(self, messages: int) -> bool:
        """Whether every worker has so many outcomes."""
        return all(len(f) >= messages for job in self.jobs for f in job.finished)
