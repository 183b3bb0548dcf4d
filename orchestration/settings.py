"""How the YAML of a component is read: text stays text, and a mistake is told with its line."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_origin

import dagster as dg
from jinja2 import Environment, StrictUndefined, TemplateSyntaxError, nodes
from jinja2.defaults import DEFAULT_NAMESPACE
from pydantic import (
    BaseModel,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    field_validator,
)
from pydantic_core import PydanticUndefined

from jobs.settings.base import Option, Settings, settings_of
from nats_transform.errors import InvalidConfig, InvalidValue, sentence
from nats_transform.untrusted import visible


class _NothingGiven(Exception):
    pass


def _given(value: Any) -> Any:
    if value is None:  # such as `env.NAME` without this variable
        raise _NothingGiven
    return value


_TEMPLATES = Environment(  # noqa: S701 - settings are no page
    undefined=StrictUndefined, finalize=_given, keep_trailing_newline=True
)


_MOST_CHARACTERS = 4000
_ALLOWED = {
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.Getattr),
    *(nodes.Call, nodes.Keyword, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Filter),
    *(nodes.Concat, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not),
}
_FILTERS = {"d", "default", "float", "int", "lower", "string", "trim", "upper"}
_STRETCHERS = {"center", "expandtabs", "format", "format_map", "join", "ljust", "replace", "rjust"}
_STRETCHERS |= {"translate", "zfill"}


def fault_of(text: str) -> str | None:
    """What of a text cannot be let through, and why; None if all can.

    Jinja lets a template run any program, and count for ever. Looking names up is enough here.
    """
    if len(text) > _MOST_CHARACTERS:
        return f"it has more than {_MOST_CHARACTERS:,} characters"
    try:
        template = _TEMPLATES.parse(text)
        for node in [template, *template.find_all(nodes.Node)]:
            match node:
                case nodes.Name(name=name) if name not in {*DEFAULT_NAMESPACE, "self"}:
                    continue
                case nodes.Getattr(attr=name) if name[0] != "_" and name not in _STRETCHERS:
                    continue
                case nodes.Filter(name=name) if name in _FILTERS:
                    continue
                case nodes.Name(name=what) | nodes.Getattr(attr=what) | nodes.Filter(name=what):
                    pass
                case nodes.Call(node=nodes.Name() | nodes.Getattr()):
                    continue
                case _ if type(node) in _ALLOWED:
                    continue
                case _:
                    what = type(node).__name__.lower()
            return f"a template may only look up names, such as {{{{ env.NAME }}}}: {what}"
    except TemplateSyntaxError as error:
        return str(error)
    except RecursionError:
        return "a template has too many levels"
    return None


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
        day = date.fromisoformat(text)
    except ValueError:
        raise _mistake(context, sentence("not-one-day", text=text)) from None
    if day.year < 1970:
        raise _mistake(context, sentence("day-too-early", day=day))
    return day


def _path(context: dg.ResolutionContext, value: str | None) -> Path | None:
    text = _text(context, value)
    return None if text is None else context.resolve_source_relative_path(text)


def _filled(context: dg.ResolutionContext, value: Any) -> Any:
    """A value with the templates of all its texts filled in."""
    if isinstance(value, str):
        return _text(context, value)
    if isinstance(value, dict):
        return {name: _filled(context, item) for name, item in value.items()}
    return [_filled(context, item) for item in value] if isinstance(value, list) else value


def _read_by(resolve: Any, kind: Any) -> dg.Resolver:
    return dg.Resolver(resolve, model_field_type=kind, inject_before_resolve=False)


Text = Annotated[str, _read_by(_text, str)]
OptionalText = Annotated[str | None, _read_by(_text, str | None)]
Day = Annotated[date, _read_by(_day, str)]
# Relative paths are relative to the folder of the YAML file.
FilePath = Annotated[Path, _read_by(_path, str)]
Entries = Annotated[list[dict[str, Any]], _read_by(_filled, list[dict[str, Any]])]
OptionalPath = Annotated[Path | None, _read_by(_path, str | None)]


_MODELS: set[type[BaseModel]] = set()
"""The schemas of settings: each part of a file looks through its own texts."""


class YamlPart(dg.Model, dg.Resolvable):
    """A part of the YAML of a component.

    Raises:
        InvalidConfig: something in it is wrong; the text has the file, the line and the setting.
    """

    @classmethod
    def model(cls) -> type[BaseModel]:
        """The schema. Dagster drops the descriptions of fields with a default: here they are."""
        yaml_model = super().model()
        fields = [
            (yaml_model.model_fields[name], field) for name, field in cls.model_fields.items()
        ]
        if any(copy.description != field.description for copy, field in fields):
            for copy, field in fields:
                copy.description = field.description
            yaml_model.model_rebuild(force=True)
        _MODELS.add(yaml_model)
        return yaml_model

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: Any) -> Self:
        """The settings, from what the schema has let through."""
        if isinstance(model, str):  # the schema takes it for a template that gives the settings
            names = ", ".join(cls.model_fields)
            shown = visible(model[:80])
            raise _mistake(context, sentence("text-for-list", shown=shown, names=names))
        for name, value in model:
            for text in _texts_of(value):
                if (fault := fault_of(text)) is not None:
                    raise _mistake(context, fault, name)
        try:
            resolved: Self = super().resolve_from_model(context, model)
        except ValidationError as error:
            first = error.errors()[0]
            fault = first["msg"].removeprefix("Value error, ")
            raise _mistake(context, fault, *first["loc"]) from None
        return resolved


def _texts_of(value: Any) -> Iterator[str]:
    """All texts in a value but those of parts that are settings themselves."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel) and type(value) not in _MODELS:
        for _, part in value:  # such as a part that Dagster itself defines
            yield from _texts_of(part)
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _texts_of(list(pair))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts_of(part)


def _mistake(context: dg.ResolutionContext, reason: str, *place: str | int) -> InvalidConfig:
    path = [*context.path, *place]
    reason = f"{'.'.join(map(str, path))}: {reason}" if path else reason
    if context.source_position_tree is None:  # made by Python and not by a file
        return InvalidConfig("refused", reason=reason)
    where, _ = context.source_position_tree.lookup_closest_and_path(path, None)
    return InvalidConfig("refused", where.filename, where.start.line, reason=reason)


def plain_name(text: str) -> str:
    """The text as a name that Dagster takes: letters, digits and underscores."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in text)


_LARGEST = 1_000_000


def positive(value: float | None) -> float | None:
    """The number, if it is above 0 and not huge, or not given.

    A constraint of the field would refuse a template, too, before it is filled in.

    Raises:
        ValueError: it is not.
    """
    if value is not None and not 0 < value <= _LARGEST:
        raise InvalidValue("number-out-of-range", value=value, largest=_LARGEST)
    return value


def yaml_of(
    model: type[Settings],
    only: Collection[str],
    base: type[YamlPart] = YamlPart,
    **defaults: Any,
) -> type[YamlPart]:
    """Settings of a job as a part of the YAML: each with its description, default and bounds.

    Args:
        only: the keys of those that the YAML has.
        base: what this part has besides.
        defaults: the defaults that differ from those of the job.
    """
    fields: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    for setting in settings_of(model, every=True):
        if setting.key not in only:
            continue
        default = defaults.get(setting.key, [] if setting.is_several else setting.default)
        if default is PydanticUndefined and setting.path[1:]:  # of a part that is left out
            default = None
        is_optional = default is None
        kind: Any = setting.kind
        if setting.is_path:
            kind = OptionalPath if is_optional else FilePath
        elif kind not in (bool, int, float) and get_origin(kind) is not Literal:
            kind = OptionalText if is_optional else Text
        described = Field(default, description=setting.field.description)
        fields[setting.key] = (list[kind] if setting.is_several else kind, described)
        # Not as constraints of the field, which would refuse a template before it is filled in.
        if bounds := [mark for mark in setting.field.metadata if not isinstance(mark, Option)]:
            kind = Annotated[setting.field.annotation, *bounds]
            fits: TypeAdapter[Any] = TypeAdapter(kind)
            checks[f"{setting.key}_fits"] = field_validator(setting.key)(partial(_fitting, fits))
    return create_model(model.__name__, __base__=base, __validators__=checks, **fields)


def _fitting(fits: TypeAdapter[Any], value: Any) -> Any:
    """The value, if it is one that the job takes."""
    try:
        fits.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        text = first["msg"].removeprefix("Value error, ")
        reason = text if first["type"] == "value_error" else f"{value}: {text}"
        raise InvalidValue("refused", reason=reason) from None
    return value
