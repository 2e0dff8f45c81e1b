"""Where elements lie when a buffer travels coded; the importance of coded blocks."""

from __future__ import annotations

import random

import numpy as np
import torch

from dlcp.torch import codec
from dlcp.torch.gradient.coding.plan import plan_of
from dlcp.torch.gradient.importance.by_scales import critical_bytes_of, importance_by_scales
from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.transport.bounded import CRITICAL
from dlcp.transport.coded import GROUP_VALUES
from tests.support.seeds import for_each_seed


def random_layout(draw: random.Random, size: int) -> Layout:
    """Parameters and padding, in a buffer of one equal part per rank."""
    segments, at = [], 0
    for number in range(draw.randrange(0, 7)):
        at += draw.choice([0, 0, 3])
        count = draw.choice([1, 63, 64, 65, 200, 1000])
        kind = draw.choice(["coded", "exact"])
        segments.append(Segment(f"{kind}.{number}", draw.randrange(10), at, count))
        at += count
    at += draw.randrange(5)
    return Layout(tuple(segments), -(-at // size) * size)


@for_each_seed(range(200))
def test_every_element_is_coded_or_exact_once(seed: int) -> None:
    draw = random.Random(seed)
    size, scattered = draw.choice([1, 2, 3, 5]), draw.random() < 0.5
    layout = random_layout(draw, size)
    step = layout.numel // size
    parts = [(rank * step, (rank + 1) * step) for rank in range(size)]
    plan = plan_of(layout, lambda one: one.name.startswith("coded"), parts, scattered=scattered)
    seen = np.zeros(layout.numel, int)
    coded = np.zeros(layout.numel, bool)
    for segment in layout.segments:
        coded[segment.begin : segment.end] = segment.name.startswith("coded")
    group = 0
    for (begin, count, first), segment in zip(plan.runs.tolist(), plan.stream.segments, strict=True):
        seen[begin : begin + count] += 1
        assert coded[begin : begin + count].all()
        assert first == group  # from a new group on
        assert segment.begin == first * GROUP_VALUES
        assert segment.count == count
        (whole,) = (one for one in layout.segments if one.name == segment.name)
        assert segment.offset - whole.offset == begin - whole.begin
        group += -(-count // GROUP_VALUES)
    assert group == plan.groups
    for begin, count in plan.exact.tolist():
        seen[begin : begin + count] += 1
        assert not coded[begin : begin + count].any()
        assert any(low <= begin and begin + count <= high for low, high in parts)
    assert (seen == 1).all()
    assert sum(plan.exact_counts) == plan.exact[:, 1].sum()
    assert plan.parts[0][0] == 0
    assert all(end == begin for (_, end), (begin, _) in zip(plan.parts, plan.parts[1:], strict=False))
    assert sum(plan.part_stream(rank).numel for rank in range(size)) == plan.stream.numel
    if scattered:
        for rank, (low, high) in enumerate(parts):
            assert all(low <= begin < high for begin, _, _ in plan.part_runs(rank).tolist())
    else:
        widths = [end - begin for begin, end in plan.parts]
        assert max(widths) - min(widths) <= 1


def test_importance_follows_the_scales_of_a_block() -> None:
    kind = codec.CODECS["int4"]
    values = torch.ones(64 * 40)
    values[64 * 4 : 64 * 8] = 16.0  # the second block of four groups
    values[64 * 12 : 64 * 16] = 0.0
    values[64 * 20] = torch.nan
    coded = codec.encode(values, "int4")
    parts, block_bytes = [(0, 24), (24, 40)], [4 * kind.group_bytes, 0]
    first, second = importance_by_scales(coded, kind, parts, block_bytes, critical_share=0.0)
    assert second is None  # this rank's own
    assert first is not None
    assert first[5] == CRITICAL  # not finite
    assert first[3] == 0
    # Four steps to a factor of two, of the mean square: eight octaves.
    assert first[1] - first[0] == 32
    assert first[0] == first[2] == first[4]
    shared, _ = importance_by_scales(coded, kind, parts, block_bytes, critical_share=0.2)
    assert shared is not None
    assert np.flatnonzero(shared == CRITICAL).tolist() == [1, 5]


def test_the_last_block_may_be_shorter() -> None:
    marks = np.array([CRITICAL, 3, CRITICAL], np.uint8)
    assert critical_bytes_of(marks, 100, 250) == 150
    assert critical_bytes_of(marks[:2], 100, 150) == 100
