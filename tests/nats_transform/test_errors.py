"""Errors: codes that stay, fields, and one file with all sentences."""

from __future__ import annotations

import ast
import pickle
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

from jobs.errors import ArchiveError
from jobs.jetstream.answers import ApiError
from jobs.jetstream.wire import Unsendable
from nats_transform.errors import (
    InvalidConfig,
    InvalidStream,
    InvalidTransform,
    NatsTransformError,
    Place,
    UnknownFunction,
    sentence,
)
from nats_transform.mappings.transform import Transform
from scripts.architecture import parsed

ROOT = Path(__file__).parents[2]
FOLDERS = ("nats_transform", "jobs", "expectations", "orchestration", "cli", "deploy")
TEXT = (ROOT / "nats_transform/errors.toml").read_text()
BY_FOLDER = tomllib.loads(TEXT)
SENTENCES = {code: text for folder in BY_FOLDER.values() for code, text in folder.items()}


FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]


def _kinds(bases: Mapping[str, set[str]], kind: str) -> set[str]:
    """The name of a class of the product and those of all that derive from it."""
    return {kind}.union(*(_kinds(bases, name) for name, of in bases.items() if kind in of))


@cache
def _calls() -> Sequence[tuple[str, ast.Call, ast.expr]]:
    """Where the product says an error: the place, the call, and what stands for the code."""
    nodes = [(file, node) for file in FILES for node in ast.walk(parsed(file.read_text()))]
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for _, node in nodes
        if isinstance(node, ast.ClassDef)
    }
    # What takes a code first: our errors (those of transforms take the subjects first), `sentence`,
    # and `error` of a place in a file.
    ours = _kinds(bases, "NatsTransformError") - _kinds(bases, "InvalidTransform")
    checked = ours | {"sentence", "error"}
    calls = []
    for path, node in nodes:
        if isinstance(node, ast.Call) and node.args:
            function, _, name = ast.unparse(node.func).rpartition(".")
            if name in checked and "log" not in function:
                calls.append((f"{path.relative_to(ROOT)}:{node.lineno}", node, node.args[0]))
    return calls


def _codes(expression: ast.expr) -> list[str]:
    if isinstance(expression, ast.IfExp):
        return _codes(expression.body) + _codes(expression.orelse)
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return [expression.value]
    return []


def _fields(code: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(SENTENCES[code]) if name is not None}


def test_each_call_has_a_known_code_and_the_fields_of_its_sentence() -> None:
    said = 0
    for place, call, expression in _calls():
        for code in _codes(expression):
            assert code in SENTENCES, f"{place}: {code}"
            given = {keyword.arg for keyword in call.keywords}
            assert None in given or _fields(code) <= given, f"{place}: {code}"
            said += 1
    assert said > 500


def test_each_sentence_is_said() -> None:
    texts = "\n".join(file.read_text() for file in FILES)
    assert [code for code in SENTENCES if f'"{code}"' not in texts] == []


def test_the_file_can_be_read_by_people() -> None:
    codes = [code for folder in BY_FOLDER.values() for code in folder]
    assert len(codes) == len(set(codes)), "one code in two folders"
    for folder, sentences in BY_FOLDER.items():
        assert list(sentences) == sorted(sentences), folder
        assert (ROOT / folder).is_dir()
        assert all("\n" not in text for text in sentences.values())


@pytest.mark.parametrize(
    "error",
    [
        ArchiveError("work-queue", stream="S", where="hub"),
        ApiError("no-stream", err_code=10059, stream="S", where="hub", hint=""),
        InvalidConfig("no-weight", "m.conf", 3, 7),
        InvalidStream("stream-not-taken", err_code=10052, reason="invalid subject"),
        UnknownFunction("a.*", "b.{{c(1)}}", "{{c(1)}}"),
        InvalidTransform("a.*", "b.>", ">", "tail-not-last", name="source"),
        Unsendable("message-too-large", about="size", size=9),
        ArchiveError("refused", reason=InvalidConfig("no-weight", "m.conf", 3)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_pickle(error: NatsTransformError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is type(error)
    assert str(again) == str(error)
    for name, value in vars(error).items():
        assert str(getattr(again, name)) == str(value)


def test_what_strangers_wrote_is_escaped() -> None:
    error = ArchiveError("work-queue", stream="a\x1b[2J", where="hub\n\u202e")
    assert error.fields["stream"] == "a\x1b[2J"
    assert str(error).isprintable()
    assert r"a\x1b[2J" in str(error)
    assert str(Place("bad\x1b.conf", 1).error("no-weight")).isprintable()


def test_a_place_comes_first() -> None:
    error = Place("m.conf", 3, 7).error("no-weight")
    assert str(error) == f"m.conf:3:7: {sentence('no-weight')}"
    assert error.reason == sentence("no-weight")


def test_a_transform_says_its_rule_its_token_and_why() -> None:
    with pytest.raises(InvalidTransform) as caught:
        Transform("a.*", "b.{{split(1)}}")
    error = caught.value
    assert (error.code, error.detail) == ("wrong-argument-count", "argument-count")
    assert error.fields == {"expected": 2, "given": 1}
    why = sentence(error.detail, **error.fields)
    pair = "('a.*' -> 'b.{{split(1)}}')"
    assert str(error) == f"{sentence(error.code)}, token '{{{{split(1)}}}}': {why} {pair}"
