"""Where each field of a program lies: headers and metadata as one row of integers per packet.

A field is an index into that row (its slot), a header an index into a row of validity. Also the names that the target
knows fields by (aliases), and the names people do: `find` takes what a P4 source calls a field, although the compiler
has put numbers and prefixes to it. It knows nothing of packets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any


class UnsupportedError(NotImplementedError):
    """The program uses something that this interpreter does not know; the message names it."""


@dataclass(frozen=True)
class Field:
    """One field: where it is and what it holds."""

    header: str
    name: str
    slot: int
    bits: int
    signed: bool

    def wrap(self, value: int) -> int:
        """What is left of a value when it is written here: its low bits, as two's complement where signed."""
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if self.signed and value >> (self.bits - 1) else value


@dataclass(frozen=True)
class Header:
    """A header or a metadata struct."""

    name: str
    index: int
    fields: tuple[Field, ...]
    metadata: bool

    @cached_property
    def bits(self) -> int:
        """Length on the wire."""
        return sum(field.bits for field in self.fields)


@dataclass(frozen=True)
class Stack:
    """A header stack: its headers in order."""

    name: str
    index: int
    headers: tuple[Header, ...]


class Layout:
    """All headers, fields and stacks of a program."""

    def __init__(self, json: dict[str, Any]) -> None:
        for kind in ("header_unions", "header_union_stacks", "extern_instances"):
            if json.get(kind):
                raise UnsupportedError(f"{kind} {json[kind][0]['name']}")
        types = {each["name"]: each for each in json["header_types"]}
        self.headers: dict[str, Header] = {}
        self.fields: dict[tuple[str, str], Field] = {}
        self.slots = 0
        by_id: dict[int, Header] = {}
        for index, each in enumerate(json["headers"]):
            header = Header(
                each["name"],
                index,
                tuple(self._fields(each["name"], types[each["header_type"]])),
                each["metadata"],
            )
            self.headers[header.name] = by_id[each["id"]] = header
        self.stacks = {
            each["name"]: Stack(each["name"], index, tuple(by_id[i] for i in each["header_ids"]))
            for index, each in enumerate(json.get("header_stacks", ()))
        }
        self._found: dict[str, Field] = {}
        self._aliases = {alias: tuple(target) for alias, target in json.get("field_aliases", ())}
        self.always_valid = [header.metadata for header in self.headers.values()]
        self.metadata_slots = [f.slot for h in self.headers.values() if h.metadata for f in h.fields]

    def _fields(self, header: str, header_type: dict[str, Any]) -> Iterator[Field]:
        for name, bits, *signed in header_type["fields"]:
            if bits == "*":
                raise UnsupportedError(f"variable-length field {header}.{name}")
            field = Field(header, name, self.slots, bits, bool(signed and signed[0]))
            self.fields[header, name] = field
            self.slots += 1
            yield field

    def field(self, header: str, name: str) -> Field:
        """The field of exactly this name; KeyError otherwise."""
        return self.fields[header, name]

    def known(self, name: str) -> Field | None:
        """The field that the target knows by this dotted name, if the program has it."""
        header, _, field = name.partition(".")
        return self.fields.get(self._aliases.get(name, (header, field)))

    def find(self, name: str) -> Field:
        """The one field that a person means: `ipv4.ttl`, `standard_metadata.priority`, `meta.group`, or `group`.

        The compiler gathers local variables and user metadata in a struct of its own, and numbers them.
        """
        if name not in self._found:
            self._found[name] = self.known(name) or self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Field:
        wanted = re.split(r"[.]", name)
        matches = []
        for field in self.fields.values():
            words = re.split(r"[.]", f"{field.header}.{field.name}")
            plain = [re.sub(r"^_|_?\d+$", "", word) or word for word in words]
            if (
                words[-len(wanted) :] == wanted
                or plain[-len(wanted) :] == wanted
                or plain[-1:] == wanted[-1:]
            ):
                matches.append(field)
        exact = [f for f in matches if f"{f.header}.{f.name}".endswith(name)]
        for some in (exact, matches):
            if len(some) == 1:
                return some[0]
        names = ", ".join(f"{f.header}.{f.name}" for f in matches) or "none like it"
        raise KeyError(f"no field {name!r} in the program: {names}")
