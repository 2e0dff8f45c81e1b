"""What actions do: one builder per primitive, which turns its operands into a step that runs on a packet.

Meaning as in simple_switch's `primitives.cpp`. A primitive that is not here raises UnsupportedError when the program is
loaded. An index outside a register or counter array raises: BMv2's debug build skips it, the fast build does not look.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .calculations import Calculation
from .expressions import Evaluate, Expressions, Step
from .layout import Layout, UnsupportedError
from .packet import Packet

DROP_PORT = 511


class RandomSource(Protocol):
    """Where `random(low, high)` gets its words."""

    def uniform(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        ...


class Seeded:
    """Random words from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def uniform(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class Words:
    """Words given beforehand, in their order; one that does not lie in the range asked for is an error."""

    def __init__(self, words: Iterable[int]) -> None:
        self.words = list(words)

    def uniform(self, low: int, high: int) -> int:
        if not self.words:
            raise IndexError(f"no word left for random({low}, {high})")
        word = self.words.pop(0)
        if not low <= word <= high:
            raise ValueError(f"word {word:#x} is not in random({low:#x}, {high:#x})")
        return word


class Counter:
    """Packets and bytes; bytes are those that the packet came in with."""

    __slots__ = ("bytes", "packets")

    def __init__(self) -> None:
        self.packets = 0
        self.bytes = 0

    def add(self, packet: Packet) -> None:
        self.packets += 1
        self.bytes += packet.ingress_bytes

    def __repr__(self) -> str:
        return f"Counter(packets={self.packets}, bytes={self.bytes})"


class CounterArray:
    """An array of counters; of its tens of thousands only those exist that somebody has asked for."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._cells: dict[int, Counter] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Counter:
        if not 0 <= index < self._size:
            raise IndexError(f"counter {index} of {self._size}")
        cell = self._cells.get(index)
        if cell is None:
            cell = self._cells[index] = Counter()
        return cell

    def __iter__(self) -> Iterator[Counter]:
        return (self[index] for index in range(self._size))

    def counted(self) -> dict[int, Counter]:
        """By index, those that have counted anything."""
        return {index: cell for index, cell in sorted(self._cells.items()) if cell.packets or cell.bytes}


@dataclass
class Externs:
    """What primitives reach besides the packet: the state of one program."""

    layout: Layout
    expressions: Expressions
    calculations: dict[str, Calculation]
    registers: dict[str, list[int]]
    register_bits: dict[str, int]
    counters: dict[str, CounterArray]
    random: RandomSource
    messages: list[str] = field(default_factory=list)  # of log_msg

    def values(self, operands: Sequence[Any]) -> list[Evaluate]:
        """All of them, compiled."""
        return [self.expressions.function(operand) for operand in operands]


Builder = Callable[[Externs, list[Any]], Step]
PRIMITIVES: dict[str, Builder] = {}


def _primitive(*names: str) -> Callable[[Builder], Builder]:
    def register(builder: Builder) -> Builder:
        for name in names:
            PRIMITIVES[name] = builder
        return builder

    return register


def build(externs: Externs, json: dict[str, Any]) -> Step:
    """The step of one primitive call."""
    builder = PRIMITIVES.get(json["op"])
    if builder is None:
        raise UnsupportedError(f"primitive {json['op']}")
    return builder(externs, json["parameters"])


# ---- fields and headers ----


@_primitive("assign", "modify_field")
def _assign(externs: Externs, operands: list[Any]) -> Step:
    return externs.expressions.assignment(operands[0], operands[1])


@_primitive("assign_header", "copy_header")
def _assign_header(externs: Externs, operands: list[Any]) -> Step:
    target, source = (externs.expressions.header(operand) for operand in operands)
    headers = list(externs.layout.headers.values())

    def step(packet: Packet, data: Sequence[int]) -> None:
        to, of = headers[target(packet)], headers[source(packet)]
        packet.valid[to.index] = packet.valid[of.index]
        if packet.valid[of.index]:
            for left, right in zip(to.fields, of.fields, strict=True):
                packet.fields[left.slot] = packet.fields[right.slot]

    return step


@_primitive("assign_header_stack")
def _assign_header_stack(externs: Externs, operands: list[Any]) -> Step:
    to, of = (externs.layout.stacks[operand["value"]] for operand in operands)

    def step(packet: Packet, data: Sequence[int]) -> None:
        packet.stack_next[to.index] = packet.stack_next[of.index]
        for target, source in zip(to.headers, of.headers, strict=True):
            packet.valid[target.index] = packet.valid[source.index]
            for left, right in zip(target.fields, source.fields, strict=True):
                packet.fields[left.slot] = packet.fields[right.slot]

    return step


@_primitive("add_header")
def _add_header(externs: Externs, operands: list[Any]) -> Step:
    header = externs.expressions.header(operands[0])
    headers = list(externs.layout.headers.values())

    def step(packet: Packet, data: Sequence[int]) -> None:
        added = headers[header(packet)]
        if not packet.valid[added.index]:
            packet.valid[added.index] = True
            packet.length_bytes += added.bits // 8
            for each in added.fields:
                packet.fields[each.slot] = 0

    return step


@_primitive("remove_header")
def _remove_header(externs: Externs, operands: list[Any]) -> Step:
    header = externs.expressions.header(operands[0])
    headers = list(externs.layout.headers.values())

    def step(packet: Packet, data: Sequence[int]) -> None:
        removed = headers[header(packet)]
        if packet.valid[removed.index]:
            packet.valid[removed.index] = False
            packet.length_bytes -= removed.bits // 8

    return step


@_primitive("push")
def _push(externs: Externs, operands: list[Any]) -> Step:
    return _shift_stack(externs, operands, 1)


@_primitive("pop")
def _pop(externs: Externs, operands: list[Any]) -> Step:
    return _shift_stack(externs, operands, -1)


def _shift_stack(externs: Externs, operands: list[Any], direction: int) -> Step:
    """What comes in at an end is invalid (P4-16, 8.18); `next` goes along as far as it can."""
    stack = externs.layout.stacks[operands[0]["value"]]
    (count,) = externs.values(operands[1:2])
    size = len(stack.headers)

    def step(packet: Packet, data: Sequence[int]) -> None:
        by = direction * min(count(packet, data), size)
        rows = [(packet.valid[h.index], [packet.fields[f.slot] for f in h.fields]) for h in stack.headers]
        for i, header in enumerate(stack.headers):
            there = 0 <= i - by < size
            valid, values = rows[i - by] if there else (False, [0] * len(header.fields))
            packet.valid[header.index] = valid
            for each, value in zip(header.fields, values, strict=True):
                packet.fields[each.slot] = value
        packet.stack_next[stack.index] = max(0, min(size, packet.stack_next[stack.index] + by))

    return step


# ---- state ----


@_primitive("register_read")
def _register_read(externs: Externs, operands: list[Any]) -> Step:
    store = externs.expressions.store(operands[0])
    cells = externs.registers[operands[1]["value"]]
    (index,) = externs.values(operands[2:3])

    def step(packet: Packet, data: Sequence[int]) -> None:
        store(packet, cells[index(packet, data)])

    return step


@_primitive("register_write")
def _register_write(externs: Externs, operands: list[Any]) -> Step:
    name = operands[0]["value"]
    cells, mask = externs.registers[name], (1 << externs.register_bits[name]) - 1
    index, source = externs.values(operands[1:3])

    def step(packet: Packet, data: Sequence[int]) -> None:
        cells[index(packet, data)] = source(packet, data) & mask

    return step


@_primitive("count")
def _count(externs: Externs, operands: list[Any]) -> Step:
    counters = externs.counters[operands[0]["value"]]
    (index,) = externs.values(operands[1:2])

    def step(packet: Packet, data: Sequence[int]) -> None:
        counters[index(packet, data)].add(packet)

    return step


# ---- numbers ----


@_primitive("modify_field_rng_uniform")
def _random(externs: Externs, operands: list[Any]) -> Step:
    store = externs.expressions.store(operands[0])
    low, high = externs.values(operands[1:3])

    def step(packet: Packet, data: Sequence[int]) -> None:
        first, last = low(packet, data), high(packet, data)
        if first <= last:  # otherwise nothing is written
            store(packet, externs.random.uniform(first, last))

    return step


@_primitive("modify_field_with_hash_based_offset")
def _hash(externs: Externs, operands: list[Any]) -> Step:
    store = externs.expressions.store(operands[0])
    calculation = externs.calculations[operands[2]["value"]]
    base, size = externs.values([operands[1], operands[3]])
    mask = (1 << 64) - 1

    def step(packet: Packet, data: Sequence[int]) -> None:
        value = calculation(packet) % ((size(packet, data) & mask) or 1)
        store(packet, value + (base(packet, data) & mask))

    return step


# ---- what becomes of the packet ----


@_primitive("mark_to_drop", "drop")
def _mark_to_drop(externs: Externs, operands: list[Any]) -> Step:
    port = externs.layout.field("standard_metadata", "egress_spec").slot
    group = externs.layout.known("intrinsic_metadata.mcast_grp")

    def step(packet: Packet, data: Sequence[int]) -> None:
        packet.fields[port] = DROP_PORT
        if group is not None:
            packet.fields[group.slot] = 0

    return step


@_primitive("truncate")
def _truncate(externs: Externs, operands: list[Any]) -> Step:
    (length,) = externs.values(operands)

    def step(packet: Packet, data: Sequence[int]) -> None:
        # The least of all that are asked for.
        asked = length(packet, data)
        so_far = packet.truncated_to_bytes
        packet.truncated_to_bytes = asked if so_far is None else min(so_far, asked)

    return step


@_primitive("clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress")
def _clone(externs: Externs, operands: list[Any]) -> Step:
    session, fields = externs.values(operands)

    def step(packet: Packet, data: Sequence[int]) -> None:
        packet.clone_session = session(packet, data) & 0x7FFF
        packet.clone_list = fields(packet, data)

    return step


@_primitive("resubmit")
def _resubmit(externs: Externs, operands: list[Any]) -> Step:
    (fields,) = externs.values(operands)

    def step(packet: Packet, data: Sequence[int]) -> None:
        packet.resubmit_list = fields(packet, data)

    return step


@_primitive("recirculate")
def _recirculate(externs: Externs, operands: list[Any]) -> Step:
    (fields,) = externs.values(operands)

    def step(packet: Packet, data: Sequence[int]) -> None:
        packet.recirculate_list = fields(packet, data)

    return step


@_primitive("exit")
def _exit(externs: Externs, operands: list[Any]) -> Step:
    def step(packet: Packet, data: Sequence[int]) -> None:
        packet.exited = True

    return step


@_primitive("no_op")
def _no_op(externs: Externs, operands: list[Any]) -> Step:
    return lambda packet, data: None


# ---- order inside an action, and words to people ----


@_primitive("_jump")
def _jump(externs: Externs, operands: list[Any]) -> Step:
    (target,) = externs.values(operands)
    return lambda packet, data: target(packet, data)


@_primitive("_jump_if_zero")
def _jump_if_zero(externs: Externs, operands: list[Any]) -> Step:
    condition, target = externs.values(operands)
    return lambda packet, data: None if condition(packet, data) else target(packet, data)


@_primitive("assert", "assume")
def _assert(externs: Externs, operands: list[Any]) -> Step:
    (condition,) = externs.values(operands)

    def step(packet: Packet, data: Sequence[int]) -> None:
        if not condition(packet, data):
            raise AssertionError("the program's own assertion failed")

    return step


@_primitive("log_msg")
def _log_message(externs: Externs, operands: list[Any]) -> Step:
    text: str = operands[0]["value"]
    values = externs.values(operands[1]["value"]) if len(operands) > 1 else []

    def step(packet: Packet, data: Sequence[int]) -> None:
        externs.messages.append(text.format(*(int(value(packet, data)) for value in values)))

    return step
