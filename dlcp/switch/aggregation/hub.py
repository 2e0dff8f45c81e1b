"""The hub of an aggregating job: decides the blocks that the switch did not, once and for all workers.

The hub learns of such a block from a contribution or flush that arrives here. The switch turned it away, the worker
sent it past the switch, or there is no such switch. The hub then asks all workers. If one has the switch's result,
that result is the decision; it is the same everywhere, since a switch makes one per block. If all workers answer that
they have none and will take none from the switch any more, nobody has one. The hub then adds their contributions, each
once. There is no third case, so replicas do not diverge. A worker that never answers fails the job after
`peer_timeout_ns`.

A protocol engine like the worker: `handle_packet`, `poll_packet`, `next_time_ns`. One per job; it may run at a worker.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field, replace

import numpy as np

from dlcp.switch.aggregation.packet import (
    HUB,
    INT32_MAX,
    INT32_MIN,
    LANES,
    NO_FLAGS,
    Flag,
    Kind,
    Operation,
    Packet,
    Values,
    decode,
)
from dlcp.switch.aggregation.settings import JobSettings
from dlcp.switch.aggregation.worker import MAX_BACKOFF, ranks_in

Key = tuple[int, int]
FAILURES = 7  # repeats of a failure notice: a worker that only waits asks for nothing, and would run into its timeout


def add_up(contributions: list[Values], operation: Operation) -> tuple[Values, int]:
    """The sum (or maximum) as a switch makes it, one after the other, and the lanes that left the 32 bits."""
    total = contributions[0].astype(np.int64)
    saturated = np.zeros(LANES, np.bool_)
    for values in contributions[1:]:
        if operation is Operation.MAX:
            total = np.maximum(total, values)
            continue
        total = total + values
        saturated |= (total > INT32_MAX) | (total < INT32_MIN)
        total = np.clip(total, INT32_MIN, INT32_MAX)
    bits = sum(1 << int(lane) for lane in np.flatnonzero(saturated))
    return total.astype(np.int32), bits


@dataclass(eq=False)
class _Block:
    """A block that the hub was asked to decide."""

    key: Key
    slot: int
    opened_ns: int
    due_ns: int
    interval_ns: int
    promised: int = 0
    """Workers that have no result, and take none but the hub's."""
    contributions: dict[int, Packet] = field(default_factory=dict)
    decision: Packet | None = None
    unacknowledged: int = 0
    """Workers that the decision is sent to again."""

    @property
    def contributed(self) -> int:
        return sum(1 << worker for worker in self.contributions)


class Hub:
    """The hub of one job."""

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings
        self.counters: Counter[str] = Counter()
        self._out: deque[tuple[int, bytes]] = deque()
        self._blocks: dict[Key, _Block] = {}
        self._timers: list[tuple[int, Key]] = []
        self._heard_ns: dict[int, int] = {}  # of each worker, when it was last
        self._finished: dict[int, int] = {}  # message → workers that have all of it
        self._closed = 0  # all messages up to here are finished everywhere, …
        self._closed_beyond: set[int] = set()  # … and these
        self._released: dict[int, Key] = {}  # slot → the last block that was decided here
        self._failure: Packet | None = None
        self._failures_left = 0  # repeats that are still to be sent, …
        self._failure_due_ns = 0  # … next then, …
        self._failure_interval_ns = settings.retransmit_ns  # … and twice as long later each time

    # ---- packets in ----

    def handle_packet(self, datagram: bytes, now_ns: int) -> None:
        """Takes one datagram from the hub's socket; what is not for this job is counted."""
        packet = decode(datagram)
        if packet is None:
            self.counters["malformed"] += 1
            return
        if packet.job != self.settings.job or packet.generation != self.settings.generation:
            self.counters["foreign"] += 1
            return
        if packet.worker >= self.settings.workers or packet.slot >= self.settings.slots:
            self.counters["unexpected"] += 1
            return
        self._heard_ns[packet.worker] = now_ns
        if self._failure is not None:
            self._send(packet.worker, self._failure)
            return
        if packet.kind is Kind.FINISHED:
            self._handle_finished(packet)
        elif self._is_closed(packet.message):
            self.counters["late"] += 1
        elif packet.kind in (Kind.CONTRIBUTION, Kind.FLUSH):
            self._handle_plea(packet, now_ns)
        elif packet.kind is Kind.ANSWER:
            self._handle_answer(packet, now_ns)
        elif packet.kind is Kind.ACK:
            if (block := self._blocks.get((packet.message, packet.block))) is not None:
                block.unacknowledged &= ~(1 << packet.worker)
                if block.decision is not None and not block.unacknowledged:
                    # Later requests are answered by the workers that have it.
                    del self._blocks[block.key]
        else:
            self.counters["unexpected"] += 1

    def _is_closed(self, message: int) -> bool:
        return message <= self._closed or message in self._closed_beyond

    def _handle_finished(self, packet: Packet) -> None:
        number = packet.message
        closed = self._about((number, packet.block), packet.slot, Kind.CLOSED)
        if self._is_closed(number):
            self._send(packet.worker, closed)
            return
        if number > self._closed + 2 * self.settings.open_messages:
            self.counters["unexpected"] += 1
            return
        self._finished[number] = self._finished.get(number, 0) | 1 << packet.worker
        if self._finished[number] != self.settings.everyone:
            return
        del self._finished[number]
        self._closed_beyond.add(number)
        while self._closed + 1 in self._closed_beyond:
            self._closed += 1
            self._closed_beyond.discard(self._closed)
        for key in [key for key in self._blocks if key[0] == number]:
            del self._blocks[key]
        for worker in range(self.settings.workers):
            self._send(worker, closed)

    def _handle_plea(self, packet: Packet, now_ns: int) -> None:
        """A contribution or flush that no switch has answered: its sender has no result."""
        self.counters["turned_away" if packet.flags & Flag.TO_HUB else "not_aggregated"] += 1
        key = (packet.message, packet.block)
        held = self._released.get(packet.slot)
        if held is not None and held < key:
            # The slot may still collect for a block that was decided here, if the release was lost.
            self._release(held, packet.slot)
        block = self._blocks.get(key)
        if block is None:
            # Half of the slots are in flight from each worker at most; as many may wait to be acknowledged.
            if len(self._blocks) >= self.settings.slots * self.settings.workers or (
                packet.message > self._closed + 2 * self.settings.open_messages
            ):
                self.counters["too_many"] += 1
                return
            block = _Block(key, packet.slot, now_ns, now_ns, self.settings.retransmit_ns)
            self._blocks[key] = block
            heapq.heappush(self._timers, (now_ns, key))
            self.counters["blocks"] += 1
        elif block.decision is not None:
            block.unacknowledged |= 1 << packet.worker
            self._send(packet.worker, block.decision)

    def _handle_answer(self, packet: Packet, now_ns: int) -> None:
        block = self._blocks.get((packet.message, packet.block))
        if block is None or block.decision is not None:
            return
        if packet.flags & Flag.HAS_RESULT:
            if packet.bitmap == 0 or packet.bitmap & ~self.settings.everyone:
                self.counters["unsound"] += 1
                return
            self.counters["copied"] += 1
            # Workers that have it say so when they are notified again.
            self._decide(block, packet, now_ns)
            return
        block.promised |= 1 << packet.worker
        if packet.flags & Flag.HAS_CONTRIBUTION:
            block.contributions[packet.worker] = packet
        self._decide_if_due(block, now_ns)

    # ---- deciding ----

    def _decide_if_due(self, block: _Block, now_ns: int) -> None:
        if block.promised != self.settings.everyone:
            return  # some worker may have the switch's result
        if block.contributed != self.settings.everyone:
            deadline = self.settings.deadline_ns
            if deadline is None or now_ns < block.opened_ns + deadline:
                return
            if len(block.contributions) < self.settings.quorum:
                return
        workers = sorted(block.contributions)
        first = block.contributions[workers[0]]
        shape = (first.operation, first.exponent)
        odd = [w for w in workers if _shape(block.contributions[w]) != shape]
        if odd:
            self._fail(block, odd, Flag.HAS_CONTRIBUTION, now_ns)
            return
        values, saturated = add_up([block.contributions[w].values for w in workers], first.operation)
        total = replace(first, values=values, saturated=saturated, bitmap=block.contributed)
        self.counters["added_up"] += 1
        self._decide(block, total, now_ns)
        self._release(block.key, block.slot)

    def _decide(self, block: _Block, result: Packet, now_ns: int) -> None:
        block.decision = replace(
            result,
            kind=Kind.DECIDED,
            worker=HUB,
            flags=NO_FLAGS,
            count=result.bitmap.bit_count(),
            quorum=0,
        )
        block.unacknowledged = self.settings.everyone
        block.contributions.clear()
        block.interval_ns = self.settings.retransmit_ns
        self._wake(block, now_ns)

    def _release(self, key: Key, slot: int) -> None:
        """Tells the switch that a slot need not wait for this block any more. Only a switch looks at it."""
        self._released[slot] = max(key, self._released.get(slot, key))
        self._send(0, self._about(key, slot, Kind.RELEASE))

    def _fail(self, block: _Block, workers: list[int], flags: Flag, now_ns: int) -> None:
        self._failure = self._about(block.key, block.slot, Kind.FAILED)
        self._failure.flags = flags
        self._failure.bitmap = sum(1 << worker for worker in workers)
        self._out.clear()
        self._failures_left = FAILURES
        self._failure_due_ns = now_ns

    def _tell_failure(self, now_ns: int) -> None:
        assert self._failure is not None
        self._failures_left -= 1
        self._failure_due_ns = now_ns + self._failure_interval_ns
        self._failure_interval_ns *= 2
        for worker in range(self.settings.workers):
            self._send(worker, self._failure)

    # ---- packets out ----

    def poll_packet(self, now_ns: int) -> tuple[int, bytes] | None:
        """The next datagram, and the worker that it is for. Repeat until None."""
        while not self._out and self._failure is None and self._timers and self._timers[0][0] <= now_ns:
            block = self._blocks.get(heapq.heappop(self._timers)[1])
            if block is not None:
                self._run_timer(block, now_ns)
        if not self._out and self._failures_left and self._failure_due_ns <= now_ns:
            self._tell_failure(now_ns)
        return self._out.popleft() if self._out else None

    def next_time_ns(self) -> int | None:
        """When to poll again, if nothing comes before."""
        if self._failure is not None:
            return self._failure_due_ns if self._failures_left else None
        while self._timers and self._timers[0][1] not in self._blocks:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _wake(self, block: _Block, due_ns: int) -> None:
        block.due_ns = due_ns
        heapq.heappush(self._timers, (due_ns, block.key))

    def _run_timer(self, block: _Block, now_ns: int) -> None:
        if now_ns < block.due_ns:
            return  # an older timer of the same block
        if block.decision is None:
            self._decide_if_due(block, now_ns)
        if self._failure is not None:
            return
        if block.decision is not None:
            packet = block.decision
            told = waiting = block.unacknowledged
        else:
            packet = self._query(block)
            waiting = self.settings.everyone & ~(block.promised & block.contributed)
            told = self.settings.everyone  # also to waiting workers, so that they know who is missing
        since = block.opened_ns
        silent = [
            worker
            for worker in ranks_in(waiting)
            if now_ns - max(since, self._heard_ns.get(worker, since)) >= self.settings.peer_timeout_ns
        ]
        if silent:
            self._fail(block, silent, NO_FLAGS, now_ns)
            return
        for worker in ranks_in(told):
            self._send(worker, packet)
        if waiting:
            self._wake(block, self._next_due_ns(block, now_ns))
            block.interval_ns = min(2 * block.interval_ns, MAX_BACKOFF * self.settings.retransmit_ns)

    def _next_due_ns(self, block: _Block, now_ns: int) -> int:
        due = now_ns + block.interval_ns
        deadline = self.settings.deadline_ns
        if block.decision is None and deadline is not None and now_ns < block.opened_ns + deadline:
            due = min(due, block.opened_ns + deadline)
        return due

    def _query(self, block: _Block) -> Packet:
        packet = self._about(block.key, block.slot, Kind.QUERY)
        packet.bitmap = block.contributed
        packet.count = len(block.contributions)
        return packet

    def _about(self, key: Key, slot: int, kind: Kind) -> Packet:
        """A packet of the hub's about a block."""
        settings = self.settings
        return Packet(kind, settings.job, *key, HUB, slot=slot, generation=settings.generation)

    def _send(self, worker: int, packet: Packet) -> None:
        self._out.append((worker, packet.encode()))


def _shape(packet: Packet) -> tuple[Operation, int]:
    return packet.operation, packet.exponent
