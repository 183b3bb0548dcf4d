"""The new subject: what the destinations of all mappings make, by number of the destination.

A destination is cut into slots, each literal text followed by something that depends on the
subject. Slot by slot, the text and its parameters are looked up by number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nats_transform.functions import (
    Literal,
    OfTokenAndSize,
    Partition,
    Random,
    Tail,
    Token,
    Wildcard,
)
from nats_transform.spark.bytes import Cut, View, evaluate
from nats_transform.spark.fnv import add_hashes, whole_hash
from nats_transform.spark.lookup import literal, own_method, pick
from nats_transform.subject import SEPARATOR


@dataclass(frozen=True, slots=True)
class Hashed:
    """A partition number: the hash with this number in the destination, modulo a count."""

    number: int
    count: int


Variable: TypeAlias = Wildcard | Tail | Hashed | Cut | Random
Key: TypeAlias = tuple[int, ...] | str | None
"""What is hashed: the tokens at these positions; None for the whole subject; a str for the whole
subject unless it is this one, of which nothing is hashed."""
_NO_KEY = (-1,)
_CUT = "Cut"


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
        keys: what each partition number hashes.
    """

    slots: list[Slot]
    keys: list[Key]


def template(tokens: Sequence[Token], uncut: str | None = None) -> Template:
    """The slots of a parsed destination.

    Args:
        tokens: of the destination.
        uncut: the one subject, if any, that `AccountMappings` does not cut into tokens to hash.
    """
    made = Template([], [])
    for token in tokens:
        last = made.slots[-1] if made.slots else None
        open_slot = last if last is not None and last.variable is None else None
        value = _read(token, uncut, made.keys)
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


def _read(token: Token, uncut: str | None, keys: list[Key]) -> str | Variable:
    match token:
        case Literal(text):
            return text
        case Partition(0) | Random(0):
            return "0"
        case Partition(count, positions):
            keys.append(positions or uncut)
            return Hashed(len(keys) - 1, count)
        case OfTokenAndSize() if token.leaves_whole:
            return Wildcard(token.position)
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


def add_inputs(
    frame: DataFrame, templates: Sequence[Template | None], message: Message, name: str
) -> DataFrame:
    """The frame with the parts of the new subject.

    For each slot the bytes of a token that is cut, and what the slot adds after its text; for each
    partition number what it hashes, and the hash of the first bytes of that.
    """
    view, number = message.view, message.number
    parts: list[Column] = []
    data: dict[str, Column] = {}
    for place, variables in enumerate(_slots(templates)):
        positions = [v.position if isinstance(v, Cut) else None for v in variables]
        if any(position is not None for position in positions):
            token = view.token(pick(positions, number, "int"))
            data[f"{name}_data{place}"] = view.data(token)
        plain = [None if isinstance(v, Hashed) else v for v in variables]
        if any(variable is not None for variable in plain):
            part = _variable(plain, message, F.col(f"{name}_data{place}"))
            has_cut = any(isinstance(variable, Cut) for variable in plain)
            parts.append((own_method(part) if has_cut else part).alias(f"{name}_part{place}"))
    frame = frame.withColumns(data) if data else frame
    frame = frame.select("*", *parts) if parts else frame
    hashed: dict[str, Column] = {}
    for j in range(_count_keys(templates)):
        keys = [t.keys[j] if t and j < len(t.keys) else _NO_KEY for t in templates]
        kinds = [key for key in dict.fromkeys(keys) if key != _NO_KEY]
        values = [_key(key, view) for key in kinds]
        numbers = [None if key == _NO_KEY else kinds.index(key) for key in keys]
        hashed[f"{name}_key{j}"] = _dispatch(pick(numbers, number, "int"), values)
    if not hashed:
        return frame
    frame = frame.withColumns(hashed)
    return add_hashes(
        frame, {f"{name}_hash{j}": f"{name}_key{j}" for j in range(_count_keys(templates))}
    )


def has_partitions(templates: Sequence[Template | None]) -> bool:
    """Whether any destination has a partition number."""
    return _count_keys(templates) > 0


def _count_keys(templates: Sequence[Template | None]) -> int:
    return max((len(t.keys) for t in templates if t), default=0)


def _slots(templates: Sequence[Template | None]) -> list[list[Variable | None]]:
    """For each slot its variable in each destination."""
    return [
        [t.slots[place].variable if t and place < len(t.slots) else None for t in templates]
        for place in range(max((len(t.slots) for t in templates if t), default=0))
    ]


def _key(key: Key, view: View) -> Column:
    match key:
        case None:
            return view.data(view.text)
        case str():
            is_uncut = view.text == literal(view.literal(key))
            return view.data(F.when(is_uncut, "").otherwise(view.text))
        case (position,):
            return view.data(view.token(position))
        case _:
            return view.data(F.concat(*[view.token(position) for position in key]))


def new_subject(templates: Sequence[Template | None], message: Message, name: str) -> Column:
    """The view of the subject that the destination makes; of no use where there is none.

    Args:
        templates: by number of the destination; None for one that makes no subject.
        message: the Columns it depends on.
        name: as given to `add_keys`.
    """
    parts: list[Column] = []
    for place, variables in enumerate(_slots(templates)):
        slots = [t.slots[place] if t and place < len(t.slots) else Slot() for t in templates]
        texts = [None if slot.text is None else message.view.literal(slot.text) for slot in slots]
        if any(text is not None for text in texts):
            parts.append(pick(texts, message.number, "string"))
        values = [_partition(variables, j, message, name) for j in _numbers(variables)]
        if any(v is not None and not isinstance(v, Hashed) for v in variables):
            values.append(F.col(f"{name}_part{place}"))
        if values:
            parts.append(F.coalesce(*values) if len(values) > 1 else values[0])
    return F.concat_ws(SEPARATOR, *parts)


def _numbers(variables: Sequence[Variable | None]) -> list[int]:
    return sorted({v.number for v in variables if isinstance(v, Hashed)})


def _partition(variables: Sequence[Variable | None], j: int, message: Message, name: str) -> Column:
    """The j-th partition number where it stands in this slot; null elsewhere."""
    counts = [v.count if isinstance(v, Hashed) and v.number == j else None for v in variables]
    count = pick(counts, message.number, "bigint")
    return F.pmod(whole_hash(f"{name}_key{j}", f"{name}_hash{j}"), count).cast("string")


def _variable(variables: Sequence[Variable | None], message: Message, data: Column) -> Column:
    """What a slot adds after its text, partition numbers aside; null where it adds nothing.

    Kinds that differ in numbers only share their code: the numbers are looked up.
    """
    kinds = list(dict.fromkeys(_kind(v) for v in variables if v is not None))
    values = [
        _value(kind, [v if v and _kind(v) == kind else None for v in variables], message)
        for kind in kinds
        if kind != _CUT
    ]
    if _CUT in kinds:
        kinds.append(kinds.pop(kinds.index(_CUT)))
        cuts = [v if isinstance(v, Cut) else None for v in variables]
        values.append(_cuts(cuts, message, data))
    if len(kinds) == 1:
        return values[0]
    numbers = [None if v is None else kinds.index(_kind(v)) for v in variables]
    return _dispatch(pick(numbers, message.number, "int"), values)


def _kind(variable: Variable) -> Hashable:
    match variable:
        case Wildcard() | Tail():
            return type(variable).__name__
        case Random():
            return variable
        case _:
            return _CUT


def _cuts(cuts: Sequence[Cut | None], message: Message, data: Column) -> Column:
    """The view of what the functions make of the bytes of a token; null where there is none."""
    # Where the token stands is in `data` already.
    placed = [None if cut is None else replace(cut, position=0) for cut in cuts]
    kinds = [cut for cut in dict.fromkeys(placed) if cut is not None]
    numbers = [None if cut is None else kinds.index(cut) for cut in placed]
    values = [evaluate(cut, data) for cut in kinds]
    if len(kinds) == 1:
        return message.view.text_of(values[0])
    return message.view.text_of(_dispatch(pick(numbers, message.number, "int"), values))


def _value(kind: Hashable, variables: Sequence[Variable | None], message: Message) -> Column:
    """The view of what variables of one kind stand for; the others are None."""
    view, number = message.view, message.number
    match kind:
        case Random(count, slot):
            bits = F.xxhash64(*message.chance, F.lit(slot).cast("long"))
            value = F.pmod(bits, F.lit(abs(count)).cast("long")).cast("string")
            is_here = pick([variable is not None for variable in variables], number, "boolean")
            return value if None not in variables else F.when(is_here, value)
        case _:
            positions = [v.position if isinstance(v, Wildcard | Tail) else None for v in variables]
            position = pick(positions, number, "int")
            return view.tail(position) if kind == Tail.__name__ else view.token(position)


def _dispatch(number: Column, values: Sequence[Column]) -> Column:
    """The value with this number; null where the number is."""
    chain = F.when(number == 0, values[0])
    for place, value in enumerate(values[1:], 1):
        chain = chain.when(number == place, value)
    return chain
