"""What streams, consumers, users and other accounts make of a subject, once for each form of it.

Two subjects have the same form if everybody treats them alike. The kernel finds subjects that no
filter tells apart, and the scalar library looks at one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from nats_transform.config.permissions import Rights
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import End, State
from nats_transform.mappings.mapping import Fate
from nats_transform.mappings.subject import (
    NOT_LITERAL,
    SEPARATOR,
    decode,
    encode,
    is_valid_publish_subject,
)
from nats_transform.mappings.subject_index import Interest
from nats_transform.mappings.transform import Transform
from nats_transform.mappings.unresolved import numbered
from nats_transform.migration.question import Question
from nats_transform.migration.tables.kinds import MOST_KINDS, Kind, Kinds
from nats_transform.migration.tables.mapped import result
from nats_transform.migration.tables.texts import (
    MOST_BYTES,
    MOST_TOKENS,
    Classes,
    Numbers,
    Signatures,
    same,
)
from nats_transform.streams.consumer import Consumers
from nats_transform.streams.network import Arrival, Via, republisher


class Receiver(NamedTuple):
    """Who gets a subject.

    Attributes:
        layer: the number of the layer of the question.
        how: `captures`, `stores`, `repeats` (stores several times), `keeps` (stores under the
            subject itself), `ingress`, `takes`, `takes raw` (without the transforms of its source),
            `catches` (captures what another one republishes), `republishes` or `loops` for streams;
            `consumer`; `export` for exports and imports; `publish` or `subscribe` for a user who
            may, but not everything.
        number: the stream, consumer, user and so on by its place in the question.
        other: the stream that it is taken from, or that republishes it; else -1.
    """

    layer: int
    how: str
    number: int
    other: int = -1

    def name(self, question: Question) -> str:
        """The name of the stream, `stream/consumer`, user, or export or import."""
        match self.how:
            case "consumer":
                consumer = question.consumers[self.number]
                return f"{consumer.stream}/{consumer.name}"
            case "export":
                return str(question.shared[self.number])
            case "publish" | "subscribe":
                return question.users[self.number].name
        return question.streams[self.number].name


class Form(NamedTuple):
    """What is known of a subject.

    Attributes:
        is_legal: whether a message can be published under it.
        has_many_tokens, is_long: whether it is beyond the recommended limits.
        receivers: who gets it.
    """

    is_legal: bool
    has_many_tokens: bool
    is_long: bool
    receivers: frozenset[Receiver]


class Renamed(NamedTuple):
    """Texts under which a stream stores subjects.

    Attributes:
        layer, stream: the numbers of the layer and of the stream.
        rows: the rows of the subjects.
        texts: the text for each row.
    """

    layer: int
    stream: int
    rows: Numbers
    texts: pa.Array


_Columns: TypeAlias = Sequence[pa.Array]


class Forms:
    """Numbers the forms of subjects.

    Args:
        questions: the layers of a question.

    Attributes:
        numbers: the number of each form, from 0 on.
        most_tokens: how many tokens a subject has, up to the number that filters look at.
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        self._networks = [question.network for question in questions]
        self._rights = [Rights(question.users) for question in questions]
        self._consumers = [Consumers(question.consumers) for question in questions]
        self._shared = [
            Interest((one.subject, number) for number, one in enumerate(q.shared))
            for q in questions
        ]
        self._renames = any(any(network.transforms) for network in self._networks)
        self._streams = [
            {stream.name: number for number, stream in enumerate(n.streams)} for n in self._networks
        ]
        filters = list(
            dict.fromkeys(filter for question in questions for _, filter in question.filters)
        )
        self._signatures, self._kinds = Signatures(filters), Kinds(filters)
        self._names = {token for filter in filters for token in filter.split(SEPARATOR)}
        self._known: dict[tuple[Kind, bool, bool], int] = {}
        self.numbers: dict[Form, int] = {}
        self.most_tokens = 0

    def of(self, texts: pa.Array, draws: Numbers | None = None) -> tuple[Numbers, list[Renamed]]:
        """The form of each text, -1 for a null; and the texts under which streams store them.

        Args:
            texts: the texts.
            draws: `Mapped.draws`; none if no text has a `random()`.
        """
        forms, renamed = np.full(len(texts), -1, dtype=np.int64), list[Renamed]()
        for rows in self._classes([texts], draws):
            taken = texts.take(pa.array(rows))
            first = taken[0].as_py()
            if first is None:
                continue
            if not NOT_LITERAL.isdisjoint(decode(first).split(SEPARATOR)):
                self._each(rows, taken, forms, renamed)
            elif self._renames:
                self._follow(rows, [taken], frozenset(), forms, renamed)
            else:
                forms[rows] = self._form(decode(first))
        return forms, renamed

    def _classes(self, columns: _Columns, draws: Numbers | None = None) -> Iterator[Numbers]:
        """The rows of texts that no filter tells apart; the last column decides."""
        *others, texts = columns
        classes = Classes(len(texts))
        if draws is not None and draws.any():
            # No filter names a `random()` as it is written, so these need classes of their own.
            classes.add(draws, int(draws.max()) + 1)
        for numbers, below in self._signatures.of(texts):
            classes.add(numbers, below)
        for other in others:
            classes.add(same(other, texts).astype(np.int64), 2)
        return classes.rows()

    def _each(self, rows: Numbers, texts: pa.Array, forms: Numbers, renamed: list[Renamed]) -> None:
        """Looks at texts one by one."""
        for row, text in zip(rows.tolist(), texts.to_pylist(), strict=True):
            forms[row] = self._form(decode(text))
            for layer, stream, stored in self._renamed(decode(text)):
                column = pa.array([encode(stored)], pa.binary())
                renamed.append(Renamed(layer, stream, np.array([row]), column))

    def _follow(
        self,
        rows: Numbers,
        columns: _Columns,
        done: frozenset[tuple[int, Transform]],
        forms: Numbers,
        renamed: list[Renamed],
    ) -> None:
        """Follows subjects through the transforms of streams, which may tell them apart.

        Args:
            rows: the rows of the subjects.
            columns: all texts of the subjects on their way; the subjects themselves come first.
            done: pairs of a place in `columns` and a transform whose results are there too.
            forms, renamed: take what is found.
        """
        places: dict[str, int] = {}
        for place, column in enumerate(columns):
            places.setdefault(decode(column[0].as_py()), place)
        first = next(iter(places))
        steps = (
            (places[text], transform)
            for network in self._networks
            for text, transform in network.renames(first)
        )
        step = next((step for step in steps if step not in done), None)
        if step is None:
            forms[rows] = self._form(first)
            for layer, stream, stored in self._renamed(first):
                renamed.append(Renamed(layer, stream, rows, columns[places[stored]]))
            return
        results = _program(step[1]).run(columns[step[0]]).subjects
        for some in self._classes([*columns, results]):
            chosen = pa.array(some)
            texts = [column.take(chosen) for column in (*columns, results)]
            tokens = decode(texts[-1][0].as_py() or b"").split(SEPARATOR)
            if not NOT_LITERAL.isdisjoint(tokens):
                self._each(rows[some], texts[0], forms, renamed)
            else:
                self._follow(rows[some], texts, done | {step}, forms, renamed)

    def _renamed(self, text: str) -> Iterable[tuple[int, int, str]]:
        """Each layer and stream that stores a subject under another name, and that name."""
        return dict.fromkeys(
            (layer, numbers[arrival.stream], arrival.subject)
            for layer, numbers in enumerate(self._streams)
            for arrival in self._networks[layer].arrivals(text)
            if arrival.subject not in (text, None) and not arrival.repeats
        )

    def _form(self, text: str) -> int:
        """The number of the form of a text.

        Of a text with a `random()`: if its numbers have several forms, that of the worst off, so
        that no finding is lost. That is one that no stream captures, or else the fewest get.
        """
        if "{{random(" in text and (ones := numbered(text, self._names)) != [text]:
            several = sorted({self._form(one) for one in ones})
            every = list(self.numbers)
            return min(several, key=lambda number: _standing(every[number]))
        self.most_tokens = max(self.most_tokens, text.count(SEPARATOR) + 1)
        kind = None if self._renames else self._kinds.of(text.split(SEPARATOR))
        is_legal, is_long = is_valid_publish_subject(text), len(encode(text)) > MOST_BYTES
        known = None if kind is None else self._known.get((kind, is_legal, is_long))
        if known is None:
            form = Form(
                is_legal,
                text.count(SEPARATOR) >= MOST_TOKENS,
                is_long,
                frozenset(self._receivers(text)),
            )
            known = self.numbers.setdefault(form, len(self.numbers))
            if kind is not None and len(self._known) < MOST_KINDS:
                self._known[kind, is_legal, is_long] = known
        return known

    def _receivers(self, text: str) -> Iterator[Receiver]:
        for layer, network in enumerate(self._networks):
            arrivals = network.arrivals(text)
            yield from self._of_streams(layer, text, arrivals)
            stored = {(a.stream, a.subject or "") for a in arrivals if not a.repeats}
            for stream, subject in stored:
                for number in self._consumers[layer].of(stream, subject):
                    yield Receiver(layer, "consumer", number)
            yield from self._outside(layer, text)
            for arrival in arrivals:
                if arrival.republished is not None:
                    number = self._streams[layer][arrival.stream]
                    yield from self._outside(layer, arrival.republished.subject, number)

    def _outside(self, layer: int, text: str, other: int = -1) -> Iterator[Receiver]:
        """Who else may have a subject, which may be one that a stream republishes."""
        for number in self._shared[layer].of(text):
            yield Receiver(layer, "export", number, other)
        for how, number in self._rights[layer].of(text):
            if how == "subscribe" or other < 0:
                yield Receiver(layer, how, number, other)

    def _of_streams(self, layer: int, text: str, arrivals: Sequence[Arrival]) -> Iterator[Receiver]:
        """The streams that a subject comes to, and what they do with it."""
        network, numbers, stored = self._networks[layer], self._streams[layer], set[int]()
        for arrival in arrivals:
            number = numbers[arrival.stream]
            if arrival.via is Via.CAPTURE:
                yield Receiver(layer, "captures", number)
            if arrival.origin is not None:
                other = numbers[arrivals[arrival.origin].stream]
                how = "catches" if arrival.via is Via.REPUBLISH else "takes"
                yield Receiver(layer, how, number, other)
                rules = () if arrival.taken.mapping_destination else network.rules(arrival)
                if any(rule.transform for rule in rules):
                    yield Receiver(layer, "takes raw", number, other)
            if arrival.repeats:
                if loop := republisher(arrivals, arrival):
                    yield Receiver(layer, "loops", numbers[loop])
                continue
            yield Receiver(layer, "stores" if number not in stored else "repeats", number)
            stored.add(number)
            if arrival.subject == text:
                yield Receiver(layer, "keeps", number)
            if arrival.is_mapped:
                yield Receiver(layer, "ingress", number)
            if arrival.republished is not None:
                yield Receiver(layer, "republishes", number)


def _standing(form: Form) -> tuple[bool, int]:
    """Sorts forms: those that no stream captures first, then those with the fewest receivers."""
    is_captured = any(r.how == "captures" and not r.layer for r in form.receivers)
    return is_captured, len(form.receivers)


@cache
def _program(transform: Transform) -> Program:
    """The compiled transform, for subjects that its source is known to cover."""
    return Program([], End(State(Fate.MAPPED), result(transform)))
