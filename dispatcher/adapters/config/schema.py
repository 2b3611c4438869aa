"""What can be set: the settings model read as names and kinds, so that every source is checked against the same list.

A setting is named by a path: `("worker", "slot")`, `("upstreams", "openai", "methods")`, `("kafka", "properties", "sasl.password")`.
People see it dotted: `worker.slot`, `upstreams.openai.methods`, `kafka.sasl.password`.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr

from dispatcher.errors import ConfigError
from dispatcher.librdkafka import RESERVED_PROPERTIES
from dispatcher.settings import Section, Settings

Path = tuple[str, ...]

PROPERTIES: Path = ("kafka", "properties")
BOOTSTRAP: Path = ("kafka", "bootstrap_servers")
_BOOTSTRAP_NAMES = frozenset({"bootstrap.servers", "metadata.broker.list"})
# Of librdkafka's properties that text can set, the one with an underscore in its own name.
_UNDERSCORED = frozenset({"log_level"})
_PROPERTY_NAME = re.compile(r"[A-Za-z0-9._]+", re.ASCII)
# Reserved properties for which the dispatcher has a setting of its own.
_INSTEAD = {
    "group.id": "worker.group",
    "group.instance.id": "worker.slot",
    "group.protocol": "worker.protocol",
    "group.remote.assignor": "worker.protocol",
    "partition.assignment.strategy": "worker.protocol",
    "transaction.timeout.ms": "worker.transaction_timeout_s",
    "transactional.id": "worker.slot",
}
# Below this likeness (0..1, difflib's own default) a suggestion is noise.
_LIKE = 0.6
# A name this close to bootstrap.servers is a slip of the pen, not a property that we do not know.
_SAME = 0.85


def dotted(path: Iterable[str | int]) -> str:
    """Name a setting as people see it; the Kafka properties stand right under `kafka`."""
    parts = tuple(map(str, path))
    if parts[:2] == PROPERTIES and len(parts) > len(PROPERTIES):
        parts = ("kafka", *parts[2:])
    return ".".join(parts)


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """Word the hint for a name that does not exist."""
    close = difflib.get_close_matches(wrong, list(names), n=1, cutoff=_LIKE)
    return f"did you mean {close[0]}?" if close else ""


def bare(annotation: Any) -> Any:  # noqa: ANN401 - annotations have no common type
    """Strip `Annotated` and `| None` off an annotation."""
    while hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    if get_origin(annotation) in {Union, types.UnionType}:
        return bare(next(a for a in get_args(annotation) if a is not type(None)))
    return annotation


def fields(model: type[Section]) -> dict[str, Any]:
    """List the names of a table with their bare annotations."""
    return {name: bare(info.annotation) for name, info in model.model_fields.items()}


def is_table(annotation: Any) -> bool:  # noqa: ANN401 - as above
    """Tell a table of fixed names."""
    return isinstance(annotation, type) and issubclass(annotation, Section)


def row_model(annotation: Any) -> type[Section] | None:  # noqa: ANN401 - as above
    """Give the model of the rows of a table by alias (`credentials`, `upstreams`); None for everything else."""
    if get_origin(annotation) is dict and is_table(get_args(annotation)[1]):
        model: type[Section] = get_args(annotation)[1]
        return model
    return None


def annotation_at(path: Path) -> Any:  # noqa: ANN401 - as above
    """Give the bare annotation of a setting that exists; a list's item counts as its list."""
    if path[:2] == PROPERTIES:
        return SecretStr
    current: Any = Settings
    for name in path:
        rows = row_model(current)
        if rows is not None:
            current = rows
        elif is_table(current) and name in current.model_fields:
            current = fields(current)[name]
        else:
            break
    return current


def kind(annotation: Any) -> str:  # noqa: ANN401 - as above
    """Say in words what a setting must be."""
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return "a list of texts"
    if is_table(annotation) or get_origin(annotation) is dict:
        return "a table"
    return {bool: "true or false", int: "a whole number", float: "a number", Decimal: "a number"}.get(annotation, "text")


def property_path(name: str, where: str) -> Path:
    """Place a name from `[kafka]`, `-X` or the environment: underscores stand for dots. Raises ConfigError for reserved ones."""
    if not _PROPERTY_NAME.fullmatch(name):  # not repeated: `-X "sasl.password x=y"` has a secret in its name
        raise ConfigError(f"the name of a Kafka property is made of letters, digits, dots and underscores ({where})")
    if name == "properties":
        raise ConfigError(
            f"kafka.properties ({where}) does not exist", "librdkafka's properties stand right under kafka: kafka.sasl_password"
        )
    property_name = name if name in _UNDERSCORED else name.replace("_", ".")
    if property_name in _BOOTSTRAP_NAMES:
        return BOOTSTRAP
    if property_name in RESERVED_PROPERTIES:
        instead = _INSTEAD.get(property_name)
        raise ConfigError(
            f"the Kafka property {property_name} ({where}) carries a guarantee and is set by the dispatcher",
            f"set {instead} instead" if instead else "remove it",
        )
    if difflib.SequenceMatcher(None, property_name, "bootstrap.servers").ratio() > _SAME:
        raise ConfigError(f"kafka.{name} ({where}) does not exist", "did you mean kafka.bootstrap_servers?")
    return (*PROPERTIES, property_name)
