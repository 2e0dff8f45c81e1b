"""The ranks that reduce a buffer together, as a recipe sees them: a process group, or some of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard

from dlcp.transport.communicator import Communicator


class Start(Protocol):
    """`with` around the start of a collective: gives the communicator and the keyword arguments to start it with."""

    @property
    def call(self) -> Any:
        """The keyword arguments; may be added to before it starts."""

    def __enter__(self) -> tuple[Communicator, Any]: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None: ...


class Peers(Protocol):
    """Who exchanges. What outlives a step may be kept by it."""

    def __hash__(self) -> int:
        """By identity."""

    @property
    def communicator(self) -> Communicator:
        """The one that numbers the collectives of these ranks."""

    def size(self) -> int:
        """How many they are."""

    def rank(self) -> int:
        """This rank among them."""

    def starting(self, collective: str, opts: Any, keep: object, on: Communicator | None = None) -> Start:
        """To be entered where a collective starts. `opts`: torch's, of the call. `keep`: the collective's memory.

        `on`: a communicator of the same ranks; None: their own.
        """

    def numbering(self, on: Communicator | None = None) -> Communicator:
        """The communicator that numbers a collective which starts now; `on`: as of `starting`."""

    def private_communicator(self, name: str, ranks: Sequence[int] | None = None) -> Communicator:
        """A communicator for one purpose, whose collectives are numbered apart; of some of the ranks, or all.

        The first call with a name blocks for the store; all ranks make it.
        """


def is_peers(group: object) -> TypeGuard[Peers]:
    """Whether a group is one of dlcp. Asked for each buffer: isinstance() of a protocol would take 18 µs."""
    return isinstance(getattr(group, "communicator", None), Communicator)
