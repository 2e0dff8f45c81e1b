"""Reducing sparse tensors, such as the gradients of nn.Embedding(sparse=True).

Ranks have different numbers of entries, so this takes three collectives in a row: how many, the indices, the values.
They run behind the caller's back, on a communicator of their own: there the order of calls is the order of operations
on every rank, whatever the group does meanwhile. Entries are added in the order of ranks, so all ranks get the same
bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from dlcp.errors import CollectiveError, DlcpError
from dlcp.torch.callbacks import pool
from dlcp.torch.local_operation import LocalOperation
from dlcp.torch.tensors import CopyBack, reduction, span
from dlcp.torch.work import CollectiveWork
from dlcp.transport.communicator import Reduction

if TYPE_CHECKING:
    from dlcp.transport.communicator import Communicator

OPERATION = "all_reduce"


class SparseReducer:
    """The sparse reductions of one group, one after the other. `communicator`: for nothing else."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._lock = threading.Lock()
        self._last: _Steps | None = None

    def all_reduce(self, tensor: torch.Tensor, op: Any, opts: Any) -> CollectiveWork:
        """The tensor becomes the sum, or mean, over all ranks. Raises ValueError: another operation."""
        kind, factor = reduction(op, OPERATION)
        if kind not in (Reduction.SUM, Reduction.AVG) or factor is not None:
            raise ValueError(f"{OPERATION}: {kind.name} of a sparse tensor; accepted: SUM, AVG")
        if tensor.layout is not torch.sparse_coo:
            raise ValueError(f"{OPERATION}: layout is {tensor.layout}; accepted: sparse_coo")
        timeout = None if opts is None else opts.timeout
        timeout_s = timeout.total_seconds() if timeout is not None and timeout > timedelta(0) else None
        own = tensor.detach().coalesce()

        def run() -> None:
            total = self._sum(own, timeout_s)
            if kind is Reduction.AVG:
                total = total / self._communicator.size
            # Not detach().copy_(): a detached sparse tensor has indices of its own.
            with torch.no_grad():
                tensor.copy_(total)

        with self._lock:
            steps = _Steps(run, after=self._last)
            self._last = steps
        pool.submit(steps.run)
        return CollectiveWork((steps,), [tensor], CopyBack())

    def _sum(self, own: torch.Tensor, timeout_s: float | None) -> torch.Tensor:
        ranks = range(self._communicator.size)
        counts = torch.empty(len(ranks), dtype=torch.int64)
        self._gather([counts[rank] for rank in ranks], torch.tensor(own._nnz()), timeout_s)
        entries = counts.tolist()
        # Kept as rows of entries, so that one rank's are contiguous.
        indices = own.indices().t().contiguous()
        values = own.values().contiguous()
        all_indices = torch.empty((sum(entries), *indices.shape[1:]), dtype=indices.dtype)
        all_values = torch.empty((sum(entries), *values.shape[1:]), dtype=values.dtype)
        self._gather(list(torch.split(all_indices, entries)), indices, timeout_s)
        self._gather(list(torch.split(all_values, entries)), values, timeout_s)
        device = own.device
        return torch.sparse_coo_tensor(
            all_indices.t().to(device), all_values.to(device), own.shape, check_invariants=False
        ).coalesce()

    def _gather(self, outputs: list[torch.Tensor], own: torch.Tensor, timeout_s: float | None) -> None:
        own = own.cpu()
        self._communicator.all_gather(
            [span(output) for output in outputs], span(own), keep=(outputs, own), timeout_s=timeout_s
        ).wait()


class _Steps(LocalOperation):
    """Steps that run on a thread of the pool, after those before them."""

    def __init__(self, steps: Callable[[], None], after: _Steps | None) -> None:
        super().__init__(OPERATION, f"{OPERATION} of a sparse tensor")
        self._steps: Callable[[], None] | None = steps
        self._after = after

    def run(self) -> None:
        if self._after is not None:
            self._after._over.wait()
            self._after = None
        assert self._steps is not None
        error: DlcpError | None = None
        try:
            self._steps()
        except DlcpError as failure:
            error = failure
        except Exception as failure:
            error = CollectiveError(f"{OPERATION} of a sparse tensor: {failure}")
            error.__cause__ = failure
        # Not kept: the tensors of the steps hang on them.
        self._steps = None
        self.finish(error)
