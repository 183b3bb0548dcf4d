"""The YAML of a component: all of it arrives as it is, mistakes are told with line and cure."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster.components import AssetAttributesModel
from hypothesis import given
from hypothesis import strategies as st

from jobs.settings.connection import NatsSettings
from jobs.settings.ingest import DumpColumns, IngestSettings
from jobs.settings.warehouse import Warehouse
from orchestration.archive import Archive
from orchestration.archive_source import ArchiveSource
from orchestration.components import SubjectArchive, SubmittedJob
from orchestration.settings import YamlPart
from tests.support.files import save_context
from tests.support.saying import mistakes, saying

pytestmark = pytest.mark.dagster

ARCHIVE = """name: east
stream: EAST
start_date: "2026-03-01"
sources:
  - jsonl: messages.jsonl
mapping: mapping.conf
"""

LONG = pytest.param(
    f"reports_url: {'x' * 4001}",
    ":7: reports_url: it has more than 4,000 characters",
    id="long-text",
)


@pytest.mark.parametrize(("more", "told"), [*mistakes("attribute"), LONG])
def test_a_mistake_is_told_with_its_line(more: str, told: str) -> None:
    with pytest.raises(Exception, match=r"<string>:\d+: ") as raised:
        Archive.resolve_from_yaml(ARCHIVE + more)
    # Dagster shows the stack first, and ends with our line.
    assert re.search(f"<string>{told}", str(raised.value).strip().splitlines()[-1])


@pytest.mark.parametrize("component", [SubjectArchive, SubmittedJob])
def test_every_setting_is_described_where_dg_and_editors_look(component: type[YamlPart]) -> None:
    schema = component.model().model_json_schema()
    dagsters = {"AssetSpecUpdateKwargsModel", *AssetAttributesModel.model_json_schema()["$defs"]}
    parts = [part for name, part in schema.get("$defs", {}).items() if name not in dagsters]
    for part in (schema, *parts):
        for name, setting in part["properties"].items():
            assert setting.get("description"), name


@pytest.mark.parametrize(
    ("day", "code"),
    [
        ("2026-13-01", "not-one-day"),
        ("20260301T00", "not-one-day"),
        ("2026", "not-one-day"),
        ("0001-01-01", "day-too-early"),  # before all messages
    ],
)
def test_a_day_that_cannot_be_is_told(day: str, code: str) -> None:
    with pytest.raises(Exception, match=f":3: start_date: {saying(code)}"):
        Archive.resolve_from_yaml(ARCHIVE.replace("2026-03-01", day))


_OS = "cycler.__init__.__globals__.os"
RUNS = [
    pytest.param(f"{{{{ {_OS}.system('touch ran') }}}}", "__globals__", id="global"),
    pytest.param("{{ ''.__class__.__mro__[1].__subclasses__() }}", "__subclasses__", id="classes"),
    pytest.param("{{ env.HOME.__class__ }}", "__class__", id="private"),
    pytest.param("{{ env | attr('__init__') }}", "attr", id="filter"),
    pytest.param("{{ self.__init__ }}", "__init__", id="self"),
    pytest.param("{% for i in range(9**9) %}x{% endfor %}", "for", id="loop"),
    pytest.param("{% set x = 1 %}", "assign", id="assignment"),
    pytest.param("{% include '/etc/passwd' %}", "include", id="file"),
    pytest.param("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "macro", id="macro"),
    pytest.param("{{ 'x' * 10**10 }}", "mul", id="memory"),
    pytest.param("{{ 9**9**9 }}", "pow", id="power"),
    pytest.param("{{ '%9999999999d' % 1 }}", "mod", id="width"),
    pytest.param("{{ env.HOME.zfill(9999999999) }}", "zfill", id="padding"),
    pytest.param("{{ '{:>9999999999}'.format(1) }}", "format", id="format"),
    pytest.param("{{ range(9) }}", "range", id="range"),
    pytest.param("{{ " + "(" * 1900 + "1" + ")" * 1900 + " }}", "too many levels", id="levels"),
]
"""Templates that run programs, read files, or take all time or memory; what is told of each."""


@pytest.mark.parametrize(("template", "told"), RUNS)
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("catalog: {}", id="text"),
        pytest.param("seed: {}", id="number"),
        pytest.param("owners: [{}]", id="list"),
        pytest.param("tags: {{ a: {} }}", id="mapping"),
        pytest.param("nightly: {{ cron: {} }}", id="part"),
    ],
)
def test_a_template_only_looks_names_up(
    setting: str, template: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=r"<string>:7") as raised:
        Archive.resolve_from_yaml(ARCHIVE + setting.format(f'"{template}"'))
    last = str(raised.value).strip().splitlines()[-1]
    assert "a template " in last
    assert told in last
    assert not (tmp_path / "ran").exists()


PYTHON = ("123456", "007", "1e5", "1_000", "0x10", "True", "None", "[1]", "'x'", " 7", "-1", "")


@given(st.text() | st.sampled_from(PYTHON))
def test_text_of_a_template_arrives_as_it_is(secret: str) -> None:
    """Passwords look like anything, also like Python."""
    template = "server: nats://h\nuser: u\npassword: '{{ secret }}'\n"
    source = ArchiveSource.resolve_from_yaml(template, scope={"secret": secret})
    assert source.password == secret


@pytest.mark.parametrize("text", PYTHON)
def test_text_in_quotes_arrives_as_it_is(text: str) -> None:
    quoted = yaml.safe_dump(
        {"name": "x", "job": "audit", "arguments": [text], "options": [text], "main": text}
    )
    job = SubmittedJob.resolve_from_yaml(quoted)
    assert (job.arguments, job.options) == ([text], [text])
    catalogued = Archive.resolve_from_yaml(ARCHIVE + yaml.safe_dump({"catalog": text}))
    assert catalogued.catalog == text


def test_templates_give_other_values_too() -> None:
    more = "nightly: { cron: 30 1 * * *, days: '{{ days }}' }\nseed: '{{ seed }}'\n"
    scope = {"days": "3", "seed": "7", "first": date(2026, 3, 1), "nothing": None}
    text = ARCHIVE.replace("2026-03-01", "{{ first }}") + more + "catalog: '{{ nothing }}'\n"
    archive = Archive.resolve_from_yaml(text, scope=scope)
    assert (archive.nightly.days, archive.seed, archive.catalog) == (3, 7, None)
    assert archive.start_date == date(2026, 3, 1)


def test_off_needs_no_quotes() -> None:
    from orchestration.assets.asset import stale_days

    for written, acts in (("off", False), ("'off'", False), ("stale_days", True)):
        archive = Archive.resolve_from_yaml(f"{ARCHIVE}automation: {written}\n")
        assert (stale_days(archive) is not None) == acts


CONNECTION = {
    "creds": Path("a.creds"), "nkey": Path("a.nk"), "user": "u", "password": "p", "token": "t",
    "tls_ca": Path("ca.pem"), "tls_cert": Path("c.pem"), "tls_key": Path("k.pem"), "domain": "hub",
    "tls_first": True, "js_api_prefix": "$JS.hub.API", "inbox_prefix": "_IN",
}  # fmt: skip
COLUMNS = {
    f"{name}_column": f"my_{name}"
    for name in ("subject", "seq", "time", "cluster", "headers", "data")
}


def ingest_of(source: ArchiveSource) -> IngestSettings:
    """What the ingest of a day gets."""
    day = date(2026, 3, 1)
    return source.ingest_settings("S", Warehouse(), (day, day), "run")


@pytest.mark.parametrize("kind", ["backup", "parquet", "jsonl"])
def test_files(kind: str) -> None:
    place: Any = Path("folder")
    settings = ingest_of(ArchiveSource(**{kind: place}, cluster="east"))
    assert Path(getattr(settings, kind)) == place
    assert settings.server is None
    assert settings.cluster == "east"


def test_every_setting_of_a_connection_arrives() -> None:
    source = ArchiveSource(server="nats://h", **CONNECTION)
    server = ingest_of(source).server
    assert server == NatsSettings.model_validate({"servers": "nats://h"} | CONNECTION)
    assert source.nats.settings == server  # of the resource `NAME_nats`
    # Timeouts stay as they are, and `creds` names the file; everything else an archive can say.
    assert CONNECTION.keys() == NatsSettings.model_fields.keys() - {
        "servers", "context", "credentials", "connect_timeout", "patience"
    }  # fmt: skip


def test_a_context_is_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    save_context(tmp_path, "x", url="nats://x", token="t", tls_first=True)  # noqa: S106
    source = ArchiveSource(context="x", domain="hub")
    server = ingest_of(source).server
    wanted = {"servers": "nats://x", "token": "t", "tls_first": True, "domain": "hub"}
    assert server == NatsSettings.model_validate(wanted)
    assert source.nats.settings == server


def test_every_column_of_a_dump_arrives() -> None:
    source = ArchiveSource(parquet=Path("x"), first_seq=7, data_encoding="base64", **COLUMNS)
    columns = ingest_of(source).columns
    given = {name.removesuffix("_column"): value for name, value in COLUMNS.items()}
    assert columns == DumpColumns(first_seq=7, data_encoding="base64", **given)
