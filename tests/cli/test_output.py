"""What commands print: nothing that others wrote acts on a terminal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main
from cli.output import print_counts, print_json, print_line, print_lines, print_subject

ROOT = Path(__file__).parents[2]
HOSTILE = "a\x1b[31m\u202e\u2066\x7f\x9b\u2028\udcffb"
SHOWN = r"a\x1b[31m\u202e\u2066\x7f\x9b\u2028\udcffb"
PRINTS = {"print", "echo", "secho", "print_exc", "print_exception", "print_stack"}


def test_a_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(f"{HOSTILE}\nnext")
    print_line(HOSTILE, err=True)
    assert capsys.readouterr() == (f"{SHOWN}\\nnext\n", f"{SHOWN}\n")


def test_lines_of_our_own_stay(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(f"{HOSTILE}\nnext")
    assert capsys.readouterr().out == f"{SHOWN}\nnext\n"


def test_counts_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_counts({"messages": 12_000, "gaps": 7})
    print_json({HOSTILE: HOSTILE})
    counted, gaps, document = capsys.readouterr().out.splitlines()
    assert (counted, gaps) == ("  messages  12,000", "  gaps           7")
    assert document.isascii()
    assert document.isprintable()


def test_a_pipe_gets_the_bytes_of_a_subject(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_subject("a\x1b\udcff")
    assert capsysbinary.readouterr().out == b"a\x1b\xff\n"


def test_a_terminal_gets_what_can_be_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_subject(HOSTILE)
    assert capsys.readouterr().out == f"{SHOWN}\n"


def test_a_stack_trace_shows_no_raw_byte() -> None:
    shown = CliRunner().invoke(main, ["--debug", "map", f"a.*{HOSTILE}", "b.$7"])
    assert shown.exit_code == 2
    assert shown.output.startswith("Traceback")
    assert shown.output.count("\\x1b[31m") >= 2
    assert shown.output.replace("\n", "").isprintable()


@pytest.mark.parametrize("package", ["cli", "nats_transform", "jobs", "expectations"])
def test_one_module_prints(package: str) -> None:
    printing = {
        str(module.relative_to(ROOT))
        for module in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if _prints(node)
    }
    # `ending` prints the name of our program.
    assert printing <= {"cli/output.py", "jobs/__main__.py", "jobs/ending.py"}


def _prints(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == "write":
        return ast.unparse(node.value) in ("sys.stdout", "sys.stderr")
    called = node.func if isinstance(node, ast.Call) else None
    return (getattr(called, "id", None) or getattr(called, "attr", None)) in PRINTS
