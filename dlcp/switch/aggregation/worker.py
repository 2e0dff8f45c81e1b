"""A worker of an aggregating job: contributions out, results in, once each.

A protocol engine: `start` gives it values, `handle_packet` a datagram, `poll_packet` and `poll_event` are repeated
until they give None, `next_time_ns` says when to poll again. All it sends is for the hub's address; a switch in between
may answer instead. p4/aggregation.md has the protocol and its proofs; the rules kept here are

- a block's slot is its position in the job's stream of blocks, modulo the slots. No block is sent half a range or more
  beyond the oldest unfinished one. This is SwitchML's double buffering: a worker reuses a slot when it has the result
  of the block half a range later. If nobody is missing, all workers contributed to that block after they had the
  result that was in the slot;
- the first result of a block is kept and never replaced, but after a promise to the hub only the hub's is taken;
- results are kept until the hub says that all workers have them.

Every message ends: with a result, or with an error for the whole worker, `timeout_ns` after it was the oldest.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dlcp.checks import integer
from dlcp.errors import (
    ArgumentError,
    CollectiveError,
    CollectiveTimeoutError,
    GroupFailedError,
    MismatchError,
    PeerFailedError,
    SettingsError,
)
from dlcp.switch.aggregation.message import Block, BlockState, Message
from dlcp.switch.aggregation.packet import NO_FLAGS, Flag, Kind, Packet, decode
from dlcp.switch.aggregation.quantise import CODE_NOT_FINITE
from dlcp.switch.aggregation.result import AggregationResult
from dlcp.switch.aggregation.send_window import SendWindow
from dlcp.switch.aggregation.settings import JobSettings

MAX_ELEMENTS = 2**30
MAX_MESSAGE = 2**32 - 1  # the packet's field
MAX_BACKOFF = 16  # of the interval between retransmissions
# A worker keeps results and promises for so many blocks of messages that it has not started: two million values, some
# 60 MB at worst. A straggler that is further behind does not answer for later blocks.
EARLY_BLOCKS = 2**16


def ranks_in(bitmap: int) -> list[int]:
    """The workers of a bitmap."""
    return [worker for worker in range(bitmap.bit_length()) if bitmap >> worker & 1]


@dataclass(frozen=True)
class Finished:
    """All blocks of a message have results."""

    message: int
    result: AggregationResult


@dataclass(frozen=True)
class Failed:
    """The worker has failed for good; `error` says why."""

    error: CollectiveError


@dataclass
class _Kept:
    """A finished message, kept for later requests, and reported to the hub until it is closed."""

    message: Message
    due_ns: int
    interval_ns: int


class Worker:
    """One worker of a job."""

    def __init__(self, settings: JobSettings, worker: int) -> None:
        integer("worker", worker, 0, settings.workers - 1, error=SettingsError)
        self.settings = settings
        self.worker = worker
        self.counters: Counter[str] = Counter()
        self._out: deque[bytes] = deque()
        self._events: deque[Finished | Failed] = deque()
        self._failure: CollectiveError | None = None
        self._newest = 0  # message started last
        self._positions = 0  # blocks of all messages so far
        self._messages: dict[int, Message] = {}  # that are not closed
        self._undone: deque[Message] = deque()  # that are not finished, in order
        self._kept: dict[int, _Kept] = {}  # that are finished and not closed
        self._oldest_since_ns = 0
        self._send_window = SendWindow(settings.window, settings.retransmit_ns)
        self._in_order: deque[Block] = deque()  # not known to be done, in order of position
        self._unsent: deque[Block] = deque()  # not looked at yet
        self._held: list[Block] = []  # within the window, but not ready, or not yet to be sent
        self._timers: list[tuple[int, int, Block]] = []  # due_ns, position; of blocks that are sent
        # Of messages that are not started here yet: results that came, and promises that were made.
        self._early: dict[tuple[int, int], tuple[Packet, bool]] = {}
        self._promised: set[tuple[int, int]] = set()

    # ---- the application ----

    def start(self, values: npt.NDArray[np.generic], now_ns: int) -> int:
        """Starts the all-reduce (sum) of float32 or int32 values, which are copied; gives the message's number.

        All workers start the same messages in the same order. Any number may be started; `open_messages` are sent at a
        time.
        """
        if self._failure is not None:
            raise GroupFailedError(f"the aggregating job had failed: {self._failure}")
        if values.dtype not in (np.dtype(np.float32), np.dtype(np.int32)):
            raise ArgumentError(f"values are {values.dtype}; accepted: float32, int32")
        if not 1 <= values.size <= MAX_ELEMENTS:
            raise ArgumentError(f"values have {values.size} elements; accepted: 1 to {MAX_ELEMENTS}")
        if self._newest == MAX_MESSAGE:
            raise ArgumentError(
                f"{MAX_MESSAGE} messages were started, which is all that there are; admit the job again, with the "
                "next generation"
            )
        self._newest += 1
        message = Message(self._newest, self._positions, values, self.settings.workers)
        self._positions += len(message.blocks)
        if not self._undone:
            self._oldest_since_ns = now_ns
        self._messages[message.number] = message
        self._undone.append(message)
        self._in_order.extend(message.blocks)
        self._unsent.extend(message.blocks)
        self._take_what_was_early(message, now_ns)
        return message.number

    def _take_what_was_early(self, message: Message, now_ns: int) -> None:
        for block in message.blocks:
            key = (message.number, block.index)
            if key in self._promised:
                self._promised.discard(key)
                block.state = BlockState.PROMISED
                self._held.append(block)  # answered once it is ready
            if (early := self._early.pop(key, None)) is not None:
                self._accept(block, *early, now_ns)
        # What is left lies outside the message as this worker knows it.
        self._early = {key: value for key, value in self._early.items() if key[0] != message.number}
        self._promised = {key for key in self._promised if key[0] != message.number}

    @property
    def is_idle(self) -> bool:
        """Nothing is pending, and no other participant can ask for anything any more."""
        return not self._messages and not self._out

    # ---- packets in ----

    def handle_packet(self, datagram: bytes, now_ns: int) -> None:
        """Takes one datagram from the job's socket; what is not for this job is counted."""
        packet = decode(datagram)
        if packet is None:
            self.counters["malformed"] += 1
        elif packet.job != self.settings.job or packet.generation != self.settings.generation:
            self.counters["foreign"] += 1
        elif self._failure is None:
            match packet.kind:
                case Kind.RESULT | Kind.DECIDED:
                    self._handle_result(packet, now_ns)
                case Kind.QUERY:
                    self._handle_query(packet)
                case Kind.CLOSED:
                    if packet.message in self._kept:
                        del self._kept[packet.message], self._messages[packet.message]
                case Kind.FAILED:
                    if packet.message in self._messages or packet.message > self._newest:
                        self._fail(_hub_error(packet))
                case _:
                    self.counters["unexpected"] += 1

    def _handle_result(self, packet: Packet, now_ns: int) -> None:
        by_hub = packet.kind is Kind.DECIDED
        key = (packet.message, packet.block)
        message = self._messages.get(packet.message)
        if message is not None:
            if packet.block >= len(message.blocks):
                self.counters["outside"] += 1
                return
            block = message.blocks[packet.block]
            if block.state is not BlockState.DONE and (by_hub or block.state is not BlockState.PROMISED):
                self._accept(block, packet, by_hub, now_ns)
            if by_hub and block.state is BlockState.DONE:
                self._acknowledge(packet)
        elif self._is_soon(packet.message):
            if key not in self._early and (by_hub or key not in self._promised):
                if len(self._early) >= EARLY_BLOCKS:
                    self.counters["too_early"] += 1
                    return
                self._early[key] = (packet, by_hub)
            if by_hub:
                self._acknowledge(packet)
        elif by_hub and packet.message <= self._newest:
            self._acknowledge(packet)  # closed, and the hub has not noticed that it said so

    def _acknowledge(self, packet: Packet) -> None:
        self._send(replace(packet, kind=Kind.ACK, worker=self.worker))

    def _handle_query(self, packet: Packet) -> None:
        key = (packet.message, packet.block)
        message = self._messages.get(packet.message)
        if message is not None:
            if packet.block >= len(message.blocks):
                self.counters["outside"] += 1
                return
            block = message.blocks[packet.block]
            block.missing = self.settings.everyone & ~packet.bitmap
            if block.state in (BlockState.UNSENT, BlockState.SENT):
                if not block.is_ready:
                    self._held.append(block)  # answered again once it is
                if block.state is BlockState.SENT:
                    self._send_window.in_flight -= 1
                block.state = BlockState.PROMISED
            self._answer(block)
        elif self._is_soon(packet.message):
            answer = replace(packet, kind=Kind.ANSWER, worker=self.worker, bitmap=0, flags=NO_FLAGS)
            if (early := self._early.get(key)) is not None:
                self._send(replace(early[0], kind=Kind.ANSWER, worker=self.worker, flags=Flag.HAS_RESULT))
            elif key in self._promised or len(self._promised) < EARLY_BLOCKS:
                self._promised.add(key)
                self._send(answer)

    def _is_soon(self, message: int) -> bool:
        """Whether others can have begun a message that has not been started here."""
        return self._newest < message <= self._newest + self.settings.open_messages

    def _answer(self, block: Block) -> None:
        if block.result is not None:
            self._send(replace(block.result, kind=Kind.ANSWER, worker=self.worker, flags=Flag.HAS_RESULT))
        elif block.is_ready:
            self._send(self._contribution(block, Kind.ANSWER, Flag.HAS_CONTRIBUTION))
        else:
            self._send(self._empty(block, Kind.ANSWER))

    def _accept(self, block: Block, packet: Packet, by_hub: bool, now_ns: int) -> None:
        """Takes a result for good."""
        message = block.message
        if not self._is_sound(block, packet):
            self.counters["unsound"] += 1
            return
        if self.settings.deadline_ns is None and packet.bitmap != self.settings.everyone:
            without = ranks_in(self.settings.everyone & ~packet.bitmap)
            self._fail(
                MismatchError(
                    f"message {message.number}, block {block.index}: a result without workers {without}, "
                    "which another participant's deadline made; here none is set"
                )
            )
            return
        if block.state is BlockState.SENT:
            self._send_window.in_flight -= 1
            if not block.was_repeated:
                self._send_window.handle_result(now_ns - block.first_sent_ns)
        block.result = packet
        block.by_hub = by_hub
        block.state = BlockState.DONE
        message.left -= 1
        if message.left == 0:
            self._finish(message, now_ns)

    def _is_sound(self, block: Block, packet: Packet) -> bool:
        """Whether a result is one of this block, as far as that can be seen."""
        if packet.operation is not block.operation or packet.bitmap & ~self.settings.everyone:
            return False
        if packet.bitmap == 0 or packet.slot != block.position % self.settings.slots:
            return False
        if block.planned.is_codes and (packet.values.min() < 0 or packet.values.max() > CODE_NOT_FINITE):
            return False
        # A straggler may have a result before it knows the exponents.
        return not block.is_ready or packet.exponent == block.message.code(block)

    def _finish(self, message: Message, now_ns: int) -> None:
        self._events.append(Finished(message.number, message.result(self.worker)))
        self._kept[message.number] = _Kept(message, now_ns, self.settings.retransmit_ns)
        while self._undone and self._undone[0].left == 0:
            self._undone.popleft()
            self._oldest_since_ns = now_ns

    def _fail(self, error: CollectiveError) -> None:
        self._failure = error
        self._events.append(Failed(error))
        self._out.clear()
        self._timers.clear()
        self._messages.clear()
        self._kept.clear()

    # ---- packets and events out ----

    def poll_event(self) -> Finished | Failed | None:
        """The next event. Repeat until None."""
        return self._events.popleft() if self._events else None

    def poll_packet(self, now_ns: int) -> bytes | None:
        """The next datagram, for the hub's address. Repeat until None."""
        self._check_timeout(now_ns)
        if not self._out and self._failure is None:
            self._send_new(now_ns)
            self._send_again(now_ns)
            self._send_finished(now_ns)
        return self._out.popleft() if self._out else None

    def next_time_ns(self) -> int | None:
        """When to poll again, if nothing comes before; None: not before a packet or a start."""
        if self._failure is not None:
            return None
        times = [kept.due_ns for kept in self._kept.values()]
        self._drop_old_timers()
        if self._timers:
            times.append(self._timers[0][0])
        if self._undone:
            times.append(self._oldest_since_ns + self.settings.timeout_ns)
        return min(times, default=None)

    def _send(self, packet: Packet) -> None:
        self._out.append(packet.encode())

    def _empty(self, block: Block, kind: Kind, flags: Flag = NO_FLAGS) -> Packet:
        return Packet(
            kind,
            self.settings.job,
            block.message.number,
            block.index,
            self.worker,
            slot=block.position % self.settings.slots,
            generation=self.settings.generation,
            operation=block.operation,
            flags=flags,
        )

    def _contribution(self, block: Block, kind: Kind, flags: Flag = NO_FLAGS) -> Packet:
        packet = self._empty(block, kind, flags)
        packet.exponent = block.message.code(block)
        packet.values = block.message.contribution(block)
        return packet

    def _send_new(self, now_ns: int) -> None:
        while self._in_order and self._in_order[0].state is BlockState.DONE:
            self._in_order.popleft()
        if not self._in_order:
            return
        end = self._in_order[0].position + self.settings.window
        oldest = min(self._messages)
        while self._unsent and self._unsent[0].position < end:
            if self._unsent[0].message.number >= oldest + self.settings.open_messages:
                break
            block = self._unsent.popleft()
            if block.state is BlockState.UNSENT:
                self._held.append(block)
        held, self._held = self._held, []
        for block in held:
            if block.state in (BlockState.SENT, BlockState.DONE):
                continue
            if not block.is_ready:
                self._held.append(block)
            elif block.state is BlockState.PROMISED:
                self._answer(block)
            elif not self._send_window.has_room:
                self._held.append(block)
            else:
                self._send_window.in_flight += 1
                block.state = BlockState.SENT
                block.first_sent_ns = now_ns
                block.interval_ns = self._send_window.wait_ns
                self._send(self._contribution(block, Kind.CONTRIBUTION))
                self._set_timer(block, now_ns)

    def _set_timer(self, block: Block, now_ns: int) -> None:
        block.due_ns = now_ns + block.interval_ns
        deadline = self.settings.deadline_ns
        if deadline is not None and now_ns < block.first_sent_ns + deadline:
            block.due_ns = min(block.due_ns, block.first_sent_ns + deadline)
        heapq.heappush(self._timers, (block.due_ns, block.position, block))

    def _drop_old_timers(self) -> None:
        while self._timers and self._timers[0][2].state is not BlockState.SENT:
            heapq.heappop(self._timers)

    def _send_again(self, now_ns: int) -> None:
        self._drop_old_timers()
        while self._timers and self._timers[0][0] <= now_ns:
            block = heapq.heappop(self._timers)[2]
            self.counters["retransmissions"] += 1
            self._send_window.handle_wait_over(now_ns)
            block.was_repeated = True
            waited = now_ns - block.first_sent_ns
            flags = Flag.RETRANSMISSION
            if waited >= self.settings.fallback_after_ns:
                flags |= Flag.TO_HUB
            self._send(self._contribution(block, Kind.CONTRIBUTION, flags))
            deadline = self.settings.deadline_ns
            if deadline is not None and waited >= deadline and not flags & Flag.TO_HUB:
                flush = self._empty(block, Kind.FLUSH)
                flush.quorum = self.settings.quorum
                self._send(flush)
            block.interval_ns = min(2 * block.interval_ns, MAX_BACKOFF * self._send_window.wait_ns)
            self._set_timer(block, now_ns)
            self._drop_old_timers()

    def _send_finished(self, now_ns: int) -> None:
        for kept in self._kept.values():
            if kept.due_ns <= now_ns:
                self._send(self._empty(kept.message.blocks[0], Kind.FINISHED))
                kept.due_ns = now_ns + kept.interval_ns
                kept.interval_ns = min(2 * kept.interval_ns, MAX_BACKOFF * self.settings.retransmit_ns)

    def _check_timeout(self, now_ns: int) -> None:
        if self._failure is not None or not self._undone:
            return
        if now_ns - self._oldest_since_ns < self.settings.timeout_ns:
            return
        message = self._undone[0]
        left = [block for block in message.blocks if block.state is not BlockState.DONE]
        waited_s = self.settings.timeout_ns / 1e9
        text = f"all-reduce {message.number} of job {self.settings.job}: {len(left)} of {len(message.blocks)} blocks"
        missing = next((block.missing for block in left if block.missing is not None), None)
        if missing is not None:
            text += f" not decided after {waited_s:g} s; the hub waits for workers {ranks_in(missing)}"
        elif left[0].state is BlockState.UNSENT:
            text += f" not sent after {waited_s:g} s: message {min(self._messages)} is not finished at all workers"
        else:
            text += f" without a result after {waited_s:g} s, and the hub does not answer"
        error = CollectiveTimeoutError(text)
        error.operation = "all_reduce"
        error.sequence = message.number
        error.waited_s = waited_s
        self._fail(error)


def _hub_error(packet: Packet) -> CollectiveError:
    """What FAILED says."""
    workers = ranks_in(packet.bitmap)
    where = f"all-reduce {packet.message} of job {packet.job}, block {packet.block}"
    error: CollectiveError
    if packet.flags & Flag.HAS_CONTRIBUTION:
        error = MismatchError(f"{where}: workers {workers} contribute something else than the others")
    else:
        error = PeerFailedError(f"{where}: workers {workers} do not answer the hub")
    error.operation = "all_reduce"
    error.sequence = packet.message
    error.culprit = workers[0] if len(workers) == 1 else None
    return error
