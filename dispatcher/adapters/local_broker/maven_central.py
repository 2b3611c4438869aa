"""Jars by Maven coordinates without Maven: jgo's resolver, which is Python (the optional `jvm` extra)."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from dispatcher.errors import BrokerError

if TYPE_CHECKING:
    from jgo.maven import Dependency

# Small files from a far server: the time goes by in round trips. Maven itself takes five at a time.
_AT_ONCE = 8
_ANSWER_S = 60
_SCOPES = frozenset({None, "compile", "runtime"})


def available() -> bool:
    """Ask whether jgo is installed."""
    return importlib.util.find_spec("jgo") is not None


def fetch(
    coordinates: Sequence[str],
    libraries: Path,
    scratch: Path,
    say: Callable[[str], None],
    repositories: Mapping[str, str] | None = None,
) -> None:
    """Fetch the jars of `group:artifact:version` and of all they need into the new directory `libraries`.

    `scratch` takes what else is fetched (POMs, checksums); `repositories` (name to URL) stand in for Maven Central. BrokerError when a
    file cannot be had, or is not what its checksum says.
    """
    import requests  # noqa: PLC0415 - optional, as jgo is, whose dependency it is
    from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415 - optional, and slow to import

    remote = None if repositories is None else dict(repositories)
    context = MavenContext(PythonResolver(), repo_cache=scratch, remote_repos=remote, timeout=_ANSWER_S)
    try:
        wanted, needed = context.resolver.resolve([context.create_dependency(one) for one in coordinates])
        jars = [one for one in (*wanted, *needed) if one.scope in _SCOPES]
        say(f"fetching {len(jars)} jars")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            paths = list(pool.map(_checked, jars))
    # jgo raises RuntimeError and ValueError for what is missing or unreadable.
    except (requests.RequestException, OSError, RuntimeError, ValueError) as failure:
        hint = "is Maven Central reachable from here? Behind a proxy with a certificate of its own, set REQUESTS_CA_BUNDLE"
        raise BrokerError(f"Kafka's jars could not be fetched: {_sentence(failure)}", hint) from None
    libraries.mkdir()
    for path in paths:
        path.rename(libraries / path.name)


def _checked(dependency: Dependency) -> Path:
    """Fetch one jar and hold it against the repository's checksum, of which jgo only warns."""
    artifact = dependency.artifact
    path = artifact.resolve()
    checksum = artifact.component.artifact(artifact.classifier, f"{artifact.packaging}.sha1").resolve()
    published = checksum.read_text(encoding="ascii").split()[0]
    if hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest() != published:
        raise RuntimeError(f"{path.name} is not what its checksum says")
    return path


def _sentence(failure: BaseException) -> str:
    """Say in a line what a library says in many."""
    text = " ".join(str(failure).split())
    return text if len(text) <= _SENTENCE_MAX else f"{text[:_SENTENCE_MAX]}..."


_SENTENCE_MAX = 200
