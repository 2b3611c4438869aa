"""A missing tool of another language skips a test; on CI it fails."""

from __future__ import annotations

import pytest

from tests.toolchains import tool

MISSING = "no-program-of-this-name"


def test_a_missing_tool_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reason that names it."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=MISSING):
        tool(MISSING)


def test_a_missing_tool_fails_on_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI has them, so a skip there would hide that something broke; but for what may be missing there, too."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=MISSING):
        tool(MISSING)
    with pytest.raises(pytest.skip.Exception, match=MISSING):
        tool(MISSING, always=False)
