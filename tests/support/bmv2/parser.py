"""The parser: bytes to headers, state by state; and the deparser, back to bytes.

A parser error ends parsing where it is: what was extracted stays, the rest is payload, and `parser_error` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .calculations import Checksum
from .expressions import Evaluate
from .layout import Header, UnsupportedError
from .packet import Packet
from .primitives import Externs, build


class ParserError(Exception):
    """What ends parsing early; its argument is the error's number in the program."""


class _Cursor:
    """Where the parser is in a packet."""

    __slots__ = ("at", "bits", "data", "packet")

    def __init__(self, packet: Packet) -> None:
        self.packet = packet
        self.data = packet.payload
        self.at = 0


Operation = Callable[[_Cursor], None]
KeyPart = Callable[[_Cursor], int]


class State:
    """One state: what it does, and where it goes from there."""

    def __init__(self, parser: Parser, json: dict[str, Any]) -> None:
        self.name: str = json["name"]
        self.operations = [parser.operation(each) for each in json["parser_ops"]]
        self.key = [parser.key_part(each) for each in json["transition_key"]]  # with its width in whole bytes
        self.transitions: list[tuple[int, int | None, set[int] | None, str | None]] = []
        for each in json["transitions"]:
            mask = int(each["mask"], 16) if each.get("mask") else None
            match each["type"]:
                case "default":
                    self.transitions.append((0, 0, None, each["next_state"]))
                case "hexstr":
                    value = int(each["value"], 16)
                    self.transitions.append(
                        (value if mask is None else value & mask, mask, None, each["next_state"])
                    )
                case "parse_vset":
                    self.transitions.append((0, mask, parser.value_sets[each["value"]], each["next_state"]))
                case kind:
                    raise UnsupportedError(f"transition type {kind}")

    def next(self, cursor: _Cursor) -> str | None:
        """The state after this one."""
        value = 0
        for part, bits in self.key:
            value = value << bits | part(cursor)
        for wanted, mask, members, target in self.transitions:
            masked = value if mask is None else value & mask
            if members is None:
                if masked == wanted:
                    return target
            elif any(masked == (member if mask is None else member & mask) for member in members):
                return target
        return None


class Parser:
    """The parser of a program."""

    def __init__(self, externs: Externs, checksums: list[Checksum], json: dict[str, Any]) -> None:
        self._externs = externs
        self._layout = externs.layout
        self._errors = dict(json.get("errors", ()))
        self.value_sets: dict[str, set[int]] = {each["name"]: set() for each in json.get("parse_vsets", ())}
        (only,) = json["parsers"]
        self._first: str | None = only["init_state"]
        self._states = {each["name"]: State(self, each) for each in only["parse_states"]}
        self._verified = [checksum for checksum in checksums if checksum.verified]

    def parse(self, packet: Packet) -> int:
        """Fills the packet's headers and answers the error, 0 if there is none."""
        cursor = _Cursor(packet)
        error = 0
        state = self._first
        try:
            while state is not None:
                current = self._states[state]
                for operation in current.operations:
                    operation(cursor)
                state = current.next(cursor)
        except ParserError as early:
            error = early.args[0]
        packet.payload = cursor.data[cursor.at :]
        packet.checksum_error = False
        for checksum in self._verified:
            packet.checksum_error |= checksum.is_wrong(packet)
        return error

    def error(self, name: str) -> ParserError:
        """The program's error of this name."""
        return ParserError(self._errors.get(name, 2**31 - 1))

    # ---- operations ----

    def operation(self, json: dict[str, Any]) -> Operation:
        """One operation, compiled."""
        operands, op = json["parameters"], json["op"]
        match op:
            case "extract":
                return self._extract(operands[0])
            case "set":
                return self._set(operands)
            case "verify":
                return self._verify(operands)
            case "advance":
                return self._advance(operands[0])
            case "shift":
                return self._advance({"type": "hexstr", "value": hex(8 * operands[0])})
            case "primitive":
                step = build(self._externs, operands[0])
                return lambda cursor: void(step(cursor.packet, ()))
            case _:
                raise UnsupportedError(f"parser operation {op}")

    def key_part(self, json: dict[str, Any]) -> tuple[KeyPart, int]:
        """One part of a state's key, and the bits it takes there."""
        if json["type"] == "lookahead":
            offset, bits = json["value"]
            return (lambda cursor: self._peek(cursor, offset, bits)), -(-bits // 8) * 8
        if json["type"] == "stack_field":
            stack = self._layout.stacks[json["value"][0]]
            bits = self._layout.field(stack.headers[0].name, json["value"][1]).bits
        elif json["type"] == "field":
            header, name = json["value"]
            bits = 1 if name == "$valid$" else self._layout.field(header, name).bits
        else:
            raise UnsupportedError(f"transition key {json['type']}")
        value = self._externs.expressions.function(json)
        return (lambda cursor: value(cursor.packet, ())), -(-bits // 8) * 8

    def _extract(self, operand: dict[str, Any]) -> Operation:
        if operand["type"] == "regular":
            header = self._layout.headers[operand["value"]]
            return lambda cursor: self._take(cursor, header)
        if operand["type"] != "stack":
            raise UnsupportedError(f"extract to {operand['type']}")
        stack = self._layout.stacks[operand["value"]]

        def extract(cursor: _Cursor) -> None:
            index = cursor.packet.stack_next[stack.index]
            if index >= len(stack.headers):
                raise self.error("StackOutOfBounds")
            self._take(cursor, stack.headers[index])
            cursor.packet.stack_next[stack.index] += 1

        return extract

    def _take(self, cursor: _Cursor, header: Header) -> None:
        size = header.bits // 8
        data = cursor.data[cursor.at : cursor.at + size]
        if len(data) < size:
            raise self.error("PacketTooShort")
        value, left = int.from_bytes(data, "big"), header.bits
        for field in header.fields:
            left -= field.bits
            cursor.packet.fields[field.slot] = field.wrap(value >> left)
        cursor.packet.valid[header.index] = True
        cursor.at += size

    def _peek(self, cursor: _Cursor, offset: int, bits: int) -> int:
        end = offset + bits
        data = cursor.data[cursor.at : cursor.at + -(-end // 8)]
        if len(data) * 8 < end:
            raise self.error("PacketTooShort")
        return int.from_bytes(data, "big") >> (len(data) * 8 - end) & ((1 << bits) - 1)

    def _set(self, operands: list[Any]) -> Operation:
        if operands[1]["type"] == "lookahead":
            offset, bits = operands[1]["value"]
            store = self._externs.expressions.store(operands[0])
            return lambda cursor: store(cursor.packet, self._peek(cursor, offset, bits))
        step = self._externs.expressions.assignment(operands[0], operands[1])
        return lambda cursor: void(step(cursor.packet, ()))

    def _verify(self, operands: list[Any]) -> Operation:
        condition, error = self._externs.values(operands)

        def verify(cursor: _Cursor) -> None:
            if not condition(cursor.packet, ()):
                raise ParserError(error(cursor.packet, ()))

        return verify

    def _advance(self, operand: Any) -> Operation:
        distance: Evaluate = self._externs.expressions.function(operand)

        def advance(cursor: _Cursor) -> None:
            bits = distance(cursor.packet, ())
            if bits % 8:
                raise self.error("ParserInvalidArgument")
            if len(cursor.data) - cursor.at < bits // 8:
                raise self.error("PacketTooShort")
            cursor.at += bits // 8

        return advance


class Deparser:
    """The deparser of a program."""

    def __init__(self, externs: Externs, checksums: list[Checksum], json: dict[str, Any]) -> None:
        (only,) = json["deparsers"]
        if only.get("primitives"):
            raise UnsupportedError(f"deparser primitive {only['primitives'][0]['op']}")
        self._order = [externs.layout.headers[name] for name in only["order"]]
        self._updated = [checksum for checksum in checksums if checksum.updated]

    def deparse(self, packet: Packet) -> bytes:
        """Checksums, then the valid headers in order, then the payload; cut where that was asked for."""
        for checksum in self._updated:
            checksum.update(packet)
        parts = []
        for header in self._order:
            if packet.valid[header.index]:
                value = 0
                for field in header.fields:
                    value = value << field.bits | packet.fields[field.slot] & ((1 << field.bits) - 1)
                parts.append(value.to_bytes(header.bits // 8, "big"))
        return (b"".join(parts) + packet.payload)[: packet.truncated_to_bytes]


def void(_: object) -> None:
    """A step of a parser is done for what it does."""
