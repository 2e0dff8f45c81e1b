"""Who adds for a group's ranks: the protocol of an adder, and the table of those that settings ask for.

A communicator asks its adders in the order of the table, and the first that takes a call starts it. What none takes, or
names an algorithm, the ranks add themselves by a schedule (choose.py). All ranks must decide alike, so a decision
depends on the call alone and on what all of them know. Calls have the communicator's numbers whoever adds, and the
communicator fails with its adders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dlcp.transport.logger import RankLogger

if TYPE_CHECKING:
    from dlcp.transport.call_options import CollectiveKeywords
    from dlcp.transport.coded import CodedRules
    from dlcp.transport.communicator import Communicator
    from dlcp.transport.element import DataType, Reduction
    from dlcp.transport.plan import Memory
    from dlcp.transport.store import Store
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


def _switch(communicator: Communicator, store: Store, _: float) -> Adder | None:
    from dlcp.transport.aggregation.sums import open_switch_sums

    return open_switch_sums(communicator, store)


def _hub(communicator: Communicator, store: Store, timeout_s: float) -> Adder | None:
    from dlcp.transport.hub.group import open_hub_group

    return open_hub_group(communicator, store, timeout_s)


ADDERS: dict[str, Callable[[Communicator, Store, float], Adder | None]] = {
    "aggregation": _switch,
    "hub": _hub,
}
"""What opens an adder, or finds that it cannot serve, by the setting that asks for it; in the order of asking."""


def open_adders(communicator: Communicator, store: Store, timeout_s: float) -> Iterator[Adder]:
    """Opens those that the job's settings ask for, one by one. Blocks and raises as what opens them."""
    for setting, opener in ADDERS.items():
        asked = getattr(communicator.job.settings, setting)
        if asked is not None and (adder := opener(communicator, store, timeout_s)) is not None:
            if communicator.rank == 0:
                said = RankLogger(communicator.job.rank, communicator.name)
                said.info("%s=%s is asked about calls that add", setting, asked)
            yield adder
