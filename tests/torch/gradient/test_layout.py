"""Layouts: which parameter lies where in a buffer."""

from __future__ import annotations

import pytest

from dlcp.torch.gradient.layout import Layout, Segment


def test_whole_parameters_lie_one_after_the_other() -> None:
    layout = Layout.of([("a", 3), ("b", 5)])
    assert layout.segments == (Segment("a", 0, 0, 3), Segment("b", 0, 3, 5))
    assert layout.numel == 8


@pytest.mark.parametrize(
    "segments",
    [
        (Segment("a", 0, 0, 9),),
        (Segment("a", 0, 0, 4), Segment("b", 0, 3, 2)),
        (Segment("a", 0, 4, 2), Segment("b", 0, 0, 2)),
        (Segment("a", 0, 2, -1),),
    ],
)
def test_segments_are_in_order_apart_and_inside(segments: tuple[Segment, ...]) -> None:
    with pytest.raises(ValueError, match="does not fit: accepted"):
        Layout(segments, 8)


def test_pieces_are_cut_and_leave_padding_out() -> None:
    layout = Layout((Segment("a", 10, 2, 4), Segment("b", 0, 8, 0), Segment("c", 0, 8, 4)), 14)
    pieces = [(piece.segment.name, piece.begin, piece.end, piece.offset) for piece in layout.pieces(3, 10)]
    assert pieces == [("a", 3, 6, 11), ("c", 8, 10, 0)]
    assert list(layout.pieces(12, 14)) == []


def test_a_name_with_several_segments_counts_once() -> None:
    layout = Layout((Segment("b", 0, 0, 2), Segment("a", 0, 2, 2), Segment("b", 2, 4, 2)), 6)
    assert layout.names() == ("b", "a")
    assert layout.place == ("b", 0, 6)
    assert Layout((), 6).place == ("", 0, 6)
