"""The configuration file of a stage: written for its children, and left for whoever wants to look around with it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from dispatcher.adapters.config import load
from dispatcher.settings import KafkaSettings, Settings

Tables = Mapping[str, Mapping[str, object]]


def configure(path: Path, kafka: KafkaSettings, tables: Tables) -> Settings:
    """Write the file, how to reach Kafka included, and load it as a worker will: from the file alone."""
    secrets = {name: value.get_secret_value() for name, value in kafka.properties.items()}
    text = toml({"kafka": {"bootstrap_servers": kafka.bootstrap_servers, **secrets}, **tables})
    path.unlink(missing_ok=True)
    # It repeats how to log in to Kafka, where that is needed.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return load(file=path, flags={}, properties=[], environ={})


def toml(tables: Tables) -> str:
    """Write tables as TOML. JSON's strings, numbers, booleans and lists of them are TOML's too; names are quoted where they hold dots."""
    return "\n".join(
        "\n".join([f"[{name}]", *(f"{_name(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items())]) + "\n"
        for name, table in tables.items()
    )


def _name(key: str) -> str:
    return json.dumps(key) if "." in key else key
