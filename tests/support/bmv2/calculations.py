"""Named calculations: some fields, constants, perhaps the payload, laid bit by bit and hashed; checksums use them.

Algorithms as BMv2's `calculations.cpp` has them, checked in the tests against published check values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from .expressions import Evaluate, Expressions
from .layout import Field, Header, Layout, UnsupportedError
from .packet import Packet


def csum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071); an odd last byte is the high one."""
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005 reflected, from 0."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)
    return value


def crc_ccitt(data: bytes) -> int:
    """CRC-16 of polynomial 0x1021, not reflected, from 0xffff."""
    value = 0xFFFF
    for byte in data:
        value ^= byte << 8
        for _ in range(8):
            value = (value << 1 ^ (0x1021 if value & 0x8000 else 0)) & 0xFFFF
    return value


def xor_words(data: bytes, size: int) -> int:
    """Exclusive or of big-endian words, the last one filled up with zeros."""
    value = 0
    for i in range(0, len(data), size):
        value ^= int.from_bytes(data[i : i + size].ljust(size, b"\0"), "big")
    return value


ALGORITHMS: dict[str, Callable[[bytes], int]] = {
    "csum16": csum16,
    "cksum16": csum16,
    "crc16": crc16,
    "crc16_custom": crc16,
    "crcCCITT": crc_ccitt,
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
    "identity": lambda data: int.from_bytes(data[:8], "big"),
    "xor16": lambda data: xor_words(data, 2),
    "xor32": lambda data: xor_words(data, 4),
}


class Calculation:
    """One named calculation of a program. What is in headers that are not valid is left out."""

    def __init__(self, layout: Layout, json: dict[str, Any]) -> None:
        if json["algo"] not in ALGORITHMS:
            raise UnsupportedError(f"hash algorithm {json['algo']}")
        self._algorithm = ALGORITHMS[json["algo"]]
        self._with_payload = False
        self._parts: list[
            tuple[int | None, int, int]
        ] = []  # header that must be valid, slot or constant, bits
        for part in json["input"]:
            match part["type"]:
                case "field":
                    self._add(layout.headers[part["value"][0]], layout.field(*part["value"]))
                case "header":
                    header = layout.headers[part["value"]]
                    for field in header.fields:
                        self._add(header, field)
                case "hexstr":
                    self._parts.append((None, int(part["value"], 16), part["bitwidth"]))
                case "payload":
                    self._with_payload = True
                case kind:
                    raise UnsupportedError(f"calculation over {kind}")

    def _add(self, header: Header, field: Field) -> None:
        self._parts.append((header.index, field.slot, field.bits))

    def __call__(self, packet: Packet) -> int:
        """Its value for the packet as it is now."""
        value = total_bits = 0
        for header, slot, bits in self._parts:
            if header is None:
                part = slot
            elif packet.valid[header]:
                part = packet.fields[slot]
            else:
                continue
            value = value << bits | part & ((1 << bits) - 1)
            total_bits += bits
        size = (total_bits + 7) // 8
        data = (value << (size * 8 - total_bits)).to_bytes(size, "big")
        if self._with_payload:
            data += packet.payload[: packet.truncated_to_bytes]
        return self._algorithm(data)


class Checksum:
    """A checksum that the parser verifies, or the deparser writes."""

    def __init__(
        self,
        layout: Layout,
        expressions: Expressions,
        calculations: dict[str, Calculation],
        json: dict[str, Any],
    ) -> None:
        if json["type"] != "generic":
            raise UnsupportedError(f"checksum type {json['type']}")
        self.verified: bool = json.get("verify", True)
        self.updated: bool = json.get("update", True)
        self._target = layout.field(*json["target"])
        self._header = layout.headers[json["target"][0]].index
        self._calculation = calculations[json["calculation"]]
        self._applies: Evaluate | None = (
            expressions.function(json["if_cond"]) if json.get("if_cond") else None
        )

    def is_wrong(self, packet: Packet) -> bool:
        """Whether it applies and is not what it should be."""
        if not packet.valid[self._header] or (self._applies is not None and not self._applies(packet, ())):
            return False
        return self._calculation(packet) != packet.fields[self._target.slot]

    def update(self, packet: Packet) -> None:
        """Writes it if it applies."""
        if self._applies is None or self._applies(packet, ()):
            packet.fields[self._target.slot] = self._target.wrap(self._calculation(packet))
