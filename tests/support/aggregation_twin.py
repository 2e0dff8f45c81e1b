"""The aggregating switch in slow and obvious Python: what p4/aggregation.p4 does to a frame.

Written from p4/aggregation.md and not from the program, on dictionaries and whole packets instead of registers and
lanes. `process` gives the frames that leave, with their ports. Entries are those of dlcp/switch/aggregation/entries.py.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dlcp.switch.entries import Entry, Exact, MulticastGroup, TableEntry

LANES = 32
LEAST, MOST = -(2**31), 2**31 - 1
CONTRIBUTION, RESULT, FLUSH, RELEASE = 1, 2, 3, 4
TO_HUB = 1
SUM = 0
HEADER = struct.Struct(">IBBBBIIIHHIBBBBI")


def internet_checksum(data: bytes) -> int:
    """RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass
class Slot:
    """What the switch knows of one slot."""

    tenant: tuple[int, int] = (0, 0)  # job, generation
    key: tuple[int, int] = (0, 0)  # message, block
    state: str = "free"
    contributions: dict[int, tuple[int, ...]] = field(default_factory=dict)  # bit of worker → values
    shape: tuple[int, int] = (0, 0)  # operation, exponent
    values: list[int] = field(default_factory=lambda: [0] * LANES)
    saturated: int = 0


@dataclass
class Frame:
    """An Ethernet frame that may hold an aggregation packet."""

    raw: bytes

    @property
    def is_aggregation(self) -> bool:
        raw = self.raw
        if len(raw) < 14 + 20 + 8 + 5 or raw[12:14] != b"\x08\x00" or raw[14] != 0x45 or raw[23] != 17:
            return False
        fragment = struct.unpack(">H", raw[20:22])[0]
        if fragment & 0x3FFF:  # more fragments, or an offset
            return False
        if struct.unpack(">H", raw[16:18])[0] != 192 or struct.unpack(">H", raw[38:40])[0] != 172:
            return False
        return raw[42:47] == b"DLCA\x01" and len(raw) >= 14 + 192

    @property
    def checksums_are_right(self) -> bool:
        raw = self.raw
        if internet_checksum(raw[14:34]) != 0:
            return False
        if raw[40:42] in (b"\0\0", b"\xff\xff"):
            return True
        return self.udp_checksum() == struct.unpack(">H", raw[40:42])[0]

    def udp_checksum(self) -> int:
        raw = self.raw
        end = 34 + struct.unpack(">H", raw[38:40])[0]
        return internet_checksum(raw[26:34] + b"\0\x11" + raw[38:40] + raw[34:40] + raw[42:end])

    def with_checksums(self) -> Frame:
        raw = self.raw
        raw = raw[:24] + b"\0\0" + raw[26:]
        raw = raw[:24] + struct.pack(">H", internet_checksum(raw[14:34])) + raw[26:]
        return Frame(raw[:40] + struct.pack(">H", Frame(raw).udp_checksum()) + raw[42:])


def keys_of(entry: TableEntry) -> dict[str, int]:
    """The keys of an entry, all of them exact."""
    return {name: key.value for name, key in entry.match if isinstance(key, Exact)}


def numbered(ports: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Ports of a group, each with its instance: a port that is there several times has copies 1, 2 and so on."""
    return tuple((port, ports[: place + 1].count(port)) for place, port in enumerate(ports))


class AggregatingSwitch:
    """The switch: entries in, frames in, frames out."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[frozenset[tuple[str, int]], dict[str, int]]] = {}
        self.groups: dict[int, tuple[tuple[int, int], ...]] = {}
        self.slots: dict[int, Slot] = {}
        self.outcomes: Counter[tuple[int, str]] = Counter()

    def write(self, entries: Sequence[Entry]) -> None:
        """Adds entries and groups, or replaces them."""
        for entry in entries:
            if isinstance(entry, MulticastGroup):
                self.groups[entry.group_id] = numbered(entry.ports)
            elif isinstance(entry, TableEntry):
                key = frozenset(keys_of(entry).items())
                self.tables.setdefault(entry.table, {})[key] = dict(entry.params)

    def _find(self, table: str, **key: int) -> dict[str, int] | None:
        return self.tables.get(table, {}).get(frozenset(key.items()))

    # ---- frames ----

    def process(self, raw: bytes, port: int) -> list[tuple[int, bytes]]:
        """What leaves."""
        frame = Frame(raw)
        if len(raw) < 14 or not frame.is_aggregation:
            return self._forward(raw, port)
        packet = list(HEADER.unpack_from(raw, 42))
        kind, job, generation, worker = packet[2], packet[5], packet[9], packet[11]
        if kind not in (CONTRIBUTION, FLUSH, RELEASE):
            return self._forward(raw, port)
        entry = self._find("participant", ingress_port=port, job=job, generation=generation, worker=worker)
        if entry is None:
            self.outcomes[0, "foreign"] += 1
            return self._forward(raw, port)
        row = entry["index"]
        if not frame.checksums_are_right:
            self.outcomes[row, "damaged"] += 1
            return self._forward(raw, port)
        if packet[3] & TO_HUB:
            self.outcomes[row, "to_hub"] += 1
            return self._forward(raw, port)
        outcome, slot, who = self._aggregate(packet, struct.unpack_from(">32i", raw, 78), entry)
        self.outcomes[row, outcome] += 1
        if who == "hub":
            flagged = raw[:48] + bytes([raw[48] | TO_HUB]) + raw[49:]
            return self._forward(Frame(flagged).with_checksums().raw, port)
        if who == "nobody" or slot is None:
            return []
        answer = self._result(raw, packet, slot)
        if who == "sender":
            return self._addressed(answer, job, [(port, entry["instance"])])
        return self._addressed(answer, job, self.groups.get(entry["group"], ()))

    def _forward(self, raw: bytes, port: int) -> list[tuple[int, bytes]]:
        if len(raw) < 14:
            return []
        entry = self._find("bridge", dst_mac=int.from_bytes(raw[:6], "big"))
        if entry is not None:
            return [] if entry["port"] == port else [(entry["port"], raw)]
        flood = self._find("flood", ingress_port=port)
        if flood is None:
            return []
        return [(other, raw) for other, _ in self.groups.get(flood["group"], ())]

    def _addressed(
        self, answer: bytes, job: int, copies: tuple[tuple[int, int], ...] | list[tuple[int, int]]
    ) -> list[tuple[int, bytes]]:
        out = []
        for port, number in copies:
            to = self._find("addressees", job=job, port=port, instance=number)
            if to is None:
                continue
            raw = to["mac"].to_bytes(6, "big") + answer[:6] + answer[12:26] + answer[30:34]
            raw += (
                to["ip"].to_bytes(4, "big") + answer[36:38] + to["udp_port"].to_bytes(2, "big") + answer[38:]
            )
            out.append((port, Frame(raw).with_checksums().raw))
        return out

    # ---- slots ----

    def _aggregate(
        self, packet: list[int], values: tuple[int, ...], entry: dict[str, int]
    ) -> tuple[str, Slot | None, str]:
        """What became of it, the slot, and who is told: nobody, sender, everyone, hub."""
        kind, bit = packet[2], entry["bit_of_worker"]
        tenant, key = (packet[5], packet[9]), (packet[6], packet[7])
        shape = (packet[4], packet[13])
        if packet[8] >= entry["slots_of_job"]:
            return "refused", None, "hub"
        if (kind == CONTRIBUTION and not bit) or (kind == RELEASE and bit):
            return "refused", None, "hub"
        number = entry["base"] + packet[8]
        slot = self.slots.get(number, Slot())
        if slot.tenant != tenant:
            slot = Slot(tenant)
        if kind == RELEASE:
            if key == slot.key or (key > slot.key and slot.state != "collecting"):
                slot = Slot(tenant, key)
            self.slots[number] = slot
            return "released", slot, "nobody"
        if kind == FLUSH:
            if key != slot.key or slot.state == "free":
                return "absent", slot, "hub"
            if slot.state == "done":
                return "repeated", slot, "sender"
            if len(slot.contributions) < packet[14]:
                return "below_quorum", slot, "hub"
            slot.state = "done"
            return "flushed", slot, "everyone"
        if key == slot.key and slot.state == "collecting":
            if shape != slot.shape:
                return "mismatch", slot, "hub"
            if bit in slot.contributions:
                return "duplicate", slot, "nobody"
        elif key == slot.key and slot.state == "done":
            return "repeated", slot, "sender"
        elif key <= slot.key:
            return "stale", slot, "hub"
        elif slot.state == "collecting":
            return "collision", slot, "hub"
        else:
            slot = Slot(tenant, key, "collecting", shape=shape)
        self.slots[number] = slot
        self._add(slot, bit, values)
        if sum(slot.contributions) == entry["everyone"]:
            slot.state = "done"
            return "completed", slot, "everyone"
        return "added", slot, "nobody"

    @staticmethod
    def _add(slot: Slot, bit: int, values: tuple[int, ...]) -> None:
        for lane, value in enumerate(values):
            if not slot.contributions:
                slot.values[lane] = value
            elif slot.shape[0] != SUM:
                slot.values[lane] = max(slot.values[lane], value)
            else:
                total = slot.values[lane] + value
                if not LEAST <= total <= MOST:
                    slot.saturated |= 1 << lane
                slot.values[lane] = min(max(total, LEAST), MOST)
        slot.contributions[bit] = values

    @staticmethod
    def _result(raw: bytes, packet: list[int], slot: Slot) -> bytes:
        out = list(packet)
        out[2], out[3] = RESULT, 0
        out[4], out[13] = slot.shape
        out[10], out[12] = sum(slot.contributions), len(slot.contributions)
        out[14], out[15] = 0, slot.saturated
        return raw[:42] + HEADER.pack(*out) + struct.pack(">32i", *slot.values) + raw[206:]
