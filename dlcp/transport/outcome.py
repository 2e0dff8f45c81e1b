"""How one message ended: delivered, abandoned in part, or failed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one message ended. Bytes are of payload; blocks are what one packet carries."""

    rank: int | None
    """The peer; None: a receive from any peer that got no message."""
    tag: int
    message_bytes: int
    block_bytes: int
    """Of every block but the last."""
    blocks: int
    delivered_bytes: int
    abandoned_bytes: int
    abandoned_blocks: int
    retransmitted_bytes: int
    """Known to the sender only."""
    waited_s: float
    """From the call to the end of the message."""
    _words: npt.NDArray[np.uint64] = field(repr=False, compare=False)

    @property
    def abandoned(self) -> npt.NDArray[np.bool_]:
        """One bool per block, shape (blocks,): True where the block was abandoned.

        The receive buffer keeps there what it held before.
        """
        mask = np.zeros(self.blocks, np.bool_)
        if self.abandoned_blocks:
            bits = np.unpackbits(
                self._words.astype("<u8").view(np.uint8), bitorder="little", count=self.blocks
            )
            mask[: len(bits)] = bits
        return mask

    def abandoned_ranges(self) -> npt.NDArray[np.int64]:
        """Abandoned bytes as (begin, end) pairs, shape (n, 2); neighbouring blocks are one pair."""
        edges = np.flatnonzero(np.diff(self.abandoned.astype(np.int8), prepend=0, append=0)).astype(np.int64)
        return np.minimum(edges.reshape(-1, 2) * self.block_bytes, self.message_bytes)
