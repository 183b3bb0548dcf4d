"""The YAML of a new archive: a template, filled in. It needs no Dagster."""

from __future__ import annotations

from importlib.resources import files

_DEFAULTS = {
    "START": "2026-01-01",
    "SOURCE": "server: nats://127.0.0.1:4222",
    "MAPPING": "mapping.conf",
    "ACCOUNT": "$G",
    "TYPE": "nats_transform.dagster.SubjectArchive",
}


def template(file: str, **values: str) -> str:
    """A file of a new archive, in which each word in capitals has its value.

    Args:
        file: `archive.yaml` or `mapping.conf`.
        values: what stands for NAME, STREAM and WAREHOUSE; START, SOURCE, MAPPING and ACCOUNT
            and TYPE have defaults.
    """
    text = (files(__package__) / "components" / "templates" / file).read_text(encoding="utf-8")
    for word, value in (_DEFAULTS | values).items():
        text = text.replace(f"<{word}>", value)
    return text
