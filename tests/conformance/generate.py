"""Generated filters, destinations, subjects and configurations, the same for the same seed.

They are odd on purpose: repeated delimiters, characters of several bytes, tokens that only look
like wildcards or functions, arguments at and over every limit.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from nats_transform import InvalidTransform, Transform
from nats_transform.mappings.subject import ANY_TAIL, ANY_TOKEN

_WORDS = ["a", "b", "c", "ab", "foo", "order", "42", "1234567", "x_y"]
_ODD = [
    *("-", "--", "-a-b--c-", "--a", "a--", "é", "aéb-ü", "日本語", "$1", "$x", "{{", "{{x}}y"),
    *("x{{wildcard(1)}}", "*a", "**", "a*b", ">x", "x>", "a,b", "[a]", "a+b"),
]
_BYTES = ["\udcff", "a\udcfe-b", "\udce9\udc80x", "é\udca9"]
_SPELLINGS = {
    "wildcard": ["wildcard", "Wildcard"],
    "partition": ["partition", "Partition"],
    "split": ["split", "Split"],
    "splitfromleft": ["splitfromleft", "SplitFromLeft", "splitFromLeft"],
    "splitfromright": ["splitfromright", "SplitFromRight", "SplitfromRight"],
    "slicefromleft": ["slicefromleft", "SliceFromLeft", "slicefromLeft"],
    "slicefromright": ["slicefromright", "SliceFromRight"],
    "left": ["left", "Left"],
    "right": ["right", "Right"],
    "random": ["random", "Random"],
}
_DELIMITERS = ["-", "-", "-", "--", "a", "ab", "é", "", "b-", "+", "[a]", "\\"]
_RANDOM = re.compile(r"\{\{random\((-?\d+)\)\}\}")


class Generator(random.Random):
    """A source of cases; everything it gives follows from its seed."""

    def token(self, odd: float = 0.3, raw: bool = False) -> str:
        """A token of a subject."""
        if raw and self.random() < 0.08:
            return self.choice(_BYTES)
        return self.choice(_ODD if self.random() < odd else _WORDS)

    def filter(self, first: Sequence[str] = (), literal: float = 0.15) -> str:
        """A valid filter, its first token one of `first` or a wildcard if that is given."""
        if self.random() < 0.05:
            return ANY_TAIL
        wild = 0.0 if self.random() < literal else 0.55
        tokens = [
            "*" if self.random() < wild else self.token(0.15) for _ in range(self.randint(1, 4))
        ]
        if wild and self.random() < 0.3:
            tokens.append(">")
        if first and tokens[0] not in "*>":
            tokens[0] = self.choice(first)
        return ".".join(tokens)

    def subject(self, filter: str, raw: bool = True) -> str:
        """A literal subject that a filter covers, or nearly so."""
        tokens = []
        for token in filter.split("."):
            if token == ANY_TAIL:
                tokens += [self.token(0.4, raw) for _ in range(self.randint(1, 3))]
            elif token == ANY_TOKEN:
                tokens.append(self.token(0.6, raw))
            else:
                tokens.append(token)
        match self.random():
            case chance if chance < 0.05:
                tokens.append(self.token())
            case chance if chance < 0.1:
                tokens[self.randrange(len(tokens))] = self.token()
        return ".".join(tokens)

    def destination(self, filter: str, tokens: int = 4, broken: float = 0.0) -> str:
        """A destination for a filter; `broken` is the share of tokens that are made wrong."""
        wildcards = filter.split(".").count("*")
        parts = [self.destination_token(wildcards, broken) for _ in range(self.randint(1, tokens))]
        if filter.endswith(">") != (self.random() < broken / 4):
            parts.append(">")
        return ".".join(parts)

    def destination_token(self, wildcards: int, broken: float = 0.0) -> str:
        """One token of a destination."""
        chance = self.random()
        if chance < 0.3:
            return self.choice(["x", "y", "out", "$x", "{{", "x{{y}}", "$1a", "{{}}", "z-z"])
        if chance < 0.5 and wildcards:
            return f"${self._index(wildcards, broken)}"
        return self._function(wildcards, broken)

    def _index(self, wildcards: int, broken: float) -> str:
        if self.random() < broken:
            return self.choice([str(wildcards + 1), "99", "x", "", "1_0", "1.5", "99999999999"])
        number = self.randint(1, wildcards) if wildcards and self.random() < 0.9 else 0
        return self.choice([str(number), str(number), f"+{number}", f"0{number}"])

    def _size(self, broken: float) -> str:
        if self.random() < broken:
            return self.choice(["2147483648", "x", "", "-2147483649"])
        return str(self.choice([0, 1, 1, 2, 2, 3, 4, 5, 7, 100, -1, 2147483647]))

    def _function(self, wildcards: int, broken: float) -> str:
        any_is_fine = wildcards or self.random() < broken
        name = self.choice([*_SPELLINGS] if any_is_fine else ["partition", "random"])
        match name:
            case "wildcard":
                arguments = [self._index(wildcards, broken)]
            case "partition":
                count = self.choice(["0", "1", "3", "10", "997", "2147483647", "-1", "-5"])
                if self.random() < broken:
                    count = self.choice(["2147483648", "", "x", "-9999999999999999999"])
                indexes = [self._index(wildcards, broken) for _ in range(self.randint(0, 3))]
                arguments = [count, *indexes]
            case "random":
                arguments = [self.choice(["0", "1", "-1", "2", "6"])]
                if self.random() < broken:
                    arguments = [self.choice(["2147483648", "", "x"])]
            case "split":
                delimiter = self.choice(_DELIMITERS)
                arguments = [self._index(wildcards, broken), delimiter]
                if self.random() < broken:
                    arguments[1] = self.choice([" ", "- ", " -"])
            case _:
                arguments = [self._index(wildcards, broken), self._size(broken)]
        if self.random() < broken:
            arguments = arguments[1:] if self.random() < 0.5 else [*arguments, "1"]
        spelled = self.choice(_SPELLINGS[name])
        if self.random() < broken / 2:
            spelled = self.choice([spelled.upper(), f"{spelled}x", "nope"])
        blank = self.choice(["", "", "", " ", "\t"])
        comma = self.choice([",", ",", ", ", ",\t"])
        return f"{{{{{blank}{spelled}{blank}({comma.join(arguments)}){blank}}}}}"

    def transform(self, first: Sequence[str] = (), tokens: int = 4) -> Transform:
        """A transform that we accept."""
        while True:
            source = self.filter(first)
            try:
                return Transform(source, self.destination(source, tokens, broken=0.02))
            except InvalidTransform:
                continue

    def strict_pair(self, broken: float) -> tuple[str, str]:
        """A filter and the other side of an import of it."""
        source = self.filter()
        wildcards = source.split(".").count(ANY_TOKEN)
        if self.random() < 0.15:
            return source, ""
        used = [self._wildcard(number) for number in range(1, wildcards + 1)]
        if self.random() < 0.15:
            used = [ANY_TOKEN] * wildcards
        if self.random() < broken and used:
            wrong = ["$9", "y", "$x", "$0", "$+1", "{{wildcard(7)}}", "{{left(1,2)}}", used[-1]]
            used[0] = self.choice(wrong)
        parts = [*used, *self.choices(["x", "y", "y-y"], k=self.randint(0, 2))]
        self.shuffle(parts)
        parts = parts or ["z"]
        if source.endswith(ANY_TAIL) != (self.random() < broken / 4):
            parts.append(ANY_TAIL)
        if self.random() < broken / 4:
            parts.insert(0, self.choice(["", "a b", ANY_TAIL]))
        return source, ".".join(parts)

    def subscription(self, subject: str) -> str:
        """A filter that overlaps another one, most of the time."""
        tokens = subject.split(".")
        for position, token in enumerate(tokens):
            if token != ANY_TAIL and self.random() < 0.4:
                tokens[position] = self.choice([ANY_TOKEN, ANY_TOKEN, self.token(0.1)])
        match self.random():
            case chance if chance < 0.3:
                tokens = [*tokens[: self.randint(0, len(tokens) - 1)], ANY_TAIL]
            case chance if chance < 0.6 and tokens[-1] == ANY_TAIL:
                tokens = [*tokens[:-1], *self.choices(["k", ANY_TOKEN], k=self.randint(1, 2))]
        return ".".join(tokens)

    def _wildcard(self, number: int) -> str:
        return self.choice([f"${number}", f"{{{{wildcard({number})}}}}"])

    def stream_config(self, name: str, broken: float) -> dict[str, Any]:
        """A stream configuration; `broken` is the share of its parts that are made wrong."""
        config: dict[str, Any] = {"name": name, "storage": "memory"}
        config |= self.choice(_BROKEN_SETTINGS if self.random() < broken else _SETTINGS)
        if self.random() < 0.25:
            config["mirror"] = self._upstream(name, broken, crossing=False)
            if self.random() < broken:
                wrong = [{"subjects": ["a"]}, {"first_seq": 5}, {"allow_atomic": True}]
                config |= self.choice(wrong)
        else:
            if self.random() < 0.7:
                config["subjects"] = self._subjects(name, broken)
            if self.random() < 0.5:
                config["sources"] = [
                    self._upstream(name, broken, crossing=True) for _ in range(self.randint(1, 3))
                ]
        if self.random() < 0.4:
            config["subject_transform"] = self._pair(broken)
        if self.random() < 0.4:
            config["republish"] = self._pair(broken) | {"headers_only": self.random() < 0.5}
            if self.random() < 0.2:
                config["republish"] |= {"src": ">", "dest": ">"}
                if "subjects" in config and self.random() < 0.7:
                    pair = {"src": config["subjects"][0], "dest": "else.>"}
                    config["subject_transform"] = pair
        return config

    def _pair(self, broken: float) -> dict[str, str]:
        source = "" if self.random() < 0.1 else self.filter()
        if self.random() < broken / 2:
            source = self.choice(["a..b", "a b", ">.a", ".", "a."])
        destination = "" if self.random() < 0.15 else self.destination(source or ">", 3, broken)
        if self.random() < broken / 2:
            destination = self.choice(["a..b", "a b.$1", "*", "x.*", "a.", ">.x"])
        return {"src": source, "dest": destination}

    def _subjects(self, name: str, broken: float) -> list[str]:
        if self.random() < broken:
            alone = [[one] for one in (">", "a..b", "$JS.API.>", "$SYS.x", "a b", "")]
            return self.choice([["a.*", "a.b"], ["a", "a"], *alone])
        subjects = [f"{name}.>", f"{name}", f"b.*.{name}", "$JS.EVENT.x"]
        return self.sample(subjects, self.randint(1, 3))

    def _upstream(self, name: str, broken: float, crossing: bool) -> dict[str, Any]:
        upstream: dict[str, Any] = {"name": self.choice(["O", "P", "Q"])}
        if self.random() < broken / 2:
            upstream["name"] = self.choice(["", "a.b", name, "x*"])
        if self.random() < 0.3:
            upstream["filter_subject"] = self.filter()
            if self.random() < broken:
                upstream["filter_subject"] = self.choice(["a..b", "a b", ">.a"])
        if self.random() < (broken if "filter_subject" in upstream else 0.7):
            count = self.choice([1, 1, 2, 3])
            upstream["subject_transforms"] = [self._pair(broken) for _ in range(count)]
        if self.random() < 0.1:
            upstream["external"] = {"api": "$JS.hub.API", "deliver": f"deliver.{name}"}
            if self.random() < broken:
                wrong = [{"api": "$JS.API"}, {"api": "a.*"}, {"deliver": "a.>"}, {"deliver": ""}]
                upstream["external"] |= self.choice(wrong)
        if self.random() < 0.05:
            upstream["opt_start_seq"] = 3
        return upstream


_SETTINGS: list[dict[str, Any]] = [
    {},
    {},
    {"max_age": 10**9, "duplicate_window": 10**9},
    {"discard": "New", "max_msgs_per_subject": 1, "discard_new_per_subject": True},
    {"retention": "workqueue", "max_msgs": -5},
    {"retention": "interest", "description": "x" * 4096},
    {"max_age": 10**9},
    {"allow_rollup_hdrs": True},
    {"deny_purge": True, "deny_delete": True},
    {"persist_mode": "default", "compression": "none"},
    {"allow_msg_ttl": True},
    {"metadata": {"k": "v"}, "max_consumers": 3, "max_msg_size": 100},
]
_BROKEN_SETTINGS: list[dict[str, Any]] = [
    *({"name": name} for name in ("a.b", "a b", "", "n" * 256)),
    {"description": "x" * 4097},
    {"max_age": -1},
    {"max_age": 1000},
    {"max_age": 10**9, "duplicate_window": 2 * 10**9},
    *({"duplicate_window": window} for window in (-1, 5)),
    *({"num_replicas": replicas} for replicas in (6, -1)),
    {"deny_purge": True, "allow_rollup_hdrs": True},
    {"discard_new_per_subject": True},
    {"discard_new_per_subject": True, "discard": "new"},
    *({"subject_delete_marker_ttl": seconds} for seconds in (5, -5)),
    {"allow_msg_counter": True, "allow_msg_ttl": True},
    {"allow_msg_counter": True, "discard": "new"},
    {"allow_msg_schedules": True, "discard": "new"},
    {"persist_mode": "async"},
    {"retention": "Limits"},
    {"discard": "none"},
    {"storage": "tape"},
    {"max_age": "1s"},
    {"subjects": "a"},
    {"max_msgs": 2**63},
    {"max_msg_size": 2**31},
    {"first_seq": -1},
    {"placement": {"preferred": "n1"}},
]


def agrees(expected: str, got: str) -> bool:
    """Whether a subject is the expected one, in which each `{{random(n)}}` may be any number."""
    pattern, counts, end = "", [], 0
    for found in _RANDOM.finditer(expected):
        pattern += re.escape(expected[end : found.start()]) + r"(\d+)"
        counts.append(abs(int(found[1])) or 1)
        end = found.end()
    drawn = re.fullmatch(pattern + re.escape(expected[end:]), got)
    return drawn is not None and all(
        int(number) < count for number, count in zip(drawn.groups(), counts, strict=True)
    )
