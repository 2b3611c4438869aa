"""Pydantic's findings as one sentence each: the setting, what it must be, where the value came from, and never the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from dispatcher.adapters.config.schema import Path, annotation_at, dotted, kind
from dispatcher.errors import ConfigError

_MODEL = "a model's name: 1 to 100 letters, digits or . _ : / @ + -, the first one a letter or digit"
# What a pattern of the settings asks for, by the last name of the setting; a regular expression is not a sentence.
_SHAPES = {
    "base_url": "a URL that begins with http:// or https://, without user, query and fragment",
    "provider": "a provider's id as genai-prices has it, such as openai",
    "reference_model": _MODEL,
    "model": _MODEL,
    "header": "a header's name: letters, digits and -",
    "prefix": "1 to 100 letters, digits, dots, - or _",
    "slot": "1 to 150 letters, digits, dots, - or _",
}
_ALIAS = "an alias: 1 to 64 letters, digits, dots, - or _, the first one a letter or digit"
# The same of what stands in lists that are not of aliases, by the list's name; and of the names of tables.
_WHOSE = "a name, or a beginning of names and a *"
_ITEMS = {"keys": _WHOSE, "credentials": _WHOSE, "agents": _WHOSE}
_NAMES = {
    "models": _MODEL,
    "agents": "1 to 200 characters long",
    "classes": "1 to 32 small letters, digits, - or _, the first one a letter or digit",
}
_LIMITS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def config_error(failure: ValidationError, sources: Mapping[Path, str]) -> ConfigError:
    """Word the first finding. Pydantic's own text is not used: it repeats what it was given."""
    finding = failure.errors(include_url=False, include_input=False)[0]
    path = tuple(map(str, finding["loc"]))
    kind_of = finding["type"]
    context: Mapping[str, Any] = finding.get("ctx", {})
    if kind_of == "value_error":  # a sentence of the settings
        name = dotted(path)
        return ConfigError(f"{name}: {context['error']}" if name else str(context["error"]))
    if path[-1] == "[key]":
        return ConfigError(f"each name under {path[0]} must be {_NAMES.get(path[0], _ALIAS)}{_origin(path[:-1], sources)}")
    if kind_of == "extra_forbidden":  # only a program's own flags come here: other sources are checked name by name
        return ConfigError(f"{dotted(path)} does not exist{_origin(path, sources)}")
    if kind_of == "missing":
        return ConfigError(f"{dotted(path)} is missing{_origin(path[:-1], sources)}", f"write {path[-1]} = … under [{dotted(path[:-1])}]")
    return ConfigError(f"{dotted(path)} must be {_must(kind_of, path, context)}{_origin(path, sources)}", _example(path))


def _example(path: Path) -> str:
    """Show one value that would do, where the settings list them; nothing else can be made up."""
    annotation = annotation_at(path)
    return f'for example {dotted(path)} = "{get_args(annotation)[0]}"' if get_origin(annotation) is Literal else ""


def _must(kind_of: str, path: Path, context: Mapping[str, Any]) -> str:
    """Say what a setting must be, for one kind of finding."""
    if kind_of in _LIMITS:
        words, key = _LIMITS[kind_of]
        return f"{words} {context[key]:g}"
    item = path[-1].isdigit()
    if kind_of == "string_pattern_mismatch":
        return (_ITEMS.get(path[-2], _ALIAS) if path[0] == "budgets" else _ALIAS) if item else _SHAPES.get(path[-1], "spelt differently")
    if kind_of == "string_too_short":
        return "at least one character long" if context["min_length"] == 1 else f"at least {context['min_length']} characters long"
    if kind_of == "string_too_long":
        return f"at most {context['max_length']} characters long"
    if kind_of == "finite_number":
        return "a finite number"
    return "text" if item else kind(annotation_at(path))


def _origin(path: Path, sources: Mapping[Path, str]) -> str:
    """Say where a value came from; of a list's item where the list came from."""
    for length in range(len(path), 0, -1):
        source = sources.get(path[:length])
        if source is not None:
            return f" ({said(source)})"
    return ""


def said(source: str) -> str:
    """Word a source for the end of a sentence."""
    words = {"-X": "from -X", "flag": "from a flag"}
    return words.get(source) or (f"from the variable {source}" if source.startswith("DISPATCHER_") else f"from {source}")
