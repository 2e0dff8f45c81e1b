"""One call of a group: its arguments are checked, described for errors, and measured before anything is started.

A Call holds no address of memory and chooses no algorithm. A plan (plan.py) is made of it, once per shape. A wrong
argument raises here, so nothing is sent for it. Here is checked what one rank can see; the transport finds out from
`terms` whether the ranks agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlcp import _native, errors
from dlcp.checks import integer, is_integer, refusal
from dlcp.transport.coded import codec_traits
from dlcp.transport.element import ELEMENT_BYTES, DataType, Reduction, check_type, native_op
from dlcp.transport.schedule_memory import even_parts
from dlcp.transport.span import Span, overlap_of

Lengths = int | Sequence[int]
"""Bytes of memory that is split evenly among the chunks, or of each chunk."""

_TAG_MAX = (1 << 32) - 1


class Arithmetic(NamedTuple):
    """How contributions become one, as native code takes it."""

    type: DataType
    op: _native.ReduceOp
    average_over: int
    """What the sum is divided by; 0: it is not."""


_BYTES = Arithmetic(DataType.u8, _native.ReduceOp.sum, 0)  # of calls that only move them


@dataclass(frozen=True, slots=True)
class Call:
    """One collective call, whatever memory it is given."""

    operation: str
    words: str
    """The call with its arguments, for errors and logs."""
    terms: str
    """What must be equal on all ranks, besides operation, algorithm and root."""
    inputs: Lengths
    outputs: Lengths
    nbytes: int = 0
    """Of the whole, if every rank knows it; for choosing the algorithm."""
    root: int = 0
    uneven: bool = False
    """Ranks have parts of different sizes, as all of them know."""
    arithmetic: Arithmetic = _BYTES
    codec: _native.Codec | None = None
    """Of coded values; None: elements of arithmetic.type."""
    collective: str = ""
    """What serves it, if that is not its own name (dlcp.transport.schedule)."""
    alone: bool = False
    """Needs no other rank, or moves no bytes."""


class Calls:
    """The calls of one group, as its member `rank` makes them. `members`: ranks in the job.

    Methods raise ArgumentError. Sizes are bytes; `agree`: anything else that must be equal on all ranks, as a text;
    `scaled`: values are multiplied by a factor first. `limit_bytes`: of a message.
    """

    def __init__(self, group: str, members: Sequence[int], rank: int, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._group = group
        self._members = members
        self._rank = rank
        self._size = len(members)

    # ---- reducing ----

    def all_reduce(self, nbytes: int, dtype: DataType, op: Reduction, scaled: bool, agree: str) -> Call:
        """Each rank's `nbytes` become their reduction."""
        check_type(dtype, nbytes, "data")
        arithmetic = self._arithmetic(dtype, op)
        words = f"all_reduce({_elements(dtype, nbytes)}, {_reduction(op, scaled)}{_more(agree)})"
        return Call(
            "all_reduce",
            words,
            words,
            (),
            nbytes,
            nbytes,
            arithmetic=arithmetic,
            alone=self._size == 1 or nbytes == 0,
        )

    def reduce(
        self, nbytes: int, dtype: DataType, op: Reduction, root: int, scaled: bool, agree: str
    ) -> Call:
        """The root's `nbytes` become the reduction of all ranks'."""
        check_type(dtype, nbytes, "data")
        arithmetic = self._arithmetic(dtype, op)
        self.check_rank("root", root)
        to = f"to rank {self._members[root]}"
        words = f"reduce({_elements(dtype, nbytes)}, {_reduction(op, scaled)}, {to}{_more(agree)})"
        return Call(
            "reduce",
            words,
            words,
            (nbytes,),
            (nbytes,) if self._rank == root else (),
            nbytes,
            root,
            arithmetic=arithmetic,
            alone=self._size == 1 or nbytes == 0,
        )

    def reduce_scatter(
        self,
        sizes: tuple[int, ...],
        output_nbytes: int,
        dtype: DataType,
        op: Reduction,
        scaled: bool,
        agree: str,
    ) -> Call:
        """Of the inputs, in parts of `sizes`, this rank's part reduced."""
        for size in sizes:
            check_type(dtype, size, "inputs")
        _check_equal("output", output_nbytes, sizes[self._rank], "this rank's part of inputs")
        arithmetic = self._arithmetic(dtype, op)
        words = f"reduce_scatter({_part_elements(dtype, sizes)}, {_reduction(op, scaled)}{_more(agree)})"
        return self._of_parts("reduce_scatter", words, sizes, sizes, (output_nbytes,), arithmetic)

    # ---- reducing, within a loss budget ----

    def bounded_all_reduce(
        self, output_nbytes: int, nbytes: int, dtype: DataType, op: Reduction, rescale: bool, agree: str
    ) -> Call:
        """Each rank's output becomes the reduction of what came of the inputs."""
        _check_equal("output", output_nbytes, nbytes, "input")
        check_type(dtype, nbytes, "input")
        parts = [part.nbytes for part in even_parts(Span(0, nbytes), self._size, dtype)]
        return self._bounded("bounded_all_reduce", nbytes, parts, parts, dtype, op, rescale, agree)

    def bounded_reduce_scatter(
        self, output_nbytes: int, nbytes: int, dtype: DataType, op: Reduction, rescale: bool, agree: str
    ) -> Call:
        """This rank's output becomes the reduction of what came of its part of the inputs."""
        _check_equal("input", nbytes, output_nbytes * self._size, f"{self._size} times the output")
        parts = [output_nbytes] * self._size
        return self._bounded(
            "bounded_reduce_scatter", nbytes, parts, [output_nbytes], dtype, op, rescale, agree
        )

    def _bounded(
        self,
        operation: str,
        nbytes: int,
        inputs: list[int],
        outputs: list[int],
        dtype: DataType,
        op: Reduction,
        rescale: bool,
        agree: str,
    ) -> Call:
        check_type(dtype, nbytes, "input")
        if op not in (Reduction.SUM, Reduction.AVG):
            raise errors.ArgumentError(
                f"op is {getattr(op, 'name', repr(op))}; accepted within a loss budget: SUM, AVG"
            )
        if max(inputs) > self._limit_bytes:
            raise errors.LimitError(
                f"input has {nbytes} bytes; accepted within a loss budget: parts of up to {self._limit_bytes} per rank"
            )
        fill = ", rescaled" if rescale else ""
        words = f"{operation}({_elements(dtype, nbytes)}, {_reduction(op, False)}{fill}{_more(agree)})"
        return Call(
            operation,
            words,
            words,
            tuple(inputs) if self._size > 1 else (nbytes,),
            tuple(outputs) if self._size > 1 else (nbytes,),
            nbytes,
            arithmetic=self._arithmetic(dtype, op),
            alone=self._size == 1 or nbytes == 0,
        )

    # ---- reducing, coded ----

    def coded_all_reduce(self, sizes: tuple[int, ...], codec: str, op: Reduction, agree: str) -> Call:
        """Each rank's outputs become the coded reduction of what came of the inputs, in parts of `sizes`."""
        return self._coded("coded_all_reduce", sizes, sizes, codec, op, agree)

    def coded_reduce_scatter(self, sizes: tuple[int, ...], codec: str, op: Reduction, agree: str) -> Call:
        """This rank's part of the inputs, of `sizes`, reduced."""
        return self._coded("coded_reduce_scatter", sizes, (sizes[self._rank],), codec, op, agree)

    def _coded(
        self,
        operation: str,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        codec: str,
        op: Reduction,
        agree: str,
    ) -> Call:
        kind = codec_traits(codec)
        if op not in (Reduction.SUM, Reduction.AVG):
            raise errors.ArgumentError(
                f"op is {getattr(op, 'name', repr(op))}; accepted for coded values: SUM, AVG"
            )
        for nbytes in inputs:
            if nbytes % kind.group_bytes or nbytes > self._limit_bytes:
                raise errors.ArgumentError(
                    f"a part has {nbytes} bytes; accepted for {codec}: a multiple of {kind.group_bytes}, up to "
                    f"{self._limit_bytes}"
                )
        groups = sum(inputs) // kind.group_bytes
        words = f"{operation}({codec}, {groups} groups, {_reduction(op, False)}{_more(agree)})"
        return Call(
            operation,
            words,
            f"{words} {inputs}",
            inputs,
            outputs,
            sum(inputs),
            arithmetic=self._arithmetic(DataType.u8, op),
            codec=kind.codec,
            alone=self._size == 1 or not groups,
        )

    # ---- moving ----

    def all_gather(self, sizes: tuple[int, ...], input_nbytes: int, agree: str) -> Call:
        """All ranks' inputs, in parts of `sizes`."""
        _check_equal("input", input_nbytes, sizes[self._rank], "this rank's part of outputs")
        words = f"all_gather({_each(sizes)} bytes per rank{_more(agree)})"
        return self._of_parts("all_gather", words, sizes, (input_nbytes,), sizes, _BYTES)

    def broadcast(self, nbytes: int, root: int, agree: str) -> Call:
        """The root's `nbytes`, to all."""
        self.check_rank("root", root)
        words = f"broadcast({nbytes} bytes, from rank {self._members[root]}{_more(agree)})"
        alone = self._size == 1 or nbytes == 0
        return Call("broadcast", words, words, (), (nbytes,), nbytes, root, alone=alone)

    def gather(self, sizes: tuple[int, ...], input_nbytes: int, root: int, agree: str) -> Call:
        """All ranks' inputs at the root, in parts of `sizes`, which only it has."""
        if self._rank == root:
            _check_equal("input", input_nbytes, sizes[root], "this rank's part of outputs")
        words = f"gather({input_nbytes} bytes from this rank, to rank {self._members[root]}{_more(agree)})"
        return Call("gather", words, agree, (input_nbytes,), sizes, root=root, alone=self._size == 1)

    def scatter(self, sizes: tuple[int, ...], output_nbytes: int, root: int, agree: str) -> Call:
        """The root's inputs, in parts of `sizes`, which only it has, one to each rank."""
        if self._rank == root:
            _check_equal("output", output_nbytes, sizes[root], "this rank's part of inputs")
        words = f"scatter({output_nbytes} bytes to this rank, from rank {self._members[root]}{_more(agree)})"
        return Call("scatter", words, agree, sizes, (output_nbytes,), root=root, alone=self._size == 1)

    def all_to_all(self, output_sizes: tuple[int, ...], input_sizes: tuple[int, ...], agree: str) -> Call:
        """A part of `input_sizes` to each rank, one of `output_sizes` from each."""
        own = "this rank's own part of "
        _check_equal("outputs", output_sizes[self._rank], input_sizes[self._rank], "inputs", own)
        out_and_in = f"{sum(input_sizes)} bytes out, {sum(output_sizes)} in on this rank"
        words = f"all_to_all({out_and_in}{_more(agree)})"
        return Call("all_to_all", words, agree, input_sizes, output_sizes, alone=self._size == 1)

    def barrier(self, agree: str) -> Call:
        """An all_reduce of one byte, whose value does not matter."""
        words = f"barrier({agree})"
        return Call(
            "barrier",
            words,
            words,
            (),
            1,
            1,
            arithmetic=Arithmetic(DataType.u8, _native.ReduceOp.max, 0),
            collective="all_reduce",
            alone=self._size == 1,
        )

    # ---- single messages ----

    def message(self, operation: str, nbytes: int, peer: int | None, tag: int) -> str:
        """A send or receive, in words. `peer`: in the group; None: any."""
        integer("tag", tag, 0, _TAG_MAX)
        whom = "any rank" if peer is None else f"rank {self._members[peer]}"
        return f"{operation}({nbytes} bytes {'to' if operation == 'send' else 'from'} {whom}, tag {tag})"

    # ---- arguments ----

    def check_rank(self, name: str, rank: int) -> None:
        """That `rank` is one of the group's."""
        if not is_integer(rank, 0, self._size - 1):
            raise errors.ArgumentError(
                f"{name} is {rank!r}; accepted: a rank of group {self._group}, 0 to {self._size - 1}"
            )

    def check_other(self, name: str, rank: int) -> None:
        """That `rank` is one of the group's, and another's, if there are others."""
        self.check_rank(name, rank)
        if rank == self._rank and self._size > 1:
            raise errors.ArgumentError(f"{name} is {rank}, this rank itself; accepted: another rank")

    def parts(self, memory: Span | Sequence[Span], name: str) -> list[Span]:
        """One memory per rank."""
        if not isinstance(memory, Span):
            if not isinstance(memory, Sequence) or isinstance(memory, str | bytes):
                raise errors.ArgumentError(refusal(name, memory, "a Span, or one Span per rank"))
            parts = [check_span(name, part) for part in memory]
            if len(parts) != self._size:
                raise errors.ArgumentError(
                    f"{name} has {len(parts)} parts; accepted: one per rank, {self._size}"
                )
            # What is filled from several ranks and sent on to others would be wrong there too.
            if name == "outputs" and (shared := overlap_of(parts)):
                raise errors.ArgumentError(
                    f"outputs {shared[0]} and {shared[1]} share memory; accepted: outputs apart from each other"
                )
            return parts
        nbytes = memory[1]
        step, rest = divmod(nbytes, self._size)
        if rest:
            raise errors.ArgumentError(
                f"{name} has {nbytes} bytes; accepted: a multiple of the group's size, {self._size}"
            )
        return [memory.part(i * step, step) for i in range(self._size)]

    def root_parts(self, memory: Span | Sequence[Span] | None, name: str, root: int) -> list[Span] | None:
        """One memory per rank at the root; elsewhere None, whatever is given."""
        self.check_rank("root", root)
        if self._rank != root:
            return None
        if memory is None:
            raise errors.ArgumentError(
                f"{name} is None at the root, rank {root}; accepted: memory for every rank"
            )
        return self.parts(memory, name)

    # ---- helpers ----

    def _arithmetic(self, dtype: DataType, op: Reduction) -> Arithmetic:
        return Arithmetic(dtype, native_op(op, dtype), self._size if op is Reduction.AVG else 0)

    def _of_parts(
        self,
        operation: str,
        words: str,
        sizes: tuple[int, ...],
        inputs: Lengths,
        outputs: Lengths,
        arithmetic: Arithmetic,
    ) -> Call:
        """A call in which every rank has a part, of a size that all of them know."""
        return Call(
            operation,
            words,
            f"{words} {sizes}",
            inputs,
            outputs,
            sum(sizes),
            uneven=len(set(sizes)) > 1,
            arithmetic=arithmetic,
            alone=self._size == 1 or not any(sizes),
        )


def check_span(name: str, memory: object) -> Span:
    """The memory. Raises ArgumentError: it is no Span, or one of less than nothing."""
    if not isinstance(memory, Span):
        raise errors.ArgumentError(refusal(name, memory, "a Span, as Span.of(array) makes"))
    address, nbytes = memory
    if address.__class__ is int and nbytes.__class__ is int and address > 0 <= nbytes:
        return memory
    if address == 0 and is_integer(nbytes, 1):
        raise errors.ArgumentError(
            f"{name} has {nbytes} bytes at a null pointer; accepted: the address of memory"
        )
    return Span(integer(f"{name}.address", address, 0), integer(f"{name}.nbytes", nbytes, 0))


def sizes_of(parts: Sequence[Span] | None) -> tuple[int, ...]:
    """Bytes of each; () of None."""
    return () if parts is None else tuple([part[1] for part in parts])


def _check_equal(name: str, nbytes: int, expected: int, other: str, own: str = "") -> None:
    if nbytes != expected:
        raise errors.ArgumentError(
            f"{own}{name} has {nbytes} bytes; accepted: as many as {own}{other}, {expected}"
        )


# ---- words ----


def _elements(dtype: DataType, nbytes: int) -> str:
    return f"{dtype.name}, {nbytes // ELEMENT_BYTES[dtype]} elements"


def _part_elements(dtype: DataType, sizes: Sequence[int]) -> str:
    counts = [size // ELEMENT_BYTES[dtype] for size in sizes]
    return f"{dtype.name}, {_each(counts)} elements per rank"


def _each(counts: Sequence[int]) -> str:
    """One number if all are alike; else the first few."""
    if len(set(counts)) == 1:
        return str(counts[0])
    shown = ", ".join(map(str, counts[:8]))
    return f"[{shown}{', …' if len(counts) > 8 else ''}]"


def _reduction(op: Reduction, scaled: bool) -> str:
    return "sum of values times a factor" if scaled else op.value


def _more(agree: str) -> str:
    return f"; {agree}" if agree else ""
