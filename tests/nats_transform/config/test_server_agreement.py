"""Rows and generated configurations: nats-server takes what we take, and reads the same values.

`nats-server -t` tests a file and prints the SHA-256 of what it read, as JSON; so a text that both
take must have the same digest. What we refuse on purpose is told apart by its message.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from nats_transform import InvalidConfig
from nats_transform.config import parse_server_config
from nats_transform.config.accounts import ACCOUNT_FIELDS, TOP_FIELDS, account_mappings
from nats_transform.config.tree import Node, Timestamp
from tests.cases import load
from tests.support.files import written
from tests.support.refused import told
from tests.support.server_check import checked

pytestmark = pytest.mark.server

TEXTS = 600
MAPPINGS = 400


OTHERS = re.compile("Expected 'enabled'|to define JetStream|[Uu]sers? (field|entry)")
"""Complaints about what we do not read: the values of the fields beside the mappings."""


def on_purpose(text: str, reason: str) -> bool:
    """Whether we refuse what the server takes, as it would lose or move a setting in silence."""
    return (
        "no-unit-of-size" in reason  # 1kbi: the setting is dropped
        or reason.startswith("file-has-")  # a NUL, or a byte order mark that joins the first key
        or "the key before this } has no value" in reason  # the section moves under that key
        # A quote as the last byte is the end of the file, and closes whatever is open.
        or ("starts here has no closing quote" in reason and text.endswith(('"', "'")))
    )


@dataclass(frozen=True)
class Verdict:
    """What nats-server says of a file."""

    is_read: bool
    is_taken: bool
    digest: str | None
    said: str


def verdict(path: Path) -> Verdict:
    """What nats-server says of a file."""
    is_taken, said = checked(path)
    digest = re.search(r"valid \(sha256:([0-9a-f]{64})\)", said)
    # An unknown field, or a value of the wrong type, is found after the file has been read.
    told_later = ("unknown field", "interface conversion", "has no values")
    is_read = is_taken or any(text in said for text in told_later)
    return Verdict(is_read, is_taken, digest[1] if digest else None, said)


# --- the language ---------------------------------------------------------------------------

PIECES = [
    *"ab=: \t\n\n{}{}[],;/#'\"\\$()1.-*>0k",
    *("  ", "\r\n", "//", "foo", "\\n", "\\x41", "\\x", "\\q", "$a", "$zz", "\n)\n", "12", "-3"),
    *("10k", "5kb", "1kbi", "1.2.3.4:42", "42%", "x.>", "2020-01-02T03:04:05Z", "true", "off"),
    *("1.5", "include", "é", "\x85", "\xa0", "\x0b", "\x1c", "\u2003", "\u2028", "\udcff"),
    *("} //", "a=1\n", "b: x\n", "m { c: d }\n", "[ 1\n 2\n]", "/ ", "# c\n"),
]
USE = "\nport = $a\nport = 4222\n"
"""Makes `a` a variable that was used, so that the server takes it whatever it is."""


def text_of(chance: random.Random) -> str:
    """A text that is nearly a configuration."""
    body = "".join(chance.choice(PIECES) for _ in range(chance.choice([1, 2, 3, 5, 8, 13, 21])))
    match chance.randrange(8):
        case 0 | 1:
            return body
        case 2 | 3:
            return f"a = {body}{USE}"
        case 4:
            return f"a {{{body}}}{USE}"
        case 5:
            return f"a [{body}]{USE}"
        case 6:
            return f"{{{body}\n}}"
        case _:
            return f"a {{ b = [{body}\n]\n c = {chance.choice(PIECES)}\n}}{USE}"


def go_json(node: Node) -> str:
    """A tree as Go's JSON encoder writes what the server read."""
    match node.value:
        case bool() as value:
            return "true" if value else "false"
        case float() as value:
            return _go_float(value)
        case int() as value:
            return str(value)
        case str() as value:
            return _go_string(value)
        case Timestamp(text):
            return f'"{text}"'
        case tuple() as nodes:
            return f"[{','.join(map(go_json, nodes))}]"
        case Mapping() as entries:
            ordered = sorted(
                entries.values(), key=lambda e: e.key.encode("utf-8", "surrogateescape")
            )
            return f"{{{','.join(f'{_go_string(e.key)}:{go_json(e.node)}' for e in ordered)}}}"
    raise AssertionError(node)


def _go_float(value: float) -> str:
    if value and not 1e-6 <= abs(value) < 1e21:
        mantissa, exponent = f"{Decimal(repr(value)):e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0'):>02}"
    text = f"{Decimal(repr(value)):f}"
    return text.removesuffix(".0")


def _go_string(text: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r"}
    short["\t"] = "\\t"
    out = []
    for char in text:
        if char in short:
            out.append(short[char])
        elif char < " " or char in "<>&\u2028\u2029":
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append("\ufffd" if "\udc80" <= char <= "\udcff" else char)
    return f'"{"".join(out)}"'


def test_the_server_reads_what_we_read(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    seen: Counter[str] = Counter()
    rows = [row[1] for of in load("server_conf.yaml").values() for row in of]
    for text in [*rows, *(text_of(chance) for _ in range(TEXTS))]:
        path = written(tmp_path / "server.conf", text)
        theirs, refused = verdict(path), ""
        try:
            tree = parse_server_config(path)
        except InvalidConfig as error:
            refused = told(error)
        if refused:
            assert not theirs.is_read or on_purpose(text, refused), (text, refused)
            seen["refused"] += 1
            continue
        assert theirs.is_read, (text, theirs.said)
        seen["read"] += 1
        if theirs.digest:
            ours = hashlib.sha256(f"{go_json(tree)}\n".encode()).hexdigest()
            assert ours == theirs.digest, (text, go_json(tree))
            seen["same values"] += 1
    assert min(seen["refused"], seen["read"], seen["same values"]) > TEXTS / 20, seen


# --- mappings -------------------------------------------------------------------------------

SOURCES = ["foo", "foo.*", "foo.>", "*.bar.*", ">", "a.b", "$JS.x", "é.*", "*a"]
BROKEN_SOURCES = ["foo..bar", ".foo", "foo.", "foo.>.bar", "foo bar", ""]
DESTINATIONS = [
    *("bar", "bar.$1", "bar.{{wildcard(1)}}", "{{partition(3,1)}}.$1", "{{partition(3)}}"),
    *("bar.>", "foo", "foo.*", "x.{{split(1,-)}}", "x.{{random(5)}}", "$2.$1", "x.{{left(1,2)}}"),
]
BROKEN_DESTINATIONS = ["bar..x", "bar.*", "{{nope(1)}}", "$9", "a b", "", "{{partition()}}", ">.x"]
WEIGHTS = ["100", "50", "40%", '"30"', "'20%'", "0", "10", "+5%"]
BROKEN_WEIGHTS = ["101", "-1", "1.5", "x", "true", '"5 %"', "50%%", "[1 ]", "1k", '""', "{}"]
CLUSTERS = ["east", "west", '"a b"', "5", "''"]
TYPOS = ["{", "}", "[", "]", '"', "=", "\n", ",", "x", "$q", "# ", "5", "(", " "]


class Configs(random.Random):
    """Configurations with mappings, valid and nearly so."""

    def one(self) -> str:
        # Few broken parts, or none would ever be taken.
        self.spoil = self.choice([0.0, 0.0, 0.02, 0.1])
        text = self.choice([self._top, self._accounts, self._both, self._variables])()
        if self.random() < 0.15:
            at = self.randrange(len(text))
            text = text[:at] + self.choice(TYPOS) + text[at + self.randrange(2) :]
        # The server refuses a file without any setting, as `# mappings {}`, for that alone.
        return f"port: 4222\n{text}"

    def _pick(self, good: list[str], broken: list[str]) -> str:
        return self.choice(broken if self.random() < self.spoil else good)

    def _word(self, *words: str) -> str:
        """A name in any case, now and then one that is none."""
        word = self._pick(list(words), ["wieght", "mapping", "subject"])
        return word.upper() if self.random() < 0.1 else word

    def _sep(self) -> str:
        return self.choice([" = ", ": ", " ", ":"])

    def _top(self) -> str:
        return f"{self._word('mappings', 'maps')}{self._sep()}{self._mappings()}\n"

    def _accounts(self) -> str:
        if self.random() < 0.1:
            names = self._pick(["[ A, B ]", "['A']", "5", "[]"], ["[A, A]", "['$G']", "[A, 1 ]"])
            return f"accounts: {names}\n"
        names = ["A", "B", self._pick(["C"], ["$G", "A"])][: self.randint(1, 3)]
        lines = [
            f"{self._quote(name)}{self._sep()}{self._pick([self._account()], ['5', '[]'])}"
            for name in names
        ]
        return "accounts {\n" + "\n".join(lines) + "\n}\n"

    def _account(self) -> str:
        parts = [f"{self._word('mappings', 'maps')}{self._sep()}{self._mappings()}"]
        if self.random() < 0.3:
            parts.append(self._pick(["jetstream: enabled", "users: []"], ["nonsense: 1"]))
        return "{ " + self.choice(["\n", "; ", ", "]).join(parts) + "\n}"

    def _both(self) -> str:
        return self._accounts() + self._top()

    def _variables(self) -> str:
        name = self._pick(["to"], ["unknown"])
        return f"to: {self._quote(self._destination())}\nmappings {{ foo.*: ${name} }}\n"

    def _mappings(self) -> str:
        sources = [self._pick(SOURCES, BROKEN_SOURCES) for _ in range(self.randint(0, 4))]
        entries = [f"{self._key(source)}{self._sep()}{self._value()}" for source in sources]
        return "{" + self.choice([", ", "\n", "; "]).join(entries) + "\n}"

    def _key(self, source: str) -> str:
        return self._quote(source) if self.random() < 0.7 else source or '""'

    def _quote(self, text: str) -> str:
        return self.choice(['"{}"', "'{}'"]).format(text)

    def _destination(self) -> str:
        return self._pick(DESTINATIONS, BROKEN_DESTINATIONS)

    def _value(self) -> str:
        match self.randrange(4):
            case 0:
                return self._quote(self._destination())
            case 1:
                return self._pick([self._entry()], ["5", "true", "1.5", "2020-01-01T00:00:00Z"])
            case _:
                entries = [self._entry() for _ in range(self.randint(0, 3))]
                return "[" + self.choice([", ", "\n"]).join(entries) + "]"

    def _entry(self) -> str:
        parts = [
            f"{self._word('dest', 'destination')}{self._sep()}{self._quote(self._destination())}"
        ]
        if self.random() > self.spoil:
            parts.append(
                f"{self._word('weight')}{self._sep()}{self._pick(WEIGHTS, BROKEN_WEIGHTS)}"
            )
        if self.random() < 0.3:
            parts.append(
                f"{self._word('cluster')}{self._sep()}{self._pick(CLUSTERS[:3], CLUSTERS)}"
            )
        self.shuffle(parts)
        return self._pick(["{" + self.choice([", ", "; "]).join(parts) + " }"], ["bar", "7"])


def test_the_server_takes_the_mappings_that_we_take(tmp_path: Path, seed: int) -> None:
    configs = Configs(seed)
    seen: Counter[str] = Counter()
    for _ in range(MAPPINGS):
        text = configs.one()
        path = written(tmp_path / "server.conf", text)
        theirs, refused = verdict(path), ""
        try:
            account_mappings(parse_server_config(path))
        except InvalidConfig as error:
            refused = told(error)
        if "same-key-twice" in refused:
            continue  # the server takes either at random
        if refused:
            assert not theirs.is_taken or on_purpose(text, refused), (text, refused)
        else:
            assert theirs.is_taken or OTHERS.search(theirs.said), (text, theirs.said)
        seen["refused" if refused else "taken"] += 1
    assert min(seen["refused"], seen["taken"]) > MAPPINGS / 8, seen


def test_the_server_knows_the_fields_that_we_know(tmp_path: Path) -> None:
    for known, form in ((TOP_FIELDS, "%s"), (ACCOUNT_FIELDS, "accounts { A {\n%s}\n}")):
        fields = "".join(f"{name}: 1\n" for name in [*sorted(known), "no_such_field"])
        _, said = checked(written(tmp_path / "server.conf", form % fields))
        assert set(re.findall(r'unknown field "([^"]*)"', said)) == {"no_such_field"}
