"""The backend "dlcp" of torchcomms: torchcomms.new_comm("dlcp", device, name="main").

An installed dlcp is found by torchcomms itself (entry point of the group torchcomms.backends); importing this module
does the same. Nothing else of dlcp imports it, or torchcomms.

A communicator is a group of dlcp.torch.create over the store it is given, or over one that rank 0 serves and tells the
others of at MASTER_ADDR and MASTER_PORT. Rank and size are TORCHCOMM_RANK and TORCHCOMM_SIZE, or the launcher's.
Tensors, reductions and errors are those of a group, and so are `hints` that begin with "dlcp."; others are for other
backends.

torchcomms hands a backend in Python neither a call's timeout, hints and tag nor the factor of PREMUL_SUM, and learns
only by a work's wait() that it is over: who asks its future, as DDP does, would wait for ever, and where C++ lets go of
a work of Python's, the process ends. So collectives are over when the call returns, `async_op` or not, unless the hint
"dlcp.async" is "true": for programs that call the communicator themselves and wait for every work. Messages between two
ranks are always asynchronous with `async_op`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torchcomms
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from dlcp import checks
from dlcp.errors import ArgumentError, ClosedError
from dlcp.torch import precision
from dlcp.torch.backend_name import BACKEND_NAME
from dlcp.torch.creation import create
from dlcp.torch.failures import for_torch
from dlcp.torch.process_group import ProcessGroup
from dlcp.torch.tensors import CODED_DTYPES
from dlcp.torch.torchcomms_arguments import PREFIX, rank_and_size, read_hints, reduce_op, served_by_rank_0
from dlcp.torch.work import CollectiveWork

_CODED_REDUCTIONS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG)


class TorchCommDlcp(torchcomms.TorchCommBackend):  # type: ignore[misc]
    """One communicator. torchcomms makes it, calls `init`, and then what its users call.

    Calls block and return None, or return a work whose wait() blocks (see above). They raise what those of
    dlcp.torch.ProcessGroup raise.
    """

    def __init__(self) -> None:
        super().__init__()
        # None: not initialized, or finalized.
        self._group: ProcessGroup | None = None
        self._rank, self._size = -1, -1
        self._name = ""
        self._precision: str | None = None
        self._is_async = False
        self._splits = itertools.count()

    def init(self, device: torch.device, name: str, options: Any) -> None:
        """Opens the communicator. Blocks until all ranks have called it, for `options.timeout` at most.

        Raises ArgumentError for a hint, and what dlcp.torch.create raises.
        """
        group_options, self._precision, self._is_async = read_hints(options.hints)
        self._name = name
        rank, size = self._rank, self._size = rank_and_size()
        given: Any = options.store
        bootstrap = given
        if given is None:
            bootstrap = next(rendezvous("env://", rank, size, timeout=options.timeout))[0]
        # Each rank counts its communicators of this name: one store may serve several, one after the other.
        count = bootstrap.add(f"dlcp/{name}/{rank}", 1)
        store: Store = PrefixStore(f"dlcp/{name}/{count}/", bootstrap)
        if given is None:
            store = served_by_rank_0(store, rank, options.timeout)
        self._group = create(store, rank, size, options.timeout, pg_options=group_options, name=name)
        if given is None:
            # The next communicator binds the same port: no rank goes on before rank 0 has left it.
            del bootstrap
            self._group.barrier().wait()

    def finalize(self) -> None:
        """Closes the communicator. Blocks as ProcessGroup.shutdown does. May be called again."""
        # torchcomms never lets go of a backend in Python: the group and its store go here.
        group, self._group = self._group, None
        if group is not None:
            group.shutdown()

    def get_rank(self) -> int:
        return self._rank

    def get_size(self) -> int:
        return self._size

    def get_backend_name(self) -> str:
        return BACKEND_NAME

    def get_comm_name(self) -> str:
        return self._name

    def set_timeout(self, timeout: timedelta) -> None:
        """The time limit of operations that start from now on."""
        self._open().set_timeout(timeout)

    def split(self, ranks: Sequence[int], name: str, options: Any) -> TorchCommDlcp | None:
        """A communicator of `ranks`, this one among them; None if there are none. Every rank of this one calls it.

        Without hints of dlcp's it has this one's. Blocks for the others of `ranks`. Raises ArgumentError.
        """
        count, group = next(self._splits), self._open()
        if not ranks:
            return None
        others = set(ranks) - set(range(self._size))
        if others or len(set(ranks)) != len(ranks) or self._rank not in ranks:
            wanted = f"ranks from 0 to {self._size - 1}, each once, and {self._rank} among them; or none"
            raise for_torch(ArgumentError(checks.refusal("ranks", list(ranks), wanted)))
        child = TorchCommDlcp()
        child._name = f"{name}_{min(ranks)}"
        group_options, child._precision, child._is_async = None, self._precision, self._is_async
        if any(hint.startswith(PREFIX) for hint in options.hints):
            group_options, child._precision, child._is_async = read_hints(options.hints)
        inner = f"{self._name}/{count}/{child._name}"
        child._group = group.split_group(ranks, options.timeout, group_options, inner)
        child._rank, child._size = ranks.index(self._rank), len(ranks)
        return child

    # --- operations -----------------------------------------------------------------------------------------

    def send(self, tensor: Tensor, dst: int, async_op: bool) -> CollectiveWork | None:
        return _end(self._open().send([tensor], dst), async_op)

    def recv(self, tensor: Tensor, src: int, async_op: bool) -> CollectiveWork | None:
        return _end(self._open().recv([tensor], src), async_op)

    def broadcast(self, tensor: Tensor, root: int, async_op: bool) -> CollectiveWork | None:
        opts = self._opts(dist.BroadcastOptions(), async_op, root)
        return _end(self._open().broadcast([tensor], opts), opts.asyncOp)

    def all_reduce(self, tensor: Tensor, op: Any, async_op: bool) -> CollectiveWork | None:
        """`tensor` becomes the reduction; with the hint "dlcp.precision" a sum or mean travels in few bits."""
        opts = self._opts(dist.AllreduceOptions(), async_op)
        opts.reduceOp = kind = reduce_op(op, "all_reduce")
        group = self._open()
        if (codec := self._codec(tensor, kind)) is not None:
            return precision.all_reduce(tensor, kind, group, opts.asyncOp, precision=codec)
        return _end(group.allreduce([tensor], opts), opts.asyncOp)

    def reduce(self, tensor: Tensor, root: int, op: Any, async_op: bool) -> CollectiveWork | None:
        opts = self._opts(dist.ReduceOptions(), async_op, root)
        opts.reduceOp = reduce_op(op, "reduce")
        return _end(self._open().reduce([tensor], opts), opts.asyncOp)

    def all_gather(self, outputs: Sequence[Tensor], tensor: Tensor, async_op: bool) -> CollectiveWork | None:
        """Output i becomes rank i's tensor; sizes may differ from rank to rank."""
        opts = self._opts(AllgatherOptions(), async_op)
        return _end(self._open().allgather([outputs], [tensor], opts), opts.asyncOp)

    all_gather_v = all_gather

    def all_gather_single(self, output: Tensor, tensor: Tensor, async_op: bool) -> CollectiveWork | None:
        opts = self._opts(AllgatherOptions(), async_op)
        return _end(self._open().all_gather_single(output, tensor, opts), opts.asyncOp)

    def reduce_scatter(
        self, output: Tensor, inputs: Sequence[Tensor], op: Any, async_op: bool
    ) -> CollectiveWork | None:
        """`output` becomes the reduction of this rank's inputs; sizes may differ from input to input."""
        opts = self._opts(dist.ReduceScatterOptions(), async_op)
        opts.reduceOp = reduce_op(op, "reduce_scatter")
        return _end(self._open().reduce_scatter([output], [inputs], opts), opts.asyncOp)

    reduce_scatter_v = reduce_scatter

    def reduce_scatter_single(
        self, output: Tensor, tensor: Tensor, op: Any, async_op: bool
    ) -> CollectiveWork | None:
        opts = self._opts(dist.ReduceScatterOptions(), async_op)
        opts.reduceOp = kind = reduce_op(op, "reduce_scatter")
        group = self._open()
        if (codec := self._codec(output, kind)) is not None:
            return precision.reduce_scatter(output, tensor, kind, group, opts.asyncOp, precision=codec)
        return _end(group.reduce_scatter_single(output, tensor, opts), opts.asyncOp)

    def all_to_all_single(self, output: Tensor, tensor: Tensor, async_op: bool) -> CollectiveWork | None:
        opts = self._opts(dist.AllToAllOptions(), async_op)
        return _end(self._open().all_to_all_single(output, tensor, opts=opts), opts.asyncOp)

    def all_to_all_v_single(
        self, output: Tensor, tensor: Tensor, out_rows: Sequence[int], in_rows: Sequence[int], async_op: bool
    ) -> CollectiveWork | None:
        """As all_to_all_single, of so many rows for each rank; rows after their sum are left alone."""
        opts = self._opts(dist.AllToAllOptions(), async_op)
        if sum(out_rows) < len(output):
            output = output[: sum(out_rows)]
        if sum(in_rows) < len(tensor):
            tensor = tensor[: sum(in_rows)]
        work = self._open().all_to_all_single(output, tensor, out_rows, in_rows, opts)
        return _end(work, opts.asyncOp)

    def all_to_all(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], async_op: bool
    ) -> CollectiveWork | None:
        opts = self._opts(dist.AllToAllOptions(), async_op)
        return _end(self._open().alltoall(outputs, inputs, opts), opts.asyncOp)

    def barrier(self, async_op: bool) -> CollectiveWork | None:
        opts = self._opts(dist.BarrierOptions(), async_op)
        return _end(self._open().barrier(opts), opts.asyncOp)

    def scatter(
        self, output: Tensor, inputs: Sequence[Tensor], root: int, async_op: bool
    ) -> CollectiveWork | None:
        opts = self._opts(dist.ScatterOptions(), async_op, root)
        given = [inputs] if root == self._rank else []
        return _end(self._open().scatter([output], given, opts), opts.asyncOp)

    def gather(
        self, outputs: Sequence[Tensor], tensor: Tensor, root: int, async_op: bool
    ) -> CollectiveWork | None:
        opts = self._opts(dist.GatherOptions(), async_op, root)
        given = [outputs] if root == self._rank else []
        return _end(self._open().gather(given, [tensor], opts), opts.asyncOp)

    def _open(self) -> ProcessGroup:
        if self._group is None:
            raise for_torch(ClosedError(f"the communicator {self._name!r} is finalized, or not initialized"))
        return self._group

    def _opts(self, opts: Any, async_op: bool, root: int | None = None) -> Any:
        opts.asyncOp = async_op and self._is_async
        if root is not None:
            opts.rootRank = root
        return opts

    def _codec(self, tensor: Tensor, kind: Any) -> str | None:
        return self._precision if tensor.dtype in CODED_DTYPES and kind in _CODED_REDUCTIONS else None


def _end(work: CollectiveWork, async_op: bool) -> CollectiveWork | None:
    if async_op:
        return work
    work.wait()
    return None


torchcomms.register_backend(BACKEND_NAME, TorchCommDlcp)
