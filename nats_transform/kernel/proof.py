"""A second opinion on outcomes: each row of a batch, judged by another way than the kernel's.

The rules are a trie, and a new subject is read beside its destination; see proof.c. Neither the
tables nor the code are those of `Program`, so a fault of one is not a fault of the other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nats_transform.kernel.columns import Columns
from nats_transform.kernel.library import checked, library
from nats_transform.kernel.rules import State
from nats_transform.kernel.texts import Texts
from nats_transform.mappings.draw import mapping_key
from nats_transform.mappings.functions import (
    Left,
    Literal,
    OfTokenAndSize,
    Partition,
    Random,
    Right,
    SliceFromLeft,
    SliceFromRight,
    Split,
    SplitFromLeft,
    SplitFromRight,
    Tail,
    Token,
    Wildcard,
)
from nats_transform.mappings.mapping import (
    EMPTY_DESTINATION,
    EMPTY_RESULT,
    AccountMappings,
    Fate,
    Share,
)
from nats_transform.mappings.subject import (
    ANY_TAIL,
    ANY_TOKEN,
    EMPTY_TOKEN,
    NO_SUBJECT,
    WILDCARD_TOKEN,
)

IS_SAME, IS_ILLEGAL = 1, 2
"""The marks of a row: its new subject is the right one; it is no legal literal one."""

_NO_NODE, _UNMATCHED = -1, 2**31 - 1
_TABLES = ("nodes", "edges", "scopes", "keys", "ends", "parts", "hashed", "clusters", "text")
_NUMBERS = ("cluster_count", "node_count", "kept", "uncut", "uncut_size")


class _Kind(IntEnum):
    """The kinds of parts; keep in step with proof.c."""

    LITERAL = 0
    TOKEN = 1
    TAIL = 2
    PARTITION = 3
    RANDOM = 4
    LEFT = 5
    RIGHT = 6
    SPLIT_FROM_LEFT = 7
    SPLIT_FROM_RIGHT = 8
    SLICE_FROM_LEFT = 9
    SLICE_FROM_RIGHT = 10
    SPLIT = 11
    CHARACTERS = 12


_SIZED: dict[type[OfTokenAndSize], _Kind] = {
    Left: _Kind.LEFT,
    Right: _Kind.RIGHT,
    SplitFromLeft: _Kind.SPLIT_FROM_LEFT,
    SplitFromRight: _Kind.SPLIT_FROM_RIGHT,
    SliceFromLeft: _Kind.SLICE_FROM_LEFT,
    SliceFromRight: _Kind.SLICE_FROM_RIGHT,
}


class _Rules(ctypes.Structure):
    """`rules` of proof.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _TABLES),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    )


class _Opinion(ctypes.Structure):
    """`opinion` of proof.c."""

    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("ends", "draws", "marks", "hashes", "starts", "active")
    )


@dataclass(frozen=True, slots=True, eq=False)
class Opinion:
    """What should have become of each message of a batch.

    Attributes:
        states: places in `Proof.states`.
        draws: the draws; -1 where nothing is drawn.
        marks: whether the new subject of the row is the right one, and whether it is illegal.
        hashes: the FNV-1a hash of the key of the first `partition()`; 0 without one.
    """

    states: npt.NDArray[np.int32]
    draws: npt.NDArray[np.int32]
    marks: npt.NDArray[np.uint8]
    hashes: npt.NDArray[np.uint32]


@dataclass(slots=True)
class _Node:
    """A place in the trie of all sources."""

    edges: dict[str, _Node] = field(default_factory=dict)
    any: _Node | None = None
    rule: int = _UNMATCHED
    open_rule: int = _UNMATCHED


class Proof:
    """What mappings make of messages, for a whole batch at once; it can be sent to a task.

    Args:
        mappings: the mappings of one account.
        seed: the seed of the run, which decides the draws.

    Attributes:
        states: what the numbers in `Opinion.states` stand for.
    """

    def __init__(self, mappings: AccountMappings, seed: int = 0) -> None:
        texts = Texts()
        rules = mappings.mappings
        nodes, edges = _flat(_trie(mappings), texts)
        names = list(dict.fromkeys(name for mapping in rules for name in mapping.clusters))
        states = [
            State(Fate.UNMATCHED),
            *(State(Fate.INVALID, why) for why in (NO_SUBJECT, EMPTY_TOKEN, WILDCARD_TOKEN)),
        ]
        ends, scopes = [(0, 0, 0)] * len(states), []
        parts: list[tuple[int, ...]] = []
        hashed: list[int] = []
        for mapping in rules:
            places = {}
            for scope in mapping.scopes:
                shares = mapping.shares(scope)
                is_drawn = mapping.is_drawn(scope)
                tokens = [token for s in shares if s.transform for token in s.transform.tokens]
                has_chance = is_drawn or any(isinstance(token, Random) for token in tokens)
                places[scope] = (len(ends), is_drawn, has_chance)
                for share in shares:
                    first = len(parts)
                    for token in share.transform.tokens if share.transform else ():
                        parts.append(_part(token, texts, hashed))
                    # A subject that gets an empty token comes to the ending behind that of others;
                    # no draw does.
                    both = zip(_states(mapping.source, share), (share.below, 0), strict=False)
                    for state, below in both:
                        states.append(state)
                        ends.append((below, first, len(parts)))
            scopes += [places.get(name, places[None]) for name in (None, *names)]
        uncut = (0, -1)
        if rules and rules[0].filter.is_literal:
            # nats-server does not cut the subject that is this very source: `AccountMappings`.
            uncut = texts.add(rules[0].source)
        self.states = tuple(states)
        keys = [mapping_key(seed, mapping.source) for mapping in rules]
        clusters = [texts.add(name) for name in names]
        self._tables = {
            name: np.array(rows, np.int32).ravel()
            for name, rows in (
                *(("nodes", nodes), ("edges", edges), ("scopes", scopes), ("ends", ends)),
                *(("hashed", hashed), ("clusters", clusters)),
            )
        }
        self._tables["parts"] = np.array(parts, np.int64).ravel().astype(np.uint32)
        self._tables["keys"] = np.array(keys, np.int64)
        self._tables["text"] = np.frombuffer(texts.data() or b"\0", np.uint8)
        kept = max([0, *(place + 1 for place in hashed), *(part[1] + 1 for part in parts)])
        self._numbers = dict(zip(_NUMBERS, (len(names), len(nodes), kept, *uncut), strict=True))

    def judge(self, rows: pa.RecordBatch) -> Opinion:
        """What should have become of each row of a batch.

        Args:
            rows: with the columns `subject`, `cluster`, `stream`, `seq` and `mapped_subject`, of
                the types of `transformed_messages`.

        Raises:
            NatsTransformError: an array is broken.
            KernelUnavailable: the kernel is not compiled.
        """
        names = ("subject", "cluster", "stream", "seq", "mapped_subject")
        given = Columns([rows.column(name) for name in names])
        tables = {name: _address(table) for name, table in self._tables.items()}
        count = len(rows)
        opinion = Opinion(
            np.empty(count, np.int32),
            np.empty(count, np.int32),
            np.empty(count, np.uint8),
            np.empty(count, np.uint32),
        )
        starts = np.empty(self._numbers["kept"] + 1, np.uint32)
        active = np.empty(2 * self._numbers["node_count"], np.int32)
        arrays = (opinion.states, opinion.draws, opinion.marks, opinion.hashes, starts, active)
        output = _Opinion(*[_address(array) for array in arrays])
        rules = _Rules(**tables, **self._numbers)
        checked(
            library().nats_prove(ctypes.byref(rules), given.columns, ctypes.byref(output), count)
        )
        return opinion


def _states(source: str, share: Share) -> Iterator[State]:
    """The ending of a share, and that of subjects of which it makes one with an empty token."""
    if share.destination is None:
        yield State(Fate.LOST, None, source, None)
    elif share.transform is None:
        yield State(Fate.INVALID, EMPTY_DESTINATION, source, share.destination)
    else:
        yield State(Fate.MAPPED, None, source, share.destination)
        if share.transform.can_make_empty_token:
            yield State(Fate.INVALID, EMPTY_RESULT, source, share.destination)


def _trie(mappings: AccountMappings) -> _Node:
    root = _Node()
    # From the last rule to the first, so that the first of equal ones stays.
    for number, mapping in reversed(list(enumerate(mappings.mappings))):
        node = root
        *tokens, last = mapping.filter.tokens
        for token in tokens if last == ANY_TAIL else (*tokens, last):
            if token.startswith(ANY_TOKEN):  # the server looks at the first byte alone
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.edges.setdefault(token, _Node())
        if last == ANY_TAIL:
            node.open_rule = number
        else:
            node.rule = number
    return root


def _flat(root: _Node, texts: Texts) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The nodes and edges of a trie as rows of numbers; the root is the first node."""
    order, numbers = [root], {id(root): 0}
    for node in order:  # it grows meanwhile
        for child in (*node.edges.values(), *([node.any] if node.any else ())):
            numbers[id(child)] = len(order)
            order.append(child)
    nodes: list[tuple[int, ...]] = []
    edges: list[tuple[int, ...]] = []
    for node in order:
        first = len(edges)
        for token, child in sorted(node.edges.items(), key=lambda edge: Texts.encoded(edge[0])):
            edges.append((*texts.add(token), numbers[id(child)]))
        any_token = numbers[id(node.any)] if node.any else _NO_NODE
        nodes.append((first, len(edges), any_token, node.rule, node.open_rule))
    return nodes, edges


def _part(token: Token, texts: Texts, hashed: list[int]) -> tuple[int, ...]:
    """A token of a destination as a row: kind, token, end, text, size, slot and number."""
    kind, place, end, text, slot, number = _Kind.TOKEN, 0, 0, "", 0, 0
    match token:
        case Literal(text):
            kind = _Kind.LITERAL
        case Tail(place):
            kind = _Kind.TAIL
        case Wildcard(place):
            pass
        case Partition(number, positions):
            kind, place = _Kind.PARTITION, len(hashed)
            hashed.extend(positions)
            end = len(hashed)
        case Random(count, slot):
            kind, number = _Kind.RANDOM, abs(count)
        case Split(place, text):
            kind = _Kind.SPLIT if text else _Kind.CHARACTERS
        case OfTokenAndSize(place, size) if size > 0:
            kind, number = _SIZED[type(token)], size
        case OfTokenAndSize(place):
            pass
    return (kind, place, end, *texts.add(text), slot, number)


def _address(table: np.ndarray) -> int:
    return int(table.ctypes.data)
