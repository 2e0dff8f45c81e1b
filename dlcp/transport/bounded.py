"""Collectives that may lose part of what they carry, within a budget: the rules of loss, and the outcome.

Only messages to the rank that adds may lose, so all ranks end with the same bits. Both ends name what was abandoned,
block by block, and the sender still holds it. A block is what one packet carries: `Communicator.block_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlcp import _native
from dlcp.checks import boolean, number
from dlcp.errors import ArgumentError

CRITICAL = 255
"""The importance of a block that is never abandoned. Others: 0 to 254, the less the sooner."""


@dataclass(frozen=True, slots=True)
class LossRules:
    """How a bounded collective may lose.

    `loss_ratio`: of each message that this rank sends, the fraction of bytes that may be abandoned; 0 up to 1, 1
    excluded. May differ from rank to rank. `importance`: by rank in the group, uint8, one per block of this rank's part
    for it (see Communicator.parts); None, or an entry None: all of it is critical. `rescale`: results are divided by
    the contributions that came; otherwise what did not come counts as nothing. The same on all ranks. `deadline_s`: a
    message ends this long after its first packet whatever the budget, when its critical blocks are there; None: no
    such end. `patience_s`: so long after the start the network counts as short of capacity, and blocks that have not
    left yet are abandoned unsent, the least important, as far as the budget goes; None: never. Not with a deadline.
    """

    loss_ratio: float
    importance: Sequence[NDArray[np.uint8] | None] | None = None
    rescale: bool = False
    deadline_s: float | None = None
    patience_s: float | None = None

    def __post_init__(self) -> None:
        number("loss_ratio", self.loss_ratio, 0, 1, below=True)
        boolean("rescale", self.rescale)
        if self.deadline_s is not None:
            number("deadline_s", self.deadline_s, 0, above=True, unit="seconds")
        if self.patience_s is not None:
            number("patience_s", self.patience_s, 0, unit="seconds")
        if self.patience_s is not None and self.deadline_s is not None:
            raise ArgumentError("patience_s and deadline_s are both given; accepted: one of them")

    def check(self, messages_bytes: Mapping[int, int], size: int, block_bytes: Callable[[int], int]) -> None:
        """Raises ArgumentError unless the importance fits messages of these lengths, by rank of a group of `size`."""
        if self.importance is None:
            return
        if len(self.importance) != size:
            raise ArgumentError(
                f"importance has {len(self.importance)} entries; accepted: one per rank of the group, {size}"
            )
        for peer, nbytes in messages_bytes.items():
            given = self.importance[peer]
            if given is None:
                continue
            if given.dtype != np.uint8 or given.ndim != 1:
                raise ArgumentError(
                    f"importance for rank {peer} is {given.dtype}{list(given.shape)}; accepted: uint8, one dimension"
                )
            expected = -(-nbytes // block_bytes(peer))
            if len(given) != expected:
                raise ArgumentError(
                    f"importance for rank {peer} has {len(given)} entries; accepted: one per block, {expected}"
                )

    def native(self) -> _native.LossRules:
        """As native code takes it."""
        importance = None
        if self.importance is not None:
            importance = [
                None if each is None or not len(each) else np.ascontiguousarray(each)
                for each in self.importance
            ]
        return _native.LossRules(self.loss_ratio, self.deadline_s, self.patience_s, self.rescale, importance)


class Abandoned(NamedTuple):
    """What was abandoned of one message."""

    peer: int
    """Rank in the group: who should have had it (sent), or whose it was (missing)."""
    begin: int
    """The first byte of the message in this rank's input."""
    message_bytes: int
    block_bytes: int
    nbytes: int
    """Bytes abandoned."""
    blocks: NDArray[np.uint64]
    """Bit i of word i // 64: block i was abandoned."""

    def runs(self) -> NDArray[np.int64]:
        """First byte and end, in this rank's input, of each run of blocks abandoned: int64[runs, 2], ascending."""
        bits = np.unpackbits(self.blocks.view(np.uint8), bitorder="little")
        edges = np.flatnonzero(np.diff(bits.view(np.int8), prepend=0, append=0)).reshape(-1, 2)
        return self.begin + np.minimum(edges * self.block_bytes, self.message_bytes)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The same, pair by pair."""
        yield from ((begin, end) for begin, end in self.runs().tolist())


@dataclass(frozen=True, slots=True)
class CollectiveOutcome:
    """What a bounded collective cost this rank and what it lost."""

    sent: tuple[Abandoned, ...]
    """Of this rank's messages: it still holds these values, nobody has added them."""
    missing: tuple[Abandoned, ...]
    """Of the others' messages to this rank: not in the part that it added."""
    sent_bytes: int
    """Payload, first transmissions."""
    received_bytes: int
    retransmitted_bytes: int
    """Payload, again."""
    lossy_fastest_s: float = 0.0
    """From the start until the first of this rank's lossy messages was over, seconds; 0: there was none."""

    @property
    def abandoned_bytes(self) -> int:
        """Of what this rank sent."""
        return sum(each.nbytes for each in self.sent)


def outcome_of(result: _native.CollectiveResult, starts: Sequence[int], rank: int) -> CollectiveOutcome:
    """From how a collective ended. `starts`: the first byte of each rank's part of the input."""
    sent: list[Abandoned] = []
    missing: list[Abandoned] = []
    for each in result.abandoned:
        (sent if each.sent else missing).append(
            Abandoned(
                each.peer,
                starts[each.peer if each.sent else rank],
                each.message_bytes,
                each.block_bytes,
                each.abandoned_bytes,
                each.blocks,
            )
        )
    return CollectiveOutcome(
        tuple(sent),
        tuple(missing),
        result.sent_bytes,
        result.received_bytes,
        result.retransmitted_bytes,
        result.lossy_fastest_s,
    )
