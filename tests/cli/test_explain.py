"""`nats-transform explain`: each example is a real input, and gives what is said of it."""

from __future__ import annotations

import json
import random
from itertools import chain, count
from pathlib import Path

import pytest

from cli.explanations import NUMBERS, Example, Explanation, explained, explanations
from nats_transform.audit import Verdict
from nats_transform.errors import sentence
from nats_transform.lint.findings import CODES, PAGE
from nats_transform.migration import ALL
from tests.support.censuses import census_file
from tests.support.command import document, nats_transform, printed, refused
from tests.support.files import write_files
from tests.support.jobs import dumped

EVERY = explanations()
SEVERAL = ("not-compared", "batch-split", "counted-twice")
"""Codes of check whose examples have other findings too."""


def lay_out(example: Example, folder: Path) -> dict[str, str]:
    """Writes the files of an example with all their lines; what is in each."""

    def repeated(line: str) -> str:
        if (match := NUMBERS.search(line)) is None:
            return line
        return "\n".join(NUMBERS.sub(str(number), line) for number in range(1, int(match[1]) + 1))

    files = {
        name: "\n".join(map(repeated, text.split("\n"))) for name, text in example.files.items()
    }
    write_files(folder, files)
    return files


def codes(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The codes that the command of an example prints."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    lay_out(example, folder)
    command, *rest = example.command.split()
    if command == "audit" or example.headers:
        archive(example, folder)
    elif example.messages:
        counts = {(name.encode(), place.encode() or None): n for place, name, n in example.messages}
        census_file(folder / "census.parquet", counts)
    _, out, err = nats_transform(command, *rest, "--json")
    assert not err, err
    found = json.loads(out)
    if command == "plan":
        return [one["code"] for one in found["blocked"]]
    if command == "audit":
        return [found["verdict"].replace(" ", "-")]
    return [one["code"] for one in found["findings"]]


def archive(example: Example, folder: Path) -> None:
    """Archive the messages, one a second; in a random order if they have none of their own."""
    subjects = list(chain.from_iterable([name] * count for _, name, count in example.messages))
    if not example.is_ordered:
        random.Random(7).shuffle(subjects)
    times = (f"2026-11-01T10:{n // 60:02}:{n % 60:02}Z" for n in count(1))
    lines = (
        {"seq": n, "subject": name, "ts": next(times), "data": "", "headers": example.headers}
        for n, name in enumerate(subjects, 1)
    )
    dump = str(dumped(folder / "messages.jsonl", lines))
    assert nats_transform("ingest", "--stream", "SHIPPED", "--jsonl", dump)[0] == 0


# A dry run takes nearly a second, and each code is planted in tests/nats_transform/migration too.
@pytest.mark.parametrize(
    "one",
    [
        pytest.param(
            one,
            id=f"{one.command}-{one.code}",
            marks=[pytest.mark.slow] if one.command == "dry-run" and number % 6 else [],
        )
        for number, one in enumerate(EVERY)
    ],
)
def test_one_example_has_the_finding_and_the_other_has_not(
    one: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = codes(one.has, tmp_path / "has", monkeypatch)
    assert one.code in found
    # A fault in a dry run has more than one finding.
    assert set(found) == {one.code} or one.command != "check" or one.code in SEVERAL
    left = codes(one.lacks, tmp_path / "lacks", monkeypatch)
    assert one.code not in left
    assert one.command == "audit" or set(left) < set(found)


def test_every_code_of_every_command_has_an_explanation() -> None:
    assert len(EVERY) == len({(one.command, one.code) for one in EVERY})
    assert {one.code for one in EVERY if one.command == "check"} == set(CODES)
    assert {one.code for one in EVERY if one.command == "audit"} == {
        verdict.replace(" ", "-") for verdict in Verdict
    }
    for code in ALL:  # of dry-run and plan
        assert explained(code)
    assert explained("nothing to audit")  # as the command prints it


def test_the_explanation_of_a_code() -> None:
    out = printed("explain", "remainder-kept")
    rule = CODES["remainder-kept"]
    assert out.startswith(
        f"remainder-kept: warning, found by check\n{rule.about}\ncure: {rule.cure}\n\nWith"
    )
    assert "      shop: [ { destination: shop.v1, weight: 90% }, " in out
    assert out.endswith(f"\n{PAGE}#check-remainder-kept\n")
    assert out == printed("explain", "check-remainder-kept")
    (one,) = document("explain", "remainder-kept")["explanations"]
    assert (one["code"], one["severity"], one["page"]) == ("remainder-kept", "warning", rule.page)


def test_a_code_of_two_commands_is_explained_for_both() -> None:
    _, out, _ = nats_transform("explain", "streams-overlap")
    assert "error, found by check\n" in out
    assert "error, found by dry-run\n" in out


def test_an_unknown_code_names_the_one_that_was_meant() -> None:
    for typed, meant in (
        ("colision", "; did you mean collision?"),
        ("xyzzy", "; nats-transform explain lists all codes"),
    ):
        told = sentence("no-such-finding", code=repr(typed), cure=meant)
        line = f"nats-transform explain: {told} (see nats-transform explain --help)\n"
        assert refused("explain", typed) == line


def test_without_a_code_all_are_listed() -> None:
    _, out, _ = nats_transform("explain")
    listed = [tuple(line.split()[:3]) for line in out.splitlines()[1:]]
    assert listed == [(one.command, one.code, one.severity) for one in EVERY]
