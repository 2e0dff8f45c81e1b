"""Counters, in arrays and of entries (specification: CounterEntry, DirectCounterEntry)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from finsy.proto import p4i, p4r

from tests.support.bmv2.primitives import Counter, CounterArray

from . import table_entries
from .pipeline import Pipeline
from .status import INVALID_ARGUMENT, OUT_OF_RANGE, Refused


def write(pipeline: Pipeline, kind: int, message: p4r.CounterEntry) -> None:
    """Sets one counter, or all of an array."""
    if kind != p4r.Update.MODIFY:
        raise Refused(INVALID_ARGUMENT, "a counter can only be modified")
    info, cells = _array(pipeline, message.counter_id)
    some: Iterable[Counter] = cells
    if message.HasField("index"):
        some = [cells[_index(info, message.index.index)]]
    if message.HasField("data"):
        for cell in some:
            cell.packets, cell.bytes = message.data.packet_count, message.data.byte_count


def read(pipeline: Pipeline, message: p4r.CounterEntry) -> Iterator[p4r.Entity]:
    """One counter, an array, or all."""
    if message.counter_id == 0:
        arrays = [_array(pipeline, number) for number in pipeline.counters]
    else:
        arrays = [_array(pipeline, message.counter_id)]
    for info, cells in arrays:
        some = range(len(cells))
        if message.counter_id and message.HasField("index"):
            some = range(_index(info, message.index.index), _index(info, message.index.index) + 1)
        for i in some:
            entry = p4r.CounterEntry(counter_id=info.preamble.id, index=p4r.Index(index=i))
            entry.data.CopyFrom(table_entries.in_units(info.spec, cells[i].packets, cells[i].bytes))
            yield p4r.Entity(counter_entry=entry)


def write_direct(pipeline: Pipeline, kind: int, message: p4r.DirectCounterEntry) -> None:
    """Sets the counter of an entry."""
    if kind != p4r.Update.MODIFY:
        raise Refused(INVALID_ARGUMENT, "a counter can only be modified")
    _counted(pipeline, message.table_entry.table_id)
    entry = table_entries.find(pipeline, message.table_entry)
    if message.HasField("data"):
        entry.counter.packets, entry.counter.bytes = message.data.packet_count, message.data.byte_count


def read_direct(pipeline: Pipeline, message: p4r.DirectCounterEntry) -> Iterator[p4r.Entity]:
    """The counter of an entry, of all in a table, of all in all tables."""
    wanted = message.table_entry
    infos = (
        [pipeline.tables[number] for number in pipeline.direct_counters]
        if wanted.table_id == 0
        else [_counted(pipeline, wanted.table_id)]
    )
    if wanted.match:
        table_entries.find(pipeline, wanted)  # NOT_FOUND, unlike a read of entries
    for info in infos:
        asked = p4r.TableEntry()
        asked.CopyFrom(wanted)
        asked.counter_data.SetInParent()
        for answer in table_entries.entries(pipeline, info, asked):
            direct = p4r.DirectCounterEntry(data=answer.counter_data)
            direct.table_entry.table_id = answer.table_id
            direct.table_entry.match.extend(answer.match)
            direct.table_entry.priority = answer.priority
            yield p4r.Entity(direct_counter_entry=direct)


def _array(pipeline: Pipeline, counter_id: int) -> tuple[p4i.Counter, CounterArray]:
    info = pipeline.counters.get(counter_id)
    if info is None:
        raise Refused(INVALID_ARGUMENT, f"no counter has id {counter_id:#x}")
    return info, pipeline.program.counters[info.preamble.name]


def _index(info: p4i.Counter, index: int) -> int:
    if index < 0:
        raise Refused(INVALID_ARGUMENT, f"{info.preamble.name}: index {index}")
    if index >= info.size:
        raise Refused(OUT_OF_RANGE, f"{info.preamble.name} has {info.size} counters, index {index}")
    return index


def _counted(pipeline: Pipeline, table_id: int) -> p4i.Table:
    if table_id not in pipeline.direct_counters:
        raise Refused(INVALID_ARGUMENT, f"no table with a direct counter has id {table_id:#x}")
    return pipeline.tables[table_id]
