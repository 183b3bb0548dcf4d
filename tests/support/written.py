"""Files that a test needs."""

from __future__ import annotations

from pathlib import Path


def written(path: Path, text: str) -> Path:
    """A file with this text; surrogate escapes are the bytes that they stand for."""
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path
