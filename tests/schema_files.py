"""The files in schemas/ that are made from the models: `make schemas` writes them, a test compares them."""

from __future__ import annotations

from pathlib import Path

import yaml

from dispatcher.core.messages.asyncapi import asyncapi_document
from dispatcher.core.messages.schema import text

FOLDER = Path(__file__).resolve().parents[1] / "schemas"


def generated() -> dict[str, str]:
    """Give each file's name and what should stand in it."""
    asyncapi = yaml.safe_dump(asyncapi_document(), sort_keys=False, allow_unicode=True, width=120)
    return {"request.schema.json": text("request"), "reply.schema.json": text("reply"), "asyncapi.yaml": asyncapi}


if __name__ == "__main__":
    for name, content in generated().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
