"""Mappings in a nats-server configuration: what is read and what is refused, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_transform import AccountMappings, Destination, InvalidConfig, Mapping
from nats_transform.config import load, load_all, load_mappings
from nats_transform.errors import UnknownAccount
from tests.support.files import written
from tests.support.refused import refused, told

BAR = [Mapping("foo", [Destination("bar")])]

ROWS = [
    # id, text, account, mappings
    ("short form", "mappings { foo: bar }", "$G", BAR),
    ("the other name", "maps = { foo = bar }", "$G", BAR),
    ("any case", "Mappings { foo: { DEST: bar, Weight: 100 } }", "$G", BAR),
    ("one destination", "mappings { foo: { destination: bar, weight: 100% } }", "$G", BAR),
    ("weights", "mappings { foo.*: [ {dest: 'a.$1', weight: 40}, {dest: 'b.$1', weight: '30%'} ] }",
     "$G", [Mapping("foo.*", [Destination("a.$1", 40), Destination("b.$1", 30)])]),
    ("clusters", "mappings { foo: [ {dest: a, weight: 5, cluster: east}, {dest: b, weight: 7} ] }",
     "$G", [Mapping("foo", [Destination("a", 5, "east"), Destination("b", 7)])]),
    ("an empty cluster is none", "mappings { foo: { dest: bar, weight: 100, cluster: '' } }",
     "$G", BAR),
    ("a plus sign before a weight", "mappings { foo: { dest: bar, weight: '+100' } }", "$G", BAR),
    ("no destination at all", "mappings { foo: [] }", "$G", [Mapping("foo", [])]),
    ("empty destination", "mappings { foo: '' }", "$G", [Mapping("foo", [Destination("")])]),
    ("order of the file", "mappings { b: x, a: y, c: z }", "$G",
     [Mapping("b", [Destination("x")]), Mapping("a", [Destination("y")]),
      Mapping("c", [Destination("z")])]),
    ("last of two wins", "mappings { foo: x, a: y, foo: bar }", "$G",
     [Mapping("a", [Destination("y")]), *BAR]),
    ("none", "port: 4222", "$G", []),
    ("of an account", "accounts { A { mappings { foo: bar }\n} }", "A", BAR),
    ("beside an account", "mappings { foo: bar }\naccounts { A { mappings { foo: baz }\n}\n}",
     "$G", BAR),
    ("account without mappings", "accounts { A { jetstream: enabled } }", "A", []),
    ("account by name alone", "accounts: [A, B]", "B", []),
    ("quoted account", 'accounts { "a b" { mappings { foo: bar }\n} }', "a b", BAR),
    ("variable", "to: bar\nmappings { foo: $to }", "$G", BAR),
    ("variable within mappings", "mappings { foo: bar, x: $foo }", "$G",
     [*BAR, Mapping("x", [Destination("bar")])]),
    ("a variable of any name at the top", "anything { foo: bar }\nmappings: $anything", "$G", BAR),
    ("an account used as a variable is none",
     "accounts { TEMPLATE { mappings { foo: bar }\n}\n A: $TEMPLATE }", "A", BAR),
    ("other sections are not looked at",
     "authorization { users: [ {user: a, password: $2a$11$x} ] }\nleaf {}\nmappings {foo: bar}",
     "$G", BAR),
    ("accounts that are none", "accounts: 5\nmappings { foo: bar }", "$G", BAR),
]  # fmt: skip

REFUSED = [
    # id, text, line, column, code
    ("unknown field", "mapping { foo: bar }", 1, 1, "unknown-account-field"),
    ("unknown field of an account", "accounts { A {\n maping {}} }", 2, 2, "unknown-account-field"),
    ("mappings are no section", "mappings: [a, b]", 1, 11, "not-a-section"),
    ("source", "mappings { foo..x: bar }", 1, 12, "source-not-a-subject"),
    ("number as destination", "mappings { foo: 5 }", 1, 17, "not-a-destination"),
    ("list in a list", "mappings { foo: [[]] }", 1, 18, "not-a-destination"),
    ("field of a destination", "maps { a: {dest: b, x: 5} }", 1, 21, "unknown-destination-field"),
    ("no weight", "mappings { foo: [\n {dest: bar} ] }", 2, 2, "no-weight"),
    ("weight above", "mappings { foo: {dest: b, weight: 101} }", 1, 35, "weight-out-of-range"),
    ("weight below", "mappings { foo: {dest: b, weight: -1} }", 1, 35, "weight-out-of-range"),
    ("decimal weight", "mappings { a: {dest: b, weight: 1.5} }", 1, 33, "weight-not-a-percentage"),
    ("weight in words", "mappings { foo: {dest: b, weight: half} }", 1, 35, "weight-not-whole"),
    ("boolean weight", "mappings { a: {dest: b, weight: true} }", 1, 33, "weight-not-a-percentage"),
    ("destination no string", "mappings { a: {dest: 5, weight: 1} }", 1, 22, "not-a-quoted-string"),
    ("cluster", "maps { a: {dest: b, weight: 1, cluster: 5} }", 1, 41, "not-a-quoted-string"),
    ("a field under two names", "mappings { foo: {dest: a, destination: b, weight: 1} }",
     1, 27, "same-key-twice"),
    ("mappings under two names", "maps {}\nmappings {}", 2, 1, "same-key-twice"),
    ("weights above 100", "mappings { x: y, foo: [{dest: a, weight: 60}, {dest: b, weight: 60}] }",
     1, 18, "mapping-weights"),
    ("destination twice", "mappings { foo: [{dest: a, weight: 6}, {dest: a, weight: 6}] }",
     1, 12, "destination-twice"),
    ("destination twice, of two clusters",
     "mappings { foo: [{dest: a, weight: 6}, {dest: a, weight: 6, cluster: x}] }",
     1, 12, "destination-twice-elsewhere"),
    ("a wildcard that is not there", "mappings { foo.*: b.$2 }", 1, 12, "index-out-of-range"),
    ("unknown function", 'mappings { foo.*: "{{nope(1)}}" }', 1, 12, "unknown-function"),
    ("another account", "accounts { B { maps { ..: c }\n}\n A {} }", 1, 23, "source-not-a-subject"),
    ("reserved account", "accounts { $G {} }", 1, 12, "account-reserved"),
    ("reserved account in a list", "accounts: [$G]", 1, 12, "variable-not-set"),
    ("account twice in a list", "accounts: [A, B, A]", 1, 18, "account-twice"),
    ("account no string", "accounts: [5 ]", 1, 12, "not-an-account-name"),
    ("account no section", "accounts { A: 5 }", 1, 15, "not-a-section"),
    ("a lost brace", "mappings { foo: {{wildcard(1)}} }", 1, 33, "put quotes around"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "account", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ROWS]
)
def test_mappings_that_are_read(
    tmp_path: Path, text: str, account: str, expected: list[Mapping]
) -> None:
    assert load(written(tmp_path / "server.conf", text), account) == AccountMappings(expected)


@pytest.mark.parametrize(
    ("text", "line", "column", "code"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
)
def test_mappings_that_are_refused(
    tmp_path: Path, text: str, line: int, column: int, code: str
) -> None:
    with pytest.raises(InvalidConfig) as raised:
        load(written(tmp_path / "server.conf", text), "A")
    assert code in told(raised.value)
    assert (raised.value.line, raised.value.column) == (line, column)


def test_an_unknown_account_lists_those_there_are(tmp_path: Path) -> None:
    path = written(tmp_path / "server.conf", "accounts { B {}, A {} }")
    assert [each.accounts for each in load_all(path)] == [("$G",), ("B",), ("A",)]
    with refused(InvalidConfig, "no-account", name="'C'", listed="'$G', 'B', 'A'"):
        load(path, "C")


def test_a_wrong_mapping_in_an_included_file_names_that_file(tmp_path: Path) -> None:
    part = written(tmp_path / "mappings.conf", "\nfoo: 'a..b'")
    with pytest.raises(InvalidConfig) as raised:
        load(written(tmp_path / "server.conf", "mappings { include mappings.conf }"))
    assert (raised.value.path, raised.value.line) == (str(part), 2)


TWO_WITH_MAPPINGS = "accounts { A { mappings { a: b } }\n B { mappings { c: d } }\n EMPTY {}\n}"


@pytest.mark.parametrize("account", ["$G", "EMPTY"])
def test_an_account_without_mappings_beside_others_that_have_some(
    account: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "server.conf", TWO_WITH_MAPPINGS)
    fields = {"name": repr(account), "listed": "'A', 'B'"}
    with refused(UnknownAccount, "account-without-mappings", **fields):
        load(path, account)
    assert len(load_mappings(path, "A").mappings) == 1
    # Nobody has any: there is nothing to mistake.
    path.write_text("accounts { A {}\n B {}\n}")
    assert load_mappings(path, account="A").mappings == ()
    assert load_mappings(path).mappings == ()


@pytest.mark.parametrize(
    ("kind", "fields", "local"),
    [
        ("stream", "", "orders.*"),
        ("stream", ", to: mine.*", "mine.*"),
        ("stream", ", prefix: from.a", "from.a.orders.*"),
        ("stream", ", prefix: from.a.", "from.a.orders.*"),
        ("service", ", prefix: from.a", "orders.*"),
    ],
)
def test_the_name_of_an_import(kind: str, fields: str, local: str, tmp_path: Path) -> None:
    entry = f"{{ {kind}: {{ account: A, subject: orders.* }}{fields} }}"
    text = f"accounts {{ A {{}}\nB {{ imports: [ {entry} ] }} }}"
    found = load_all(written(tmp_path / "server.conf", text))
    (importing,) = (each for each in found if each.accounts == ("B",))
    assert [entry.local for entry in importing.shares.imports] == [local]


@pytest.mark.parametrize(
    ("field", "can"),
    [
        ("port: 4222", False),
        ("leafnodes { port: 7422 }", True),
        ("leaf { port: 7422 }", True),
        ("operator: op.jwt", True),
        ("root_operators: [ op.jwt ]", True),
    ],
)
def test_who_can_publish_in_the_account_without_a_name(
    field: str, can: bool, tmp_path: Path
) -> None:
    text = f"accounts {{ A {{ users: [ {{ user: a, password: p }} ] }} }}\n{field}"
    assert load_all(written(tmp_path / "server.conf", text))[0].has_publishers is can
