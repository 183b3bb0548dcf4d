"""The project file: options of commands, written down once for a folder and all below it.

It is `nats-transform.toml`, or the table `[tool.nats-transform]` of a `pyproject.toml`, in the
current folder or the nearest one above. Keys at its top hold for every command that has such an
option; a table named after a command holds for that command alone. The command line goes before
the environment, and the environment before the file.

A file comes with a repository, from anyone. It can therefore name a saved context of its reader,
but no server, no file with a context, no credentials and no Spark elsewhere: these would get the
credentials or the archive of the reader. Nor can it delete, consent in the reader's name, or have
results written outside its folder. Each setting says this of itself (`Option.cure` and
`is_written`). And the file belongs to the reader, to root, or to whom the current folder belongs:
a folder above it, such as /tmp, may be open to everybody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import click

from jobs.settings.base import Setting
from jobs.settings.parameters import SettingOption, shown
from nats_transform.errors import NatsTransformError, did_you_mean, printable

FILE = "nats-transform.toml"
_PYPROJECT = "pyproject.toml"
_TABLE = "tool.nats-transform"


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

    def place_for(self, command: str, key: str) -> str:
        """The place that gives a command a setting: in its own table, or at the top."""
        is_own = key in self._table(command)
        return self.place(command, key) if is_own else self.place(key)

    def _table(self, command: str) -> Mapping[str, Any]:
        table = self.values.get(command)  # or, as `plan`, the option of another command
        return table if isinstance(table, dict) else {}

    def options(self, commands: Mapping[str, click.Command], name: str) -> dict[str, Any]:
        """The values for one command, by the names of its parameters.

        Raises:
            InvalidProject: a key anywhere in the file is unknown, or a value of another kind.
        """
        known = {key: options_of(command) for key, command in commands.items()}
        everywhere = {key: option for of in known.values() for key, option in of.items()}
        by_parameter = {}
        for key, value in self.values.items():
            if isinstance(value, dict) and key in known:
                for inner, item in value.items():
                    option = self._option(known[key], inner, (key, inner), f" of {key}")
                    item = self._value(option.setting, item, (key, inner))
                    if key == name:
                        by_parameter[option.name or ""] = item
                continue
            self._option(everywhere, key, (key,), "", known)
            # The table of the command goes before the top, wherever it stands in the file.
            if key in known[name] and key not in self._table(name):
                mine = self._option(known[name], key, (key,), "")
                by_parameter[mine.name or ""] = self._value(mine.setting, value, (key,))
        return by_parameter

    def _option(
        self,
        known: Mapping[str, SettingOption],
        key: str,
        keys: tuple[str, ...],
        of: str,
        tables: Mapping[str, object] = {},
    ) -> SettingOption:
        if key not in known:
            hint = did_you_mean(key, [*known, *tables])
            raise InvalidProject(
                "project-no-option", place=self.place(*keys), of=of, key=printable(key), hint=hint
            )
        option = known[key].setting.option
        if option.cure and option.in_project is None:
            where = f"{self.place(*keys)}: {key} cannot be in a project file"
            raise InvalidProject("project-unfit", where=where, cure=option.cure)
        return known[key]

    def _value(self, setting: Setting, value: Any, keys: tuple[str, ...]) -> Any:
        """A value as the command line would give it: text, or a truth value for a flag."""
        items = value if isinstance(value, list) and setting.is_several else [value]
        is_list = len(setting.option.parts) > 1
        kind = bool if setting.is_flag else list if is_list else str | int | float | date
        for item in items:
            if not isinstance(item, kind) or isinstance(item, bool) != setting.is_flag:
                what = "true or false" if setting.is_flag else "text or a number"
                what = "a list of lists" if is_list else what
                raise InvalidProject(
                    "project-must-be", place=self.place(*keys), option=keys[-1], kind=what
                )
        if setting.is_flag:
            return value
        texts = [
            [str(part) for part in item]
            if isinstance(item, list)
            else self._text(setting, item, keys)
            for item in items
        ]
        return texts if setting.is_several else texts[0]

    def _text(self, setting: Setting, value: object, keys: tuple[str, ...]) -> str:
        text, allowed = str(value), setting.option.in_project
        if allowed is not None and re.fullmatch(allowed, text, re.DOTALL) is None:
            raise InvalidProject(
                "project-invalid", place=self.place(*keys), cure=setting.option.cure
            )
        if not setting.is_path or ("://" in text and not setting.option.is_written):
            return text
        if "\0" in text:
            raise InvalidProject("project-nul", place=self.place(*keys), option=keys[-1])
        # As a shell does, it leaves a `~user` that nobody knows.
        path = self.path.parent / os.path.expanduser(text)
        inside = os.path.realpath(self.path.parent)
        if setting.option.is_written and not Path(os.path.realpath(path)).is_relative_to(inside):
            raise InvalidProject(
                "project-outside", place=self.place(*keys), option=keys[-1], flag=setting.name
            )
        return str(path)


def options_of(command: click.Command) -> dict[str, SettingOption]:
    """The options of a command that a file may name, by their long names."""
    options = [option for option in command.params if isinstance(option, SettingOption)]
    before = {o.setting.option.was: o for o in options if o.setting.option.was is not None}
    return before | {option.setting.name: option for option in options}


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
                    raise InvalidProject("project-of-another-user", path=path)
                return project
    return None


def _read(path: Path) -> Project | None:
    try:
        text = path.read_text(encoding="utf-8")
        if path.name == _PYPROJECT and "nats-transform" not in text:
            return None  # most are somebody else's, and large
        import tomllib

        values: Any = tomllib.loads(text)
    except (OSError, ValueError) as error:
        if path.name == _PYPROJECT:
            return None  # for its own programs to say
        raise InvalidProject("project-unreadable", path=path, reason=error) from error
    if path.name == _PYPROJECT:
        tool = values.get("tool")
        values = tool.get("nats-transform") if isinstance(tool, dict) else None
    if values is None:
        return None
    if not isinstance(values, dict):
        where = Project(path, text, {}).place()
        raise InvalidProject("project-not-a-table", where=where, table=_TABLE)
    return Project(path, text, values)


def toml(value: object) -> str:
    """A value as it would stand in a project file; `-` if there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, int | float):
        return str(value)
    text = shown(value)
    return f'"{text}"' if text else "-"
