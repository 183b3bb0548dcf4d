"""The tables of a grammar, which are kept beside the bytecode."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import lark
import pytest

from nats_transform.config.grammar import grammar
from nats_transform.config.json_text import parse_json
from nats_transform.config.tree import Node


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the bytecode is, and so the tables."""
    folder = tmp_path / "bytecode"
    folder.mkdir()
    monkeypatch.setattr(
        "nats_transform.config.grammar.cache_from_source", lambda _: f"{folder}/grammar.pyc"
    )
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    grammar.cache_clear()
    yield folder
    grammar.cache_clear()


def parsed() -> Node:
    grammar.cache_clear()
    return parse_json('{"a": [1, "b"]}', "x.json")


def parsed_without_the_grammar() -> Node:
    """The same, if there are tables."""

    def unexpected(*_: object) -> None:
        raise AssertionError("the tables were made again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lark.lark, "load_grammar", unexpected)
        return parsed()


def test_tables_are_made_once(folder: Path) -> None:
    first = parsed()
    kept = [*folder.iterdir()]
    assert parsed_without_the_grammar() == first
    assert [*folder.iterdir()] == kept


@pytest.mark.parametrize("damage", [b"", b"x", None], ids=["empty", "other", "cut"])
def test_damaged_tables_are_made_again(folder: Path, damage: bytes | None) -> None:
    first = parsed()
    (kept,) = folder.iterdir()
    kept.write_bytes(kept.read_bytes()[:-100] if damage is None else damage)
    with pytest.raises(AssertionError, match="made again"):
        parsed_without_the_grammar()
    assert parsed() == first
    assert parsed_without_the_grammar() == first


def test_other_versions_of_lark_have_other_tables(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed()
    monkeypatch.setattr("nats_transform.config.grammar.__version__", "0")
    parsed()
    assert len([*folder.iterdir()]) == 2


def test_nothing_is_written_where_python_writes_no_bytecode(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    parsed()
    assert not [*folder.iterdir()]


def test_a_missing_folder_is_no_error(folder: Path) -> None:
    folder.rmdir()
    parsed()
    assert not folder.exists()


@pytest.mark.parametrize("name", ["server_conf.lark", "json_text.lark"])
def test_possessive_groups_only_save_time(name: str) -> None:
    """Python 3.11 before .5 may leave the position where such a group matched in part."""
    texts = [
        "".join(text)
        for characters in ('"\\xu', "/#} ")
        for length in range(8)
        for text in product(characters, repeat=length)
    ]
    for terminal in grammar(name).terminals:
        pattern = terminal.pattern.to_regexp()
        possessive, greedy = re.compile(pattern), re.compile(re.sub(r"\)([*+])\+", r")\1", pattern))
        for text in texts if possessive != greedy else ():
            found, expected = possessive.match(text), greedy.match(text)
            assert (found and found[0]) == (expected and expected[0]), (terminal.name, text)
