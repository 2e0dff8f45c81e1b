"""One all-reduce as a worker keeps it: its values, its blocks and their states, and what comes out.

A block's states, changed in worker.py alone:

    UNSENT ──► SENT ──────────────► DONE
       │         │  result           ▲
       └─────────┴──► PROMISED ──────┘
            query         decision of the hub

PROMISED: the hub knows that this worker has no result and will take none from the switch; so it may decide.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dlcp.switch.aggregation.packet import LANES, Operation, Packet, Values
from dlcp.switch.aggregation.plan import PlannedBlock, plan
from dlcp.switch.aggregation.quantise import block_count, dequantise, exponent_codes, in_blocks, quantise
from dlcp.switch.aggregation.result import AggregationResult

_Scalar = TypeVar("_Scalar", bound=np.generic)


class BlockState(enum.Enum):
    """How far a block has come."""

    UNSENT = enum.auto()
    SENT = enum.auto()
    PROMISED = enum.auto()
    DONE = enum.auto()


@dataclass(eq=False, slots=True)
class Block:
    """One block of one message."""

    message: Message
    index: int
    position: int
    """In the job's stream of blocks, which gives its slot."""
    planned: PlannedBlock
    state: BlockState = BlockState.UNSENT
    first_sent_ns: int = 0
    interval_ns: int = 0
    due_ns: int = 0
    """Of the next retransmission."""
    was_repeated: bool = False
    result: Packet | None = None
    by_hub: bool = False
    missing: int | None = None
    """Workers whose contributions the hub waits for, as it said last."""

    @property
    def operation(self) -> Operation:
        """What is done with its values."""
        return Operation.MAX if self.planned.is_codes else Operation.SUM

    @property
    def is_ready(self) -> bool:
        """Whether its values are known: those of floats need their group's exponents."""
        needs = self.planned.needs
        return needs is None or self.message.blocks[needs].result is not None


class Message:
    """One all-reduce."""

    def __init__(self, number: int, position: int, values: npt.NDArray[np.generic], workers: int) -> None:
        self.number = number
        self.shape = values.shape
        self.size = values.size
        self.workers = workers
        self.is_floating = values.dtype == np.float32
        self.blocks = [
            Block(self, index, position + index, planned)
            for index, planned in enumerate(plan(values.size, self.is_floating))
        ]
        self.left = len(self.blocks)  # not done
        # One of them is there.
        self._floats = in_blocks(values.reshape(-1).astype(np.float32)) if self.is_floating else None
        self._integers = None if self.is_floating else in_blocks(values.reshape(-1).astype(np.int32))
        self._codes = None if self._floats is None else in_blocks(exponent_codes(self._floats))

    def code(self, block: Block) -> int:
        """The agreed exponent code of a block that is ready; 0 of codes and of integers."""
        if block.planned.needs is None:
            return 0
        agreed = self.blocks[block.planned.needs].result
        assert agreed is not None, "a block is not looked at before it is ready"
        return int(agreed.values[block.planned.row % LANES])

    def contribution(self, block: Block) -> Values:
        """This worker's values of a block that is ready."""
        row = block.planned.row
        if block.planned.is_codes:
            assert self._codes is not None, "only floats have codes"
            codes: Values = self._codes[row]
            return codes
        if self._integers is not None:
            integers: Values = self._integers[row]
            return integers
        assert self._floats is not None, "they are floats or integers"
        code = np.array([self.code(block)], np.int32)
        quantised: Values = quantise(self._floats[row : row + 1], code, self.workers)[0]
        return quantised

    def result(self, worker: int) -> AggregationResult:
        """What came out, once all blocks are done."""
        rows = block_count(self.size)
        sums = np.zeros((rows, LANES), np.int32)
        codes = np.zeros(rows, np.int32)
        contributors = np.zeros(rows, np.uint32)
        saturated = np.zeros((rows, LANES), np.bool_)
        for block in self.blocks:
            if not block.planned.is_codes:
                assert block.result is not None, "all blocks are done"
                row = block.planned.row
                sums[row] = block.result.values
                codes[row] = block.result.exponent
                contributors[row] = block.result.bitmap
                if block.result.saturated:
                    saturated[row] = (block.result.saturated >> np.arange(LANES)) & 1
        mine = (contributors >> np.uint32(worker)) & np.uint32(1)
        values: npt.NDArray[np.generic]
        applied: npt.NDArray[np.generic]
        if self._floats is not None:
            values = dequantise(sums, codes, self.workers)
            sent = dequantise(quantise(self._floats, codes, self.workers), codes, self.workers)
            applied = np.where((mine == 1)[:, None] & np.isfinite(sent), sent, np.float32(0))
        else:
            assert self._integers is not None, "they are floats or integers"
            values = sums
            applied = np.where((mine == 1)[:, None], self._integers, np.int32(0))
        return AggregationResult(
            values=self._cut(values),
            contributors=contributors,
            applied=self._cut(applied),
            saturated=self._cut(saturated),
            by_hub=sum(block.by_hub for block in self.blocks),
        )

    def _cut(self, rows: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
        return rows.reshape(-1)[: self.size].reshape(self.shape)
