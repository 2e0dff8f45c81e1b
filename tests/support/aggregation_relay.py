"""A switch that adds, on loopback, behind a UDP socket in a thread: the software switch's slots, or the P4 program.

What a worker sends to the hub's address becomes the frame that its switch port would see; what the slots answer goes
back as datagrams. `take` may lose a packet, `give` change an answer, and `reboot` forgets every slot.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from dlcp import _native
from dlcp.switch.aggregation.entries import (
    NO_PORT,
    JobRequest,
    Participant,
    UpperSwitch,
    bridge_entries,
    job_entries,
    place_jobs,
)
from dlcp.switch.software.native_jobs import to_native
from tests.support.aggregation_packet import udp_frame
from tests.support.aggregation_program import InterpretedSwitch
from tests.support.bmv2 import Program
from tests.support.ports import HOST, free_ports


class Relay:
    """A context manager. `request` says the job; its workers' UDP ports are free ones of this host, in a row.

    program: the P4 program that adds; None: the software switch's slots.
    """

    def __init__(
        self,
        workers: int,
        *,
        slots: int = 16,
        lanes: int = 32,
        job: int = 7,
        generations: int = 1,
        program: Program | None = None,
    ) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((HOST, 0))
        self._socket.settimeout(0.05)
        self.port: int = self._socket.getsockname()[1]
        places = tuple(
            Participant(number, f"02:00:00:00:00:{number + 1:02x}", HOST, port)
            for number, port in enumerate(free_ports(workers))
        )
        self._program = program
        self.hub = Participant(
            NO_PORT if program is None else workers, "02:00:00:00:01:00", "127.0.0.2", self.port
        )
        self.request = JobRequest(job, places, self.hub, slots=slots, lanes=lanes, generations=generations)
        self.take: Callable[[int, bytes], bool] = lambda _worker, _payload: True
        self.give: Callable[[int, bytes], bytes] = lambda _worker, payload: payload
        self.works = True
        self._process: Callable[[bytes, int], list[tuple[int, bytes]]]
        self.reboot()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def reboot(self) -> None:
        """Every slot is free, as after a restart."""
        if self._program is None:
            slots = _native.AggregationSlots(to_native([self.request]))
            self._process = lambda frame, port: slots.process(frame, port)[1]
            return
        switch = InterpretedSwitch(self._program)
        switch.write(
            [
                *job_entries(place_jobs([self.request])[0]),
                *bridge_entries({self.hub.mac_number: self.hub.port}),
            ]
        )
        self._process = switch.process

    @property
    def setting(self) -> str:
        """`aggregation` for all of the job's ranks, on this host."""
        job = self.request
        words = f"job={job.job}&slots={job.slots}&lanes={job.lanes}&generations={job.generations}"
        return f"switch://{HOST}:{self.port}?{words}&port={job.workers[0].udp_port}&min_bytes=4096"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        numbers = {worker.udp_port: worker for worker in self.request.workers}
        while not self._stopped:
            try:
                payload, (_, port) = self._socket.recvfrom(2048)
            except OSError:
                continue
            worker = numbers.get(port)
            if worker is None or not self.works or not self.take(worker.port, payload):
                continue
            for _, frame in self._process(udp_frame(worker, self.hub, payload), worker.port):
                to = int.from_bytes(frame[36:38], "big")
                if to != self.port:
                    with contextlib.suppress(OSError):
                        self._socket.sendto(self.give(numbers[to].port, frame[42:]), (HOST, to))


class TwoLevels(Relay):
    """Two switches of half the workers each, and one above that adds their sums. `take_up`: as `take`, between them."""

    def __init__(self, workers: int, *, slots: int = 16, lanes: int = 32) -> None:
        self.take_up: Callable[[], bool] = lambda: True
        super().__init__(workers, slots=slots, lanes=lanes)

    def reboot(self) -> None:
        """Every slot of every switch is free."""
        half = len(self.request.workers) // 2
        hub = Participant(half, "02:00:00:00:02:00", "127.0.0.3", 9)
        own = [Participant(half, f"02:00:00:00:03:{leaf:02x}", f"127.0.0.{4 + leaf}", 9) for leaf in range(2)]
        requests = [
            replace(
                self.request,
                workers=tuple(
                    replace(worker, port=port)
                    for port, worker in enumerate(self.request.workers[half * leaf : half * (leaf + 1)])
                ),
                upper=UpperSwitch(leaf, hub, own[leaf]),
            )
            for leaf in range(2)
        ]
        above = replace(self.request, workers=tuple(replace(own[leaf], port=leaf) for leaf in range(2)))
        leaves = [_native.AggregationSlots(to_native([request])) for request in requests]
        upper = _native.AggregationSlots(to_native([above]))

        def process(frame: bytes, port: int) -> list[tuple[int, bytes]]:
            out = []
            for to, sent in leaves[port // half].process(frame, port % half)[1]:
                if to != half:
                    out.append((to, sent))
                elif self.take_up():
                    for leaf, result in upper.process(sent, port // half)[1]:
                        out += leaves[leaf].process(result, half)[1] if self.take_up() else []
            return out

        self._process = process
