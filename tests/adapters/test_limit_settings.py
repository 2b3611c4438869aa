"""Limits in a configuration: the example, and what a limit must say."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.adapters.config import load
from dispatcher.errors import ConfigError
from dispatcher.settings import MARGIN_MIN_S, LimitSettings, Settings

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "limits.toml"


def loaded(path: Path, **environ: str) -> Settings:
    """The settings of a file and of variables."""
    return load(file=path, flags={}, properties=[], environ=environ)


def test_nothing_is_limited_by_default() -> None:
    """Not even where upstreams are configured."""
    assert {} == Settings().limits
    assert {} == loaded(ROOT / "examples" / "compose.toml").limits


def test_the_example_is_one() -> None:
    """Ten at once and fifty in a second of a key; a variable covers one of its values."""
    limits = loaded(EXAMPLE, DISPATCHER_LIMITS__TEAM_A__REQUESTS="40").limits
    assert LimitSettings(credential="team-a", concurrency=10, requests=40, window_s=1) == limits["team-a"]
    assert (300_000, "bucket") == (limits["gpt-4-1"].tokens, limits["openai"].counting)
    assert LimitSettings(credential="team-a", concurrency=10, requests=50, window_s=1) == loaded(EXAMPLE).limits["team-a"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("requests = 5\nwindow_s = 1\n", "limits.l: says nothing of whose limit it is: name a credential, an upstream or a model"),
        ('model = "m"\n', "limits.l: limits nothing: give concurrency, requests or tokens"),
        ('model = "m"\nrequests = 5\n', "limits.l: requests and tokens need window_s: so many in so many seconds"),
        ('model = "m"\ntokens = 5\n', "limits.l: requests and tokens need window_s"),
        ('model = "m"\nconcurrency = 5\nwindow_s = 1\n', "limits.l: window_s needs requests or tokens"),
        ('model = "m"\nconcurrency = 0\n', "limits.l.concurrency must be at least 1"),
        ('model = "m"\ntokens = 99999999999999999999\nwindow_s = 1\n', "limits.l.tokens must be at most 1e+12"),
        ('model = "m"\nrequests = 5\nwindow_s = 1\ncounting = "fixed"\n', "limits.l.counting must be one of window, bucket"),
        ('credential = "sk-canary-1"\nconcurrency = 5\n', "limits.l.credential is not in [credentials], which has a, b"),
        ('upstream = "sk-canary-1"\nconcurrency = 5\n', "limits.l.upstream is not in [upstreams], which has u"),
        (
            'upstream = "u"\ncredential = "b"\nconcurrency = 5\n',
            "limits.l limits no call: its credential is none of upstreams.u.credentials",
        ),
        ('model = "m"\nconcurency = 5\n', "limits.l.concurency does not exist"),
    ],
)
def test_what_limits_nothing_or_nobody_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    """With one sentence, which never repeats an alias that is none."""
    file = tmp_path / "d.toml"
    rest = '[credentials.a]\nvalue = "x"\n[credentials.b]\nvalue = "y"\n[upstreams.u]\nbase_url = "http://u"\ncredentials = ["a"]\n'
    file.write_text(f"{rest}[limits.l]\n{text}")
    with pytest.raises(ConfigError) as refused:
        loaded(file)
    assert sentence in str(refused.value)
    assert "sk-canary-1" not in str(refused.value)


def test_the_margin_is_a_hundredth_of_the_window_and_never_next_to_nothing() -> None:
    """Unless it is said; of calls that are open at once it is the least."""
    assert 0.6 == LimitSettings(model="m", requests=5, window_s=60).slack_s
    assert MARGIN_MIN_S == LimitSettings(model="m", requests=5, window_s=0.5).slack_s
    assert MARGIN_MIN_S == LimitSettings(model="m", concurrency=5).slack_s
    assert 0 == LimitSettings(model="m", requests=5, window_s=60, margin_s=0).slack_s
