"""One rank's part in all-reduces that a switch adds up: the steps of one, and what follows when one fails.

Every step that ranks have to agree on is a small collective over their sessions, so all of them go the same way:

1. codes: the largest exponent of each block, by maximum. A value that is not finite: the ring.
2. The switch sums the integers, into memory of this rank's own.
3. verdict: has every rank every sum, and the same? Then each copies them; else all take the ring, with what they
   started with. Checksums of the sums tell a switch that fails, and who falsifies results for some ranks without care;
   not who chooses them so that checksums agree.

Keys of blocks never return. A run's first key is its start in seconds; a probe, before the first sum, shows that the
switch holds nothing newer, or the run number is wrong, or it is no switch. A task that failed may have left blocks in
slots, which a newer block does not displace; a drain finishes them: everyone contributes them once more.
"""

from __future__ import annotations

import errno
import ipaddress
import secrets
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlcp import _native
from dlcp.errors import AddressError
from dlcp.transport.aggregation.account import REASONS, AggregationAccount
from dlcp.transport.aggregation.address import SwitchAddress
from dlcp.transport.call_options import CollectiveKeywords
from dlcp.transport.communicator import Communicator
from dlcp.transport.element import ELEMENT_BYTES, DataType, Reduction
from dlcp.transport.local_memory import copy
from dlcp.transport.logger import RankLogger
from dlcp.transport.span import Span

# Without a new result for so long a task is given up. Ranks begin it within a small collective of each other.
GIVE_UP_S = 1.0
PROBE_GIVE_UP_S = 0.5
# And after this share of the collective's time, however many results trickle in: the ring needs the rest.
LIMIT_SHARE = 0.5
RETRANSMIT_S = 0.01
# Collectives that take the ring after a failure: so many, then twice as many, up to the last.
_FIRST_REST, _LAST_REST = 16, 1024
_CODE_NOT_FINITE = 255


@dataclass(frozen=True)
class _Left:
    """What a task that failed may have left in slots."""

    run: int
    position: int
    """Of the first block."""
    exponents: bytes
    """Of the blocks from there on; a slot at most each."""


class SwitchReducer:
    """Rank `rank` of `size` as a worker of its switch, the rank number `place` of its host. For one thread at a time.

    Raises AddressError: its UDP port cannot be bound. SettingsError: there is none for so many ranks of a host.
    """

    def __init__(self, address: SwitchAddress, rank: int, size: int, place: int) -> None:
        self.address = address
        self.account = AggregationAccount()
        self._rank, self._size = rank, size
        self._has_said = False
        port = address.port_of(place)
        try:
            self._endpoint = _native.AggregationEndpoint(
                address.job,
                address.generation,
                *address.place_of(rank, size),
                rank,
                size,
                address.slots,
                address.lanes,
                RETRANSMIT_S,
                (0, port),
                (int(ipaddress.IPv4Address(address.host)), address.hub_port),
            )
        except OSError as error:
            hint = ""
            if error.errno == errno.EADDRINUSE:
                hint = ". Another socket of this host has it: take ports outside net.ipv4.ip_local_port_range"
            raise AddressError(
                f"{error.strerror or error}: {port}, of the setting aggregation{hint}"
            ) from None
        self._memory = np.empty(0, np.float32)
        self._run = 0  # 0: not probed
        self._last_run = 0
        self._position = 0
        self._left: _Left | None = None
        self._rest = 0
        self._next_rest = _FIRST_REST

    def stop(self) -> None:
        """Ends what is under way, as a failure of the switch's, and all that would follow. From any thread."""
        self._endpoint.stop()

    def all_reduce(
        self, control: Communicator, data: Span, *, average: bool, call: CollectiveKeywords
    ) -> tuple[int, int]:
        """The sum or average of all ranks' float32, in place. Blocks; raises what collectives of `control` raise.

        `control`: a communicator of these ranks that nobody else uses. `call`: keyword arguments for its collectives.
        All ranks call it with as many values, in the same order. Answers payload bytes sent and received.
        """
        reason = self._try_switch(control, data, average, call)
        self.account.set_packets(self._endpoint.counters())
        if reason is None:
            self.account.add_by_switch(data.nbytes)
            moved = data.nbytes * self.address.bits // 32
            return moved, moved
        self.account.add_by_ring(reason)
        op = Reduction.AVG if average else Reduction.SUM
        work = control.all_reduce(data, DataType.f32, op, **call)
        work.wait()
        return work.moved_bytes

    def _try_switch(
        self, control: Communicator, data: Span, average: bool, call: CollectiveKeywords
    ) -> str | None:
        """Why not; None: it is done."""
        if self._rest > 0:
            self._rest -= 1
            return "resting"
        size = data.nbytes // ELEMENT_BYTES[DataType.f32]
        block_values = self.address.block_values
        codes = np.empty(-(-size // block_values), np.uint8)
        _native.aggregation_exponent_codes(data.address, size, block_values, codes.ctypes.data)
        control.all_reduce(Span.of(codes), DataType.u8, Reduction.MAX, **call).wait()
        if codes.max(initial=0) == _CODE_NOT_FINITE:
            return "not_finite"
        if not self._is_ready(control, call):
            self._say_no_switch()
            self._begin_rest()
            return "no_switch"
        sums = self._memory_of(size)
        end = self._endpoint.all_reduce(
            data.address,
            size,
            codes.ctypes.data,
            sums.ctypes.data,
            self.address.bits,
            float(self._size) if average else 1.0,
            self._run,
            self._position,
            GIVE_UP_S,
            LIMIT_SHARE * (call.get("timeout_s") or control.timeout_s),
        )
        reason = self._verdict(control, end, codes, call, _checksum(sums))
        if reason is None:
            self._next_rest = _FIRST_REST
            copy(data, Span.of(sums))
        else:
            self._begin_rest()
        return reason

    def _memory_of(self, count: int) -> npt.NDArray[np.float32]:
        """Kept from call to call, since fresh memory costs a page fault per packet or two."""
        if self._memory.size < count:
            self._memory = np.empty(count, np.float32)
        return self._memory[:count]

    def _say_no_switch(self) -> None:
        if self._rank == 0 and not self._has_said:
            self._has_said = True
            at = self.address
            RankLogger(0).warning(
                "the switch behind %s:%d does not add for job %d: the ring sums. Does it run the program, has it these "
                "ranks as workers, with generation %d (and %d more), %d slots and %d lanes? After a run that "
                "was killed a job needs another generation, there and here",
                *(at.host, at.hub_port, at.job, at.generation, at.generations - 1, at.slots, at.lanes),
            )

    def _begin_rest(self) -> None:
        self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, _LAST_REST)

    def _is_ready(self, control: Communicator, call: CollectiveKeywords) -> bool:
        """Whether the switch may be used now; the same on all ranks."""
        if (left := self._left) is not None:
            end = self._endpoint.drain(left.exponents, left.run, left.position, PROBE_GIVE_UP_S)
            if self._worst(control, end, 0, call)[0] is not None:
                if self.address.generations > 1:
                    self._run, self._left = 0, None  # another generation finds the slots empty
                return False
            self._left = None
        if self._run == 0:
            # The latest clock says the run's number, and the largest of secret numbers is one.
            own_run = max(int(time.time()), self._last_run + 1)
            agreed = np.array([own_run, secrets.randbits(62)], np.int64)
            control.all_reduce(Span.of(agreed), DataType.i64, Reduction.MAX, **call).wait()
            self._begin_run(int(agreed[0]))
            end = self._endpoint.probe(int(agreed[1]), self._run, 0, PROBE_GIVE_UP_S)
            exponents = np.zeros(self.address.slots, np.uint8)
            if self._verdict(control, end, exponents, call) is not None:
                self._run = 0
                if self.address.generations > 1:
                    self._left = None
                return False
        return True

    def _begin_run(self, run: int) -> None:
        """The run's generation follows from its number; not the last one's, if there are several."""
        many = self.address.generations
        if many > 1 and run % many == self._last_run % many:
            run += 1
        self._run = self._last_run = run
        self._position = 0
        self._endpoint.set_generation(self.address.generation + run % many)

    def _verdict(
        self,
        control: Communicator,
        end: str,
        exponents: npt.NDArray[np.uint8],
        call: CollectiveKeywords,
        checksum: int = 0,
    ) -> str | None:
        """Agrees on the end of a task that began at the present position; None: it is done, and alike, on all ranks."""
        reason, sent = self._worst(control, end, self._endpoint.sent_blocks, call, checksum)
        if reason is not None:
            first = max(0, sent - self.address.slots)
            self._left = _Left(self._run, self._position + first, exponents[first:sent].tobytes())
        self._position += exponents.size
        return reason

    def _worst(
        self, control: Communicator, end: str, sent: int, call: CollectiveKeywords, checksum: int = 0
    ) -> tuple[str | None, int]:
        """The worst end of a task on any rank, None being the best, and the most blocks that any rank has sent."""
        reason = 0 if end == "done" else 1 + REASONS.index(end)
        agreed = np.array([reason, sent, checksum, -checksum], np.int64)
        control.all_reduce(Span.of(agreed), DataType.i64, Reduction.MAX, **call).wait()
        worst, most, largest, smallest = (int(each) for each in agreed)
        if worst == 0 and largest != -smallest:
            return "unequal", most
        return (None if worst == 0 else REASONS[worst - 1]), most


def _checksum(sums: npt.NDArray[np.float32]) -> int:
    """Of the bits, 0 to 2^62 - 1. One read pass."""
    pairs = sums[: sums.size // 2 * 2].view(np.uint64)
    last = int(sums[-1:].view(np.uint32)[0]) if sums.size % 2 else 0
    return (int(np.add.reduce(pairs)) + last) % (1 << 62)
