"""Settings as parameters of a command line, and the settings that a command line gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin

import click
from click.core import ParameterSource
from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from jobs.settings.base import Setting, Settings, nested, settings_of
from nats_transform.errors import sentence

_S = TypeVar("_S", bound=Settings)
Completions: TypeAlias = Mapping[str, Callable[..., list[str]]]

_UNUSED = "nats_transform.unused"
"""Key in a click context's `meta`: a part of the settings that is not used -> because of what."""
_STRENGTH = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)


class _Number(click.types.FloatParamType):
    """A number, with a cure for one that is written with a percent sign."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return float(value)
        except ValueError:
            cure = "; leave the % out" if value.endswith("%") else ""
            self.fail(f"{value!r} is not a number such as 2.5{cure}", param, ctx)


_TYPES: dict[Any, click.ParamType[Any]] = {
    int: click.INT,
    float: _Number(),
    Path: click.Path(),
}


class SettingParameter(click.Parameter):
    """A parameter that gives a setting of a model."""

    def __init__(self, *, model: type[Settings], setting: Setting, **attributes: Any) -> None:
        self.model, self.setting = model, setting
        super().__init__(**attributes)


class SettingOption(SettingParameter, click.Option):
    """A setting as an option."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        if self.setting.option.was is not None:  # known, and shown nowhere
            parser.add_option(self, [f"--{self.setting.option.was}"], self.name, nargs=1)


class SettingArgument(SettingParameter, click.Argument):
    """A setting as an argument."""


def parameters_of(model: type[Settings], completions: Completions) -> list[SettingParameter]:
    """The parameters of a model; how the work is done comes after what is to be done."""
    last = ("first_day", "run_id", "warehouse")
    ordered = sorted(settings_of(model), key=lambda setting: setting.path[0] in last)
    return [_parameter(model, setting, completions) for setting in ordered]


def _parameter(model: type[Settings], setting: Setting, completions: Completions) -> Any:
    option, name = setting.option, setting.name
    words = option.parts or ((str,) if setting.is_several else ())
    kind: Any = _TYPES.get(setting.kind, click.STRING)
    if get_origin(setting.kind) is Literal:
        kind = click.Choice(get_args(setting.kind))
    elif len(words) > 1:
        kind = words
    is_needed = setting.field.is_required() and len(setting.path) == 1
    shared: dict[str, Any] = {
        "model": model,
        "setting": setting,
        "type": kind,
        "required": is_needed,
        "metavar": option.metavar or ("FILE" if setting.kind is Path else None),
        "shell_complete": completions.get(option.completes or ""),
    }
    dest = name.replace("-", "_")
    if option.is_argument:
        return SettingArgument(param_decls=[dest], nargs=-1 if setting.is_several else 1, **shared)
    if setting.is_flag:
        del shared["type"]
        shared |= {"is_flag": True, "metavar": None}
    env = None if _is_only_named(model, setting) else option.env
    return SettingOption(
        param_decls=[f"--{name}", *([f"-{option.short}"] if option.short else []), dest],
        envvar=env,
        show_envvar=env is not None,
        multiple=setting.is_several,
        help=_help(setting),
        **shared,
    )


def _is_only_named(model: type[Settings], setting: Setting) -> bool:
    """Whether only the command line gives it: what is always there makes its part unneeded."""
    is_unneeded = any(model.model_fields[name].is_required() for name in setting.unless)
    names = itertools.chain.from_iterable(setting.model.alternatives)
    return is_unneeded and setting.path[-1] in names and not setting.option.combines


def _help(setting: Setting) -> str:
    several = " May be given several times." if setting.is_several else ""
    otherwise = setting.option.otherwise or shown(setting.default)
    default = f"  [default: {otherwise}]" if otherwise and not setting.is_flag else ""
    return f"{setting.field.description}{several}{default}"


def shown(value: Any) -> str:
    """A default in a few words; empty if there is none."""
    if value is None or value is PydanticUndefined or value == "":
        return ""
    if isinstance(value, tuple | list | frozenset):
        return ",".join(map(str, sorted(value)))
    return f"{value / timedelta(days=1):g}" if isinstance(value, timedelta) else str(value)


def parameters(ctx: click.Context, model: type[Settings] | None = None) -> list[SettingParameter]:
    """The parameters of a command that give settings; those of one model, if it is named."""
    return [
        parameter
        for parameter in ctx.command.params
        if isinstance(parameter, SettingParameter) and model in (None, parameter.model)
    ]


def is_given(ctx: click.Context, parameter: click.Parameter) -> bool:
    """Whether anything but the default gives a parameter."""
    return ctx.get_parameter_source(parameter.name or "") in _STRENGTH


def unused_because(ctx: click.Context, parameter: SettingParameter) -> str | None:
    """The option or argument that makes a parameter's part unneeded; None if the part is used."""
    unused: dict[tuple[str, ...], str] = ctx.meta.get(_UNUSED, {})
    return unused.get(parameter.setting.path[:-1])


# ---- Which of several sources counts


def weigh(ctx: click.Context) -> None:
    """Of parameters that exclude each other, takes those away that a weaker source gives.

    A part that is only implied, as a server is by the environment, is not used if there is
    something in its place; one that the command line names goes before that of a project file.
    """
    every = parameters(ctx)
    parts: dict[Any, list[SettingParameter]] = {}
    for parameter in every:
        parts.setdefault((parameter.model, parameter.setting.path[:-1]), []).append(parameter)
    for part in parts.values():
        named = set[str]()
        for names in part[0].setting.model.alternatives:
            _keep_strongest(ctx, [p for p in part if p.setting.path[-1] in names])
            named.update(names)
        if not part[0].setting.unless:
            continue
        others = [
            p
            for p in every
            if p.model is part[0].model and p.setting.path[0] in part[0].setting.unless
        ]
        if any(_source(ctx, p) == 0 for p in part if p.setting.path[-1] in named):
            for parameter in others:
                if _source(ctx, parameter) != 0:
                    _take_away(ctx, parameter)
        elif other := next((p for p in others if is_given(ctx, p)), None):
            unused = ctx.meta.setdefault(_UNUSED, {})
            is_option = isinstance(other, SettingOption)
            name = f"--{other.setting.name}" if is_option else other.human_readable_name
            unused[part[0].setting.path[:-1]] = name


def _keep_strongest(ctx: click.Context, parameters: list[SettingParameter]) -> None:
    strongest = min(_source(ctx, parameter) for parameter in parameters)
    for parameter in parameters:
        is_weaker = strongest < _source(ctx, parameter) < len(_STRENGTH)
        if is_weaker and (_source(ctx, parameter) == 2 or not parameter.setting.option.combines):
            _take_away(ctx, parameter)


def _source(ctx: click.Context, parameter: SettingParameter) -> int:
    """0 for the command line, 1 for the environment, 2 for a project file, 3 for the default."""
    source = ctx.get_parameter_source(parameter.name or "")
    return _STRENGTH.index(source) if source in _STRENGTH else len(_STRENGTH)


def _take_away(ctx: click.Context, parameter: SettingParameter) -> None:
    name = parameter.name or ""
    ctx.params[name] = () if isinstance(ctx.params[name], tuple) else None
    ctx.set_parameter_source(name, ParameterSource.DEFAULT)


# ---- The settings


def read(model: type[_S], ctx: click.Context) -> _S:
    """The settings that a command line gives; what nothing gives has its default.

    Raises:
        UsageError: a setting that is refused, by the name of its option.
    """
    values: dict[str, Any] = {}
    for parameter in parameters(ctx, model):
        value, setting = ctx.params[parameter.name or ""], parameter.setting
        if value is None or unused_because(ctx, parameter) is not None:
            continue
        if value == "" or (isinstance(value, tuple) and "" in value):
            raise click.BadParameter(sentence("option-empty"), ctx, parameter)
        if value not in ((), False) or is_given(ctx, parameter):
            values[setting.key] = setting.option.value if setting.option.value and value else value
    try:
        document = nested(settings_of(model), values)
        return model.model_validate(_with_parts(model, document, ctx))
    except ValidationError as error:
        raise _mistake(error, model, ctx) from error


def _with_parts(model: type[Settings], values: dict[str, Any], ctx: click.Context) -> Any:
    """The values of a model, in which each of its parts is as people gave it."""
    unused = ctx.meta.get(_UNUSED, {})
    parts = {each.setting.path[0]: each for each in parameters(ctx, model) if each.setting.path[1:]}
    for name, parameter in parts.items():
        part = values.pop(name, {})
        given = None if (name,) in unused else parameter.setting.model.given(part)
        if given is not None:
            values[name] = given
    return values


def _mistake(error: ValidationError, model: type[Settings], ctx: click.Context) -> click.UsageError:
    """The first thing that is wrong, in the words of the command line."""
    # Of what is wrong, a value that is given goes before one that is missing.
    errors = error.errors(include_url=False, include_context=False)
    first = min(errors, key=lambda e: e["type"] == "missing")
    text, place = first["msg"].removeprefix("Value error, "), first["loc"]
    for parameter in parameters(ctx, model):
        setting = parameter.setting
        if place[: len(setting.path)] == setting.path:
            value = first["input"]
            if first["type"] != "value_error" and not setting.is_secret:
                text = f"{value!r}: {text}" if isinstance(value, str | int | float) else text
            return click.BadParameter(text, ctx, parameter)
    if first["type"] == "missing":  # no option that is required: click has seen to those
        part = [p for p in parameters(ctx, model) if p.setting.path[0] == place[0]]
        options = " or ".join(f"--{p.setting.name}" for p in part[:2])
        return click.UsageError(sentence("options-missing", options=options), ctx)
    # What is said of several settings together names them.
    names = "" if first["type"] == "value_error" else ".".join(map(str, place))
    return click.UsageError(f"{names}: {text}" if names else text, ctx)
