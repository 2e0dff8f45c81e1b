"""Who adds for a group's ranks: the protocol of an adder.

A communicator asks its adders in order (adder_table.py), and the first that takes a call starts it. What none takes, or
names an algorithm, the ranks add themselves by a schedule (choose.py). All ranks must decide alike, so a decision
depends on the call alone and on what all of them know. Calls have the communicator's numbers whoever adds, and the
communicator fails with its adders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from dlcp.transport.call_options import CollectiveKeywords
    from dlcp.transport.coded import CodedRules
    from dlcp.transport.element import DataType, Reduction
    from dlcp.transport.plan import Memory
    from dlcp.transport.work import Work


class Addition(NamedTuple):
    """A call that adds, without its memory."""

    collective: str
    """A name of dlcp.transport.schedule."""
    nbytes: int
    """That one rank contributes."""
    dtype: DataType
    op: Reduction
    agree: str
    """What else must be equal on all ranks."""
    factor: float | None = None
    """What this rank's values are multiplied by first; None: nothing."""
    coded: CodedRules | None = None
    """Of coded values; their dtype is u8."""
    even: bool = True
    """Whether its parts have one size."""
    numbered: bool = False
    """The caller brings a number: ranks may start such calls in different orders."""
    deadline_s: float | None = None
    """So long after its first contribution it may be made without ranks that are late; None: of all ranks. What adds
    may wait for all even so."""


class Adder(Protocol):
    """Adds for one communicator. Any thread may use it. The last four are as the communicator's, of its own calls."""

    def takes(self, addition: Addition) -> bool:
        """Whether a call is for it; the same on all ranks. Does not block."""

    def start(self, addition: Addition, inputs: Memory, outputs: Memory, how: CollectiveKeywords) -> Work:
        """Starts a call that it takes, under the communicator's next number if `how` brings none.

        `inputs`, `outputs`: as dlcp.transport.schedule lists them. Blocks and raises as calls of the communicator.
        """

    @property
    def under_way(self) -> int: ...
    def abort(self, reason: str = "") -> None: ...
    def close(self) -> None: ...
    def withdraw(self) -> None: ...
