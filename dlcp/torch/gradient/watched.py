"""The gradients of DistributedDataParallel in one backward: which parameters took part, and which results it discards.

    watched.unused(layout)            # before a bucket is reduced: parameters that this rank has no gradient of
    watched.add(layout, buffer)       # once it has been started
    watched.when_over(bucket, tell)   # and then: calls tell(names) once DDP has put all results in place

DDP discards the result of a parameter that no rank has used. It leaves the gradient as it is: the same tensor, in the
same version. But one that is a view of the bucket has the result all the same. A rank that has ended its inputs earlier
than others (join) takes part without a backward: it uses no parameter, and does not learn what others discard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import torch
from torch._C._distributed_c10d import GradBucket

from dlcp.torch.gradient.layout import Layout

if TYPE_CHECKING:
    from dlcp.torch.gradient.rules.names import ParameterNames


class WatchedGradients:
    """Of one model, in one backward after the other."""

    def __init__(self, names: ParameterNames) -> None:
        self._names = names
        self._begun = self._queued = -1
        self._before: dict[str, tuple[torch.Tensor | None, int]] = {}

    def unused(self, layout: Layout) -> Collection[str]:
        """The parameters of a bucket that this rank's backward has not used."""
        if not _in_backward():
            return frozenset(layout.names())
        parameters = self._names.parameters
        return frozenset(name for name in layout.names() if parameters[name].grad is None)

    def add(self, layout: Layout, buffer: torch.Tensor) -> None:
        """A bucket has been given to a collective, and gradients are still to change."""
        memory = buffer.untyped_storage().data_ptr()
        for name in layout.names():
            gradient = self._names.parameters[name].grad
            if gradient is None or gradient.untyped_storage().data_ptr() != memory:
                self._before[name] = gradient, _version(gradient)

    def when_over(self, bucket: GradBucket, tell: Callable[[Collection[str]], None]) -> None:
        """Calls `tell` with the parameters whose gradients DDP has left alone; not where there is no backward.

        In the first backward of a static graph every bucket calls itself the first, and none the last.
        """
        backward = torch._C._current_graph_task_id()
        again = bucket.index() == 0 and backward == self._begun
        if bucket.index() == 0:
            self._begun = backward
        if backward in (-1, self._queued) or not (bucket.is_last() or again):
            return
        self._queued = backward

        def look() -> None:
            before, self._before = self._before, {}
            now = {name: self._names.parameters[name].grad for name in before}
            same = [name for name, (gradient, _) in before.items() if now[name] is gradient]
            tell([name for name in same if _version(now[name]) == before[name][1]])

        # DDP queues what puts results in place right after this call: what that queues in turn comes behind it.
        queue = torch.autograd.Variable._execution_engine.queue_callback
        queue(lambda: queue(look))


def _version(gradient: torch.Tensor | None) -> int:
    return 0 if gradient is None else gradient._version


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() >= 0
