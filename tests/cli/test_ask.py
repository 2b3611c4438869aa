"""`ask` and `wait` before they ask Kafka anything."""

from __future__ import annotations

import pytest

from dispatcher.cli import main

CALL = ("-k", "doc:1", "-u", "sample")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ask", "-k", "doc:1", "/x"), "ask needs -k KEY, -u UPSTREAM and PATH"),
        (("ask", *CALL, "/x", "-d", "{"), "the body is not JSON"),
        (("ask", *CALL, "//x"), "path is not a relative path"),
        (("ask", *CALL, "/x", "--timeout", "soon"), "--timeout"),
        (("wait", "a b"), "not the id of a request"),
        (("wait", "{}"), "not a receipt"),
        (("wait", "{"), "not a receipt"),
        (("wait", "@missing.json"), "cannot read missing.json"),
        (("show", "a b"), "not the id of a request"),
    ],
)
def test_what_cannot_be_meant_is_exit_code_2(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    """Row 2: wrong usage is told without a broker, and nothing is on stdout."""
    assert 2 == main([*arguments, "-b", "127.0.0.1:1"])
    printed = capfd.readouterr()
    assert "" == printed.out
    assert said in printed.err
