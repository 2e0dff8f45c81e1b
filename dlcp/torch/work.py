"""torch's Work and Future over the transport's operations: what the caller of a collective holds.

A work is settled once, by the first of these: a waiting caller, is_completed(), or the callback pool after the last
operation. Settling looks for the first error, copies staged results back and completes the future; only then does
anybody see the work as over. So a future is complete when wait() has returned.

torch's C++ (reducer, functional collectives, its registry of works) reaches `wait` and `get_future`, the only ones that
it looks up in Python. What it is given from Python it keeps without the Python half: see work_in_cpp.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from dlcp.errors import DlcpError
from dlcp.torch import profiling, work_in_cpp
from dlcp.torch.callbacks import pool
from dlcp.torch.failures import for_torch
from dlcp.torch.futures import (
    CallbackOrder,
    CollectiveFuture,
    collectives_line,
    line_of_callback,
    messages_line,
)
from dlcp.torch.local_operation import LocalOperation
from dlcp.torch.tensors import CopyBack
from dlcp.transport.communicator import Work

Operation = Work | LocalOperation


class CollectiveWork(dist.Work):
    """One call of a process group: one or more operations of the transport, over when all of them are."""

    def __init__(self, operations: Sequence[Operation], result: list[torch.Tensor], back: CopyBack) -> None:
        super().__init__()
        self._operations = operations
        self._result = result
        self._back = back
        # The future's completion may come back here on the same thread once the callback pool is closed.
        self._lock = threading.RLock()
        self._settled = False
        self._error: Exception | None = None
        self._future: CollectiveFuture | None = None
        work_in_cpp.register(self, result)

    # --- what C++ calls too ---------------------------------------------------------------------------------

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Blocks until the work is over, or for `timeout` if it is more than nothing. True.

        On CUDA the current stream waits for the result, the host only for its arrival. Raises the work's error, and
        after `timeout` WaitTimeoutError; then the work goes on.
        """
        try:
            if self._settled:
                pass
            elif profiling.is_recording() and self._operations:
                with profiling.waited(self._operations[0].operation):
                    self._wait_for_operations(timeout)
            else:
                self._wait_for_operations(timeout)
        except DlcpError as error:
            if not self._over():
                # The caller's own timeout, or the first of several operations to fail.
                raise for_torch(error) from None
        if not self._settled:
            self._settle()
        if self._error is not None:
            raise self._error
        self._back.make_streams_wait()
        return True

    def get_future(self) -> CollectiveFuture:
        """A future of the list of result tensors; complete if the work is over."""
        with self._lock:
            if self._future is None:
                devices = {tensor.device for tensor in self._result if tensor.is_cuda}
                self._future = CollectiveFuture(
                    sorted(devices, key=str) if devices else (), *self._callbacks_of()
                )
                if self._settled:
                    self._future.complete(self._outcome)
                elif self._over():
                    self._settle()
                else:
                    self.when_over(self._settle)
            return self._future

    # --- what Python calls ----------------------------------------------------------------------------------

    def is_completed(self) -> bool:
        """Whether the work is over, well or not; the results are there then."""
        if not self._over():
            return False
        self._settle()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        return self._error if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """The result tensors. Blocks until they are there; raises the work's error."""
        self.wait()
        return self._result

    @property
    def algorithm(self) -> str:
        """As dlcp.transport.communicator.Work's, of the first of its operations."""
        return getattr(self._operations[0], "algorithm", "") if self._operations else ""

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        """As wait: an arrival from the network cannot be waited for by a stream alone."""
        self.wait()

    def source_rank(self) -> int:
        """Group rank of the sender, after a receive is over. Raises DlcpError for other works."""
        try:
            if not self._operations:
                raise DlcpError(f"{self._name} has no source; only a receive has one")
            return int(self._operations[0].source)  # type: ignore[arg-type]
        except DlcpError as error:
            raise for_torch(error) from None

    _source_rank = source_rank

    def boxed(self) -> Any:
        """For TorchScript: this work as an object of C++."""
        return work_in_cpp.whole(self).boxed()

    def _callbacks_of(self) -> tuple[str, CallbackOrder]:
        """Whose callbacks those of the future are, and their line: what a callback starts stays in its own."""
        own = messages_line if self._name in ("send", "receive") else collectives_line
        return self._name, line_of_callback() or own

    @property
    def _name(self) -> str:
        return self._operations[0].operation if self._operations else "a collective of nothing"

    # --- settling ---------------------------------------------------------------------------------

    def _wait_for_operations(self, timeout: timedelta | None) -> None:
        if not timeout:
            for operation in self._operations:
                operation.wait()
        else:
            end_s = time.monotonic() + timeout.total_seconds()
            for operation in self._operations:
                operation.wait(max(0.0, end_s - time.monotonic()))

    def _over(self) -> bool:
        return self._settled or all(operation.done() for operation in self._operations)

    def _settle(self) -> None:
        """Error, results and future, once; every operation is over."""
        with self._lock:
            if self._settled:
                return
            try:
                for operation in self._operations:
                    if (error := operation.exception()) is not None:
                        self._error = for_torch(error)
                        break
                else:
                    if self._back:
                        self._back.run()
            except Exception as error:
                self._error = error
            if self._future is not None:
                self._future.complete(self._outcome)
            self._settled = True

    def settle_when_over(self) -> None:
        """Has the results there even if nobody waits."""
        self.when_over(self._settle)

    def when_over(self, call: Callable[[], None]) -> None:
        """Has `call` called on the callback pool at the end of the last operation."""
        left = _Countdown(len(self._operations))

        def at_end(_: Operation) -> None:
            if left.is_last():
                pool.submit(call)

        for operation in self._operations:
            operation.add_done_callback(at_end)
        if not self._operations:
            pool.submit(call)

    def _outcome(self) -> list[torch.Tensor]:
        """The results of a work that is over. Raises the error."""
        if self._error is not None:
            raise self._error
        return self._result


class WorkOver(CollectiveWork):
    """One that its call has waited for."""

    # Of all of them: they ask for the lock once, for their future.
    _lock, _back, _operations = threading.RLock(), CopyBack(), ()
    _settled, _error, _future = True, None, None

    algorithm = _name = ""

    def __init__(self, operation: str, algorithm: str, result: list[torch.Tensor]) -> None:
        dist.Work.__init__(self)
        self._name, self.algorithm, self._result = operation, algorithm, result

    def wait(self, timeout: timedelta | None = None) -> bool:
        """True."""
        return True


class _Countdown:
    """True for the last of so many callers."""

    __slots__ = ("_left", "_lock")

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()

    def is_last(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left == 0
