"""Announcements survive the way, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp import _native
from dlcp.transport.hub.announcement import NBYTES, Announcement, AnnouncementKind
from dlcp.transport.hub.coded import CodedTerms
from dlcp.transport.hub.rule import OptimizerRule

NUMBERS = st.integers(0, 2**31 - 1)
FLOATS = st.floats(allow_nan=False)
RULES = st.builds(OptimizerRule, st.integers(1, 255), st.integers(0, 255), st.tuples(*[FLOATS] * 5))
COUNTS = (
    *(st.integers(0, 2**63), st.integers(1, 2**63), st.integers(0, 2**28 - 1)),
    *(st.integers(0, 2**20), st.integers(0, 6)),
)
ARITHMETIC = (st.sampled_from(list(_native.DataType)), st.sampled_from(list(_native.ReduceOp)))
PLAIN = st.builds(
    Announcement,
    *COUNTS,
    *ARITHMETIC,
    st.just(AnnouncementKind.ALL_REDUCE),
    st.just(0),
    st.just(0),
    st.none(),
    st.just(0),
    st.none(),
    st.just(0),
)
WITH_RULE = st.builds(
    Announcement,
    *COUNTS,
    *ARITHMETIC,
    st.sampled_from([AnnouncementKind.LOAD, AnnouncementKind.STEP]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**63),
    RULES,
    st.integers(0, 3),
    st.none(),
    st.just(0),
)
TERMS = st.builds(
    CodedTerms,
    *(st.sampled_from(list(_native.Codec)), NUMBERS, st.integers(0, 2)),
    st.floats(allow_nan=False, width=32),
)
CODED = st.builds(
    lambda said, kind, terms: said._replace(kind=kind, coded=terms),
    PLAIN,
    st.sampled_from([AnnouncementKind.CODED, AnnouncementKind.CODED_REDUCE_SCATTER]),
    TERMS,
)
DUE = st.builds(lambda said, due: said._replace(deadline_us=due), PLAIN, st.integers(1, 2**32 - 1))
FORGET = st.builds(Announcement.to_forget, st.integers(1, 2**31 - 1))


@settings(max_examples=50)
@given(PLAIN | WITH_RULE | CODED | FORGET | DUE)
def test_it_is_read_as_it_was_written(said: Announcement) -> None:
    content = said.pack()
    assert len(content) == NBYTES
    assert Announcement.read(content) == said


@settings(max_examples=20)
@given(PLAIN, st.sampled_from([24, 25, 26, 27]))
def test_unknown_numbers_are_refused(said: Announcement, place: int) -> None:
    """Of type, reduction, kind and class."""
    content = bytearray(said.pack())
    content[place] = 99
    with pytest.raises(ValueError, match="99"):
        Announcement.read(bytes(content))


@settings(max_examples=20)
@given(CODED, st.sampled_from([40, 41]))
def test_unknown_codecs_and_arrays_are_refused(said: Announcement, place: int) -> None:
    content = bytearray(said.pack())
    content[place] = 99
    with pytest.raises(ValueError, match="99"):
        Announcement.read(bytes(content))


@given(PLAIN | CODED, FORGET)
def test_of_bytes_only_what_forgets_has_none(said: Announcement, forget: Announcement) -> None:
    for wrong in (said._replace(nbytes=0), forget._replace(nbytes=8)):
        with pytest.raises(ValueError, match=f"kind {int(wrong.kind)}, .* {wrong.nbytes} bytes"):
            Announcement.read(wrong.pack())


@given(WITH_RULE | CODED | FORGET)
def test_nothing_else_has_a_deadline(said: Announcement) -> None:
    with pytest.raises(ValueError, match=f"{said.kind.name} with a deadline"):
        Announcement.read(said._replace(deadline_us=1).pack())


def test_a_step_without_a_rule_is_refused() -> None:
    said = Announcement(1, 4, 0, 0, 0, _native.DataType.f32, _native.ReduceOp.sum, AnnouncementKind.STEP)
    with pytest.raises(ValueError, match="STEP without a rule"):
        Announcement.read(said.pack())


@pytest.mark.parametrize(
    "rule", [OptimizerRule.sgd(0.1, momentum=0.9, nesterov=True), OptimizerRule.adam(0.1, amsgrad=True)]
)
def test_rules_are_native_ones(rule: OptimizerRule) -> None:
    rule.native()
    assert rule.states == (1 if rule.optimizer == 1 else 3)


@pytest.mark.parametrize(
    "rule", [OptimizerRule(9, 0, (0.0,) * 5), OptimizerRule.sgd(-1.0), OptimizerRule.adam(0.1, beta1=1.0)]
)
def test_impossible_rules_are_refused(rule: OptimizerRule) -> None:
    with pytest.raises(ValueError, match="unknown|accepted"):
        rule.native()
