"""Files that tests write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Writes files, by their paths in the folder: texts as they are, anything else as JSON."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")


def written(path: Path, text: str) -> Path:
    """A file with this text; surrogate escapes are the bytes that they stand for."""
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def edit(file: Path, *changes: tuple[str, str]) -> None:
    """Replaces parts of a file, each of which must be there."""
    text = file.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, f"{file} has no {old}"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def save_context(config: Path, name: str, **document: Any) -> None:
    """A context as the `nats` command saves it, where XDG_CONFIG_HOME is `config`."""
    write_files(config, {f"nats/context/{name}.json": document})
