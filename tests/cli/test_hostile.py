"""Every command that shows what publishers and files say: nothing of it acts on a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.command import nats_transform
from tests.support.files import write_files
from tests.support.hostile import HOSTILE, RAW
from tests.support.terminal import on_a_terminal

# JSON has no way to write a byte that is not UTF-8.
NAME = HOSTILE.replace("\udcff", "")
STREAM = "".join(c for c in NAME if c not in "./>=\u2028")


@pytest.fixture(autouse=True)
def folder(folder: Path) -> Path:
    """An empty current folder with mappings and streams that have hostile names."""
    mappings = {
        f"in.{NAME}.*": [
            {"subject": f"out.{NAME}.$1", "weight": 50},
            {"subject": f"far.{NAME}.{{{{partition(3,1)}}}}", "weight": 50, "cluster": NAME},
        ],
        "lost": [{"subject": "lost", "weight": 10}, {"subject": f"{NAME}", "weight": 20}],
    }
    bad = {NAME: [{"subject": f"x.$7.{NAME}", "weight": 10}]}
    stream = {"name": STREAM, "subjects": [f"in.{NAME}.>"], "republish": {"dest": f"r.{NAME}.>"}}
    files = {"mapping.json": mappings, "bad.json": bad, "streams/one.json": {"config": stream}}
    write_files(folder, files)
    return folder


# What our own styles and lines of progress send; that of the hostile texts is another one.
OURS = re.compile(r"\x1b\[(?:(?:0|1|1;31|32|33|36|38;5;237)m|\?25[lh]|2K|1A)|\r")


def shown_on_a_terminal(*args: str, input: bytes = b"") -> str:
    code, shown = on_a_terminal(*args, input=input)
    assert code in (0, 1, 2)
    return OURS.sub("", shown)


HOSTILE_BYTES = HOSTILE.encode("utf-8", "surrogateescape")
QUICK = {
    "map": (["map", "*.>", "x.>", "-"], b"a.%b.b\n" % HOSTILE_BYTES),
    "map that does not match": (["map", f"*.{NAME}", f"x.{NAME}", "-"], HOSTILE_BYTES + b"\n"),
    "map without a transform": (["map", f"a.{NAME}", f"$7.{NAME}"], b""),
    "map debugged": (["--debug", "map", f"a.{NAME}", f"$7.{NAME}"], b""),
    "check": (["check", "mapping.json", "streams/one.json", "--cluster", NAME], b""),
    "check of a refused file": (["check", "bad.json"], b""),
    "check of a missing file": (["check", f"{STREAM}.conf"], b""),
    "check of an account": (["check", "mapping.json", "--account", NAME], b""),
    "trace": (["trace", f"in.{NAME}.x", "--mapping", "mapping.json", "--streams", "streams"], b""),
    "trace in a cluster": (
        ["trace", f"in.{NAME}.x", "--mapping", "mapping.json", "--cluster", NAME],
        b"",
    ),
    "a wrong option": (["map", f"--{STREAM}"], b""),
    "a wrong command": ([STREAM], b""),
    "a wrong choice": (["check", "mapping.json", "--fail-on", NAME], b""),
    "a wrong day": (["audit", "--stream", "S", "--mapping", "m", "--day", NAME], b""),
    "a missing mapping": (["dry-run", "--stream", NAME, "--candidate", f"{STREAM}.json"], b""),
    "no warehouse": (["maintain", "--warehouse", STREAM], b""),
}


@pytest.mark.parametrize("case", QUICK)
def test_nothing_raw_reaches_a_terminal(case: str) -> None:
    args, input = QUICK[case]
    shown = shown_on_a_terminal(*args, input=input)
    assert r"\x1b" in shown or r"\u001b" in shown, shown
    assert not RAW.search(shown), ascii(RAW.search(shown))


@pytest.mark.parametrize("case", ["map", "check", "trace"])
def test_nothing_raw_is_in_json(case: str) -> None:
    args, input = QUICK[case]
    shown = shown_on_a_terminal(*args, "--json", input=input)
    assert r"\u001b" in shown
    assert shown.isascii()
    assert not RAW.search(shown)


# ---- The commands that need Spark


def shown_by(*args: str) -> str:
    """What a command prints, on both streams, as text and as JSON."""
    text = nats_transform(*args)
    document = nats_transform(*args, "--json")
    shown = "".join((*text[1:], *document[1:]))
    assert not RAW.search(shown), ascii(shown)
    assert document[0] == text[0] in (0, 1, 2), shown
    return shown


@pytest.fixture
def archived(folder: Path, spark: SparkSession) -> None:
    """A stream whose messages have hostile subjects, clusters and headers."""
    rows: list[dict[str, Any]] = [
        {
            "seq": n,
            "ts": f"2026-11-30T12:{n % 60:02}:00Z",
            "subject": ("lost", f"in.{NAME}.{n % 7}", f"other.{NAME}")[n % 3],
            "cluster": NAME if n % 2 else "east",
            "headers": {"Evil": STREAM},
            "data": "x",
        }
        for n in range(1, 121)
    ]
    (folder / "dump.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ("--stream", STREAM, "--jsonl", str(folder / "dump.jsonl"), "--data-encoding", "text")
    shown = shown_by("ingest", *given)
    assert r"\x1b" in shown, shown


@pytest.mark.slow
@pytest.mark.spark
def test_nothing_raw_comes_out_of_an_archive(archived: None, folder: Path) -> None:
    of = ("--stream", STREAM, "--mapping", "mapping.json")
    assert "mapping version" in shown_by("transform", *of)
    for more in ((), ("--observed",), ("--key", "1", "--cluster", NAME), ("--by", "hour")):
        assert r"\x1b" in shown_by("audit", *of, *more, "--report", "audit.html")
    assert not RAW.search((folder / "audit.html").read_text("utf-8"))
    tried = ("--stream", STREAM, "--candidate", "mapping.json", "--streams", "streams")
    assert r"\x1b" in shown_by("dry-run", *tried, "--report", "review.html")
    assert not RAW.search((folder / "review.html").read_text("utf-8"))
    assert r"\x1b" in shown_by("audit", *of, "--day", "2020-01-01")
    assert r"\x1b" in shown_by("transform", "--stream", f"no{STREAM}", "--mapping", "mapping.json")
    assert r"\x1b" in shown_by("ingest", "--stream", "S", "--jsonl", f"{STREAM}.jsonl")
    nowhere = ("--to", STREAM, "--server", "nats://127.0.0.1:1")
    shown_by("replay", "--stream", STREAM, *nowhere)
    shown_by("maintain")
