"""The configuration language of nats-server: every row of tests/cases/server_conf.yaml, and more.

`test_server_agreement.py` compares the rows, and generated texts, with the server.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nats_transform import InvalidConfig
from nats_transform.config import parse_server_config, plain
from nats_transform.config.files import MAX_BYTES
from nats_transform.config.server_conf import MAX_INCLUDE_DEPTH
from nats_transform.config.tree import MAX_DEPTH, Timestamp
from tests.cases import load
from tests.support.files import written
from tests.support.refused import refused, told

CASES = load("server_conf.yaml")


def variables(value: str, count: int) -> str:
    """A list, and variables that each have the one before, as the value says."""
    lines = [f"x{n + 1}: [{value.replace('%d', str(n))}]" for n in range(count)]
    return "\n".join(["x0: [ 1 ]", *lines])


TOO_MUCH = [
    # id, text, line, column, code
    ("integer far out of range", f"a: {'9' * 5000}", 1, 4, "number-over-64-bits"),
    ("float out of range", f"a: {'9' * 400}.0", 1, 4, "decimal-too-large"),
    ("too deep", f"a: {'[' * (MAX_DEPTH + 1)}", 1, 4 + MAX_DEPTH, "too-deep"),
    ("too deep after lost braces", "a: 1 }\n" * 200 + f"a: {'[' * 101}", 201, 104, "too-deep"),
    ("too deep at the top", "{" * (MAX_DEPTH + 1), 1, 1 + MAX_DEPTH, "too-deep"),
    ("variables that nest", variables("$x%d", 2 * MAX_DEPTH), MAX_DEPTH + 1, 7, "too-deep"),
    ("variables that multiply", variables(", ".join(["$x%d"] * 9), 20), 8, 5, "too-many-values"),
    ("too large", "#" * (MAX_BYTES + 1), None, None, "file-too-large"),
]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "server.conf"


@pytest.mark.parametrize(
    ("text", "meaning"), [pytest.param(*row[1:], id=row[0]) for row in CASES["read"]]
)
def test_what_a_text_means(conf: Path, text: str, meaning: dict[str, object]) -> None:
    assert plain(parse_server_config(written(conf, text))) == meaning
    assert list(meaning) == list(plain(parse_server_config(conf)))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [pytest.param(*row[1:], id=row[0]) for row in (*CASES["refused"], *TOO_MUCH)],
)
def test_where_a_text_is_refused(
    conf: Path, text: str, line: int | None, column: int | None, what: str
) -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse_server_config(written(conf, text))
    assert what in told(raised.value)
    assert (raised.value.line, raised.value.column) == (line, column)
    assert raised.value.path == str(conf)


def test_every_key_and_value_has_a_place(conf: Path) -> None:
    tree = parse_server_config(written(conf, 'a: 1\n  "b" {\n    c = [ x\n      2.5 ]\n}\n'))
    (a, b) = tree.value.values()
    (c,) = b.node.value.values()
    places = [a.place, a.node.place, b.place, b.node.place, c.place, c.node.place]
    places += [node.place for node in c.node.value]
    assert [(place.line, place.column) for place in places] == [
        *[(1, 1), (1, 4), (2, 3), (2, 7), (3, 5), (3, 9)],
        *[(3, 11), (4, 7)],
    ]
    assert {place.path for place in places} == {str(conf)}


@pytest.mark.parametrize("end", ["\n", "\r\n", ",", " ; ", "\n\n\t", ' # "a": "b"\n'])
@pytest.mark.parametrize("sign", [": ", "=", "\t:"])
def test_many_quoted_keys_have_their_places(conf: Path, sign: str, end: str) -> None:
    """The grammar takes a hundred of them at once."""
    text = "m {" + "".join(f'"k{n}"{sign}"v{n}"{end}' for n in range(250)) + "}"
    entries = parse_server_config(written(conf, text)).value["m"].node.value
    assert len(entries) == 250
    for n, entry in enumerate(entries.values()):
        assert (entry.key, entry.node.value) == (f"k{n}", f"v{n}")
        for place, quoted in [(entry.place, f'"k{n}"'), (entry.node.place, f'"v{n}"')]:
            lines = text[: text.index(quoted)].split("\n")
            assert (place.line, place.column) == (len(lines), len(lines[-1]) + 1)


def test_a_date_is_no_string(conf: Path) -> None:
    tree = parse_server_config(written(conf, "a: 2026-01-01T00:00:00Z"))
    assert tree.value["a"].node.value == Timestamp("2026-01-01T00:00:00Z")


# --- includes -------------------------------------------------------------------------------


def test_an_include_is_relative_to_the_file_that_includes(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    written(tmp_path / "deep" / "one.conf", "b: 1\ninclude 'two.conf'")
    written(tmp_path / "deep" / "two.conf", "c: 2\nb: 3")
    main = written(tmp_path / "main.conf", "a: 0\ninclude deep/one.conf\nd: $c")
    tree = parse_server_config(main)
    assert plain(tree) == {"a": 0, "b": 3, "c": 2, "d": 2}
    assert tree.value["c"].place.path == str(tmp_path / "deep" / "two.conf")


def test_an_include_merges_into_the_map_it_stands_in(tmp_path: Path) -> None:
    written(tmp_path / "part.conf", "x: 1\ny: 2")
    main = written(tmp_path / "main.conf", 'a { x: 0; include "part.conf"; z: $y }')
    assert plain(parse_server_config(main)) == {"a": {"x": 1, "y": 2, "z": 2}}


def test_an_included_file_does_not_see_the_variables_of_the_including_one(tmp_path: Path) -> None:
    written(tmp_path / "part.conf", "b: $a_variable")
    main = written(tmp_path / "main.conf", "a_variable: 1\ninclude part.conf")
    with refused(InvalidConfig, "variable-not-set") as raised:
        parse_server_config(main)
    assert raised.value.path == str(tmp_path / "part.conf")


def test_an_absolute_include_is_below_the_including_file(tmp_path: Path) -> None:
    written(tmp_path / "part.conf", "b: 1")
    main = written(tmp_path / "main.conf", "include /part.conf")
    assert plain(parse_server_config(main)) == {"b": 1}


@pytest.mark.parametrize("name", ["main.conf", "./x/../main.conf", "link.conf"])
def test_an_include_loop_is_refused(tmp_path: Path, name: str) -> None:
    main = written(tmp_path / "main.conf", f"a: 1\ninclude {name}")
    (tmp_path / "x").mkdir()
    (tmp_path / "link.conf").symlink_to(main)
    with refused(InvalidConfig, "include-loop") as raised:
        parse_server_config(main)
    assert raised.value.line == 2


def test_a_long_chain_of_includes_is_refused(tmp_path: Path) -> None:
    for number in range(MAX_INCLUDE_DEPTH + 1):
        written(tmp_path / f"{number}.conf", f"include ./{number + 1}.conf")
    written(tmp_path / f"{MAX_INCLUDE_DEPTH + 1}.conf", "a: 1")
    parse_server_config(tmp_path / "1.conf")
    with refused(InvalidConfig, "includes-too-deep"):
        parse_server_config(tmp_path / "0.conf")


def test_includes_that_multiply_are_refused(tmp_path: Path) -> None:
    for number in range(12):
        written(tmp_path / f"f{number}.conf", f"include f{number + 1}.conf\n" * 9)
    written(tmp_path / "f12.conf", "a: 1")
    with refused(InvalidConfig, "includes-too-many", most=1000):
        parse_server_config(tmp_path / "f0.conf")


def test_an_include_that_never_ends_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with refused(InvalidConfig, "not-a-regular-file"):
        parse_server_config(written(tmp_path / "main.conf", "include pipe"))


# --- environment variables ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("5", 5),
        ("text", "text"),
        ("'a b'", "a b"),
        ("[ 'a', 1 ]", ["a", 1]),
        ("{ x: 1 }", {"x": 1}),
        ("", ""),
        ("$OTHER_VARIABLE", "other"),
    ],
)
def test_an_environment_variable_is_read_as_a_value(
    conf: Path, monkeypatch: pytest.MonkeyPatch, value: str, meaning: object
) -> None:
    monkeypatch.setenv("SOME_VARIABLE", value)
    monkeypatch.setenv("OTHER_VARIABLE", "other")
    tree = parse_server_config(written(conf, "a: $SOME_VARIABLE"))
    assert plain(tree) == {"a": meaning}
    assert (tree.value["a"].node.place.path, tree.value["a"].node.place.column) == (str(conf), 4)


def test_environment_variables_cannot_loop(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "$TWO")
    monkeypatch.setenv("TWO", "$ONE")
    with refused(InvalidConfig, "variable-invalid"):
        parse_server_config(written(conf, "a: $ONE"))


def test_a_long_chain_of_variables_is_refused(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1500):
        monkeypatch.setenv(f"CHAIN{number}", f"$CHAIN{number + 1}")
    with refused(InvalidConfig, "variable-invalid"):
        parse_server_config(written(conf, "a: $CHAIN0"))


# --- limits ---------------------------------------------------------------------------------


def test_the_deepest_nesting_that_is_read(conf: Path) -> None:
    text = "{ a: " * (MAX_DEPTH - 2) + "{}" + "}" * (MAX_DEPTH - 2)
    parse_server_config(written(conf, f"a: {text}"))


@pytest.mark.parametrize(
    "text",
    ["a: " + "[" * 10**6, "{" * 10**6, 'a: "' + "x" * 10**6, "a: (" + "\n" * 10**6, " " * 10**6,
     "a" * 10**6, "a: " + "1" * 10**6, 'a: "' + "\\n" * 10**6 + '"', "a: 1 " + "/ " * 20_000,
     "} " * 20_000, "a: 1\n" * 20_000, "a: 1" + "}" * 10**6, "#" * 10**6, "a: '" + "''" * 10**6],
    ids=["brackets", "braces", "string", "block", "blanks", "key", "digits", "escapes", "slashes",
         "closing", "entries", "closed", "comment", "quotes"],
)  # fmt: skip
def test_reading_takes_time_in_proportion(conf: Path, text: str) -> None:
    """A quadratic step would take hours on these; so even a busy machine tells them apart."""
    started = time.process_time()
    try:
        parse_server_config(written(conf, text))
    except InvalidConfig as error:
        assert "\n" not in str(error)  # noqa: PT017 - either end is fine, if it comes
    assert time.process_time() - started < 20
