"""The settings in force, for a person to look at: every name, its value or a mask, and where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import SecretStr

from dispatcher.adapters.config.schema import PROPERTIES, Path, dotted
from dispatcher.core.redaction import MASK
from dispatcher.librdkafka import is_plain_property
from dispatcher.settings import Section

if TYPE_CHECKING:
    from dispatcher.adapters.config import Loaded


class Shown(NamedTuple):
    """One setting: `table` and `name` place it in TOML, `value` is None, text, number, truth or a list of texts."""

    table: Path
    name: str
    value: Any
    source: str

    @property
    def dotted(self) -> str:
        """Its name as `--json` has it."""
        return dotted((*self.table, self.name))


def describe(loaded: Loaded) -> list[Shown]:
    """List the settings in force in the order of the model. A secret is shown as `***` and nothing else."""
    return list(_leaves(loaded.settings, (), loaded))


def _leaves(value: Any, at: Path, loaded: Loaded) -> Iterator[Shown]:  # noqa: ANN401 - settings hold anything
    """Walk down to the values."""
    if isinstance(value, Section):
        for name in type(value).model_fields:
            yield from _leaves(getattr(value, name), (*at, name), loaded)
    elif isinstance(value, dict):
        for name, below in value.items():
            yield from _leaves(below, (*at, name), loaded)
    else:
        table = ("kafka",) if at[:2] == PROPERTIES else at[:-1]
        yield Shown(table, at[-1], _masked(value, at), loaded.sources.get(at, "default"))


def _masked(value: Any, at: Path) -> Any:  # noqa: ANN401 - as above
    """Mask a secret; Kafka properties that are known to hold none are shown."""
    if isinstance(value, SecretStr):
        return value.get_secret_value() if at[:2] == PROPERTIES and is_plain_property(at[-1]) else MASK
    if isinstance(value, Decimal):
        return float(value)  # to be read by people: TOML and JSON have no other number
    return list(value) if isinstance(value, tuple) else value
