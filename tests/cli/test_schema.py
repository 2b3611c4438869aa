"""`schema export`: what the program carries is what stands in schemas/."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dispatcher.cli import main

SCHEMAS = Path(__file__).parents[2] / "schemas"


def published() -> dict[str, object]:
    """Read what stands in schemas/."""
    read = {name: json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8")) for name in ("request", "reply")}
    return read | {"asyncapi": yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text("utf-8"))}


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_schemas_are_printed_by_name(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    """Without a folder they are one JSON object on stdout."""
    assert 0 == main(["schema", "export", *arguments])
    printed = capfd.readouterr().out
    assert published() == json.loads(printed)
    assert ("--json" in arguments) == (printed.count("\n") == 1)


def test_schemas_are_written_into_a_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With a folder, which need not exist, there is a file for each, and stdout names them."""
    folder = tmp_path / "new" / "schemas"
    assert 0 == main(["schema", "export", str(folder)])
    names = {"request": "request.schema.json", "reply": "reply.schema.json", "asyncapi": "asyncapi.json"}
    assert published() == {name: json.loads((folder / file).read_text("utf-8")) for name, file in names.items()}
    assert {str(folder / file) for file in names.values()} == set(capfd.readouterr().out.splitlines())
    assert (SCHEMAS / "request.schema.json").read_bytes() == (folder / "request.schema.json").read_bytes()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file where the folder should be is exit code 2 with a sentence."""
    (tmp_path / "taken").write_text("")
    assert 2 == main(["schema", "export", str(tmp_path / "taken")])
    assert "cannot write " in capfd.readouterr().err
