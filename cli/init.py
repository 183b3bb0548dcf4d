"""`nats-transform init`: the files that a folder needs, from a stream and a mapping file."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from cli.command import command as cli_command
from cli.command import output, print_result
from cli.output import print_line, print_lines, quiet_work
from cli.project import FILE
from jobs.settings.base import Settings, setting
from jobs.settings.connection import NatsSettings
from jobs.settings.mappings import Account
from nats_transform.errors import printable, sentence

_WORKFLOW = ".github/workflows/nats-transform.yml"
_CENSUS = "census.parquet"
_FOLDERS = ("streams", "consumers")
# Names go into YAML, TOML and the shell of a workflow: these mean the same in all of them.
_PLAIN = re.compile(r"[A-Za-z0-9_][\w./=+-]*", re.ASCII)


Files = dict[str, str | bytes]


class InitSettings(Settings):
    """A stream and mappings, and what to write."""

    candidate: Path | None = setting(
        None, "The file with the mappings that you want to try.", otherwise="init asks for it"
    )
    account: Account = "$G"
    stream: str = setting(
        "",
        "The stream whose messages the mappings are for.",
        completes="streams",
        otherwise="all streams of the account",
    )
    nats: NatsSettings | None = None
    dagster: bool = setting(False, "Also write the YAML of an archive for Dagster.")


@dataclass(frozen=True)
class Initialized:
    """What was written.

    Attributes:
        files: the files, in the current folder.
        next: the command to run now.
    """

    files: tuple[str, ...]
    next: str


@cli_command(
    "init",
    InitSettings,
    output(json="files, next."),
    exit_codes="0 the files are written; 2 one of them exists already, or something is missing, "
    "and nothing is written.",
)
def command(settings: InitSettings, asked: Any) -> None:
    """Write the files that check mappings, in this folder and in every pull request.

    These are a project file with the options that every command would need, and a workflow for
    GitHub Actions. With a server or a context, today's streams, consumers and subjects
    are written too, so that the workflow needs no server. Nothing is written to the server, and no
    file is overwritten. On a terminal it asks for what is not given.

    \b
    Examples:
      nats-transform init
      nats-transform init --candidate new.conf --context prod
      nats-transform init --candidate new.conf --stream ORDERS --dagster
    """
    stream = settings.stream
    if settings.candidate is None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError(sentence("init-without-terminal"))
        given = click.prompt("File with the mappings", default="new.conf", err=True)
        stream = stream or click.prompt(
            "Stream, or nothing for all", default="", show_default=False, err=True
        )
    else:
        given = str(settings.candidate)
    mapping = _mapping(given)
    if stream:
        _plain("the stream", stream)
    if settings.dagster and not stream:
        raise click.UsageError(sentence("init-without-stream"))
    context = click.get_current_context().params.get("context")
    if context is not None:
        _plain("the context", context)
    archive = f"defs/{re.sub('[^a-z0-9]', '_', stream.lower())}"
    _refuse_overwriting(
        FILE,
        _WORKFLOW,
        *((_CENSUS, *_FOLDERS) if settings.nats is not None else ()),
        *([archive] if settings.dagster else []),
    )
    files: Files = {FILE: _project(settings.account, mapping, stream, context)}
    seen: Files = {}
    start = None
    if settings.nats is not None:
        with quiet_work():
            seen, start = _seen(settings.nats, settings.account, stream)
    files[_WORKFLOW] = _workflow(mapping, seen)
    if settings.dagster:
        source = None if context is None else f"context: {_quoted(context)}"
        if source is None and settings.nats is not None:
            source = f"server: {_quoted(_without_users(settings.nats))}"
        files[f"{archive}/defs.yaml"] = _archive(settings.account, mapping, stream, source, start)
    _write(files | seen)
    command = _next(mapping, seen, context)

    def show() -> None:
        for name, content in files.items():
            print_line(f"wrote {name}")
            print_lines("\n".join(f"    {line}".rstrip() for line in str(content).splitlines()))
        for name in seen:
            print_line(f"wrote {name}")
        print_line(f"next: {command}")

    print_result(asked, Initialized((*files, *seen), command), show)


def _mapping(given: str) -> str:
    """The path of the mapping file from the current folder, which is that of the repository."""
    if not os.path.isfile(given):
        example = 'mappings { "orders.*": "shop.$1" }'
        raise click.UsageError(
            sentence("init-without-file", file=printable(given), example=example)
        )
    path = Path(os.path.relpath(given)).as_posix()
    if path.startswith("../"):
        raise click.UsageError(sentence("init-file-elsewhere", file=given))
    _plain("the mapping file", path)
    return path


def _plain(what: str, name: str) -> None:
    if _PLAIN.fullmatch(name) is None:
        raise click.UsageError(sentence("init-name", what=what, name=printable(name)))


def _project(account: str, mapping: str, stream: str, context: str | None) -> str:
    shared = {
        "context": context,
        "stream": stream or None,
        "account": None if account == "$G" else account,
    }
    lines = ["# Options of nats-transform in this folder; the command line goes before them."]
    lines += [f"{name} = {_quoted(value)}" for name, value in shared.items() if value is not None]
    for name in ("dry-run", "plan"):
        lines += ["", f"[{name}]", f"candidate = {_quoted(mapping)}"]
        if stream and context is not None:
            lines.append("live = true  # subjects of the server; without this line, of an archive")
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """A text in TOML and in YAML."""
    return json.dumps(text, ensure_ascii=False)


def _seen(nats: NatsSettings, account: str, stream: str) -> tuple[Files, str]:
    """The files with what the server has, and the day of its first message."""
    import tempfile

    from jobs.dry_run.live import live_census
    from jobs.dry_run.portable import write_census
    from jobs.jetstream.account import account_files
    from jobs.warehouse.raw import readable
    from nats_transform.config import load_streams

    with account_files(nats, account) as folders, tempfile.TemporaryDirectory() as scratch:
        census = live_census(nats, stream, load_streams(folders[0]))
        written = Path(scratch, _CENSUS)
        write_census(census, written, readable)
        files: Files = {_CENSUS: written.read_bytes()}
        for folder in filter(None, folders):
            for file in sorted(folder.iterdir()):
                files[f"{folder.name}/{file.name}"] = file.read_text(encoding="utf-8")
    return files, f"{census.about.first:%Y-%m-%d}"


def _folders(seen: Files) -> list[str]:
    return [folder for folder in _FOLDERS if any(name.startswith(f"{folder}/") for name in seen)]


def _workflow(mapping: str, seen: Files) -> str:
    """A workflow that gives the action what there is."""
    inputs = {"files": mapping}
    if seen:
        inputs |= {"candidate": mapping, "census": _CENSUS}
        inputs |= {folder: folder for folder in _folders(seen)}
    lines = [f"          {name}: {_quoted(value)}" for name, value in inputs.items()]
    return f"""# Checks the mappings of every pull request.
name: nats-transform
on: pull_request
permissions:
  contents: read
jobs:
  mappings:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.13"
      - uses: OWNER/nats-transform@v{version("nats-transform")} # where the repository is
        with:
""" + "".join(f"{line}\n" for line in lines)


def _without_users(nats: NatsSettings) -> str:
    """The URLs of a server, without users and passwords: others will read the file."""
    return ",".join(re.sub("^([a-z]+://)?.*@", r"\1", url) for url in nats.urls)


def _archive(account: str, mapping: str, stream: str, source: str | None, start: str | None) -> str:
    from orchestration.archive_yaml import template

    known = {} if source is None else {"SOURCE": source}
    known |= {} if start is None else {"START": start}
    return template(
        "archive.yaml", NAME=re.sub("[^a-z0-9]", "_", stream.lower()), STREAM=_quoted(stream),
        MAPPING=_quoted(f"../../{mapping}"), ACCOUNT=_quoted(account), WAREHOUSE="../../warehouse",
        **known,
    )  # fmt: skip


def _refuse_overwriting(*names: str) -> None:
    there = [name for name in names if os.path.lexists(name)]
    if there:
        more = f" (and {len(there) - 1:,} more)" if there[1:] else ""
        raise click.ClickException(sentence("init-exists", file=there[0], more=more))


def _write(files: Files) -> None:
    """Write all files or none."""
    written: list[Path] = []
    try:
        for name, content in files.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                written.append(path)
                file.write(content if isinstance(content, bytes) else content.encode())
    except BaseException:
        for path in written:
            path.unlink()
        raise


def _next(mapping: str, seen: Files, context: str | None) -> str:
    """The command with which to go on."""
    if context is not None:
        return "nats-transform dry-run"
    if not seen:
        return f"nats-transform check {mapping}"
    folders = [f"--{folder} {folder}" for folder in _folders(seen)]
    return " ".join(["nats-transform dry-run --census", _CENSUS, *folders])
