"""The process group: each c10d collective as one method, over a Communicator of the transport.

Each method checks its arguments, finds the memory behind the tensors, starts the operation and returns a
CollectiveWork at once. Only a plain sum that torch waits for anyway is waited for in the call (`_run_plain`).
Schedules, packets and peers are the transport's; the work raises its errors.

torch calls the methods from Python (torch.distributed) and some of them from C++ (DDP's reducer, functional
collectives). torch 2.13 renamed some; the older names are aliases. A process group written in Python replaces torch's
whole group: this one serves all device types, and answers what torch would ask of the group's Backend.
"""

# The stubs of torch's ProcessGroup have several names for one argument of one method.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

import functools
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import DebugLevel, PrefixStore, Store, get_debug_level

from dlcp.errors import DlcpError
from dlcp.torch import checks, dynamo, futures, patches, profiling
from dlcp.torch import work as work_module
from dlcp.torch.backend_name import BACKEND_NAME
from dlcp.torch.barriers import monitored_barrier
from dlcp.torch.dropped import when_dropped
from dlcp.torch.failures import for_torch
from dlcp.torch.gradient import scope
from dlcp.torch.groups_within import groups_within
from dlcp.torch.jobs import SharedJob
from dlcp.torch.options import Options
from dlcp.torch.self_messages import SelfMessages
from dlcp.torch.tensors import (
    CopyBack,
    apart,
    apart_from_others,
    as_real,
    data_type,
    distinct,
    is_share,
    parts,
    plain_sums,
    readable,
    reduction,
    span,
    type_text,
    updatable,
    writable,
)
from dlcp.torch.work import CollectiveWork, Operation, WorkOver
from dlcp.transport.call_options import CollectiveKeywords, MessageKeywords
from dlcp.transport.job import HURRIED_S

if TYPE_CHECKING:
    from dlcp.torch.gradient.state import GradientState
    from dlcp.torch.sparse import SparseReducer
    from dlcp.transport.communicator import Communicator

Tensor = torch.Tensor
# Coalesced tensors up to this size are reduced as one: a small collective costs a round trip whatever its size, and
# copying this much costs a few tens of microseconds.
PACKED_BYTES_MAX = 256 * 1024
_NO_TIME = timedelta(0)
_ALL_REDUCE = dist.AllreduceOptions
# What torch takes in place of options. A tuple: it is asked for with each call.
_REDUCE_OPS = (dist.ReduceOp, dist.ReduceOp.RedOpType)


class CollectiveCall(CollectiveKeywords, total=False):
    """Keyword arguments of one collective."""

    algorithm: str | None
    """A name of dlcp.transport.schedule; absent: the quickest by estimate."""


Call = TypeVar("Call", MessageKeywords, CollectiveCall)


class _Start(Generic[Call]):
    """Starts one operation: turns its errors into torch's, and shows it to a profiler that records."""

    __slots__ = ("_communicator", "_range", "call")

    def __init__(self, communicator: Communicator, call: Call, operation: str, keep: object) -> None:
        self._communicator = communicator
        self.call: Call = call
        """Keyword arguments of the operation; may be added to before it starts."""
        self._range = profiling.started(operation, keep) if profiling.is_recording() else None

    def __enter__(self) -> tuple[Communicator, Call]:
        if self._range is not None:
            self._range.__enter__()
        return self._communicator, self.call

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self._range is not None:
            self._range.__exit__(None, None, None)
        if isinstance(error, DlcpError):
            raise for_torch(error) from None


class ProcessGroup(dist.ProcessGroup):
    """A group of the backend "dlcp". Made by init_process_group, new_group and their like.

    Errors of a work (dlcp.errors, all of them also torch.distributed.DistBackendError): CollectiveTimeoutError,
    PeerFailedError, MismatchError, GroupFailedError, CollectiveAbortedError. A wrong call raises ValueError or
    TypeError before anything is sent.
    """

    def __init__(
        self,
        shared: SharedJob,
        communicator: Communicator,
        store: Store,
        name: str,
        options: Options,
        marked: scope.Scope | None = None,
    ) -> None:
        """`marked`: reduces in this group's place, by a recipe; None: every reduction is exact."""
        # The form with a store refuses subclasses in torch 2.13.
        super().__init__(communicator.rank, communicator.size)  # type: ignore[call-arg]
        self.communicator = communicator
        """The transport's group behind this one."""
        self.options = options
        self._shared = shared
        self._rank: int = communicator.rank
        self._size: int = communicator.size
        self._store = store
        self._name = name
        self._description = ""
        self._lock = threading.Lock()
        self._closed = False
        # Further communicators of the same ranks, by name. Their collectives are numbered apart from the group's own.
        self._private: dict[str, Communicator] = {}
        self._sparse: SparseReducer | None = None
        self._splits = itertools.count()
        self._data_communicators = itertools.count()
        self._before_shutdown: list[Callable[[], None]] = []
        self._dropped: weakref.finalize[..., object] | None = None
        self._traffic_class = options.traffic_class
        self._algorithms = options.algorithms
        # Ranks may give different shapes of one size. It is almost always a mistake.
        self._compares_shapes = get_debug_level() == DebugLevel.DETAIL
        self._self_messages = SelfMessages(communicator.rank)
        self._marked = marked
        # A call needs nothing but its arguments.
        self._is_plain = not (
            marked
            or communicator.adders
            or self._compares_shapes
            or self._algorithms
            or options.traffic_class is not None
        )

    @classmethod
    def create(cls, backend_options: Any, pg_options: Any) -> Self:
        """The group that torch asks for. Blocks for the store; raises dlcp's errors of opening."""
        options = Options.of(pg_options)
        store, timeout_s = backend_options.store, backend_options.timeout.total_seconds()
        ranks = list(backend_options.global_ranks_in_group)
        name = str(backend_options.group_id)
        world = ProcessGroup.within(dist.group.WORLD)
        if ranks and world is not None and options.settings is None:
            # A later group's ranks belong to the default group's job.
            return cls._open(world._shared, ranks, store, name, options, timeout_s)
        rank, size = backend_options.group_rank, backend_options.group_size
        return cls.of_store(store, rank, size, timeout_s, options, name)

    @staticmethod
    def within(group: object) -> ProcessGroup | None:
        """The group of dlcp in one of torch's: itself, or that which serves some of its devices; None: neither."""
        return next((one for one in groups_within(group) if isinstance(one, ProcessGroup)), None)

    @classmethod
    def of_store(
        cls, store: Store, rank: int, size: int, timeout_s: float, options: Options, name: str
    ) -> Self:
        """A group with a job of its own: dlcp.torch.create."""
        shared = SharedJob.open(store, rank, size, options.settings, timeout_s)
        return cls._open(shared, None, store, name, options, timeout_s)

    @classmethod
    def _open(
        cls,
        shared: SharedJob,
        members: Sequence[int] | None,
        store: Store,
        name: str,
        options: Options,
        timeout_s: float,
    ) -> Self:
        marked = None
        if options.gradients is not None:
            # Imported here: a group without this option does not load these modules.
            from dlcp.torch.gradient.context import marked_calls

            marked = marked_calls(options.gradients)
        communicator = shared.communicator(name, members, store, timeout_s, adders=True)
        return cls(shared, communicator, store, name, options, marked)

    # --- reductions -----------------------------------------------------------------------------------------

    def allreduce(
        self, tensors: Sequence[Tensor] | Tensor, opts: Any = None, timeout: timedelta | None = None
    ) -> CollectiveWork:
        """Every rank's tensors become their reduction over all ranks.

        `opts`: torch's options, or the ReduceOp alone, which `timeout` may follow.
        """
        if opts.__class__ is _ALL_REDUCE and (work := self._run_plain(tensors, opts)) is not None:
            return work
        if isinstance(opts, _REDUCE_OPS):
            op, opts = opts, dist.AllreduceOptions()
            opts.reduceOp = op
            if timeout is not None:
                opts.timeout = timeout
        if isinstance(tensors, Tensor):
            tensors = [tensors]
        if len(tensors) == 1 and tensors[0].layout is torch.sparse_coo:
            return self._sparse_reducer().all_reduce(tensors[0], _op_of(opts), opts)
        distinct(tensors, "all_reduce")
        if (marked := self._marked_calls()) is not None:
            work = marked.all_reduce(self, tensors, opts)
            if work is not None:
                return work
        return self._all_reduce(tensors, opts, list(tensors), CopyBack())

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> CollectiveWork:
        """As allreduce of each tensor; small ones are reduced as one."""
        distinct(tensors, "all_reduce")
        if (marked := self._marked_calls()) is not None:
            work = marked.all_reduce(self, tensors, opts)
            if work is not None:
                return work
        result, back = list(tensors), CopyBack()
        small = [tensor for tensor in tensors if tensor.nbytes <= PACKED_BYTES_MAX]
        if len(small) > 1 and all(tensor.is_cpu and tensor.dtype == small[0].dtype for tensor in small):
            with torch.no_grad():
                packed = torch.cat([tensor.detach().reshape(-1) for tensor in small])
            pieces = torch.split(packed, [tensor.numel() for tensor in small])
            for tensor, piece in zip(small, pieces, strict=True):
                back.add(tensor, piece.view(tensor.shape), "all_reduce")
            tensors = [packed, *(tensor for tensor in tensors if tensor.nbytes > PACKED_BYTES_MAX)]
        return self._all_reduce(tensors, opts, result, back)

    def _run_plain(self, tensors: Sequence[Tensor] | Tensor, opts: Any) -> CollectiveWork | None:
        """An all_reduce that the caller waits for, of one tensor that needs no preparation; None: it is another one.

        Python takes longer for a small call than its packets do. So this asks only what it must, and each thing once.
        """
        if (
            not self._is_plain
            or scope.current.get() is not None
            or futures.line_of_callback() is not None
            or profiling.is_recording()
            or (memory := plain_sums.read(tensors, opts)) is None
        ):
            return None
        try:
            algorithm = self.communicator.run_sum(*memory)
        except DlcpError as error:
            raise for_torch(error) from None
        return WorkOver("all_reduce", algorithm, list(tensors))

    def _all_reduce(
        self, tensors: Sequence[Tensor], opts: Any, result: list[Tensor], back: CopyBack
    ) -> CollectiveWork:
        name = "all_reduce"
        op, factor = reduction(_op_of(opts), name)
        operands = []
        for tensor in tensors:
            memory = updatable(as_real(tensor, op, name), name, back)
            operands.append((memory, data_type(memory.dtype, op, name), self._agree_reduced(tensor)))
        # Every tensor was checked before the first is sent.
        operations: list[Operation] = []
        for memory, dtype, agree in operands:
            with self.starting(name, opts, memory) as (communicator, call):
                operations.append(
                    communicator.all_reduce(span(memory), dtype, op, factor=factor, agree=agree, **call)
                )
        return self._work(name, opts, operations, result, back)

    def reduce(self, tensors: Sequence[Tensor], opts: Any) -> CollectiveWork:
        """The root's tensor becomes the reduction over all ranks; the others' stay as they are."""
        name = "reduce"
        root = checks.rank(opts.rootRank, self._size, name, "root")
        op, factor = reduction(opts.reduceOp, name)
        tensor = checks.only(tensors, name, "tensors")
        back = CopyBack()
        real = as_real(tensor, op, name)
        memory = updatable(real, name, back) if root == self._rank else readable(real, name)
        dtype = data_type(memory.dtype, op, name)
        with self.starting(name, opts, memory) as (communicator, call):
            operation = communicator.reduce(
                span(memory), dtype, op, root, factor=factor, agree=self._agree_reduced(tensor), **call
            )
        return self._work(name, opts, [operation], [tensor], back)

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any = None
    ) -> CollectiveWork:
        """The output becomes the reduction of all ranks' inputs of this rank's number; inputs may differ in size."""
        name = "reduce_scatter"
        op, factor = reduction(_op_of(opts), name)
        output = checks.only(outputs, name, "outputs")
        shares = list(inputs[0]) if len(inputs) == 1 else []
        checks.one_per_rank(shares, self._size, name, "inputs")
        checks.same_type(shares, output, name, "inputs")
        checks.same_count(output, shares[self._rank].numel(), name, "output")
        back = CopyBack()
        memory = writable(as_real(output, op, name), name, back)
        sources = [
            apart(readable(as_real(share, op, name), name), memory, memory if index == self._rank else None)
            for index, share in enumerate(shares)
        ]
        dtype = data_type(memory.dtype, op, name)
        with self.starting(name, opts, (memory, sources)) as (communicator, call):
            operation = communicator.reduce_scatter(
                span(memory),
                [span(source) for source in sources],
                dtype,
                op,
                factor=factor,
                agree=_complex_type(output),
                **call,
            )
        return self._work(name, opts, [operation], [output], back)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> CollectiveWork:  # noqa: A002
        """As reduce_scatter of the input cut into one equal share per rank."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> CollectiveWork:
        """As reduce_scatter_single of each pair."""
        name, back, operands = "reduce_scatter", CopyBack(), []
        op, factor = reduction(_op_of(opts), name)
        for output, source in zip(outputs, inputs, strict=True):
            checks.same_type([source], output, name, "input")
            checks.same_count(source, output.numel() * self._size, name, "input")
        if (marked := self._marked_calls()) is not None:
            work = marked.reduce_scatter(self, outputs, inputs, opts)
            if work is not None:
                return work
        distinct(outputs, name)
        for output, source in zip(outputs, inputs, strict=True):
            memory = writable(as_real(output, op, name), name, back)
            whole = readable(as_real(source, op, name), name)
            # In place: the output is the memory of this rank's share of the input.
            if not is_share(memory, whole, self._rank):
                whole = apart(whole, memory)
            operands.append((memory, whole, data_type(memory.dtype, op, name), _complex_type(output)))
        operations: list[Operation] = []
        wholes = apart_from_others(
            [whole for _, whole, *_ in operands], [[memory] for memory, *_ in operands]
        )
        for (memory, _, dtype, agree), whole in zip(operands, wholes, strict=True):
            with self.starting(name, opts, (memory, whole)) as (communicator, call):
                operations.append(
                    communicator.reduce_scatter(
                        span(memory), span(whole), dtype, op, factor=factor, agree=agree, **call
                    )
                )
        return self._work(name, opts, operations, list(outputs), back)

    # --- gathering and spreading ----------------------------------------------------------------------------

    def broadcast(self, tensors: Sequence[Tensor] | Tensor, opts: Any) -> CollectiveWork:
        """Every rank's tensors become the root's."""
        name = "broadcast"
        root = checks.rank(opts.rootRank, self._size, name, "root")
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        back = CopyBack()
        here = root == self._rank
        memories = [readable(tensor, name) if here else writable(tensor, name, back) for tensor in tensors]
        distinct(tensors, name)
        operations: list[Operation] = []
        for memory in memories:
            with self.starting(name, opts, memory) as (communicator, call):
                operations.append(
                    communicator.broadcast(span(memory), root, agree=self._agree(memory), **call)
                )
        return self._work(name, opts, operations, tensors, back)

    def allgather(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> CollectiveWork:
        """Output i becomes rank i's input; sizes may differ from rank to rank."""
        checks.only(inputs, "all_gather", "inputs")
        return self._all_gather([list(outputs[0]) if len(outputs) == 1 else []], inputs, opts)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> CollectiveWork:
        """As allgather of each input; `outputs[i][j]` becomes rank i's input j."""
        checks.one_per_rank(outputs, self._size, "all_gather", "outputs")
        for index, received in enumerate(outputs):
            if len(received) != len(inputs):
                raise ValueError(
                    f"all_gather: outputs[{index}] holds {len(received)} tensors; accepted: {len(inputs)}, one "
                    "per input"
                )
        return self._all_gather([list(received) for received in zip(*outputs, strict=True)], inputs, opts)

    def _all_gather(
        self, outputs: Sequence[list[Tensor]], inputs: Sequence[Tensor], opts: Any
    ) -> CollectiveWork:
        name, back, operands = "all_gather", CopyBack(), []
        for received, source in zip(outputs, inputs, strict=True):
            checks.one_per_rank(received, self._size, name, "outputs")
            checks.same_type(received, source, name, "outputs")
            checks.same_count(source, received[self._rank].numel(), name, "input")
            memories = [writable(tensor, name, back) for tensor in received]
            own = readable(source, name)
            for memory in memories:
                own = apart(own, memory, memories[self._rank])
            operands.append((memories, own))
        distinct(list(itertools.chain(*outputs)), name)
        operations: list[Operation] = []
        owns = apart_from_others([own for _, own in operands], [memories for memories, _ in operands])
        for (memories, _), own in zip(operands, owns, strict=True):
            with self.starting(name, opts, (memories, own)) as (communicator, call):
                targets = [span(memory) for memory in memories]
                operations.append(
                    communicator.all_gather(targets, span(own), agree=self._agree_all(memories), **call)
                )
        return self._work(name, opts, operations, list(itertools.chain(*outputs)), back)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> CollectiveWork:  # noqa: A002
        """The output becomes all ranks' inputs in the order of ranks; the input may be this rank's part of it."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> CollectiveWork:
        """As all_gather_single of each pair."""
        name, back, operands = "all_gather", CopyBack(), []
        for output, source in zip(outputs, inputs, strict=True):
            checks.same_type([source], output, name, "input")
            checks.same_count(output, source.numel() * self._size, name, "output")
            memory, own = writable(output, name, back), readable(source, name)
            # In place: the input is the memory of this rank's part of the output.
            if not is_share(own, memory, self._rank):
                own = apart(own, memory)
            operands.append((memory, own))
        distinct(outputs, name)
        operations: list[Operation] = []
        owns = apart_from_others([own for _, own in operands], [[memory] for memory, _ in operands])
        for (memory, _), own in zip(operands, owns, strict=True):
            with self.starting(name, opts, (memory, own)) as (communicator, call):
                operations.append(
                    communicator.all_gather(span(memory), span(own), agree=self._agree(own), **call)
                )
        return self._work(name, opts, operations, list(outputs), back)

    def gather(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any
    ) -> CollectiveWork:
        """The root's output i becomes rank i's input; the others have no outputs."""
        name = "gather"
        root = checks.rank(opts.rootRank, self._size, name, "root")
        source = checks.only(inputs, name, "inputs")
        back, received, memories = CopyBack(), [], None
        if root == self._rank:
            received = list(checks.only(outputs, name, "outputs"))
            checks.one_per_rank(received, self._size, name, "outputs")
            checks.same_type(received, source, name, "outputs")
            for index, tensor in enumerate(received):
                checks.same_count(tensor, source.numel(), name, f"outputs[{index}]")
            memories = [writable(tensor, name, back) for tensor in received]
            distinct(received, name)
        own = readable(source, name)
        if memories is not None:
            for memory in memories:
                own = apart(own, memory, memories[root])
        target_spans = None if memories is None else [span(memory) for memory in memories]
        with self.starting(name, opts, (memories, own)) as (communicator, call):
            operation = communicator.gather(target_spans, span(own), root, agree=self._agree(own), **call)
        return self._work(name, opts, [operation], received, back)

    def scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any
    ) -> CollectiveWork:
        """The output becomes the root's input of this rank's number; the others have no inputs."""
        name = "scatter"
        root = checks.rank(opts.rootRank, self._size, name, "root")
        output = checks.only(outputs, name, "outputs")
        back, sources = CopyBack(), None
        memory = writable(output, name, back)
        if root == self._rank:
            shares = list(checks.only(inputs, name, "inputs"))
            checks.one_per_rank(shares, self._size, name, "inputs")
            checks.same_type(shares, output, name, "inputs")
            for index, tensor in enumerate(shares):
                checks.same_count(tensor, output.numel(), name, f"inputs[{index}]")
            sources = [
                apart(readable(tensor, name), memory, memory if index == root else None)
                for index, tensor in enumerate(shares)
            ]
        source_spans = None if sources is None else [span(source) for source in sources]
        with self.starting(name, opts, (memory, sources)) as (communicator, call):
            operation = communicator.scatter(
                span(memory), source_spans, root, agree=self._agree(memory), **call
            )
        return self._work(name, opts, [operation], [output], back)

    def alltoall(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> CollectiveWork:
        """Output i becomes rank i's input of this rank's number; both ranks give the same size."""
        name = "all_to_all"
        checks.one_per_rank(outputs, self._size, name, "outputs")
        checks.one_per_rank(inputs, self._size, name, "inputs")
        checks.same_type([*outputs, *inputs], inputs[0], name, "tensors")
        checks.same_count(outputs[self._rank], inputs[self._rank].numel(), name, f"outputs[{self._rank}]")
        back = CopyBack()
        memories = [writable(tensor, name, back) for tensor in outputs]
        distinct(outputs, name)
        sources = [readable(tensor, name) for tensor in inputs]
        for memory in memories:
            sources = [apart(source, memory) for source in sources]
        with self.starting(name, opts, (memories, sources)) as (communicator, call):
            operation = communicator.all_to_all(
                [span(memory) for memory in memories],
                [span(source) for source in sources],
                agree=type_text(inputs[0].dtype),
                **call,
            )
        return self._work(name, opts, [operation], list(outputs), back)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,  # noqa: A002
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
    ) -> CollectiveWork:
        """As alltoall of tensors cut along the first dimension; without split sizes, evenly."""
        name = "all_to_all"
        checks.same_type([input], output, name, "input")
        out_rows = checks.splits(output, output_split_sizes or (), self._size, name, "output")
        in_rows = checks.splits(input, input_split_sizes or (), self._size, name, "input")
        back = CopyBack()
        memory = writable(output, name, back)
        source = apart(readable(input, name), memory)
        targets, sources = parts(memory, out_rows), parts(source, in_rows)
        if targets[self._rank].nbytes != sources[self._rank].nbytes:
            raise ValueError(
                f"{name}: this rank keeps {sources[self._rank].nbytes} bytes of the input for itself and has room for "
                f"{targets[self._rank].nbytes} in the output; accepted: as much"
            )
        with self.starting(name, opts, (memory, source)) as (communicator, call):
            operation = communicator.all_to_all(targets, sources, agree=type_text(source.dtype), **call)
        return self._work(name, opts, [operation], [output], back)

    # --- between two ranks ----------------------------------------------------------------------------------

    def send(self, tensors: Sequence[Tensor], dstRank: int, tag: int = 0) -> CollectiveWork:  # noqa: N803
        """Sends a tensor. Done once the receiver has it; a short one once it is copied (max_copied_bytes)."""
        name = "send"
        tensor = checks.only(tensors, name, "tensors")
        to, tag = checks.rank(dstRank, self._size, name, "destination"), checks.tag(tag, name)
        memory = readable(tensor, name)
        if to == self._rank:
            return self._work(name, None, [self._self_messages.send(memory, tag)], [tensor], CopyBack())
        with self._starting_message(name, memory) as (communicator, call):
            operation = communicator.send(span(memory), to, tag, **call)
        return self._work(name, None, [operation], [tensor], CopyBack())

    def recv(self, tensors: Sequence[Tensor], srcRank: int, tag: int = 0) -> CollectiveWork:  # noqa: N803
        """Receives a tensor of this size from one rank."""
        return self._receive(tensors, checks.rank(srcRank, self._size, "receive", "source"), tag)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> CollectiveWork:
        """Receives a tensor of this size from any other rank; source_rank() says which one sent it."""
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: Sequence[Tensor], source: int | None, tag: int) -> CollectiveWork:
        name = "receive"
        tensor, tag = checks.only(tensors, name, "tensors"), checks.tag(tag, name)
        back = CopyBack()
        memory = writable(tensor, name, back)
        operation: Operation
        if source == self._rank:
            operation = self._self_messages.receive(memory, tag, self.communicator.timeout_s)
        else:
            with self._starting_message(name, memory) as (communicator, call):
                operation = communicator.receive(span(memory), source, tag, **call)
        return self._work(name, None, [operation], [tensor], back)

    # --- barriers -------------------------------------------------------------------------------------------

    def barrier(self, opts: Any = None) -> CollectiveWork:
        """Done when every rank of the group has called it."""
        with self.starting("barrier", opts, None) as (communicator, call):
            operation = communicator.barrier(**call)
        return self._work("barrier", opts, [operation], [], CopyBack())

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier that names the ranks that did not call it. Blocks; as dlcp.torch.monitored_barrier."""
        timeout_s = timeout.total_seconds() if timeout else self.communicator.timeout_s
        monitored_barrier(self.communicator, self._name, timeout_s, wait_all_ranks)

    # --- the group itself -----------------------------------------------------------------------------------

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroup | None:
        """A group of some of this group's ranks; None on the others. Every rank of this group calls it."""
        count = next(self._splits)
        if self._rank not in ranks:
            return None
        name = group_name or f"{self._name}.split{count}"
        members = [
            self.communicator.members[checks.rank(rank, self._size, "split_group", "rank")] for rank in ranks
        ]
        timeout_s = timeout.total_seconds() if timeout else self.communicator.timeout_s
        store = PrefixStore(f"{name}/", self._store)
        options = self.options if opts is None else Options.of(opts)
        group = type(self)._open(self._shared, members, store, name, options, timeout_s)
        group.setGroupName(name)
        group.setGroupDesc(group_desc or "")
        return group

    # The name that C++ asks for. Its own would be a crash: it takes for granted that there is a Backend.
    splitGroup = split_group  # noqa: N815

    def merge_remote_group(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotImplementedError: the ranks of a job are known when it starts."""
        raise NotImplementedError(
            "merge_remote_group: a group of the backend dlcp cannot take in ranks of another job; accepted: "
            "init_process_group with all ranks, and new_group"
        )

    mergeRemoteGroup = merge_remote_group  # noqa: N815

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the time limit of operations started from now on."""
        for communicator in (self.communicator, *self._private.values()):
            communicator.timeout_s = timeout.total_seconds()

    def abort(self) -> None:
        """Fails pending operations, on other ranks those that this one has not finished, and closes the group here."""
        if not self._closed:
            for communicator in (self.communicator, *self._private.values()):
                communicator.abort("abort() of the process group")
            # What peers still need of finished operations gets a moment, not the group's timeout.
            self.shutdown(HURRIED_S)

    def shutdown(self, timeout_s: float | None = None) -> None:
        """Closes the group, and the job with its last group. Pending works fail. May be called again.

        Blocks until other ranks have what finished operations sent; `timeout_s`: as Job.close.
        """
        # Without the lock: a thread may hold it while it waits for absent ranks.
        if self._closed:
            return
        self._closed = True
        if self._dropped is not None:
            self._dropped.detach()
        for callback in self._before_shutdown:
            callback()
        _close(self._shared, self._self_messages, self._private, self.communicator, timeout_s)

    def close_when_dropped(self) -> None:
        """Has the group closed, as by `shutdown` but on another thread and in a hurry, with its last reference."""
        parts = self._shared, self._self_messages, self._private, self.communicator
        self._dropped = when_dropped(self, functools.partial(_close, *parts, HURRIED_S))

    # --- what torch asks of a group -------------------------------------------------------------------------

    # Spelled as torch's C++ asks for them.
    # ruff: noqa: N802

    def getBackendName(self) -> str:
        return BACKEND_NAME

    def name(self) -> str:
        return BACKEND_NAME

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return self._size

    # Called on every call from Python. torch's C++ versions would call back here.
    rank = getRank
    size = getSize

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    def get_group_store(self) -> Store:
        return self._store

    def _get_sequence_number_for_group(self) -> int:
        return int(self.communicator.sequence)

    def _set_sequence_number_for_group(self) -> None:
        """The communicator counts from 0 on every rank."""

    @property
    def _device_types(self) -> list[torch.device]:
        devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        return [torch.device(device) for device in devices]

    # torch has one Backend per device type under a group. Here the group itself is the Backend of all its devices.

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        return self

    def _has_hooks(self) -> bool:
        return False

    supports_splitting = True
    supports_coalescing = False
    supports_time_estimate = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<dlcp.torch.ProcessGroup {self._name!r} rank {self._rank} of {self._size}{closed}>"

    # --- names before torch 2.13 ----------------------------------------------------------------------------

    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # --- gradients ------------------------------------------------------------------------------------------

    @property
    def gradients(self) -> GradientState | None:
        """The state of gradients, from the option of that name; None: calls follow no recipe."""
        return None if self._marked is None else self._marked.state

    def _marked_calls(self) -> scope.Scope | None:
        return scope.current.get() or self._marked

    # --- helpers --------------------------------------------------------------------------------------------

    def starting(
        self, collective: str, opts: Any, keep: object, on: Communicator | None = None
    ) -> _Start[CollectiveCall]:
        """`with` around the start of a collective: gives the communicator and the keyword arguments to start it with.

        `opts`: torch's options of the call. `keep`: the collective's memory. `on`: a communicator of the same ranks;
        None, or the group's own: the group's own, but in a future's callback the one for callbacks.
        """
        call: CollectiveCall = {"keep": keep}
        if opts is not None:
            timeout = opts.timeout
            # torch leaves -1 ms where no time was given.
            if timeout > _NO_TIME:
                call["timeout_s"] = timeout.total_seconds()
            if not opts.asyncOp:
                call["wait_follows"] = True
        if self._traffic_class is not None:
            call["traffic_class"] = self._traffic_class
        if self._algorithms and (algorithm := self._algorithms.get(collective)):
            call["algorithm"] = algorithm
        return _Start(self.numbering(on), call, collective, keep)

    def numbering(self, on: Communicator | None = None) -> Communicator:
        """The communicator that numbers a collective which starts now: see `starting`. May block in a callback."""
        communicator = on or self.communicator
        if communicator is self.communicator and (line := futures.line_of_callback()) is not None:
            line.wait_turn(communicator.timeout_s)
            communicator = self.private_communicator(line.name)
        return communicator

    def _starting_message(self, operation: str, keep: object) -> _Start[MessageKeywords]:
        """As `starting`, for a message to or from one rank. Messages pair by tag, so callbacks use the group's own."""
        call: MessageKeywords = {"keep": keep}
        if self._traffic_class is not None:
            call["traffic_class"] = self._traffic_class
        return _Start(self.communicator, call, operation, keep)

    def private_communicator(self, name: str, ranks: Sequence[int] | None = None) -> Communicator:
        """A communicator of the group's ranks for one purpose: its collectives are numbered apart.

        Opened at the first call with this name, which blocks for the store. All ranks ask for the same names. `ranks`:
        of the group, some of them, this one among them and alike on all of them; None: all.
        """
        with self._lock:
            if name not in self._private:
                main = self.communicator
                members = main.members if ranks is None else tuple(main.members[rank] for rank in ranks)
                self._private[name] = self._shared.communicator(
                    f"{main.name}.{name}", members, self._store, main.timeout_s
                )
            return self._private[name]

    def data_communicator(self) -> Communicator:
        """A communicator for data that must not delay the job's other operations: the lowest traffic class is its own.

        Every call opens another one, which blocks for the store; all ranks call it. From the first call on no other
        group of the job uses class 0, whatever its options say.
        """
        communicator = self.private_communicator(f"data{next(self._data_communicators)}")
        communicator.in_background = True
        self._shared.job.traffic_class_min = 1
        return communicator

    def call_before_shutdown(self, callback: Callable[[], None]) -> None:
        """Has a callback called once, when the group is about to close."""
        self._before_shutdown.append(callback)

    def _agree_reduced(self, tensor: Tensor) -> str:
        """What ranks compare of a reduction besides its real type and size, which the transport compares."""
        return self._agree(tensor) if self._compares_shapes else _complex_type(tensor)

    def _agree_all(self, tensors: Sequence[Tensor]) -> str:
        """As _agree, of tensors of one type that may differ in shape."""
        shapes = f" of shapes {[tuple(tensor.shape) for tensor in tensors]}" if self._compares_shapes else ""
        return type_text(tensors[0].dtype) + shapes

    def _agree(self, tensor: Tensor) -> str:
        """What ranks compare of a collective besides its size."""
        if self._compares_shapes:
            return f"{type_text(tensor.dtype)} of shape {tuple(tensor.shape)}"
        return type_text(tensor.dtype)

    def _work(
        self, name: str, opts: Any, operations: Sequence[Operation], result: list[Tensor], back: CopyBack
    ) -> CollectiveWork:
        work = CollectiveWork(operations, result, back)
        if back and (opts is None or opts.asyncOp):
            # Copies the results back even if no caller waits, or one waits only for the group's next barrier.
            work.settle_when_over()
        return work

    def _sparse_reducer(self) -> SparseReducer:
        from dlcp.torch.sparse import SparseReducer

        communicator = self.private_communicator("sparse")
        with self._lock:
            if self._sparse is None:
                self._sparse = SparseReducer(communicator)
            return self._sparse


def _complex_type(tensor: Tensor) -> str:
    """Its type if it is complex: it is reduced as pairs of real numbers, and must not meet plain ones.

    torch.distributed itself makes pairs of complex numbers before it calls, as a view.
    """
    if (
        not tensor.is_complex()
        and tensor._base is not None
        and tensor.shape[-1:] == (2,)
        and tensor.stride(-1) == 1
    ):
        tensor = tensor._base
    return type_text(tensor.dtype) if tensor.is_complex() else ""


def _close(
    shared: SharedJob,
    messages: SelfMessages,
    private: Mapping[str, Communicator],
    communicator: Communicator,
    timeout_s: float | None,
) -> None:
    """Gives back all that a group has. Apart from the group, which may be gone. `timeout_s`: as Job.close."""
    messages.close()
    for each in (*private.values(), communicator):
        shared.release(each, timeout_s)


def _op_of(opts: Any) -> Any:
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


patches.install(ProcessGroup.within)
dynamo.skip(sys.modules[__name__], work_module)
