"""The machinery under all orders: slices that wait by priority, and a credit of bytes under way.

A slice leaves when it is the first of those ready and fits the credit; nothing smaller passes it by. Finishing gives
the credit back.

A credit and collectives make a trap. A slice of a collective ends only when all ranks have started it; ranks whose
layers become ready at different times may spend their credit on different slices, and then each waits for what the
other does not start. A parameter server has no such trap; ByteScheduler has one rank decide for all. Here no rank asks
another: of the slices that are not finished, the one of the lowest number may always leave, over the credit, one at a
time. Numbers are the same on all ranks, and on every rank all before it are finished, so all ranks start it once it is
ready, and it ends. It leaves in the lowest class, so that it takes only what the slices within the credit leave unused.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Sequence

from dlcp.transport.layer_order.slices import Slice, cut


class _State(enum.Enum):
    ABSENT = enum.auto()
    READY = enum.auto()
    UNDER_WAY = enum.auto()
    FINISHED = enum.auto()


class SliceQueue:
    """An order made of a key and a credit; see Order for what it does.

    `key(layer, arrival)`: the least leaves first; `arrival` counts the layers of a round as they become ready.
    `credit_bytes`: how much may be under way, None: no limit. `together`: whether a slice ends only when every rank has
    started it, as with collectives.
    """

    def __init__(
        self,
        layer_bytes: Sequence[int],
        *,
        key: Callable[[int, int], int],
        slice_bytes: int | None = None,
        credit_bytes: int | None = None,
        classes: Sequence[int] | None = None,
        together: bool = True,
    ) -> None:
        if credit_bytes is not None and (slice_bytes is None or credit_bytes < slice_bytes):
            raise ValueError(
                f"the credit is {credit_bytes} bytes; accepted: a slice ({slice_bytes} bytes) or more"
            )
        # Class 0 stays free for what leaves over the credit.
        ordinary = 0 if credit_bytes is None or not together else 1
        self.slices = cut(layer_bytes, slice_bytes, classes or [ordinary] * len(layer_bytes))
        """All slices of a round, by number."""
        self.credit_bytes = credit_bytes
        """How much may be under way at once, but for one slice that others may wait for; None: no limit."""
        self.under_way_bytes = 0
        """Of slices started within the credit and not finished."""
        self._key = key
        self._together = together
        self._of_layer: list[list[Slice]] = [[] for _ in layer_bytes]
        for piece in self.slices:
            self._of_layer[piece.layer].append(piece)
        self._begin_round()

    def _begin_round(self) -> None:
        self._states = [_State.ABSENT] * len(self.slices)
        self._waiting: list[tuple[int, int, int]] = []
        # The lowest number that is not finished.
        self._first = 0
        # The slice that left over the credit and is not finished; there is one at most.
        self._beyond: int | None = None
        self._arrivals = 0
        self._finished = 0

    @property
    def limits_what_is_under_way(self) -> bool:
        """Whether finished slices let others leave."""
        return self.credit_bytes is not None

    @property
    def idle(self) -> bool:
        """Whether no round is under way."""
        return self._arrivals == 0

    def handle_ready(self, layer: int) -> None:
        """The gradient of a layer is there. Raises ValueError: no such layer, or it was ready in this round."""
        if not 0 <= layer < len(self._of_layer):
            raise ValueError(f"layer is {layer}; accepted: 0 to {len(self._of_layer) - 1}")
        pieces = self._of_layer[layer]
        if self._states[pieces[0].number] is not _State.ABSENT:
            raise ValueError(f"layer {layer} is ready twice in one round; accepted: once each")
        key = self._key(layer, self._arrivals)
        self._arrivals += 1
        for piece in pieces:
            self._states[piece.number] = _State.READY
            heapq.heappush(self._waiting, (key, piece.offset, piece.number))

    def handle_finished(self, piece: Slice) -> None:
        """A slice is over. Raises ValueError: it is not under way."""
        number = piece.number
        if not 0 <= number < len(self.slices) or self._states[number] is not _State.UNDER_WAY:
            raise ValueError(f"{piece} is finished; accepted: a slice under way")
        self._states[number] = _State.FINISHED
        if self._beyond == number:
            self._beyond = None
        else:
            self.under_way_bytes -= piece.nbytes
        self._finished += 1
        if self._finished == len(self.slices):
            self._begin_round()
            return
        while self._states[self._first] is _State.FINISHED:
            self._first += 1

    def poll_slice(self) -> Slice | None:
        """The slice to start now; None: nothing until the next event."""
        # What left over the credit was left in the heap.
        while self._waiting and self._states[self._waiting[0][2]] is not _State.READY:
            heapq.heappop(self._waiting)
        if not self._waiting:
            return None
        piece = self.slices[self._waiting[0][2]]
        if self.credit_bytes is None or self.under_way_bytes + piece.nbytes <= self.credit_bytes:
            heapq.heappop(self._waiting)
            self._states[piece.number] = _State.UNDER_WAY
            self.under_way_bytes += piece.nbytes
            return piece
        if self._together and self._states[self._first] is _State.READY:
            self._states[self._first] = _State.UNDER_WAY
            self._beyond = self._first
            return self.slices[self._first]._replace(traffic_class=0)
        return None
