"""Mappings in a nats-server configuration: every row of tests/cases/accounts.yaml, and more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nats_transform import InvalidConfig
from nats_transform.config import load, load_all, load_mappings
from nats_transform.errors import UnknownAccount
from tests.cases import load as load_cases
from tests.support.files import written
from tests.support.refused import refused, told
from tests.support.rules import mappings

CASES = load_cases("accounts.yaml")


@pytest.mark.parametrize(
    ("text", "account", "expected"), [pytest.param(*row[1:], id=row[0]) for row in CASES["read"]]
)
def test_mappings_that_are_read(
    tmp_path: Path, text: str, account: str, expected: dict[str, Any]
) -> None:
    assert load(written(tmp_path / "server.conf", text), account) == mappings(expected)


@pytest.mark.parametrize(
    ("text", "line", "column", "code"),
    [pytest.param(*row[1:], id=row[0]) for row in CASES["refused"]],
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
