"""Keys and values written as TOML are read back as they were."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.errors import ArgumentError
from dlcp.toml_text import toml_key, toml_value

TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(TEXTS, VALUES)
def test_written_and_read_back(key: str, value: object) -> None:
    assert tomllib.loads(f"{toml_key(key)} = {toml_value(value)}\n") == {key: value}


def test_what_toml_does_not_have_is_refused() -> None:
    with pytest.raises(ArgumentError, match="None has no form in TOML"):
        toml_value(None)
