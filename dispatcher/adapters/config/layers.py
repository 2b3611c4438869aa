"""The sources of settings, each read into the same form: which path has which value, and where it was said.

A layer's values have the types of TOML; text from the environment and from flags is read by the kind of its setting. A value that is
wrong is never repeated, since it may be a secret that stands in the wrong place.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple, get_origin

from pydantic import SecretStr

from dispatcher.adapters.config.schema import (
    BOOTSTRAP,
    Path,
    annotation_at,
    did_you_mean,
    dotted,
    fields,
    is_table,
    kind,
    property_path,
    row_model,
)
from dispatcher.errors import ConfigError
from dispatcher.settings import Section, Settings

PREFIX = "DISPATCHER_"
# Kubernetes sets such variables in every pod for each Service; one named "dispatcher…" must not stop the worker.
_SERVICE_LINK = re.compile(
    r"DISPATCHER(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9]+)*|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII
)
_SERVICE_PORT = re.compile(r"DISPATCHER(_[A-Z0-9]+)*_PORT=(tcp|udp|sctp)://.*", re.ASCII)
# librdkafka properties that end in `.file` by themselves: their variable is not "read the secret from this file".
_OWN_FILE = frozenset(
    {"sasl_oauthbearer_assertion_file", "sasl_oauthbearer_assertion_jwt_template_file", "sasl_oauthbearer_assertion_private_key_file"}
)
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


class Given(NamedTuple):
    """One value that was given, and where."""

    value: Any
    source: str

    def __repr__(self) -> str:
        return f"Given(source={self.source!r})"


Layer = dict[Path, Given]


def from_file(path: FilePath | None) -> Layer:
    """Read a TOML file; an empty layer without one."""
    if path is None:
        return {}
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise ConfigError(f"the configuration file {path} does not exist", "give another one with --config") from None
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the configuration file {path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"the configuration file {path} is not valid TOML: {error}", "text needs quotes, tables need [brackets]"
        ) from None
    layer: Layer = {}
    _read_table(Settings, data, (), str(path), layer)
    return layer


def _read_table(model: type[Section], table: Any, at: Path, source: str, layer: Layer) -> None:  # noqa: ANN401 - TOML holds anything
    """Take a table's values one by one; a name that does not exist is an error with its full name."""
    if not isinstance(table, dict):
        raise ConfigError(f"{dotted(at)} must be a table (from {source})", f"write [{dotted(at)}] and its settings below")
    known = fields(model)
    for name, value in table.items():
        here = (*at, name)
        if at == ("kafka",) and here != BOOTSTRAP:
            _read_property(name, value, source, layer)
            continue
        if name not in known:
            raise ConfigError(f"{dotted(here)} does not exist (from {source})", did_you_mean(name, known))
        rows = row_model(known[name])
        if rows is not None:
            _read_rows(rows, value, here, source, layer)
        elif is_table(known[name]):
            _read_table(known[name], value, here, source, layer)
        else:
            layer[here] = Given(tuple(value) if isinstance(value, list) else value, source)


def _read_rows(model: type[Section], table: Any, at: Path, source: str, layer: Layer) -> None:  # noqa: ANN401 - as above
    """Take the tables by alias. An empty one stays, so that what it lacks is said."""
    if not isinstance(table, dict):
        raise ConfigError(f"{dotted(at)} must be a table (from {source})", f"write [{dotted(at)}.NAME] and its settings below")
    for alias, row in table.items():
        layer[(*at, alias)] = Given({}, source)
        _read_table(model, row, (*at, alias), source, layer)


def _read_property(name: str, value: Any, source: str, layer: Layer) -> None:  # noqa: ANN401 - as above
    """Take a librdkafka property from `[kafka]`."""
    if isinstance(value, dict) and name != "properties":
        full = _first_leaf(name, value)
        raise ConfigError(
            f"kafka.{full} is a table (from {source}): TOML reads an unquoted dotted name as one",
            f'write {full.replace(".", "_")} = … or "{full}" = … under [kafka]',
        )
    path = property_path(name, f"from {source}")
    if path in layer:
        raise ConfigError(f"{dotted(path)} is given twice (from {source})", "once with dots and once with underscores: keep one")
    layer[path] = Given(_property_text(value, path, source), source)


def _first_leaf(name: str, value: Any) -> str:  # noqa: ANN401 - as above
    """Rebuild the dotted name that a nested table stands for."""
    while isinstance(value, dict) and value:
        below, value = next(iter(value.items()))
        name = f"{name}.{below}"
    return name


def _property_text(value: Any, path: Path, source: str) -> str:  # noqa: ANN401 - as above
    """Write a property's value as librdkafka reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{dotted(path)} must be text, a number, or true or false (from {source})")


def from_environment(environ: Mapping[str, str], aliases: Sequence[Path]) -> Layer:
    """Read the variables; an empty one counts as not set, and one that names no setting is an error.

    `aliases` are the rows that the file has: a shell cannot export `…__team-a__…`, so TEAM_A finds team-a.
    """
    layer: Layer = {}
    for variable in sorted(environ):
        text = environ[variable]
        if not variable.startswith(PREFIX) or _is_service_link(variable, text):
            continue
        path, from_a_file = _variable_path(variable, aliases)
        if not text:
            continue
        if path in layer:
            raise ConfigError(f"{dotted(path)} is given twice (from the variables {variable} and {layer[path].source})", "keep one")
        if from_a_file:
            layer[path] = Given(read_secret_file(FilePath(text), dotted(path), f"the file named in the variable {variable}"), variable)
        else:
            layer[path] = Given(from_text(text, path, f"the variable {variable}"), variable)
    return layer


def _is_service_link(variable: str, text: str) -> bool:
    """Tell what Kubernetes set by itself. `…_PORT` counts only with its URL: alone it may be a mistyped setting."""
    return bool(_SERVICE_LINK.fullmatch(variable) or _SERVICE_PORT.fullmatch(f"{variable}={text}"))


def _variable_path(variable: str, aliases: Sequence[Path]) -> tuple[Path, bool]:
    """Find the setting of a variable, and whether the variable names a file that holds it."""
    section, *rest = variable.removeprefix(PREFIX).split("__")
    sections = fields(Settings)
    table = sections.get(section.lower())
    if table is None or not all(rest) or not rest:
        raise _unknown_variable(variable, section, rest)
    at: Path = (section.lower(),)
    rows = row_model(table)
    if rows is not None:
        if len(rest) == 1:
            raise _unknown_variable(variable, section, rest)
        at, rest, table = (*at, _alias(at[0], "__".join(rest[:-1]), aliases)), rest[-1:], rows
    if len(rest) != 1:
        raise _unknown_variable(variable, section, rest)
    return _variable_field(variable, table, at, rest[0].lower())


def _variable_field(variable: str, table: type[Section], at: Path, name: str) -> tuple[Path, bool]:
    """Find the last part of a variable's name in its table; `…_FILE` of a secret is the file that holds it."""
    known = fields(table)
    without_file = name.removesuffix("_file")
    where = f"from the variable {variable}"
    if at == ("kafka",):
        if name == "bootstrap_servers":
            return BOOTSTRAP, False
        if name != without_file and name not in _OWN_FILE and without_file != "bootstrap_servers":
            return property_path(without_file, where), True
        return property_path(name, where), False
    if name in known:
        return (*at, name), False
    if name != without_file and known.get(without_file) is SecretStr:
        return (*at, without_file), True
    close = did_you_mean(name, known)
    start = variable[: len(variable) - len(name)]
    raise ConfigError(f"the variable {variable} names no setting ({dotted((*at, name))})", _as_variable(close, start))


def _as_variable(hint: str, start: str) -> str:
    """Turn "did you mean slot?" into the variable's whole name."""
    name = hint.removeprefix("did you mean ").removesuffix("?")
    return f"did you mean {start}{name.upper()}?" if name else ""


def _unknown_variable(variable: str, section: str, rest: list[str]) -> ConfigError:
    """Word the error for a variable whose first part is wrong, or which has too few parts or too many."""
    sections = fields(Settings)
    names = [
        f"{one}__{name}".upper()
        for one, table in sections.items()
        for name in (fields(table) if is_table(table) else ())
        if name != "properties"
    ]
    hint = _as_variable(did_you_mean(variable.removeprefix(PREFIX), names), PREFIX)
    if rest and section.lower() not in sections:
        close = _as_variable(did_you_mean(section.lower(), sections), PREFIX).removesuffix("?")
        hint = "__".join([close, *rest]) + "?" if close else hint
    return ConfigError(f"the variable {variable} names no setting", hint or f"settings are {PREFIX}SECTION__NAME, with two underscores")


def _alias(section: str, written: str, aliases: Sequence[Path]) -> str:
    """Find the alias that a variable means: as written, else the file's that differs in case and - . _ only, else in lower case."""
    known = [path[1] for path in aliases if path[0] == section]
    if written in known:
        return written
    alike = [alias for alias in known if re.sub(r"[-.]", "_", alias).upper() == written.upper()]
    if len(alike) == 1:
        return alike[0]
    return written.lower() if written.isupper() else written


def from_text(text: str, path: Path, source: str) -> Any:  # noqa: ANN401 - the setting decides
    """Read text as the kind of value that a setting takes; the value itself is checked later, with all others."""
    annotation = annotation_at(path)
    if get_origin(annotation) is tuple:
        return _list(text, path, source)
    if annotation is bool and text.strip().lower() in _TRUE | _FALSE:
        return text.strip().lower() in _TRUE
    if annotation in {int, float}:
        try:
            return annotation(text)
        except ValueError:
            pass
    elif annotation is not bool:
        return text
    raise ConfigError(f"{dotted(path)} must be {kind(annotation)} (from {source})")


def _list(text: str, path: Path, source: str) -> tuple[Any, ...]:
    """Read `GET,POST` or `["GET", "POST"]`."""
    if not text.lstrip().startswith("["):
        return tuple(item.strip() for item in text.split(",") if item.strip())
    try:
        return tuple(json.loads(text))
    except ValueError:
        raise ConfigError(f'{dotted(path)} must be a list such as ["a", "b"] or a,b (from {source})') from None


def from_properties(properties: Sequence[str]) -> Layer:
    """Read `-X NAME=VALUE`; of two with the same name the last one counts, as with every flag."""
    layer: Layer = {}
    for text in properties:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigError("-X needs NAME=VALUE", "for example: -X security.protocol=SASL_SSL")
        layer[property_path(name.strip(), "from -X")] = Given(value, "-X")
    return layer


def from_flags(flags: Mapping[str, Any]) -> Layer:
    """Read what a command's own options set, by dotted name; text is read as from the environment."""
    layer: Layer = {}
    for name, value in flags.items():
        path = _dotted_path(name)
        layer[path] = Given(from_text(value, path, "a flag") if isinstance(value, str) else value, "flag")
    return layer


def _dotted_path(name: str) -> Path:
    """Take a dotted name apart; an alias may hold dots itself."""
    section, _, rest = name.partition(".")
    if section == "kafka":
        return property_path(rest, "from a flag")
    if row_model(fields(Settings).get(section)) is not None:
        alias, _, last = rest.rpartition(".")
        return (section, alias, last)
    return (section, rest)


def read_secret_file(path: FilePath, what: str, where: str) -> str:
    """Read a secret from a file; one line end at its end belongs to the file, not to the secret.

    `where` names the file in a ConfigError: its own name may be a secret that was put in the wrong place.
    """
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{what}: {where} is not UTF-8 text", "it holds the secret alone, as text") from None
    except (FileNotFoundError, ValueError):
        raise ConfigError(f"{what}: {where} does not exist", "it holds the secret alone; a relative path begins where one starts") from None
    except OSError as error:
        raise ConfigError(f"{what}: {where} cannot be read: {error.strerror}", "the user who starts this must be able to read it") from None
    return text.removesuffix("\n").removesuffix("\r")
