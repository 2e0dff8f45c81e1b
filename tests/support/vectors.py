"""Golden vectors as text; tests/vectors/README.md tells the format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.support import wire_twin as twin

DIRECTORY = Path(__file__).resolve().parent.parent / "vectors"

# A key may come several times (`frame`), so it is a list of fields.
Record = list[tuple[str, str]]
_BETWEEN, _INDENT = " | ", "  "


def read(text: str) -> list[Record]:
    """The records of a file."""
    records: list[Record] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(_INDENT):
            records.append([])
        for field in line.removeprefix(_INDENT).split(_BETWEEN):
            key, _, value = field.partition(":")
            records[-1].append((key, value.strip()))
    return records


def load(name: str) -> list[dict[str, str]]:
    """The records of one file of tests/vectors; of a repeated key the values joined by newlines."""
    out = []
    for record in read((DIRECTORY / name).read_text(encoding="utf-8")):
        merged: dict[str, str] = {}
        for key, value in record:
            merged[key] = f"{merged[key]}\n{value}" if key in merged else value
        out.append(merged)
    return out


def dump(comment: str, records: list[Record]) -> str:
    """The text of a file."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    for record in records:
        times = Counter(key for key, _ in record)
        lines.append(_BETWEEN.join(_field(key, value) for key, value in record if times[key] == 1))
        lines += (_INDENT + _field(key, value) for key, value in record if times[key] > 1)
    return "\n".join(lines) + "\n"


def _field(key: str, value: str) -> str:
    return f"{key}: {value}".rstrip()


def frame_line(frame: twin.Frame) -> str:
    """One frame in one line, as `frame:` in frames.txt."""

    def listed(values: tuple[int, ...], form: str = "d") -> str:
        return ",".join(format(v, form) for v in values) or "-"

    name = twin.frame_type(frame)
    match frame:
        case twin.Ack():
            ce = "none" if frame.ce is None else listed(frame.ce, "016x")
            return (
                f"ack largest={frame.largest} ack_delay_ns={frame.ack_delay_ns} queue_delay_ns={frame.queue_delay_ns} "
                f"credit_bytes={frame.credit_bytes} ce_packets={frame.ce_packets} "
                f"received={listed(frame.received, '016x')} ce={ce}{' turn' if frame.turn else ''}"
            )
        case twin.Ids():
            return f"{name} message_ids={listed(frame.message_ids)}"
        case twin.Trimmed():
            return f"{name} packet_numbers={listed(frame.packet_numbers)}"
        case twin.Outcome():
            return (
                f"{name} message_id={frame.message_id} abandoned_blocks={frame.abandoned_blocks} "
                f"word_offset={frame.word_offset} abandoned={listed(frame.abandoned, '016x')}"
            )
        case twin.Refuse():
            return f"{name} message_id={frame.message_id} reason={frame.reason}"
        case twin.Cancel():
            return f"{name} message_id={frame.message_id}"
        case twin.Close():
            return f"{name} reason={frame.reason}"
        case twin.Hello():
            return (
                f"{name} own_session={frame.own_session} echo_session={frame.echo_session} "
                f"destination_rank={frame.destination_rank} max_datagram_bytes={frame.max_datagram_bytes} "
                f"received_datagram_bytes={frame.received_datagram_bytes} flags={frame.flags} ciphers={frame.ciphers}"
            )
        case twin.Piece():
            return (
                f"{name} packet_number={frame.packet_number} datagram_bytes={frame.datagram_bytes} "
                f"offset={frame.offset} flags={frame.flags} bytes={frame.data.hex() or '-'}"
            )
        case twin.Miscounted():
            return f"{name} miscounted"
