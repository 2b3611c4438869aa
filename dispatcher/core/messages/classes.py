"""The classes that requests have, and what a request may say of its own: each class has a request topic of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from dispatcher.core.messages.envelope import Refusal
from dispatcher.core.messages.status import Reason
from dispatcher.errors import ConfigError
from dispatcher.settings import Settings

# In place of a topic's id, of the topics of all classes.
OF_CLASSES = "classes"
# Of the names that are told of those that there are.
_SHOWN_MAX = 150


@dataclass(frozen=True, slots=True)
class Classes:
    """`topics`: the request topic of each class; empty where there are none. `own`: the one that is meant where nothing is said, if any."""

    topics: Mapping[str, str] = field(default_factory=dict)
    own: str = ""

    def fault(self, said: str | None) -> Refusal | None:
        """Why a record of the own class's topic may not say this of its class."""
        if said is None or (said == self.own and said in self.topics):
            return None
        if not self.topics:
            return Refusal(Reason.UNSUPPORTED_FIELD, "field class: there are no [classes] in the workers' settings: leave the field out")
        if said not in self.topics:
            return Refusal(Reason.MALFORMED, f"field class names none that there is: {self._known()}")  # a value is not repeated
        text = f"field class says {said}, and the record is in the topic of class {self.own}"
        return Refusal(Reason.MALFORMED, f"{text}: write it to <prefix>.requests.{said}, or leave the field out")

    def topic_of(self, said: str | None) -> str | None:
        """The topic of a request that says this of its class, if that is known; None where there are no classes. Raises ConfigError."""
        if not self.topics:
            if said is not None:
                raise ConfigError("field class: there are no [classes] in the settings", "leave it out, or give these the workers' classes")
            return None
        name = self.own if said is None else said
        if not name:
            hint = 'say which: --class NAME, class_=NAME, or the field "class"'
            raise ConfigError(f"a request is of one class, {self._known()}", hint)
        if name not in self.topics:
            raise ConfigError(f"there is no class {name[:64]!a}", self._known())
        return self.topics[name]

    def topic_of_copy(self, value: bytes | None, topic: object) -> str | None:
        """The topic for a copy of a record that stood in `topic`: of the class that it says, else of the own one, else the same.

        None where there are no classes. ConfigError where nothing of that says one.
        """
        try:
            fields = json.loads(value or b"") if self.topics else None
        except (ValueError, RecursionError):
            fields = None
        said = fields.get("class") if isinstance(fields, dict) else None
        if isinstance(said, str) and said in self.topics:
            return self.topics[said]
        return topic if not self.own and isinstance(topic, str) and topic in self.topics.values() else self.topic_of(None)

    def _known(self) -> str:
        return f"there are {', '.join(self.topics)}"[:_SHOWN_MAX]


def classes_of(settings: Settings) -> Classes:
    """Those of these settings, which may be those of one class."""
    return Classes({name: settings.topics.requests_of(name) for name in settings.kinds}, settings.topics.kind)


def book_of(topic_id_text: str, *, has_classes: bool) -> str:
    """The id under which accounts of a request topic's keys stand: its own; where there are classes one for the topics of all.

    Which of them were there first, or come and go, does not matter then: what a key has spent it has spent.
    """
    return OF_CLASSES if has_classes else topic_id_text
