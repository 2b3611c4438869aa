"""Members of a JSON object as written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.members import members

SPACES = st.text(" \t\n\r", max_size=3)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data(), st.lists(st.tuples(st.text(max_size=5), VALUES), max_size=5))
def test_each_member_is_its_own_text(data: st.DataObject, pairs: list[tuple[str, Any]]) -> None:
    """Whatever stands around a value, and in it, its text comes out as it went in; the last of one name counts."""
    parts, expected = [], {}
    for name, value in pairs:
        spaces = [data.draw(SPACES) for _ in range(4)]
        text = json.dumps(value, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.none() | st.just(1)))
        parts.append(f"{spaces[0]}{json.dumps(name)}{spaces[1]}:{spaces[2]}{text}{spaces[3]}")
        expected[name] = text
    assert expected == members(f"{data.draw(SPACES)}{{{data.draw(SPACES) if not parts else ''}{','.join(parts)}}}{data.draw(SPACES)}")


@pytest.mark.parametrize("text", ['{"a":NaN}', '{"a":Infinity}', '{"a":' + "9" * 10_000 + "}"])
def test_numbers_are_skipped_not_read(text: str) -> None:
    """No number is converted, so none is too long."""
    assert text[5:-1] == members(text)["a"]
