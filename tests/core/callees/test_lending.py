"""What is lent of shared limits, and for how long what a killed worker had of them counts."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.callees.lending import longest_calls_s
from dispatcher.settings import LimitSettings, UpstreamSettings

UPSTREAMS = {
    "fast": UpstreamSettings(base_url="http://f", credentials=("a", "b"), call_timeout_s=20),
    "slow": UpstreamSettings(base_url="http://s", credentials=("b",), call_timeout_s=600),
}


@pytest.mark.parametrize(
    ("of", "longest_s"),
    [
        ({"credential": "a"}, 20),
        ({"credential": "b"}, 600),
        ({"credential": "b", "upstream": "fast"}, 20),
        ({"upstream": "slow"}, 600),
        ({"model": "m"}, 600),
        ({"credential": "c"}, 0),
    ],
)
def test_a_limit_lingers_as_long_as_its_own_calls_may_last(of: dict[str, Any], longest_s: float) -> None:
    """An upstream that takes another credential alone has none of them, however patient it is."""
    assert {"l": longest_s} == longest_calls_s({"l": LimitSettings(concurrency=1, **of)}, UPSTREAMS)
