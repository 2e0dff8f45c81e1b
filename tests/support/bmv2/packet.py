"""A packet inside the switch: values of all fields, which headers are valid, and the bytes not parsed.

It owns its rows, so a copy shares nothing. What a primitive asks of the traffic manager (clone, resubmit, truncate) is
noted here and done by the architecture afterwards.
"""

from __future__ import annotations

from .layout import Layout


class Packet:
    """One packet, or one copy of it."""

    __slots__ = (
        "layout", "fields", "valid", "stack_next", "payload", "ingress_bytes", "length_bytes", "truncated_to_bytes",
        "exited", "checksum_error", "clone_session", "clone_list", "resubmit_list", "recirculate_list", "digest_list",
        "original", "handle",
    )  # fmt: skip

    def __init__(self, layout: Layout, data: bytes) -> None:
        self.layout = layout
        self.fields = [0] * layout.slots
        self.valid = layout.always_valid.copy()
        self.stack_next = [0] * len(layout.stacks)  # per stack: where the next extract goes
        self.payload = data  # what is not parsed, all of it before the parser
        self.original = data  # as it came: what ingress clones and resubmits start from
        self.ingress_bytes = len(data)  # what counters add
        self.length_bytes = len(data)  # follows headers added and removed; becomes packet_length at egress
        self.truncated_to_bytes: int | None = None  # of the whole packet as it leaves
        self.exited = False
        self.checksum_error = False
        self.clone_session: int | None = None
        self.clone_list = 0
        self.resubmit_list = 0  # 0: not asked for
        self.recirculate_list = 0
        self.digest_list = 0
        self.handle = 0  # a number for tests that follow packets

    def copy(self) -> Packet:
        """A copy with all its fields, and no wishes of its own: as in BMv2 not even to be truncated."""
        twin = Packet(self.layout, self.payload)
        twin.original = self.original
        twin.fields = self.fields.copy()
        twin.valid = self.valid.copy()
        twin.stack_next = self.stack_next.copy()
        twin.ingress_bytes = self.ingress_bytes
        twin.length_bytes = self.length_bytes
        twin.handle = self.handle
        return twin

    def reset_metadata(self) -> None:
        """All metadata zero."""
        for slot in self.layout.metadata_slots:
            self.fields[slot] = 0

    def __getitem__(self, name: str) -> int:
        """A field by the name a person gives it (Layout.find)."""
        return self.fields[self.layout.find(name).slot]

    def __setitem__(self, name: str, value: int) -> None:
        field = self.layout.find(name)
        self.fields[field.slot] = field.wrap(value)

    def is_valid(self, header: str) -> bool:
        """Whether the header is there."""
        return self.valid[self.layout.headers[header].index]
