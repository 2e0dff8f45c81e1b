"""A recipe between hosts: inside a host gradients are summed exactly, over shared memory where it is there.

    reduce-scatter inside a host -> the recipe's pipeline between hosts, on a shard -> all-gather inside a host

Of g ranks per host each has one shard of a buffer, and exchanges it with the ranks of its place on other hosts. The
recipe's memory is of the host's sum, and a host is one contribution. Between hosts travels what the recipe sends of one
buffer per host, not of g. With MSTopK that is HiTopKComm (Shi et al., MLSys 2021, arXiv 2010.10458). Hosts have equal
numbers of ranks; else, and for buffers that are scattered already (FSDP) or small, the recipe runs among all ranks as
if it knew no hosts.

The ledger has what crosses between hosts.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from dlcp.errors import ArgumentError
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.later_work import LaterWork
from dlcp.torch.gradient.buffer.peers import Peers, Start
from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer, PreparedBuffer
from dlcp.torch.gradient.buffer.pipeline import Pipeline
from dlcp.torch.tensors import DATA_TYPES, readable, span
from dlcp.transport.schedule.hierarchical import ranks_by_host, suits
from dlcp.transport.work import ManyWorks, Work

if TYPE_CHECKING:
    from dlcp.torch.gradient.recipes.low_bit import CodedPipeline
    from dlcp.torch.gradient.residual.feedback import FeedbackMemory
    from dlcp.torch.gradient.residual.memory import ResidualMemory
    from dlcp.torch.gradient.residual.report import ResidualReport
    from dlcp.transport.communicator import Communicator

logger = logging.getLogger("dlcp")

BY_HOSTS = "by_hosts"
"""Of a saved state: hosts and ranks on each, if what a rank keeps is of its shard of a host's sum; None: it is not;
nothing in it: it keeps nothing yet."""
SEQUENCES_MAX = 4
"""No pipeline starts more collectives for a buffer."""
SHARD_NUMEL_MIN = 1024
"""Below it a buffer is not worth three steps."""


class Across:
    """The ranks of one place on all hosts, as pipelines use a process group."""

    def __init__(self, group: Peers, ranks: Sequence[int], name: str) -> None:
        self._group = group
        self._ranks = ranks
        self._name = f"{name} between hosts"
        self.communicator = group.private_communicator(self._name, ranks)
        """The one that numbers its collectives."""

    def size(self) -> int:
        """How many hosts there are."""
        return len(self._ranks)

    def rank(self) -> int:
        """This host's number."""
        return self.communicator.rank

    def starting(self, collective: str, opts: Any, keep: object, on: Communicator | None = None) -> Start:
        """As Peers.starting."""
        return self._group.starting(collective, opts, keep, on=on or self.communicator)

    def numbering(self, on: Communicator | None = None) -> Communicator:
        """As Peers.numbering."""
        return self._group.numbering(on or self.communicator)

    def private_communicator(self, name: str, ranks: Sequence[int] | None = None) -> Communicator:
        """As Peers.private_communicator."""
        among = self._ranks if ranks is None else [self._ranks[rank] for rank in ranks]
        return self._group.private_communicator(f"{self._name}, {name}", among)


@dataclass(frozen=True, slots=True)
class _Host:
    """This rank's host within a group."""

    inside: Communicator
    across: Across

    @property
    def shape(self) -> tuple[int, int]:
        """Hosts, and ranks on each."""
        return self.across.size(), self.inside.size

    def fail(self, error: object) -> None:
        """A step of a buffer has failed here: nobody is to wait for the next one."""
        for communicator in (self.inside, self.across.communicator):
            communicator.abort(f"gradients by hosts: {error}")


class ByHosts:
    """Buffers of one state; see buffer/pipeline.py. `inner`: what happens to a shard between hosts.

    `expects_hosts`: a warning says where hosts do not have several ranks each. `among_all`: whether `inner` takes a
    buffer as it is.
    """

    wants_norm = False

    def __init__(
        self,
        account: Account,
        inner: Pipeline,
        *,
        expects_hosts: bool = True,
        among_all: Callable[[GradientBuffer], bool] = lambda _: False,
    ) -> None:
        self._account = account
        self._among_all = among_all
        # Whether what is kept is of whole buffers, of which a shard is not taken.
        self._is_among_all = False
        self._expects_hosts = expects_hosts
        self._inner = inner
        self.sequences = inner.sequences
        self._lock = threading.Lock()
        # By group, and by the communicator that numbers a buffer: numbers are apart where these are.
        self._hosts: dict[tuple[Peers, str], _Host | None] = {}
        # What a loaded state is of, until it has been compared with what is here.
        self._loaded: list[tuple[int, int] | None] = []

    @classmethod
    def of_coded(cls, account: Account, coded: CodedPipeline) -> Self:
        """Few bits between hosts, wherever there are some; what goes over a hub goes there from every rank."""
        return cls(account, coded, expects_hosts=False, among_all=coded.is_for_hub)

    @property
    def residual(self) -> ResidualMemory | FeedbackMemory | None:
        return self._inner.residual

    def begin_step(self, loss_scale: float) -> None:
        self._inner.begin_step(loss_scale)

    def cancel(self, key: Hashable) -> None:
        self._inner.cancel(key)
        self._inner.cancel(_shard_key(key))

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        return self._inner.end_step(applied=applied, gradient_norm=gradient_norm)

    def start(self, buffer: GradientBuffer) -> PendingBuffer:
        numbering = buffer.communicator
        if buffer.call.sequence is None:
            numbering = buffer.group.numbering(numbering)
        alone = buffer.scattered
        if self._among_all(buffer):
            alone = self._is_among_all = True
        host = None if alone else self._host_of(buffer.group, numbering)
        if host is None or buffer.values.numel() < SHARD_NUMEL_MIN * host.inside.size:
            return self._inner.start(buffer)
        inside, dtype = host.inside, DATA_TYPES[buffer.values.dtype]
        memory = readable(buffer.values, "gradients")
        parts = inside.parts(memory.nbytes, dtype)
        begin, end = (at // memory.element_size() for at in parts[inside.rank])
        with torch.no_grad(), self._account.lock:
            shard = self._account.buffers.take(end - begin, memory.dtype, torch.device("cpu"))
            opened = self._account.buffers.output(buffer)
        prepared = PreparedBuffer.of(buffer, memory, opened)
        # One number stands for all collectives of the buffer: ranks may start buffers in any order.
        number = buffer.call.sequence
        if number is None:
            number = numbering.reserve(self.sequences)
        in_class = buffer.call.traffic_class
        if in_class is None:
            in_class = self._account.rules.of(buffer.layout).traffic_class
        # What waits is part of a sum, so sums travel, and the mean is taken at the end.
        call = dataclasses.replace(buffer.call, average=False, traffic_class=in_class, factor=None, into=None)
        locally = dataclasses.replace(
            buffer, communicator=inside, call=dataclasses.replace(call, sequence=2 * number)
        )
        between = self._shard_of(buffer, host.across, shard, (begin, end))
        between = dataclasses.replace(
            between, call=dataclasses.replace(call, sequence=SEQUENCES_MAX * number)
        )

        def scatter() -> Work:
            inputs = [span(memory).part(at, stop - at) for at, stop in parts]
            with self._account.starting(locally, "reduce_scatter", (memory, shard)) as (communicator, how):
                return communicator.reduce_scatter(span(shard), inputs, dtype, locally.op, **how)

        pending: list[PendingBuffer] = []

        def exchange() -> Work:
            pending.append(self._inner.start(between))
            works = pending[0].operations
            return works[0] if len(works) == 1 else ManyWorks(works)

        def gather() -> Work:
            pending[0].settle()
            result = pending[0].result
            if buffer.call.average:
                result.div_(buffer.group.size())
            outputs = [span(prepared.output).part(at, stop - at) for at, stop in parts]
            with self._account.starting(locally, "all_gather", (prepared.output, result), 1) as (
                communicator,
                how,
            ):
                return communicator.all_gather(outputs, span(result), **how)

        exchanged = LaterWork("between hosts", exchange, after=scatter())
        gathered = LaterWork("all_gather", gather, after=exchanged)
        gathered.add_done_callback(lambda work: _tell(host, work))
        return PendingBuffer(prepared, [gathered], lambda: self._finish(buffer, prepared))

    def _finish(self, buffer: GradientBuffer, prepared: PreparedBuffer) -> float | None:
        with torch.no_grad():
            return self._account.note_result(prepared, buffer.group)

    def _shard_of(
        self, buffer: GradientBuffer, across: Across, shard: torch.Tensor, own: tuple[int, int]
    ) -> GradientBuffer:
        """This rank's shard as a buffer of its own, that is reduced among hosts."""
        begin, end = own
        itemsize = shard.element_size()
        parts = across.communicator.parts(shard.nbytes, DATA_TYPES[shard.dtype])
        return dataclasses.replace(
            buffer,
            key=_shard_key(buffer.key),
            values=shard,
            layout=buffer.layout.part(begin, end),
            parts=[(at // itemsize, stop // itemsize) for at, stop in parts],
            group=across,
            communicator=across.communicator,
        )

    def _host_of(self, group: Peers, numbering: Communicator) -> _Host | None:
        """Blocks for the store at the first buffer. None: hosts do not have several ranks each, equally many."""
        key = group, numbering.name
        with self._lock:
            if key not in self._hosts:
                self._hosts[key] = _open(group, numbering.name, self._expects_hosts)
            host = self._hosts[key]
            if self._loaded:
                shape = None if host is None else host.shape
                if self._loaded[0] != shape:
                    # What others kept of this rank's shard, and it of theirs, would never leave.
                    raise ArgumentError(
                        f"the state is of {_words(self._loaded[0])}; accepted: of {_words(shape)}, or low_bit's with"
                        " by_hosts=False where it knew none"
                    )
                self._loaded.clear()
            return host

    def reset(self, names: Iterable[str] | None) -> None:
        self._inner.reset(names)

    def state_dict(self) -> dict[str, Any]:
        with self._lock:
            shapes = [host.shape for host in self._hosts.values() if host is not None]
            known: Sequence[Any] = self._loaded or ([None] if self._hosts or self._is_among_all else [()])
        return {BY_HOSTS: (shapes or known)[0]} | self._inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As Pipeline; the first buffer raises ArgumentError if the state is of other hosts, or ranks on each."""
        self._inner.load_state_dict(state)
        shape = state.get(BY_HOSTS)  # without it: of by_hosts=False
        self._loaded = [] if shape == () else [None if shape is None else (int(shape[0]), int(shape[1]))]

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        return self._inner.names_in(state)


def _open(group: Peers, name: str, expects_hosts: bool) -> _Host | None:
    main = group.communicator
    hosts = main.job.hosts_of(main.members, main.timeout_s)
    ranks = () if hosts is None else ranks_by_host(hosts)
    if hosts is not None and all(len(each) == 1 for each in ranks):
        # Hosts are one rank each, as in FSDP's groups between hosts: what is between hosts is among all.
        return None
    if hosts is None or not suits(hosts) or len({len(each) for each in ranks}) > 1:
        sizes = (
            "too many to look up"
            if hosts is None
            else f"{', '.join(str(len(each)) for each in ranks)} a host"
        )
        logger.log(
            logging.WARNING if expects_hosts else logging.DEBUG,
            "gradients by hosts: ranks are %s, so the recipe runs among all of them",
            sizes,
        )
        return None
    own = next(each for each in ranks if main.rank in each)
    place = own.index(main.rank)
    inside = group.private_communicator(f"{name} inside a host", own)
    return _Host(inside, Across(group, [each[place] for each in ranks], name))


def _tell(host: _Host, work: Work) -> None:
    if (error := work.exception()) is not None:
        host.fail(error)


def _words(shape: tuple[int, int] | None) -> str:
    return "ranks without hosts" if shape is None else f"{shape[0]} hosts with {shape[1]} ranks each"


def _shard_key(key: Hashable) -> Hashable:
    return key, "shard"
