"""One buffer of gradients under way, and what happens when its collective is over.

A flight is settled once, before anybody sees its result: what was given up goes to the residual memory and the ledger,
a transform is undone, the result goes where the caller wants it. Settling waits for nothing, so that it may run on any
thread that finds the collective over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import torch

from dlcp.torch.callbacks import pool
from dlcp.torch.futures import CollectiveFuture
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.tensors import CopyBack
from dlcp.torch.work import CollectiveWork, Operation
from dlcp.transport.bounded import Outcome
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.torch.process_group import ProcessGroup


class Flight:
    """What is known of a buffer from its start to its end."""

    def __init__(
        self,
        group: ProcessGroup,
        layout: Layout,
        memory: torch.Tensor,
        output: torch.Tensor,
        result: torch.Tensor,
        finish: Callable[[Flight, Outcome], None],
    ) -> None:
        names = layout.names()
        self.name = names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "") if names else "padding"
        """For people: the first parameter in it, and how many more."""
        self.layout = layout
        self.memory = memory
        """What the collective reads: CPU, 1-D. Stays as it is until the flight is settled."""
        self.output = output
        """What the collective fills: CPU, 1-D."""
        self.result = result
        """What the caller gets: the output itself, or a tensor it is copied to."""
        self.back = CopyBack()
        """The way there."""
        self.operation: Operation | None = None
        """The collective; None: not started yet."""
        self.group = group
        """Over which it goes."""
        self.key: Hashable = None
        """Of the buffer, in its step."""
        self.step = 0
        """Number of the step."""
        self.runs: Sequence[tuple[int, int]] = ()
        """Elements of the memory that were transformed, run by run."""
        self.origin = 0
        """The element of the memory that the output begins with."""
        self.factor: float | None = None
        """Of the result, on top of the reduction."""
        self.sent_bytes = 0
        """Bytes of the buffer that others add: the budget is a fraction of these."""
        self.given_ratio = 0.0
        """Fraction of them that may be lost."""
        self.critical_bytes = 0
        """Of them, what may not be lost in any case."""
        self.block_bytes = 0
        """Of messages to others, the least."""
        self.square: float | None = None
        """Of the result, its squared L2 norm, where somebody asks for it."""
        self.settled = False
        self.error: BaseException | None = None
        """Why it could not be settled."""
        # The end of a step settles what nobody has waited for.
        self._lock = threading.RLock()
        self._finish: Callable[[Flight, Outcome], None] | None = finish

    def wait(self) -> None:
        """Blocks until it is settled. Raises the collective's error, or that of settling."""
        assert self.operation is not None
        self.operation.wait()
        self.settle()

    def settle(self) -> None:
        """Its collective has ended well. Again: nothing. Raises what settling it raised the first time."""
        with self._lock:
            if not self.settled:
                assert isinstance(self.operation, Work)
                assert self._finish is not None
                finish, self._finish = self._finish, None
                try:
                    finish(self, self.operation.outcome)
                    self.back.run()
                except BaseException as error:
                    self.error = error
                self.settled = True
        if self.error is not None:
            raise self.error


class _Landing(CopyBack):
    """Settles flights where a plain collective would only copy results back."""

    __slots__ = ("_flights",)

    def __init__(self, flights: Sequence[Flight]) -> None:
        super().__init__()
        self._flights = flights

    def __bool__(self) -> bool:
        return True

    def run(self) -> None:
        for flight in self._flights:
            flight.settle()

    def make_streams_wait(self) -> None:
        for flight in self._flights:
            flight.back.make_streams_wait()


class GradientWork(CollectiveWork):
    """The work of bounded collectives: as any other's, and over when their flights are settled."""

    def __init__(self, flights: Sequence[Flight], result: list[torch.Tensor]) -> None:
        super().__init__(
            [flight.operation for flight in flights if flight.operation is not None],
            result,
            _Landing(flights),
        )

    def tensor_future(self) -> CollectiveFuture:
        """A future of the one result, which is settled even if nobody waits for it."""
        (result,) = self._result
        future = CollectiveFuture([result.device] if result.is_cuda else ())

        def complete() -> None:
            future.complete(lambda: self._outcome()[0])

        (operation,) = self._operations
        operation.add_done_callback(lambda _: pool.submit(complete))
        return future
