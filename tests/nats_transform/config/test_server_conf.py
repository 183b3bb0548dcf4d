"""The configuration language of nats-server: what each text means, and where it is refused.

`test_server_agreement.py` compares generated texts with the server; here each row is one rule.
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
from tests.support.files import written
from tests.support.refused import refused, told

ROWS = [
    # id, text, what it means
    ("equals", "a = 1", {"a": 1}),
    ("colon", "a: 1", {"a": 1}),
    ("space", "a 1", {"a": 1}),
    ("newline after key", "a\n\n1", {"a": 1}),
    ("no separator after a quoted key", '"a"1', {"a": 1}),
    ("several on a line", "a: 1; b: 2, c: 3", {"a": 1, "b": 2, "c": 3}),
    ("last of two wins", "a: 1\nb: 2\na: 3", {"b": 2, "a": 3}),
    ("case of keys is kept", "Foo: 1", {"Foo": 1}),
    ("braces around the file", "{ a: 1, b: 2 }", {"a": 1, "b": 2}),
    ("braces twice", "{{ a: 1 }\n}", {"a": 1}),
    ("a comment after nested braces", "{{ a: 1 } // }\n}", {"a": 1}),
    ("a comment between nested braces", "{{ a: 1 } //; b: 2\n c: 3 }", {"a": 1, "c": 3}),
    ("a slash after nested braces", "{{ a: 1 } / ; b: 2 /\n }", {"a": 1, "b": 2}),
    ("braces left open", "{ a: 1\n", {"a": 1}),
    ("brace at the end alone", "a: 1\n}\n", {"a": 1}),
    ("brace after a value closes nothing", "a: 1 } b: 2", {"a": 1, "b": 2}),
    ("JSON", '{"a": {"b": [1 , 2.5 , "x"]}}', {"a": {"b": [1, 2.5, "x"]}}),
    ("hash comment", "a: 1 # b: 2\nc: 3", {"a": 1, "c": 3}),
    ("slash comment", "// x\na: 1 // b: 2", {"a": 1}),
    ("a lone slash after a value is a blank", "a: 1 / \nb: 2", {"a": 1, "b": 2}),
    ("a slash before a key of a map is dropped", "a { /b: 1 }", {"a": {"b": 1}}),
    ("a hash after a key is a value", "a #b", {"a": "#b"}),
    ("no value at the end", "a =", {"a": ""}),
    ("no value before a semicolon", "a: ;\nb { c: ; }", {"a": "", "b": {"c": ""}}),
    ("unquoted string", "a: foo.*.>", {"a": "foo.*.>"}),
    ("unquoted with quotes inside", 'a: b"c"', {"a": 'b"c"'}),
    ("unquoted ends at a single quote", "a: b'\n", {"a": "b"}),
    ("unquoted escapes", r"a: b\tc\x41", {"a": "b\tcA"}),
    ("a starting brace in unquoted text", "a: b{c", {"a": "b{c"}),
    ("double quotes", r'a: "b\n\"\\\x7e"', {"a": 'b\n"\\~'}),
    ("double quotes over lines", 'a: "b\nc"', {"a": "b\nc"}),
    ("escaped bytes make one character", r'a: "\xc3\xa9"', {"a": "é"}),
    ("escaped byte that is no UTF-8", r'a: "\xff"', {"a": "\udcff"}),
    ("single quotes are raw", r"a: '\n$x'", {"a": r"\n$x"}),
    ("block", "a: (\n  b # c\n)\n", {"a": "\n  b # c\n"}),
    ("block at the end keeps its parenthesis", "a: (b\n)", {"a": "b\n)"}),
    ("parenthesis within a block", "a: (\nf()\n)x\n)\n", {"a": "\nf()\n)x\n"}),
    (
        "booleans",
        "a: TRUE\nb: yes\nc: On\nd: false\ne: no\nf: OFF",
        {"a": True, "b": True, "c": True, "d": False, "e": False, "f": False},
    ),
    ("quoted boolean is text", "a: 'true'\nb: true'", {"a": "true", "b": "true"}),
    ("integers", "a: -5\nb: 007\nc: 9223372036854775807", {"a": -5, "b": 7, "c": 2**63 - 1}),
    (
        "sizes",
        "a: 1k, b: 1kb, c: 2Mi, d: 3GiB, e: -1T",
        {"a": 1000, "b": 1024, "c": 2 << 20, "d": 3 << 30, "e": -(10**12)},
    ),
    ("sizes wrap around", "a: 16eb", {"a": 0}),
    ("floats", "a: 1.5\nb: -0.25", {"a": 1.5, "b": -0.25}),
    ("addresses are text", "a: 127.0.0.1:4222\nb: 1.2.3", {"a": "127.0.0.1:4222", "b": "1.2.3"}),
    ("durations are text", "a: 2m30s, b: 10s", {"a": "2m30s", "b": "10s"}),
    ("percent is text", "a: 40%", {"a": "40%"}),
    ("date", "a: 2026-02-28T23:59:59Z", {"a": "2026-02-28T23:59:59Z"}),
    ("date in a leap year", "a: 0000-02-29T00:00:00Z", {"a": "0000-02-29T00:00:00Z"}),
    ("array with commas", "a: [b, 'c', 1 ]", {"a": ["b", "c", 1]}),
    ("array with newlines", "a: [\n b # x\n c\n\n // y\n]", {"a": ["b", "c"]}),
    ("array with a last comma", "a: ['b',]", {"a": ["b"]}),
    ("a slash separates in an array", "a: ['b' / 'c']", {"a": ["b", "c"]}),
    ("nested arrays", "a: [[1 ], [2 , [3 ]]]", {"a": [[1], [2, [3]]]}),
    ("a number takes the bracket into its text", "a: [1]\n 'b']", {"a": ["1]", "b"]}),
    ("a size before a bracket is text", "a: [1k]", {"a": ["1k"]}),
    ("map without separator", "a { b 1 }", {"a": {"b": 1}}),
    (
        "map with all separators",
        "a { b=1; c: 2, d 3\n e=4 }",
        {"a": {"b": 1, "c": 2, "d": 3, "e": 4}},
    ),
    ("map over lines", "a\n{\n b:\n 1\n}", {"a": {"b": 1}}),
    ("empty map and array", "a {}, b []", {"a": {}, "b": []}),
    ("include is a keyword before a blank only", "include: 1", {"include": 1}),
    ("variable", "x: 5\na: $x", {"x": 5, "a": 5}),
    ("variable of an outer map", "x: y\na { b { c: $x } }", {"x": "y", "a": {"b": {"c": "y"}}}),
    ("inner variable first", "x: 1\na { x: 2\n b: $x }", {"x": 1, "a": {"x": 2, "b": 2}}),
    ("variable of a map", "x { y: 1 }\na: $x", {"x": {"y": 1}, "a": {"y": 1}}),
    ("variable in an array", "x: 1\na: [$x]", {"x": 1, "a": [1]}),
    ("quoted variable is text", "x: 1\na: '$x', b: \"$x\"", {"x": 1, "a": "$x", "b": "$x"}),
    ("a function is no variable", 'a: "{{wildcard(1)}}.$1"', {"a": "{{wildcard(1)}}.$1"}),
    ("unquoted bcrypt hash", "a: $2a$11$abc", {"a": "$2a$11$abc"}),
    ("other spaces", "\u2003a:\u00a01\u00a0x", {"a": "\u00a01\u00a0x"}),
    ("nothing but comments", "# a\n// b", {}),
    ("carriage returns", "a: 1\r\nb: [\r\n 2\r\n]\r\n", {"a": 1, "b": [2]}),
]


def variables(value: str, count: int) -> str:
    """A list, and variables that each have the one before, as the value says."""
    lines = [f"x{n + 1}: [{value.replace('%d', str(n))}]" for n in range(count)]
    return "\n".join(["x0: [ 1 ]", *lines])


REFUSED = [
    # id, text, line, column, code or the parser's words
    ("key alone", "a", 1, 2, "expected '=' or a space"),
    ("key before the end", "a: 1\nb\n", 3, 1, "expected a value, "),
    ("separator without a key", "= 1", 1, 1, "expected a key"),
    ("newline after a separator", "a:\n1", 1, 3, "expected a value, "),
    ("two values", "a: b c", 1, 6, "expected a new line"),
    ("open double quote", 'x: 1\na: "b', 2, 4, "no closing quote"),
    ("open single quote", "a: 'b", 1, 4, "no closing quote"),
    ("open key", "a: 1\n'b", 2, 1, "the key that starts here has no closing quote"),
    ("open block", "a: (\nb )\n", 1, 4, "needs a closing )"),
    ("block with carriage returns", "a: (\r\n)\r\n", 1, 4, "needs a closing )"),
    ("unknown escape", r'a: "bc\q"', 1, 7, "unknown escape"),
    ("short hex escape", r'a: "\x4"', 1, 5, "unknown escape"),
    ("half an escape before a string", r'{"a": "\x", "b": "c"}', 1, 8, "unknown escape"),
    ("half an escape without quotes", r"a: b\x, c: d", 1, 5, "unknown escape"),
    ("half an escape after a number", r"a: 1kz\x, c: d", 1, 7, "unknown escape"),
    ("unknown escape without quotes", r"a: b\q", 1, 5, "unknown escape"),
    ("open map", "a {\n b: 1\n", 3, 1, "expected a key or '}'"),
    ("open array", "a [\n1\n", 3, 1, "expected a value or ']'"),
    ("array takes the bracket into a number", "a: [1]", 1, 7, "found the end of the file"),
    ("array closed by a brace", "a: [b}", 1, 6, "expected a new line, ',' or ']'"),
    ("array without commas", "a: [b c]", 1, 7, "expected a new line, ',' or ']'"),
    ("leading comma", "a: [,b]", 1, 5, "expected a value or ']'"),
    ("map closed by a bracket", "a { b: c ]", 1, 10, "expected a new line, ',', ';' or '}'"),
    ("key without a value", "a { b }", 1, 7, "the key before this } has no value"),
    ("float without digits", "a: 1.", 1, 4, "not a number"),
    ("float without a start", "a: .5", 1, 4, "not a number"),
    ("minus alone", "a: -x", 1, 4, "not a number"),
    ("integer out of range", "x\n9223372036854775808", 2, 1, "number-over-64-bits"),
    ("integer far out of range", f"a: {'9' * 5000}", 1, 4, "number-over-64-bits"),
    ("float out of range", f"a: {'9' * 400}.0", 1, 4, "decimal-too-large"),
    ("unit that is none", "a: 1kbi", 1, 4, "no-unit-of-size"),
    ("no such date", "a: 2026-02-29T00:00:00Z", 1, 4, "no-such-time"),
    ("no such month", "a: 2026-13-01T00:00:00Z", 1, 4, "no-such-time"),
    ("half a date", "a: 2026-02", 1, 4, "not a number, date"),
    ("digits of another script", "a: ٣", 1, 4, "not-a-number"),
    ("unknown variable", "a: $NOT_SET_ANYWHERE", 1, 4, "variable-not-set"),
    ("variable before it is set", "a: $later\nlater: 1", 1, 4, "variable-not-set"),
    ("variable of a closed map", "a { x: 1 }\nb: $x", 2, 4, "variable-not-set"),
    ("lone dollar", "a: $", 1, 4, "no-such-variable"),
    ("include without a name", "include ", 1, 9, "expected the file to include"),
    ("include of a list", "include [a]", 1, 9, "expected the file to include"),
    ("include of no file", "include ./none.conf", 1, 9, "file-unreadable: No such file"),
    ("slash at the start", "/ a: 1", 1, 1, "expected"),
    ("NUL", "a: 1\0", None, None, "file-has-nul"),
    ("byte order mark", "\ufeffa: 1", None, None, "file-has-byte-order-mark"),
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


@pytest.mark.parametrize(("text", "meaning"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_what_a_text_means(conf: Path, text: str, meaning: dict[str, object]) -> None:
    assert plain(parse_server_config(written(conf, text))) == meaning
    assert list(meaning) == list(plain(parse_server_config(conf)))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "line", "column", "what"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
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
