"""schemas/asyncapi.yaml in the eyes of AsyncAPI's own parser: its schema, and its rules about what refers to what."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dispatcher.core.messages.asyncapi import asyncapi_document
from tests.schema_files import FOLDER
from tests.toolchains import node_modules, tool

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the check and its libraries, and the schemas that the document points to."""
    folder = tmp_path_factory.mktemp("asyncapi")
    (folder / "node_modules").symlink_to(node_modules(HERE))
    for source in (HERE / "check.mjs", *FOLDER.glob("*.json"), FOLDER / "asyncapi.yaml"):
        shutil.copy(source, folder)
    return folder


def said(folder: Path, name: str) -> list[str]:
    """What the parser says of a document in the folder."""
    done = subprocess.run([tool("node"), "check.mjs", name], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_the_parser_has_nothing_to_say_of_the_document(checker: Path) -> None:
    """Neither an error nor a warning nor a hint."""
    assert [] == said(checker, "asyncapi.yaml")


def test_the_parser_finds_a_message_that_its_channel_has_not(checker: Path) -> None:
    """A check that cannot fail is not a check."""
    document = asyncapi_document()
    document["operations"]["giveUp"]["messages"] = [{"$ref": "#/channels/replies/messages/reply"}]
    (checker / "planted.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    assert "operations.giveUp.messages" == said(checker, "planted.yaml")[0].partition(".0")[0]
