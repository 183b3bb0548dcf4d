"""What an archive's YAML says about a source is what the ingest gets."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from jobs.settings.connection import NatsSettings
from jobs.settings.ingest import DumpColumns
from jobs.settings.warehouse import Warehouse
from orchestration.archive_source import ArchiveSource

DAY = date(2026, 3, 1)
CONNECTION = {
    "creds": Path("a.creds"), "nkey": Path("a.nk"), "user": "u", "password": "p", "token": "t",
    "tls_ca": Path("ca.pem"), "tls_cert": Path("c.pem"), "tls_key": Path("k.pem"), "domain": "hub",
    "tls_first": True, "js_api_prefix": "$JS.hub.API", "inbox_prefix": "_IN",
}  # fmt: skip
COLUMNS = {
    f"{name}_column": f"my_{name}"
    for name in ("subject", "seq", "time", "cluster", "headers", "data")
}


@pytest.mark.parametrize("kind", ["backup", "parquet", "jsonl"])
def test_files(kind: str) -> None:
    place: Any = Path("folder")
    settings = ArchiveSource(**{kind: place}, cluster="east").ingest_settings(
        "S", Warehouse(), (DAY, DAY), "run"
    )
    assert Path(getattr(settings, kind)) == place
    assert settings.server is None
    assert settings.cluster == "east"


def test_every_setting_of_a_connection_arrives() -> None:
    source = ArchiveSource(server="nats://h", **CONNECTION)
    server = source.ingest_settings("S", Warehouse(), (DAY, DAY), "run").server
    assert server == NatsSettings.model_validate({"servers": "nats://h"} | CONNECTION)
    assert source.nats.settings == server  # of the resource `NAME_nats`
    # Timeouts stay as they are, and `creds` names the file; everything else an archive can say.
    assert CONNECTION.keys() == NatsSettings.model_fields.keys() - {
        "servers", "context", "credentials", "connect_timeout", "patience"
    }  # fmt: skip


def test_a_context_is_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "nats" / "context").mkdir(parents=True)
    (tmp_path / "nats" / "context" / "x.json").write_text(
        '{"url": "nats://x", "token": "t", "tls_first": true}'
    )
    source = ArchiveSource(context="x", domain="hub")
    server = source.ingest_settings("S", Warehouse(), (DAY, DAY), "run").server
    wanted = {"servers": "nats://x", "token": "t", "tls_first": True, "domain": "hub"}
    assert server == NatsSettings.model_validate(wanted)
    assert source.nats.settings == server


def test_every_column_of_a_dump_arrives() -> None:
    source = ArchiveSource(parquet=Path("x"), first_seq=7, data_encoding="base64", **COLUMNS)
    columns = source.ingest_settings("S", Warehouse(), (DAY, DAY), "run").columns
    given = {name.removesuffix("_column"): value for name, value in COLUMNS.items()}
    assert columns == DumpColumns(first_seq=7, data_encoding="base64", **given)
