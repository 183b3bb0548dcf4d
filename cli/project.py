"""The project file: options of commands, written down once for a folder and all below it.

It is `nats-transform.toml`, or the table `[tool.nats-transform]` of a `pyproject.toml`, in the
current folder or the nearest one above. Keys at its top hold for every command that has such an
option; a table named after a command holds for that command alone. The command line goes before
the environment, and the environment before the file.

A file comes with a repository, from anyone. It can therefore name a saved context of its reader,
but no server, no file with a context, no credentials and no Spark elsewhere: these would get the
credentials or the archive of the reader. And it belongs to the reader, to root, or to whom the
current folder belongs: a folder above it, such as /tmp, may be open to everybody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cli import options
from cli.output import print_line, print_table
from nats_transform.errors import NatsTransformError, did_you_mean, printable

FILE = "nats-transform.toml"
_PYPROJECT = "pyproject.toml"
_TABLE = "tool.nats-transform"
_SERVER = ("server", "creds", "nkey", "user", "password", "token", "tlsca", "tlscert", "tlskey")
# What the values of these may be; whoever wrote the file would get more with others.
_HARMLESS = {"context": r"(?!.*\.json$)[^/\\]*", "master": r"local(\[.*\])?", "remote": "(?!)"}
_CURES = {
    "context": "context must be the name of a context that you have saved, because the author of a "
    "file with one would get your credentials: give it with --context",
    "master": "master must be local or local[N] in a project file, because whoever wrote the file "
    "would get your archive: give it with --master",
    "remote": "remote cannot stand in a project file, because whoever wrote the file would get "
    "your archive: give it with --remote",
}
_NOT_IN_A_FILE = {"help", "debug", "show-config"}
_PATHS = ("DIR", "FILE", "PATH")
# Options of which a command takes one; what a stronger source says replaces the others.
_ALTERNATIVES = (
    ("folder", "catalog"),
    ("master", "remote"),
    ("form", "as_json"),
    ("servers", "context"),
    ("servers", "context", "backup", "parquet", "jsonl"),
)
_STRENGTH = (
    ParameterSource.COMMANDLINE,
    ParameterSource.ENVIRONMENT,
    ParameterSource.DEFAULT_MAP,
)


class InvalidProject(NatsTransformError):
    """A project file that cannot be read or says what no command understands."""


@dataclass(frozen=True)
class Project:
    """A project file: where it is, its text and what it holds."""

    path: Path
    text: str
    values: Mapping[str, Any]

    def place(self, *keys: str) -> str:
        """The file and the line of a key, such as `x/nats-transform.toml:3`."""
        table: tuple[str, ...] = ()
        above = tuple(_TABLE.split(".")) if self.path.name == _PYPROJECT else ()
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                table = tuple(part.strip(" \"'") for part in header[1].split("."))
            named = re.match(r"\s*[\"']?([\w-]+)[\"']?\s*=", line)
            if (*above, *keys) in (table, (*table, named[1] if named else "")):
                return f"{self.path}:{number}"
        return str(self.path)

    def options(self, commands: Mapping[str, click.Command], name: str) -> dict[str, Any]:
        """The values for one command, by the names of its parameters.

        Raises:
            InvalidProject: a key anywhere in the file is unknown, or a value of another kind.
        """
        known = {command: options_of(one) for command, one in commands.items()}
        everywhere = {key: option for one in known.values() for key, option in one.items()}
        found = {}
        for key, value in self.values.items():
            if isinstance(value, dict) and key in known:
                for inner, setting in value.items():
                    option = self._option(known[key], inner, (key, inner), f" of {key}")
                    setting = self._value(option, setting, (key, inner))
                    if key == name:
                        found[option.name or ""] = setting
                continue
            self._option(everywhere, key, (key,), "", known)
            # The table of the command goes before the top, wherever it stands in the file.
            if key in known[name] and key not in self.values.get(name, {}):
                mine = known[name][key]
                found[mine.name or ""] = self._value(mine, value, (key,))
        return found

    def _option(
        self,
        known: Mapping[str, click.Option],
        key: str,
        keys: tuple[str, ...],
        of: str,
        tables: Mapping[str, object] = {},
    ) -> click.Option:
        if key in _SERVER:
            raise InvalidProject(
                f"{self.place(*keys)}: {key} cannot stand in a project file, because whoever wrote "
                "the file would get your credentials: save a context with `nats context save` "
                "and write context = its name"
            )
        if key not in known:
            hint = did_you_mean(key, [*known, *tables])
            raise InvalidProject(f"{self.place(*keys)}: no option{of} is {printable(key)}{hint}")
        return known[key]

    def _value(self, option: click.Option, value: Any, keys: tuple[str, ...]) -> Any:
        """A value as the command line would give it: text, or a truth value for a flag."""
        items = value if isinstance(value, list) and option.multiple else [value]
        kind = bool if option.is_flag else list if option.nargs > 1 else str | int | float | date
        for item in items:
            if not isinstance(item, kind) or isinstance(item, bool) != option.is_flag:
                what = "true or false" if option.is_flag else "a text or a number"
                what = "a list of lists" if option.nargs > 1 else what
                raise InvalidProject(f"{self.place(*keys)}: {keys[-1]} must be {what}")
        if option.is_flag:
            return value
        texts = [
            [str(part) for part in item]
            if isinstance(item, list)
            else self._text(option, item, keys)
            for item in items
        ]
        return texts if option.multiple else texts[0]

    def _text(self, option: click.Option, value: object, keys: tuple[str, ...]) -> str:
        text = str(value)
        if re.fullmatch(_HARMLESS.get(keys[-1], ".*"), text, re.DOTALL) is None:
            raise InvalidProject(f"{self.place(*keys)}: {_CURES[keys[-1]]}")
        if option.metavar in _PATHS and "://" not in text:
            return str(self.path.parent / Path(text).expanduser())
        return text


def options_of(command: click.Command) -> dict[str, click.Option]:
    """The options of a command that a file may give, by their long names."""
    found = {}
    for option in command.params:
        if isinstance(option, click.Option):
            name = max(option.opts, key=len).lstrip("-")
            if name not in (*_NOT_IN_A_FILE, *_SERVER):
                found[name] = option
    return found


def find(folder: Path) -> Project | None:
    """The nearest project file, from a folder upwards.

    Raises:
        InvalidProject: the file cannot be read as TOML, or belongs to somebody else.
    """
    for parent in (folder, *folder.parents):
        for name in (FILE, _PYPROJECT):
            path = parent / name
            if path.is_file() and (project := _read(path)) is not None:
                if path.stat().st_uid not in (os.geteuid(), 0, folder.stat().st_uid):
                    raise InvalidProject(
                        f"{path} belongs to another user, who would choose your options: remove "
                        "it, make it yours with chown, or work in another folder"
                    )
                return project
    return None


def _read(path: Path) -> Project | None:
    try:
        text = path.read_text(encoding="utf-8")
        if path.name == _PYPROJECT and "nats-transform" not in text:
            return None  # most are somebody else's, and large
        import tomllib

        values = tomllib.loads(text)
    except (OSError, ValueError) as error:
        if path.name == _PYPROJECT:
            return None  # for its own programs to say
        raise InvalidProject(f"{path}: {error}") from error
    if path.name == _PYPROJECT:
        values = values.get("tool", {}).get("nats-transform")
    return None if values is None else Project(path, text, values)


class Command(click.Command):
    """A command whose options the project file gives where nothing else does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options.debug(self)
        self.params.append(
            click.Option(
                ["--show-config"],
                is_flag=True,
                help="Show the value of each option and where it comes from, and do nothing else.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        project = None
        try:
            project = find(Path.cwd())
            if project is not None:
                ctx.default_map = project.options(_commands(ctx), self.name or "")
        except (InvalidProject, OSError) as error:
            if not ctx.resilient_parsing:  # a shell that completes wants no error
                raise click.UsageError(str(error), ctx) from error
        try:
            rest = self._parsed(ctx, args)
        except click.BadParameter as error:
            key = _key_in_file(ctx, error.param)
            if project is None or key is None:
                raise
            where = _place(project, ctx, key)
            raise click.BadParameter(f"{error.message} ({where})", ctx, error.param) from error
        for names in _ALTERNATIVES:
            _keep_strongest(ctx, names)
        if ctx.params.pop("show_config", False) and "--show-config" in args:
            print_line(f"project file: {project.path if project else 'none'}")
            print_table(list(_shown(self, ctx, project)))
            ctx.exit()
        return rest

    def _parsed(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, list(args))
        except click.MissingParameter:
            if "--show-config" not in args:
                raise
            ctx.resilient_parsing = True  # what is missing is shown as missing
            return super().parse_args(ctx, list(args))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click leaves it out of some
            raise


def command(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """What `click.command` is, for a command that reads the project file."""
    return click.command(name, **{"cls": Command, **attributes})


def _commands(ctx: click.Context) -> dict[str, click.Command]:
    """All commands by name; the one of the context alone if it is called by itself."""
    root = ctx.find_root()
    if isinstance(root.command, click.Group):
        names = root.command.list_commands(root)
        found = {name: root.command.get_command(root, name) for name in names}
        return {name: command for name, command in found.items() if command is not None}
    return {ctx.command.name or "": ctx.command}


def _place(project: Project, ctx: click.Context, key: str) -> str:
    table = project.values.get(ctx.command.name or "", {})
    return project.place(ctx.command.name or "", key) if key in table else project.place(key)


def _key_in_file(ctx: click.Context, param: click.Parameter | None) -> str | None:
    """The key of a parameter whose value the project file gives."""
    for key, option in options_of(ctx.command).items():
        source = ctx.get_parameter_source(option.name or "")
        if option is param and source is ParameterSource.DEFAULT_MAP:
            return key
    return None


def _keep_strongest(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Of options that exclude each other, takes those away that a weaker source gives.

    A server of the environment is only implied: `cli.options` says what goes before it.
    """
    sources = {name: ctx.get_parameter_source(name) for name in names if name in ctx.params}
    given = [source for source in sources.values() if source in _STRENGTH]
    strongest = min(given, key=_STRENGTH.index, default=None)
    if "backup" in names and strongest is not ParameterSource.COMMANDLINE:
        return
    for name, source in sources.items():
        if source not in _STRENGTH or source is strongest:
            continue
        if "servers" in names and source is not ParameterSource.DEFAULT_MAP:
            continue
        ctx.params[name] = False if isinstance(ctx.params[name], bool) else None
        ctx.set_parameter_source(name, ParameterSource.DEFAULT)


def _shown(
    command: click.Command, ctx: click.Context, project: Project | None
) -> Iterator[tuple[str, str, str]]:
    """A row for each option: its name, its value, and where the value comes from."""
    for option in command.params:
        name = max(option.opts, key=len).lstrip("-")
        if option.name not in ctx.params or name in _NOT_IN_A_FILE:
            continue
        value, source = ctx.params[option.name], ctx.get_parameter_source(option.name)
        where = "default"
        if source is ParameterSource.COMMANDLINE:
            where = "command line"
        elif source is ParameterSource.ENVIRONMENT:
            where = f"environment, {option.envvar}"
        elif source is ParameterSource.DEFAULT_MAP and project is not None:
            where = _place(project, ctx, name)
        if isinstance(option, options.Connection) and value is not None:
            other = option.unused_with(ctx)
            where += f"; not used, because of --{other}" if other else ""
        secret = name in ("password", "token") and value is not None
        yield name, "(hidden)" if secret else _toml(value), where


def _toml(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value) if isinstance(value, int | float) else f'"{value}"'
