"""What commands print: nothing that others wrote acts on a terminal."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cli.explanations import explanations
from cli.output import (
    STYLES,
    Verdict,
    print_counts,
    print_json,
    print_line,
    print_lines,
    print_subject,
    print_table,
)
from jobs import live_trace
from nats_transform import audit
from nats_transform.lint.findings import PAGE, Severity
from scripts.architecture import parsed
from tests.support.command import commands, nats_transform
from tests.support.files import write_files
from tests.support.terminal import on_a_terminal

ROOT = Path(__file__).parents[2]
HOSTILE = "a\x1b[31m\u202e\u2066\x7f\x9b\u2028\udcffb"
SHOWN = r"a\x1b[31m\u202e\u2066\x7f\x9b\u2028\udcffb"
PRINTS = {"print", "echo", "secho", "print_exc", "print_exception", "print_stack"}


def test_a_line_stays_one_line_and_our_own_stay(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(f"{HOSTILE}\nnext")
    print_line(HOSTILE, err=True)
    assert capsys.readouterr() == (f"{SHOWN}\\nnext\n", f"{SHOWN}\n")
    print_lines(f"{HOSTILE}\nnext")
    assert capsys.readouterr().out == f"{SHOWN}\nnext\n"


def test_counts_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_counts({"messages": 12_000, "gaps": 7})
    print_json({HOSTILE: HOSTILE})
    counted, gaps, document = capsys.readouterr().out.splitlines()
    assert (counted, gaps) == ("  messages  12,000", "  gaps           7")
    assert document.isascii()
    assert document.isprintable()


def test_a_table_in_a_pipe_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    wide = "[red]x[/red] " * 40 + "end"
    print_table(
        [("a", Verdict("outside"), wide), (HOSTILE, "b", "c")], head=("one", "two", "three")
    )
    head, first, second = capsys.readouterr().out.splitlines()
    width = len(SHOWN)
    assert head == f"  {'one':<{width}}  two      three"
    assert first == f"  {'a':<{width}}  outside  {wide}"
    assert second == f"  {SHOWN}  b        c"


REFUSED = """mappings = {
  "shop.*": [ { destination: "a.[bold]x", weight: 40% }, { destination: "b.$1", weight: 2% } ]
}
"""
RED, OFF = "\x1b[1;31m", "\x1b[0m"


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.usefixtures("folder")
def test_a_finding_fits_the_terminal(columns: int) -> None:
    config = Path("mapping.conf")
    config.write_text("mappings = {\n  orders: [ { destination: 'a.*', weight: 40% } ]\n}\n")
    code, shown = on_a_terminal("check", str(config), columns=columns)
    assert code == 1
    finding, *lines, summary = shown.splitlines()
    assert finding.startswith(f"{config}:2:3: {RED}error{OFF} refused: ")
    assert summary.endswith("1 error")
    assert all(len(line) <= columns for line in lines if not line.startswith(PAGE))
    cure = [line for line in lines if line.startswith("    ")]
    assert len(cure) == (2 if columns == 40 else 1)


@pytest.mark.parametrize("columns", [40, 80, 104])
@pytest.mark.usefixtures("folder")
def test_no_word_is_broken(columns: int) -> None:
    Path("m.conf").write_text(
        'mappings = { "shop.*.*": [ { destination: "elsewhere.$1.$2", weight: 40% } ] }\n'
    )
    for command in (
        ("check", "m.conf"),
        ("trace", "shop.eu.1", "--mapping", "m.conf"),
        ("check", "m.conf", "--show-config"),
    ):
        code, shown = on_a_terminal(*command, columns=columns, NO_COLOR="1")
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert code == 0
        # A terminal breaks an address itself, and can still follow it.
        lines = [line for line in plain.splitlines() if not line.startswith(PAGE)]
        assert max(map(len, lines)) <= columns
        assert plain.split() == nats_transform(*command)[1].split()


TWICE = re.compile(r"(?<![-\w/.])([A-Za-z]+) \1(?![-\w/.])")
"""A word that is said twice, as in `plan plan`; not a command and its file or folder."""
ONES = re.compile(
    r"(?<![\w$.,-])1 (streams|consumers|users|messages|subjects|mappings|accounts|clusters|days|"
    r"hours|files|bytes|snapshots|sequences|gaps|steps|rules|destinations|findings|errors|warnings)"
    r"\b"
)
"""A count of one with a plural, as in `1 streams`."""


def slips(text: str) -> list[str]:
    """What nobody would say."""
    return [found[0] for form in (TWICE, ONES) for found in form.finditer(text)]


def test_help_says_no_word_twice_and_no_plural_of_one() -> None:
    assert slips("the plan plan has 1 streams, 11 streams") == ["plan plan", "1 streams"]
    shown = {path: nats_transform(*path, "--help")[1] for path in commands()}
    shown |= {
        (code,): nats_transform("explain", code)[1] for code in {one.code for one in explanations()}
    }
    assert {where: found for where, text in shown.items() if (found := slips(text))} == {}


def test_results_say_no_word_twice_and_no_plural_of_one(folder: Path) -> None:
    """Of one message, one stream, one consumer, and one mapping, in text and in pages."""
    rule = 'mappings { "orders.*": [{dest: "shop.$1", weight: 98%}, {dest: "old.$1", weight: 2%}] }'
    (folder / "new.conf").write_text(rule)
    (folder / "one.conf").write_text('mappings { "orders.*": "shop.$1" }')
    (folder / "dump.jsonl").write_text('{"seq": 1, "subject": "orders.eu", "ts": 0}\n')
    stream = {"name": "S", "subjects": ["orders.*"], "republish": {"src": ">", "dest": "live.>"}}
    consumer = {"stream_name": "S", "config": {"durable_name": "C", "filter_subject": "orders.eu"}}
    write_files(folder, {"streams/one.json": {"config": stream}, "consumers/one.json": consumer})
    known = ("--streams", "streams", "--consumers", "consumers")
    of, mapped = ("--stream", "S"), ("--stream", "S", "--mapping", "new.conf")
    tried = ("--census", "census", "--candidate", "one.conf", *known)
    for line in (
        ("ingest", *of, "--jsonl", "dump.jsonl"),
        ("transform", *mapped),
        ("verify-table", *of),
        ("census", "export", *of, "--out", "census"),
        ("check", "new.conf", *known),
        ("trace", "orders.eu", "--mapping", "new.conf", *known),
        ("audit", *mapped, "--report", "audit.html"),
        ("plan-canary", *mapped),
        ("dry-run", *tried, "--report", "review.html"),
        ("plan", *tried, "--out", "plan"),
        ("maintain",),
    ):
        code, out, err = nats_transform(*line)
        assert code in (0, 1), (line, out + err)
        assert out, line
        assert slips(out) == [], line
    for page in folder.rglob("*.html"):
        for text in re.split("(?s)<style>.*?</style>|<[^>]+>", page.read_text("utf-8")):
            assert slips(text) == [], (page.name, text)


def test_a_table_breaks_no_word_that_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.output.ANY_WIDTH", 40)
    print_table([("a long text of many words", "1,234,567 messages", "within the tolerance")])
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 40 for line in lines)
    text = "a long text of many words 1,234,567 messages within the tolerance"
    assert sorted(" ".join(lines).split()) == sorted(text.split())


def test_every_verdict_and_severity_has_a_color() -> None:
    assert {*audit.Verdict, *live_trace.Verdict, *Severity} == STYLES.keys()


def test_no_color_and_no_markup(tmp_path: Path) -> None:
    config = tmp_path / "mapping.conf"
    config.write_text(REFUSED)
    shown = {}
    for name, environment in (("plain", {"TERM": "dumb"}), ("no color", {"NO_COLOR": "1"})):
        code, shown[name] = on_a_terminal("check", str(config), columns=400, **environment)
        assert code == 0
    piped = nats_transform("check", str(config))[1]
    assert "a.[bold]x" in piped
    assert shown["plain"].split() == piped.split()
    assert "\x1b[3" not in shown["no color"]


def test_a_pipe_gets_the_bytes_of_a_subject(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_subject("a\x1b\udcff")
    assert capsysbinary.readouterr().out == b"a\x1b\xff\n"


@pytest.mark.parametrize("package", ["cli", "nats_transform", "jobs", "expectations"])
def test_one_module_prints(package: str) -> None:
    printing = {
        str(module.relative_to(ROOT))
        for module in (ROOT / package).rglob("*.py")
        for node in ast.walk(parsed(module.read_text(encoding="utf-8")))
        if _prints(node)
    }
    # `ending` prints the name of our program.
    assert printing <= {"cli/output.py", "jobs/__main__.py", "jobs/ending.py"}


def _prints(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == "write":
        return ast.unparse(node.value) in ("sys.stdout", "sys.stderr")
    called = node.func if isinstance(node, ast.Call) else None
    return (getattr(called, "id", None) or getattr(called, "attr", None)) in PRINTS
