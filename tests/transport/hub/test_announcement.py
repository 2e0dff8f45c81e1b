"""Announcements survive the way, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp import _native
from dlcp.transport.hub.announcement import NBYTES, Announcement

ANNOUNCEMENTS = st.builds(
    Announcement,
    st.integers(0, 2**63),
    st.integers(1, 2**63),
    st.integers(0, 2**28 - 1),
    st.integers(0, 2**20),
    st.integers(0, 6),
    st.sampled_from(list(_native.DataType)),
    st.sampled_from(list(_native.ReduceOp)),
)


@given(ANNOUNCEMENTS)
def test_it_is_read_as_it_was_written(said: Announcement) -> None:
    content = said.pack()
    assert len(content) == NBYTES
    assert Announcement.read(content) == said


@given(ANNOUNCEMENTS, st.sampled_from([24, 25, 26, 27]))
def test_unknown_numbers_are_refused(said: Announcement, place: int) -> None:
    """Of type, reduction, kind and class."""
    content = bytearray(said.pack())
    content[place] = 99
    with pytest.raises(ValueError, match="99"):
        Announcement.read(bytes(content))
