"""Expressions of a program, as Python functions of a packet and the action's data.

Each is put together as Python text and compiled once, when the program is loaded: about four times as fast as walking
the tree per packet. Arithmetic has no width; what is written into a field is wrapped there, as BMv2 does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .layout import Field, Layout, UnsupportedError
from .packet import Packet

Evaluate = Callable[[Packet, Sequence[int]], int]
Step = Callable[[Packet, Sequence[int]], int | None]  # of an action; an integer is a jump to that step

_INFIX = {"+", "-", "*", "<<", ">>", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"}
_CALLS = {"two_comp_mod", "sat_cast", "usat_cast"}


def two_comp_mod(value: int, bits: int) -> int:
    """The low bits, read as two's complement: -129 in 8 bits is 127."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def sat_cast(value: int, bits: int) -> int:
    """The nearest value that so many signed bits hold."""
    half = 1 << (bits - 1)
    return max(-half, min(half - 1, value))


def usat_cast(value: int, bits: int) -> int:
    """The nearest value that so many unsigned bits hold."""
    return max(0, min((1 << bits) - 1, value))


def _divide(left: int, right: int) -> int:
    if left < 0 or right <= 0:
        raise ArithmeticError(f"{left} / {right}: BMv2 divides only non-negative by positive numbers")
    return left // right


def _modulo(left: int, right: int) -> int:
    return left - right * _divide(left, right)


class Expressions:
    """Compiles the operands of one program."""

    def __init__(self, layout: Layout, registers: dict[str, list[int]]) -> None:
        self._layout = layout
        self._names: dict[str, Any] = {
            "two_comp_mod": two_comp_mod,
            "sat_cast": sat_cast,
            "usat_cast": usat_cast,
            "divide": _divide,
            "modulo": _modulo,
            "registers": registers,
            "layout_stacks": {s.name: [h.index for h in s.headers] for s in layout.stacks.values()},
            "header_fields": {h.index: h.fields for h in layout.headers.values()},
        }

    def function(self, operand: Any) -> Evaluate:
        """The operand's value."""
        evaluate: Evaluate = self._compile(f"lambda p, data: {self.text(operand)}")
        return evaluate

    def assignment(self, target: Any, source: Any) -> Step:
        """Writes the source's value into the target."""
        while target["type"] == "expression":
            target = target["value"]
            if "op" in target:
                return self._assign_element(target, self.function(source))
        if target["type"] != "field":
            raise UnsupportedError(f"assignment to {target['type']}")
        field = self._layout.field(*target["value"])
        value = self.text(source)
        if field.signed:
            value = f"two_comp_mod({value}, {field.bits})"
        else:
            value = f"({value}) & {(1 << field.bits) - 1:#x}"
        scope: dict[str, Any] = {}
        exec(f"def step(p, data):\n    p.fields[{field.slot}] = {value}\n", self._names, scope)
        step: Step = scope["step"]
        return step

    def store(self, target: Any) -> Callable[[Packet, int], None]:
        """How a primitive writes a result into a field."""
        field = self.field(target)

        def write(packet: Packet, value: int) -> None:
            packet.fields[field.slot] = field.wrap(value)

        return write

    def field(self, operand: Any) -> Field:
        """The field that an operand names."""
        if operand["type"] != "field":
            raise UnsupportedError(f"a result written to {operand['type']}")
        return self._layout.field(*operand["value"])

    def header(self, operand: Any) -> Callable[[Packet], int]:
        """The index of the header that an operand means, which a stack decides only per packet."""
        inner = operand
        while inner["type"] == "expression" and "op" not in inner["value"]:
            inner = inner["value"]
        if inner["type"] == "header":
            index = self._layout.headers[inner["value"]].index
            return lambda packet: index
        evaluate: Callable[[Packet], int] = self._compile(f"lambda p, data=(): {self.text(inner)}")
        return evaluate

    # ---- text ----

    def text(self, operand: Any) -> str:
        """The operand as a Python expression over `p` (packet) and `data` (of the action)."""
        if "op" in operand:  # an expression's value, without its wrapping
            return self._operation(operand)
        kind, value = operand["type"], operand["value"]
        match kind:
            case "field":
                header, name = value
                if name == "$valid$":
                    return f"p.valid[{self._layout.headers[header].index}]"
                return f"p.fields[{self._layout.field(header, name).slot}]"
            case "hexstr":
                return str(int(value, 16))
            case "bool":
                return str(bool(value))
            case "runtime_data" | "local":
                return f"data[{int(value)}]"
            case "expression":
                return self.text(value)
            case "header":
                return str(self._layout.headers[value].index)
            case "header_stack":
                return repr(str(value))
            case "register":
                return f"registers[{value[0]!r}][{self.text(value[1])}]"
            case "stack_field":
                stack = self._layout.stacks[value[0]]
                slots = [self._layout.field(header.name, value[1]).slot for header in stack.headers]
                return f"p.fields[{slots!r}[p.stack_next[{stack.index}] - 1]]"
            case _:
                raise UnsupportedError(f"operand {kind}")

    def _operation(self, value: Any) -> str:
        op = value["op"]
        if op in _INFIX:
            return f"({self.text(value['left'])} {op} {self.text(value['right'])})"
        if op in _CALLS:
            return f"{op}({self.text(value['left'])}, {self.text(value['right'])})"
        match op:
            case "~":
                return f"(~{self.text(value['right'])})"
            case "not":
                return f"(not {self.text(value['right'])})"
            case "d2b":
                return f"({self.text(value['right'])} != 0)"
            case "b2d":
                return f"int({self.text(value['right'])})"
            case "?":
                left, right = self.text(value["left"]), self.text(value["right"])
                return f"({left} if {self.text(value['cond'])} else {right})"
            case "/":
                return f"divide({self.text(value['left'])}, {self.text(value['right'])})"
            case "%":
                return f"modulo({self.text(value['left'])}, {self.text(value['right'])})"
            case "valid":
                return f"p.valid[{self.text(value['right'])}]"
            case "dereference_header_stack":
                return f"layout_stacks[{self.text(value['left'])}][{self.text(value['right'])}]"
            case "access_field":
                return f"p.fields[header_fields[{self.text(value['left'])}][{self._offset(value['right'])}].slot]"
            case "last_stack_index":
                return f"(p.stack_next[{self._stack(value['right'])}] - 1)"
            case "size_stack":
                return f"p.stack_next[{self._stack(value['right'])}]"
            case _:
                raise UnsupportedError(f"operator {op}")

    @staticmethod
    def _offset(operand: Any) -> int:
        return operand if isinstance(operand, int) else int(operand["value"])

    def _stack(self, operand: Any) -> int:
        while operand["type"] == "expression":
            operand = operand["value"]
        return self._layout.stacks[operand["value"]].index

    def _assign_element(self, target: Any, source: Evaluate) -> Step:
        # hdr.stack[i].field = ...: which header it is, is known only when it is done.
        if target["op"] != "access_field":
            raise UnsupportedError(f"assignment to the result of {target['op']}")
        header = self._compile(f"lambda p, data: {self.text(target['left'])}")
        offset = self._offset(target["right"])
        fields: dict[int, tuple[Field, ...]] = self._names["header_fields"]

        def step(packet: Packet, data: Sequence[int]) -> None:
            field = fields[header(packet, data)][offset]
            packet.fields[field.slot] = field.wrap(source(packet, data))

        return step

    def _compile(self, text: str) -> Any:
        return eval(text, self._names)
