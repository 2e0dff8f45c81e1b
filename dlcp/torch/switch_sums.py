"""All-reduces that a switch adds up: which tensors, and the thread that carries them out in the order of the calls.

Made for the first group of all of a job's ranks whose setting `aggregation` names a switch. Its collectives go on two
communicators: a call is announced on the group's own, so that ranks that call something else, or do not use the same
switch, find out; what follows is on one of this thread's alone.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dlcp.errors import CollectiveAbortedError, DlcpError
from dlcp.torch.local_operation import LocalOperation
from dlcp.transport.aggregation.address import SwitchAddress
from dlcp.transport.aggregation.reducer import SwitchReducer
from dlcp.transport.element import DataType, Reduction
from dlcp.transport.span import Span
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.transport.communicator import Communicator

# What a call carries besides its memory, as ProcessGroup.starting gives it.
Start = AbstractContextManager[tuple["Communicator", Any]]
_JOIN_S = 5.0


@dataclass
class _Task:
    memory: torch.Tensor
    average: bool
    announced: Work
    call: dict[str, Any]
    operation: LocalOperation


class SwitchSums:
    """The switch's sums of one group.

    place: of this rank among those of its host. control: opens the communicator for this thread, at first use. Raises
    AddressError: the UDP port is not free.
    """

    def __init__(
        self, address: SwitchAddress, rank: int, size: int, place: int, control: Callable[[], Communicator]
    ) -> None:
        self._reducer = SwitchReducer(address, rank, size, place)
        self._address = address
        self._control = control
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="dlcp-switch-sums", daemon=True)
        self._thread.start()

    @property
    def account(self) -> Any:
        """What became of them; for metrics."""
        return self._reducer.account

    def takes(self, memory: torch.Tensor, op: Reduction, factor: float | None) -> bool:
        """Whether it is for the switch: float32 of some size, summed or averaged."""
        return (
            memory.dtype is torch.float32
            and op in (Reduction.SUM, Reduction.AVG)
            and factor is None
            and memory.nbytes >= self._address.min_bytes
        )

    def start(self, memory: torch.Tensor, op: Reduction, agree: str, starting: Start) -> LocalOperation:
        """The all-reduce of contiguous memory of the CPU, in place. Does not block."""
        flag = np.zeros(1, np.uint8)
        with starting as (communicator, call):
            call.pop("algorithm", None)
            text = f"switch {self._address.agreed} {op.name} of {memory.nbytes} {agree}"
            announced = communicator.all_reduce(Span.of(flag), DataType.u8, Reduction.MAX, agree=text, **call)
        kept = {name: call[name] for name in ("timeout_s", "traffic_class") if name in call}
        operation = LocalOperation("all_reduce", f"all_reduce of {memory.nbytes} bytes through a switch")
        self._tasks.put(_Task(memory, op is Reduction.AVG, announced, kept, operation))
        return operation

    def close(self) -> None:
        """Ends the thread. What is under way ends as if the switch had failed, then nothing is begun any more."""
        self._reducer.stop()
        self._tasks.put(None)
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        failure: DlcpError | None = None
        while (task := self._tasks.get()) is not None:
            try:
                if failure is not None:
                    raise failure
                task.announced.wait()
                values = task.memory.detach().view(-1).numpy()
                self._reducer.all_reduce(self._control(), values, average=task.average, call=task.call)
                task.operation.finish()
            except DlcpError as error:
                failure = error
                task.operation.finish(error)
            except BaseException as error:  # the thread must not leave a caller waiting
                failure = CollectiveAbortedError(f"{type(error).__name__}: {error}")
                task.operation.finish(failure)


def for_group(
    setting: str, rank: int, size: int, place: Callable[[], int], control: Callable[[], Communicator]
) -> SwitchSums | None:
    """The switch's sums of a group of all of a job's ranks; None: there are too many, or only one."""
    address = SwitchAddress.parse(setting)
    return SwitchSums(address, rank, size, place(), control) if address.serves(size) else None
