"""Messages of a rank to itself, which torch allows with isend and irecv; they never reach the network.

A send leaves a copy and is over at once; a receive takes the oldest of its tag, or waits for one.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque

import torch

from dlcp.errors import CollectiveAbortedError, MismatchError
from dlcp.torch.local_operation import LocalOperation


class SelfMessages:
    """Those of one group and rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._left: defaultdict[int, deque[torch.Tensor]] = defaultdict(deque)
        self._wanted: defaultdict[int, deque[tuple[torch.Tensor, LocalOperation]]] = defaultdict(deque)

    def send(self, memory: torch.Tensor, tag: int) -> LocalOperation:
        """`memory`: contiguous, of the CPU; may change afterwards."""
        operation = LocalOperation("send", f"send to this rank itself, tag {tag}")
        with self._lock:
            if not self._wanted[tag]:
                self._left[tag].append(memory.detach().clone())
                receive = None
            else:
                receive = self._wanted[tag].popleft()
        if receive is not None:
            self._give(memory, *receive)
        operation.finish()
        return operation

    def receive(self, memory: torch.Tensor, tag: int, timeout_s: float) -> LocalOperation:
        """`memory`: contiguous, of the CPU; belongs to the operation until that is over."""
        operation = LocalOperation("receive", f"receive from this rank itself, tag {tag}", timeout_s)
        operation.source = self._rank
        with self._lock:
            if not self._left[tag]:
                self._wanted[tag].append((memory, operation))
                return operation
            message = self._left[tag].popleft()
        self._give(message, memory, operation)
        return operation

    def close(self) -> None:
        """Fails the receives that still wait."""
        with self._lock:
            waiting = [operation for wanted in self._wanted.values() for _, operation in wanted]
            self._wanted.clear()
        for operation in waiting:
            operation.finish(CollectiveAbortedError("receive from this rank itself: the group was closed"))

    def _give(self, message: torch.Tensor, memory: torch.Tensor, operation: LocalOperation) -> None:
        if message.nbytes != memory.nbytes:
            error = MismatchError(
                f"receive from rank {self._rank}, itself: it sent {message.nbytes} bytes, the tensor holds "
                f"{memory.nbytes}"
            )
            operation.finish(error)
            return
        with torch.no_grad():
            memory.detach().view(-1).view(torch.uint8).copy_(message.detach().view(-1).view(torch.uint8))
        operation.finish()
