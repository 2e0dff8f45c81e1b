"""What every order answers to. Events go in by `handle_*`, what is to be done comes out of `poll_slice`.

A round is one step: every layer becomes ready once, every slice leaves once and is finished once; then the next round
begins. A layer that is told ready twice in a round, or a slice finished that is not under way, is a mistake of the
caller and raises ValueError.
"""

from __future__ import annotations

from typing import Protocol

from dlcp.transport.layer_order.slices import Slice


class Order(Protocol):
    """Decides which slice leaves next. Not safe for threads: the caller brings a lock."""

    @property
    def slices(self) -> tuple[Slice, ...]:
        """All slices of a round, by number; with the classes that they have when nothing is out of the ordinary."""

    @property
    def limits_what_is_under_way(self) -> bool:
        """Whether a slice may have to wait for another one to finish, so that finished slices must be told at once."""

    @property
    def idle(self) -> bool:
        """Whether no round is under way: no layer ready that is not finished."""

    def handle_ready(self, layer: int) -> None:
        """The gradient of a layer is there. Poll afterwards."""

    def handle_finished(self, piece: Slice) -> None:
        """A slice that `poll_slice` gave is over: it need not be waited for any more. Poll afterwards."""

    def poll_slice(self) -> Slice | None:
        """The slice to start now; None: nothing until the next event. Repeat until None."""
