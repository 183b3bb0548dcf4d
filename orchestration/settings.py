"""How the YAML of a component is read: text stays text, and a mistake is told with its line."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self

import dagster as dg
from jinja2 import Environment, StrictUndefined
from pydantic import BaseModel, ValidationError

from nats_transform.errors import InvalidConfig


class _NothingGiven(Exception):
    pass


def _given(value: Any) -> Any:
    if value is None:  # such as `env.NAME` without this variable
        raise _NothingGiven
    return value


_TEMPLATES = Environment(  # noqa: S701 - settings are no page
    undefined=StrictUndefined, finalize=_given, keep_trailing_newline=True
)


def _text(context: dg.ResolutionContext, value: str | None) -> str | None:
    """The text with its templates filled in; none if the template gives nothing.

    Dagster itself takes what a template gives, and text in quotes too, for Python if it looks like
    Python: the password 1e5 would be the number 100000.0.
    """
    if value is None:
        return None
    try:
        return _TEMPLATES.from_string(value).render(context.scope)
    except _NothingGiven:
        return None


def _day(context: dg.ResolutionContext, value: str) -> date:
    text = _text(context, value) or ""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _mistake(context, f"{text!r} is not a day; write YYYY-MM-DD") from None


def _path(context: dg.ResolutionContext, value: str | None) -> Path | None:
    text = _text(context, value)
    return None if text is None else context.resolve_source_relative_path(text)


def _read_by(resolve: Any, kind: Any) -> dg.Resolver:
    return dg.Resolver(resolve, model_field_type=kind, inject_before_resolve=False)


Text = Annotated[str, _read_by(_text, str)]
OptionalText = Annotated[str | None, _read_by(_text, str | None)]
Day = Annotated[date, _read_by(_day, str)]
# Relative paths are relative to the folder of the YAML file.
FilePath = Annotated[Path, _read_by(_path, str)]
OptionalPath = Annotated[Path | None, _read_by(_path, str | None)]


class Settings(dg.Model, dg.Resolvable):
    """A part of the YAML of a component.

    Raises:
        InvalidConfig: something in it is wrong; the text has the file, the line and the setting.
    """

    @classmethod
    def model(cls) -> type[BaseModel]:
        """The schema. Dagster drops the descriptions of fields with a default: here they are."""
        made = super().model()
        fields = [(made.model_fields[name], field) for name, field in cls.model_fields.items()]
        if any(one.description != field.description for one, field in fields):
            for one, field in fields:
                one.description = field.description
            made.model_rebuild(force=True)
        return made

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: Any) -> Self:
        """The settings, from what the schema has let through."""
        if isinstance(model, str):  # the schema takes it for a template that gives the settings
            names = ", ".join(cls.model_fields)
            raise _mistake(context, f"{model!r} is text; give one or more of {names}")
        try:
            made: Self = super().resolve_from_model(context, model)
        except ValidationError as error:
            first = error.errors()[0]
            told = first["msg"].removeprefix("Value error, ")
            raise _mistake(context, told, *first["loc"]) from None
        return made


def _mistake(context: dg.ResolutionContext, told: str, *place: str | int) -> InvalidConfig:
    path = [*context.path, *place]
    told = f"{'.'.join(map(str, path))}: {told}" if path else told
    if context.source_position_tree is None:  # made by Python and not by a file
        return InvalidConfig(told)
    where, _ = context.source_position_tree.lookup_closest_and_path(path, None)
    return InvalidConfig(told, where.filename, where.start.line)


def positive(value: float | None) -> float | None:
    """The number, if it is above 0 or not given.

    A constraint of the field would refuse a template, too, before it is filled in.

    Raises:
        ValueError: it is not.
    """
    if value is not None and value <= 0:
        raise ValueError(f"{value:g} is out of range; give a number above 0")
    return value
