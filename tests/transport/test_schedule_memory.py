"""A schedule as native code runs it, and memory partitioned as native code partitions it."""

from __future__ import annotations

import pytest

from dlcp import _native
from dlcp.transport.element import ELEMENT_BYTES, DataType
from dlcp.transport.schedule import ALGORITHMS, algorithms, build
from dlcp.transport.schedule_memory import compile_schedule, even_parts
from dlcp.transport.span import Span


@pytest.mark.parametrize("collective", sorted(ALGORITHMS))
def test_every_schedule_compiles_with_the_peers_it_names(collective: str) -> None:
    for algorithm in algorithms(collective):
        for size in (2, 4):
            for rank in range(size):
                schedule = build(collective, algorithm, size, rank, 0)
                named = {each.peer for each in schedule.operations if hasattr(each, "peer")}
                compiled = compile_schedule(schedule, size, rank)
                assert set(compiled.peers) == named
                assert (compiled.world_size, compiled.rank) == (size, rank)


def test_builder_refuses_a_chunk_in_no_space() -> None:
    builder = _native.ScheduleBuilder(2, 0, 1, 1)
    with pytest.raises(ValueError, match="space is 3; accepted: 0 to 2"):
        builder.send(1, 0, (3, 0), False)


def test_builder_refuses_an_operation_that_cannot_be() -> None:
    builder = _native.ScheduleBuilder(2, 0, 1, 1)
    builder.send(7, 0, (0, 0), False)
    with pytest.raises(ValueError, match="7"):
        builder.build()


@pytest.mark.parametrize("dtype", [DataType.u8, DataType.f32, DataType.f64])
@pytest.mark.parametrize("elements", [0, 1, 7, 64, 1000, 4096])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_even_parts_cover_memory_in_order_by_whole_elements(
    dtype: DataType, elements: int, parts: int
) -> None:
    size = ELEMENT_BYTES[dtype]
    whole = Span(4096, elements * size)
    spans = even_parts(whole, parts, dtype)
    assert len(spans) == parts
    at = whole.address
    for span in spans:
        assert span.address == at
        assert span.nbytes % size == 0
        at += span.nbytes
    assert at == whole.address + whole.nbytes
