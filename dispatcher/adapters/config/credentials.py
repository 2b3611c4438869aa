"""Secrets: resolved once for those who send them, listed for those who must keep them out of what is written."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from dispatcher.adapters.config.layers import read_secret_file
from dispatcher.errors import ConfigError
from dispatcher.settings import CredentialSettings, Settings

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def resolve_secrets(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Fetch every credential's secret by its alias, from where its settings say. Raises ConfigError that names the alias."""
    return {alias: _checked(alias, _fetch(alias, given, environ)) for alias, given in settings.credentials.items()}


def _fetch(alias: str, given: CredentialSettings, environ: Mapping[str, str]) -> str:
    """Read one secret from its value, its variable or its file."""
    if given.value is not None:
        return given.value.get_secret_value()
    if given.value_env is not None:
        value = environ.get(given.value_env)
        if value is None:
            # What is no variable's name may be the secret itself, put in the wrong place.
            name = given.value_env if _VARIABLE_NAME.fullmatch(given.value_env) else "named in value_env"
            raise ConfigError(f"credential {alias}: the variable {name} is not set", "value_env names the variable that holds the secret")
        return value
    path = given.value_file or ""
    where = f"the file {path}" if path.startswith(("/", "./", "../")) else "the file named in value_file"
    return read_secret_file(Path(path), f"credential {alias}", where)


def _checked(alias: str, secret: str) -> str:
    """Refuse what no header can carry: a line end in it would let one secret write other headers."""
    if not secret.strip():
        raise ConfigError(f"credential {alias}: the secret is empty")
    if _CONTROL.search(secret):
        raise ConfigError(f"credential {alias}: the secret holds a line end or another control character", "a header takes one line")
    if not secret.isascii():
        raise ConfigError(f"credential {alias}: the secret holds a character that is not ASCII", "a header takes ASCII only")
    return secret


def known_secrets(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """List every secret value that can be had, for redaction; what cannot be read is left out, never an error."""
    found = settings.secret_values()
    for alias, given in settings.credentials.items():
        if given.value is None:
            with contextlib.suppress(ConfigError):
                found.append(_fetch(alias, given, environ))
    return found
