"""Settings of classes: the example file, what a class sees, and what does not go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dispatcher.adapters.config import load
from dispatcher.adapters.kafka.clients import _group_properties
from dispatcher.adapters.kafka.topic_plan import plans
from dispatcher.client.classes import of_class
from dispatcher.errors import ConfigError
from dispatcher.settings import Settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "classes.toml"
NAMES = ("generation", "analysis", "monitoring")


def made(**sections: Any) -> Settings:
    """Settings with two classes."""
    return Settings.model_validate({"classes": {"fast": {}, "slow": {"weight": 0.5}}} | sections)


def test_the_example_is_what_the_seeds_have() -> None:
    """Three classes, 3 : 2 : 1, and as many calls at once."""
    settings = load(file=EXAMPLE, flags={}, properties=(), environ={})
    assert {name: (of.weight, of.concurrency) for name, of in settings.classes.items()} == dict(
        zip(NAMES, ((3, 3), (2, 2), (1, 1)), strict=True)
    )
    assert tuple(f"dispatcher.requests.{name}" for name in NAMES) == settings.request_topics


def test_a_class_sees_its_own_requests_and_all_the_rest() -> None:
    """So whoever is about one class needs to know nothing of the others."""
    settings = made()
    slow = of_class(settings, "slow")
    assert ("dispatcher.requests.slow", "slow") == (slow.topics.requests, slow.topics.kind)
    assert settings.topics.replies == slow.topics.replies
    assert ((slow,), settings.request_topics) == (slow.meant, slow.request_topics)
    assert slow is of_class(slow, None)
    assert [view.topics.requests for view in settings.views] == list(settings.request_topics)


def test_without_classes_all_is_as_it_was() -> None:
    """One request topic, and nothing to be said."""
    settings = Settings()
    assert (("dispatcher.requests",), (settings,)) == (settings.request_topics, settings.views)
    assert settings is of_class(settings, None)
    assert "" == settings.topics.kind


def test_each_class_has_its_topic_and_the_common_one_is_not_made() -> None:
    """Nobody would read it."""
    planned = plans(made())
    assert planned["dispatcher.requests.fast"] == planned["dispatcher.requests.slow"]
    assert "dispatcher.requests" not in planned


@pytest.mark.parametrize(("name", "words"), [(None, "fast, slow"), ("quick", "no class 'quick'")])
def test_which_class_is_meant_has_to_be_said(name: str | None, words: str) -> None:
    """No command and no client takes one for all, or another for the one."""
    with pytest.raises(ConfigError, match=words):
        of_class(made(), name)
    with pytest.raises(ConfigError, match=r"no \[classes\]"):
        of_class(Settings(), "fast")


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"worker": {"protocol": "cooperative"}}, "different workers|several workers"),
        ({"classes": {"Loud": {}}}, "classes"),
        ({"classes": {"fast": {"weight": 0}}}, "weight"),
    ],
)
def test_what_cannot_be_kept_is_refused(sections: dict[str, Any], words: str) -> None:
    """By name, with what to change."""
    with pytest.raises(ValidationError, match=words):
        made(**sections)


def test_partitions_of_one_number_go_to_one_worker() -> None:
    """The broker's range assignor under KIP-848; the classic one is so anyway."""
    assert {"group.protocol": "consumer", "group.remote.assignor": "range"} == _group_properties("consumer", has_siblings=True)
    assert {"group.protocol": "consumer"} == _group_properties("consumer", has_siblings=False)
    assert "range" == _group_properties("eager", has_siblings=True)["partition.assignment.strategy"]
