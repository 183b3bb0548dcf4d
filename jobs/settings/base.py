"""What a setting is. Each one is declared once, as a field of a model in this package.

The options of commands, the keys of project files, `--show-config`, completion, the YAML of an
archive under Dagster and the reference pages are all made from these fields: a field's description
is its help, its type says what can be given, and an `Option` says what the type does not.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from nats_transform.errors import InvalidValue


@dataclass(frozen=True, kw_only=True)
class Option:
    """What the type of a field does not say about its setting.

    Attributes:
        key: the name in YAML, if it is not that of the field.
        name: the name of the option, if it is not the key with dashes.
        was: a name that it had before, which command lines and project files may still use.
        short: a letter for the option.
        metavar: what stands for a value in the help.
        env: the variable of the environment that gives it.
        otherwise: what holds if nothing is given, in words.
        cure: why a project file may not give it, and what to do instead: the author of a file must
            not choose whom a reader's archive is sent to. Empty if it may.
        in_project: a pattern of the values that a project file may give nevertheless.
        completes: what a shell completes.
        parts: the types of the words that one value has.
        value: a flag stands for this value.
        is_path: whether a text is a path, unless it is a URI.
        is_written: whether the path is written: one in a project file stays inside its folder.
        combines: whether the environment may give it beside an alternative of the command line.
        is_argument: whether the command line has it without a name.
        is_option: whether people can give it; if not, only programs can.
        unless: of a part: the fields beside it that make it unneeded, unless the command line
            names it.
        offers: of a part: those of its fields that people can give here, though not elsewhere.
    """

    key: str | None = None
    name: str | None = None
    was: str | None = None
    short: str | None = None
    metavar: str | None = None
    env: str | None = None
    otherwise: str | None = None
    cure: str = ""
    in_project: str | None = None
    completes: Literal["streams", "days", "contexts", "codes"] | None = None
    parts: tuple[type, ...] = ()
    value: str | None = None
    is_path: bool = False
    is_written: bool = False
    combines: bool = False
    is_argument: bool = False
    is_option: bool = True
    unless: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()


class _OptionOfField(Option):
    """What a field says of its own setting, which goes before what its type says."""


_NOTHING = Option()


def setting(default: Any, description: str, **more: Any) -> Any:
    """A field that is a setting.

    Args:
        default: its value if nobody gives one; `...` if somebody must.
        description: its help, its description in schemas, and its line in reference pages.
        more: attributes of its `Option`; and what pydantic's `Field` takes, such as bounds.
    """
    option = {name: more.pop(name) for name in vars(_NOTHING).keys() & more}
    if "default_factory" not in more:
        more["default"] = default
    field: FieldInfo = Field(description=description, **more)
    field.metadata.append(_OptionOfField(**option))
    return field


class Settings(BaseModel):
    """Settings of a job, or a part of them.

    Attributes:
        alternatives: groups of fields of which one is given. One from a stronger source, such as
            the command line, replaces another one from a weaker source, such as the project file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_empty_path(cls, value: Any, info: ValidationInfo) -> Any:
        values = value if isinstance(value, list | tuple) else [value]
        if "" in values and info.field_name is not None:
            field = cls.model_fields[info.field_name]
            option, kind, _ = _marked(*_meaning(field.annotation), field.metadata)
            if kind is Path or option.is_path:  # `Path("")` is the current folder
                raise InvalidValue("path-empty")
        return value

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for names in self.alternatives:
            given = [name for name in names if getattr(self, name) not in (None, False)]
            if len(given) > 1:
                known = {setting.path: f"--{setting.name}" for setting in settings_of(type(self))}
                options = " or ".join(known.get((name,), name) for name in given)
                raise InvalidValue("not-both", options=options)
        return self

    @classmethod
    def given(cls, values: Mapping[str, Any]) -> Mapping[str, Any] | Self | None:
        """What people gave of this part of the settings; None if it has not been given at all."""
        return values or None


@dataclass(frozen=True)
class Setting:
    """One setting: a field, and where it stands.

    Attributes:
        path: the names of the fields that lead to it, from the outermost model on.
        option: what its type does not say.
        kind: the type of its value; of one of its values, if it has several.
        is_several: whether it may have several values.
        model: the model that has the field.
        unless: the fields of the outermost model that make its part unneeded.
    """

    path: tuple[str, ...]
    field: FieldInfo
    option: Option
    kind: Any
    is_several: bool
    model: type[Settings]
    unless: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name in YAML."""
        return self.option.key or self.path[-1]

    @property
    def name(self) -> str:
        """Its name on the command line and in project files, without dashes in front."""
        return self.option.name or self.key.replace("_", "-")

    @property
    def is_flag(self) -> bool:
        """Whether giving it says all."""
        return self.kind is bool or self.option.value is not None

    @property
    def is_secret(self) -> bool:
        """Whether its value must not be shown."""
        return self.kind is SecretStr

    @property
    def is_path(self) -> bool:
        """Whether its value is a path."""
        return self.kind is Path or self.option.is_path

    @property
    def default(self) -> Any:
        """What holds if nobody gives it; None if that depends on something else."""
        return self.field.get_default()  # not what a factory makes anew


def settings_of(
    model: type[Settings], *, every: bool = False, offered: tuple[str, ...] = ()
) -> Iterator[Setting]:
    """The settings of a model that people can give, or every one; those of its parts too.

    Args:
        offered: fields that people can give here, though not elsewhere.
    """
    for name, field in model.model_fields.items():
        option, kind, is_several = _marked(*_meaning(field.annotation), field.metadata)
        if isinstance(kind, type) and issubclass(kind, Settings) and not option.parts:
            for inner in settings_of(kind, every=every, offered=option.offers):
                unless = inner.unless or option.unless
                yield replace(inner, path=(name, *inner.path), unless=unless)
        elif option.is_option or every or name in offered:
            yield Setting((name,), field, option, kind, is_several, model)


def nested(settings: Iterable[Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the keys of their settings, as a model takes them: those of a part by its name."""
    document: dict[str, Any] = {}
    for setting in settings:
        if setting.key in values:
            place = document
            for part in setting.path[:-1]:
                place = place.setdefault(part, {})
            place[setting.path[-1]] = values[setting.key]
    return document


def _meaning(annotation: Any) -> tuple[Option, Any, bool]:
    """What a type says: its option, the type of one value, and whether there may be several."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        option, kind, is_several = _meaning(arguments[0])
        return _marked(option, kind, is_several, arguments[1:])
    if origin in (Union, types.UnionType):
        options = [argument for argument in arguments if argument is not types.NoneType]
        first = _meaning(options[0])
        # Of several types, the model finds out which one a text is.
        return first if len(options) == 1 or first[2] else (first[0], str, False)
    if origin in (tuple, list, frozenset):
        option, kind, _ = _meaning(arguments[0])
        return option, kind, True
    return Option(), annotation, False


def _marked(
    option: Option, kind: Any, is_several: bool, marks: Iterable[Any]
) -> tuple[Option, Any, bool]:
    """What a type says together with what stands beside it in `Annotated`."""
    for mark in sorted(marks, key=lambda mark: isinstance(mark, _OptionOfField)):
        if isinstance(mark, Option):
            named = vars(mark).items()
            said = {name: value for name, value in named if value != getattr(_NOTHING, name)}
            option = replace(option, **said)
        elif mark is WithCommas:
            kind, is_several = str, False
    return option, kind, is_several


# ---- Kinds of values that several models have


def _moment(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidValue("not-a-moment", value=value) from None
    if moment.tzinfo is None:
        text = value if ":" in value else f"{value}T00:00"
        raise InvalidValue("no-time-zone", text=text)
    utc(moment)
    return moment


def utc(moment: datetime) -> datetime:
    """The moment in UTC, which it is in if it names no zone.

    Raises:
        ValueError: UTC has no such year.
    """
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise InvalidValue("moment-out-of-range", moment=moment.isoformat()) from None


def _with_commas(value: Any) -> Any:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _without_keys(address: str) -> str:
    if re.match(r"[\w+.-]+://[^/]*:[^/]*@", address):
        raise InvalidValue("secret-in-address")
    return address


Address = Annotated[str, AfterValidator(_without_keys)]
"""A path or a URI, without secrets."""
Moment = Annotated[AwareDatetime, BeforeValidator(_moment), Option(metavar="MOMENT")]
"""A time with its zone."""
WithCommas = BeforeValidator(_with_commas)
"""Several values may be one text, with commas between them."""
Name = Annotated[str, Option(metavar="NAME")]
Folder = Annotated[Path, Option(metavar="DIR")]
Seed = Annotated[int, Option(metavar="N")]
Points = Annotated[float, Field(gt=0, le=100)]
Probability = Annotated[float, Field(gt=0, lt=1)]
