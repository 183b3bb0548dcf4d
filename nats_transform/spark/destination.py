"""The new subject: what the destinations of all mappings make, by number of the destination.

A destination is cut into slots, each literal text followed by something that depends on the
subject. Slot by slot, the text and its parameters are looked up by number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nats_transform.functions import (
    Left,
    Literal,
    Partition,
    Random,
    Right,
    SliceFromLeft,
    SliceFromRight,
    SplitFromLeft,
    SplitFromRight,
    Tail,
    Token,
    Wildcard,
)
from nats_transform.spark.bytes import Cut, View, evaluate
from nats_transform.spark.fnv import add_hash, whole_hash
from nats_transform.spark.lookup import pick
from nats_transform.subject import SEPARATOR


@dataclass(frozen=True, slots=True)
class Hashed:
    """A partition number: the hash with this number in the destination, modulo a count."""

    number: int
    count: int


Variable: TypeAlias = Wildcard | Tail | Hashed | Cut | Random
_NO_KEY = (-1,)


@dataclass(slots=True)
class Slot:
    """Literal text, and what follows it."""

    text: str | None = None
    variable: Variable | None = None


@dataclass(slots=True)
class Template:
    """A destination as slots.

    Attributes:
        slots: in the order of the destination.
        keys: the positions of the tokens that each partition number hashes; None for the whole
            subject and an empty tuple for nothing at all.
    """

    slots: list[Slot]
    keys: list[tuple[int, ...] | None]


def template(tokens: Sequence[Token], has_tokens: bool) -> Template:
    """The slots of a parsed destination.

    Args:
        tokens: of the destination.
        has_tokens: False where `AccountMappings` gives the destination no tokens to hash.
    """
    made = Template([], [])
    for token in tokens:
        last = made.slots[-1] if made.slots else None
        open_slot = last if last is not None and last.variable is None else None
        value = _read(token, has_tokens, made.keys)
        if isinstance(value, str):
            if open_slot is None:
                made.slots.append(Slot(value))
            else:
                open_slot.text = f"{open_slot.text}{SEPARATOR}{value}"
        elif open_slot is None:
            made.slots.append(Slot(None, value))
        else:
            open_slot.variable = value
    return made


def _read(token: Token, has_tokens: bool, keys: list[tuple[int, ...] | None]) -> str | Variable:
    match token:
        case Literal(text):
            return text
        case Partition(0) | Random(0):
            return "0"
        case Partition(count, positions):
            keys.append(positions or (None if has_tokens else ()))
            return Hashed(len(keys) - 1, count)
        case (
            Left(position, size)
            | Right(position, size)
            | SplitFromLeft(position, size)
            | SplitFromRight(position, size)
            | SliceFromLeft(position, size)
            | SliceFromRight(position, size)
        ) if size <= 0:
            return Wildcard(position)
        case _:
            return token


@dataclass(frozen=True)
class Message:
    """The Columns that a result depends on.

    Attributes:
        view: of the subject.
        number: of the destination.
        chance: what `random()` hashes.
    """

    view: View
    number: Column
    chance: tuple[Column, ...]


def add_keys(
    frame: DataFrame, templates: Sequence[Template | None], message: Message, name: str
) -> DataFrame:
    """The frame with what `partition` hashes and the hash of its first bytes."""
    for j in range(max((len(t.keys) for t in templates if t), default=0)):
        keys = [t.keys[j] if t and j < len(t.keys) else _NO_KEY for t in templates]
        kinds = [key for key in dict.fromkeys(keys) if key != _NO_KEY]
        values = [_key(positions, message.view) for positions in kinds]
        numbers = [None if key == _NO_KEY else kinds.index(key) for key in keys]
        chosen = _dispatch(pick(numbers, message.number, "int"), values)
        frame = frame.select("*", chosen.alias(f"{name}_key{j}"))
        frame = add_hash(frame, f"{name}_key{j}", f"{name}_hash{j}")
    return frame


def _key(positions: tuple[int, ...] | None, view: View) -> Column:
    if positions is None:
        return view.data(view.text)
    if len(positions) == 1:
        return view.data(view.token(positions[0]))
    return view.data(F.concat(F.lit(""), *[view.token(position) for position in positions]))


def new_subject(templates: Sequence[Template | None], message: Message, name: str) -> Column:
    """The view of the subject that the destination makes; of no use where there is none.

    Args:
        templates: by number of the destination; None for one that makes no subject.
        message: the Columns it depends on.
        name: as given to `add_keys`.
    """
    parts: list[Column] = []
    for place in range(max((len(t.slots) for t in templates if t), default=0)):
        slots = [t.slots[place] if t and place < len(t.slots) else Slot() for t in templates]
        texts = [None if slot.text is None else message.view.literal(slot.text) for slot in slots]
        if any(text is not None for text in texts):
            parts.append(pick(texts, message.number, "string"))
        if any(slot.variable is not None for slot in slots):
            parts.append(_variable([slot.variable for slot in slots], message, name))
    return F.concat_ws(SEPARATOR, *parts)


def _variable(variables: Sequence[Variable | None], message: Message, name: str) -> Column:
    """What a slot adds after its text; null where it adds nothing.

    Kinds that differ in numbers only share their code: the numbers are looked up.
    """
    kinds = list(dict.fromkeys(_kind(v) for v in variables if v is not None))
    values = [
        _value(kind, [v if v and _kind(v) == kind else None for v in variables], message, name)
        for kind in kinds
    ]
    if len(kinds) == 1 and None not in variables:
        return values[0]
    if kinds == [Wildcard.__name__]:  # a null position gives a null token
        return values[0]
    numbers = [None if v is None else kinds.index(_kind(v)) for v in variables]
    return _dispatch(pick(numbers, message.number, "int"), values)


def _kind(variable: Variable) -> Hashable:
    match variable:
        case Wildcard() | Tail():
            return type(variable).__name__
        case Hashed(number):
            return Hashed.__name__, number
        case _:
            return variable


def _value(
    kind: Hashable, variables: Sequence[Variable | None], message: Message, name: str
) -> Column:
    """The view of what variables of one kind stand for; the others are None."""
    view, number = message.view, message.number
    match kind:
        case Random(count, slot):
            bits = F.xxhash64(*message.chance, F.lit(slot).cast("long"))
            return F.pmod(bits, F.lit(abs(count)).cast("long")).cast("string")
        case (_, int(j)):
            counts = [v.count if isinstance(v, Hashed) else None for v in variables]
            value = whole_hash(f"{name}_key{j}", f"{name}_hash{j}")
            return F.pmod(value, pick(_filled(counts), number, "bigint")).cast("string")
        case "Wildcard" | "Tail":
            positions = [v.position if isinstance(v, Wildcard | Tail) else None for v in variables]
            if kind == "Tail":
                return view.tail(pick(_filled(positions), number, "int"))
            return view.token(pick(positions, number, "int"))
        case _:
            function = cast("Cut", kind)
            return evaluate(function, view.token(function.position), view)


def _dispatch(number: Column, values: Sequence[Column]) -> Column:
    """The value with this number; null where the number is."""
    chain = F.when(number == 0, values[0])
    for place, value in enumerate(values[1:], 1):
        chain = chain.when(number == place, value)
    return chain


def _filled(values: Sequence[int | None]) -> list[int | None]:
    """The values with gaps closed where only one value occurs: a literal needs no lookup."""
    there = {value for value in values if value is not None}
    return list(there) if len(there) == 1 else list(values)
