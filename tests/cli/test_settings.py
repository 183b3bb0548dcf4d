"""A setting is declared once: whatever shows or takes settings has the same ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import ValidationError

from cli.command import Command
from cli.main import main
from cli.project import InvalidProject, Project, options_of
from jobs.registry import JOBS
from jobs.settings.audit import CanarySettings
from jobs.settings.base import Setting, Settings, nested, settings_of
from jobs.settings.connection import NatsSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.parameters import SettingParameter, parameters
from jobs.settings.spark import SparkSettings
from jobs.settings.warehouse import Warehouse
from nats_transform.audit.statistics import POWER
from nats_transform.errors import sentence
from scripts import pages
from tests.support.command import commands
from tests.support.command import refused as cli_refused
from tests.support.programs import printed_in_python
from tests.support.refused import refused
from tests.support.saying import says

ROOT = Path(__file__).parents[2]


ALL = {one.key: one for one in commands().values() if isinstance(one, Command)}
"""Every command, by its table in a project file."""
MODELS = {job: row.model for job, row in JOBS.items()} | {
    f"{name} {model.__name__}": model for name, command in ALL.items() for model in command.models
}


def test_every_command_is_looked_at() -> None:
    assert {"map", "check", "trace", "demo", "census-export"} <= ALL.keys()
    assert JOBS.keys() - ALL.keys() == {"census"}  # which other jobs do as they need it


@pytest.mark.parametrize("name", sorted(JOBS.keys() & ALL.keys()))
def test_a_command_takes_the_settings_of_its_job(name: str) -> None:
    job, command = JOBS[name], ALL[name]
    assert command.models[0] is job.model
    assert (SparkSettings in command.models) == job.needs_spark


@pytest.mark.parametrize("name", ALL)
def test_options_and_keys_of_project_files_are_the_settings(name: str) -> None:
    command = ALL[name]
    settings = [one for model in command.models for one in settings_of(model)]
    # As the program makes it: click keeps the help option of the first context for all others.
    root = click.Context(main, **main.context_settings)
    main.get_params(root)
    context = click.Context(command, root, **command.context_settings)
    taken = {one.setting.name: one for one in parameters(context)}
    assert taken.keys() == {one.name for one in settings}
    assert len(taken) == len(settings)  # no two have one name
    before = {one.option.was for one in settings} - {None}
    in_files = options_of(command).keys()
    assert in_files - before == {one.name for one in settings if not one.option.is_argument}
    assert before <= in_files
    # Nothing else is an option but what asks for something about the command itself.
    others = {one.opts[0] for one in command.params if not isinstance(one, SettingParameter)}
    assert others == {"--debug", "--show-config"}
    page = " ".join(command.get_help(context).split())
    assert not [name for name in before if f"--{name} " in page]
    for one in settings:
        if not one.option.is_argument:
            assert f"--{one.name}" in page
            described = " ".join(str(one.field.description).split())
            assert described.replace("-", "") in page.replace("- ", "").replace("-", ""), one.name


@pytest.mark.parametrize("name", MODELS)
def test_every_field_says_what_it_is(name: str) -> None:
    """Also those that only programs set: the reference pages show them all."""
    for one in settings_of(MODELS[name], every=True):
        assert str(one.field.description).endswith((".", ")")), one.path
        assert one.option.in_project is None or one.option.cure, one.path


PATHS = [
    pytest.param(model, one, id=f"{name} {one.name}")
    for name, model in MODELS.items()
    for one in settings_of(model, every=True)
    if one.kind is Path or one.option.is_path
]


@pytest.mark.parametrize(("model", "path"), PATHS)
def test_no_path_is_empty(model: type[Settings], path: Setting) -> None:
    """`Path("")` is the current folder, which nobody means by a variable that isn't set."""
    value = [""] if path.is_several else ""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(nested([path], {path.key: value}))
    said = {error["loc"]: error["msg"] for error in caught.value.errors()}
    assert sentence("path-empty") in said[path.path]


@pytest.mark.parametrize("option", ["--warehouse", "--cluster", "--jsonl", "--branch"])
def test_no_option_of_a_command_line_is_empty(folder: Path, option: str) -> None:
    (folder / "a.jsonl").write_text('{"subject": "a", "ts": 0}\n')
    command = "transform --mapping" if option == "--branch" else "ingest --jsonl"
    err = cli_refused(*command.split(), "a.jsonl", "--stream", "S", option, "")
    assert f"'{option}'" in err
    assert says(err, "option-empty")


def test_the_reference_page_has_every_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    (tmp_path / "reference" / "schemas").mkdir(parents=True)
    page = pages.settings()
    for name, job in JOBS.items():
        schema = json.loads((tmp_path / f"reference/schemas/{name}-settings.json").read_text())
        for one in settings_of(job.model, every=True):
            assert f"| `{one.path[-1]}` |" in page
            assert " ".join(str(one.field.description).split()).replace("|", "\\|") in page
        assert schema["properties"].keys() == job.model.model_fields.keys()


def test_settings_need_nothing_that_takes_long_to_import() -> None:
    code = (
        "import sys\nfrom jobs.registry import JOBS\n[job.model for job in JOBS.values()]\n"
        "print(*{'dagster', 'nats', 'numpy', 'pyarrow', 'pyspark', 'scipy'} & sys.modules.keys())"
    )
    assert printed_in_python(code) == "\n"
    assert CanarySettings.model_fields["power"].default == POWER


@pytest.mark.dagster
def test_the_yaml_of_an_archive_has_the_settings_of_its_jobs() -> None:
    from orchestration.archive import Archive, Export, MappingFrom, Observed, Spark
    from orchestration.archive_source import ArchiveSource
    from orchestration.dry_run import DryRunConfig

    of: list[tuple[Any, str, set[str]]] = [
        (ArchiveSource, "ingest", set()),
        (Archive, "audit", {"stream", "observed"}),
        (Observed, "audit", {"in_force"}),
        (Export, "export", set()),
        (DryRunConfig, "dry-run", set()),
    ]
    for part, job, own in of:
        known = {one.key: one for one in settings_of(JOBS[job].model)}
        shared = part.model_fields.keys() & known.keys() - own
        assert shared
        for key in shared:
            assert part.model_fields[key].description == known[key].field.description, key
    assert Spark.model_fields.keys() <= SparkSettings.model_fields.keys()
    assert MappingFrom.model_fields.keys() < JOBS["audit"].model.model_fields.keys()
    # What a run of Dagster says, and not the YAML.
    of_a_run = {"stream", "day", "since", "until", "run_id", "warehouse", "catalog"}
    taken = {one.key for one in settings_of(IngestSettings)}
    assert ArchiveSource.model_fields.keys() == taken - of_a_run


@pytest.mark.dagster
def test_three_doors_make_the_same_object() -> None:
    from datetime import date

    from orchestration.archive_source import ArchiveSource

    line = (
        "--stream S --server nats://h --user u --password p --tlsfirst --js-api-prefix J.API "
        "--from-stream T --subject a.> --cluster-header H --first-seq 7 --headers-column h "
        "--since 2026-03-01T00:00:00Z --until 2026-03-02T00:00:00Z --run-id r --warehouse w"
    )
    with ALL["ingest"].make_context("ingest", line.split()) as context:
        by_command = context.obj[0]
    document = by_command.model_dump(mode="json")
    document["server"] |= {"password": "p"}  # dumped as asterisks
    assert IngestSettings.model_validate_json(json.dumps(document)) == by_command
    source = ArchiveSource.resolve_from_yaml(
        "server: nats://h\nuser: u\npassword: p\ntls_first: true\njs_api_prefix: J.API\n"
        "from_stream: T\nsubject: a.>\ncluster_header: H\nfirst_seq: 7\nheaders_column: h\n"
    )
    day = date(2026, 3, 1)
    by_yaml = source.ingest_settings("S", Warehouse(dir=Path("w")), (day, day), "r")
    assert by_yaml == by_command


def test_a_project_file_names_no_server_no_credential_and_nobody_who_gets_an_archive() -> None:
    def may(one: Setting) -> bool:
        return not one.option.cure or one.option.in_project is not None

    assert {one.name for one in settings_of(NatsSettings) if may(one)} == {"context", "js-domain"}
    for name, command in ALL.items():
        there = {one.setting.name for one in options_of(command).values()}
        for key in there & {"server", "monitor", "remote", "password", "token", "creds"}:
            file = Project(Path("x/nats-transform.toml"), "", {name: {key: "x"}})
            with refused(InvalidProject, "project-unfit", where=re.compile(key)):
                file.options(ALL, name)
    evil = {"context": "../x.json", "master": "spark://h", "to-backup": "s3://evil/x"}
    for key, value in evil.items():
        command = "export" if key == "to-backup" else "ingest"
        file = Project(Path("x"), "", {command: {key: value}})
        with refused(InvalidProject, "project-invalid", cure=re.compile(key)):
            file.options(ALL, command)


def described(model: type[Settings]) -> set[str]:
    return {str(one.field.description) for one in settings_of(model, every=True)}


def test_no_option_is_described_a_second_time() -> None:
    texts = {text for model in MODELS.values() for text in described(model) if len(text) > 30}
    assert len(texts) > 80
    for package in ("cli", "jobs", "orchestration", "scripts"):
        for file in (ROOT / package).rglob("*.py"):
            if file.is_relative_to(ROOT / "jobs" / "settings"):
                continue
            source = re.sub(r'"\s+f?"', "", file.read_text(encoding="utf-8"))  # broken texts
            if package in ("cli", "jobs") and file.name not in ("__main__.py", "main.py"):
                assert "click.option(" not in source, file
            own = {"check.py", "trace.py", "init.py", "map.py", "completion.py", "command.py"}
            if file.name not in own:
                assert not [text for text in texts if text in source], file
