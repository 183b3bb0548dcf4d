"""`nats-transform map` prints what `nats server mapping` would."""

from __future__ import annotations

import json
import subprocess
from functools import partial

import pytest

from tests.cases import load
from tests.support.command import nats_transform, refused
from tests.support.programs import SCRIPT, output_of
from tests.support.saying import says

run = partial(nats_transform, "map")


DOCUMENTED = [pytest.param(*row[1:5], id=row[0]) for row in load("transforms.yaml")["documents"]]


@pytest.mark.parametrize(("source", "destination", "subject", "result"), DOCUMENTED)
def test_documented_examples(source: str, destination: str, subject: str, result: str) -> None:
    assert run(source, destination, subject) == (0, f"{result}\n", "")


def test_several_subjects_are_lines_in_order() -> None:
    assert run("*", "x.$1", "a", "b", "-c") == (0, "x.a\nx.b\nx.-c\n", "")


def test_subjects_from_standard_input() -> None:
    assert run("*", "x.$1", "first", "-", input="a\r\nb") == (0, "x.first\nx.a\nx.b\n", "")


def test_line_n_belongs_to_line_n() -> None:
    told = "'': not a legal subject: empty token\n"
    assert run("*", "x.$1", "-", input="a\r\n\r\n\nb\n") == (1, "x.a\n\n\nx.b\n", told * 2)


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("a.b", "'a.b': does not match '*'"),
        ("a..b", "'a..b': not a legal subject: empty token"),
        ("a.>", "'a.>': not a legal subject: wildcard in a literal subject"),
    ],
)
def test_a_subject_that_does_not_fit_leaves_its_line_empty_and_exits_1(
    subject: str, reason: str
) -> None:
    assert run("*", "x.$1", "a", subject, "b") == (1, "x.a\n\nx.b\n", f"{reason}\n")


def test_an_illegal_result_is_shown_as_the_server_makes_it_and_exits_1() -> None:
    code, out, err = run("*", "{{split(1,-)}}", "--", "--a")
    assert (code, out) == (1, ".a\n")
    assert "empty token" in err
    # As mappings of the server do, see `wildcard-made-by-a-cut`.
    told = (
        "not a legal subject: wildcard in a literal subject; nats-server delivers it all the same"
    )
    assert run("*", "{{split(1,-)}}", "a-*") == (1, "a.*\n", f"'a-*': {told}\n")
    shown = json.loads(run("*", "{{split(1,-)}}", "a-*", "--json")[1])
    assert (shown["fate"], shown["reason"]) == ("mapped", told)


def test_json_is_an_object_a_line() -> None:
    code, out, err = run("*", "x.$1", "a", "a.b", "a..b", "--json")
    assert (code, err) == (1, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert {(*line,) for line in lines} == {("subject", "mapped_subject", "fate", "reason")}
    assert [(*line.values(),) for line in lines] == [
        ("a", "x.a", "mapped", None),
        ("a.b", None, "unmatched", "does not match '*'"),
        ("a..b", None, "invalid", "not a legal subject: empty token"),
    ]


def test_without_a_subject_the_transform_is_checked() -> None:
    told = "the transform is legal; give - as SUBJECT to read subjects from stdin\n"
    assert run("bar.*.*", "baz.{{wildcard(2)}}.{{wildcard(1)}}") == (0, "", told)
    assert run("bar.*.*", "baz.{{wildcard(3)}}")[0] == 2


def test_random_is_decided_by_the_seed() -> None:
    draws = {seed: run("*", "{{random(1000)}}", "a", "b", "c", "--seed", seed) for seed in "123"}
    assert draws["1"] == run("*", "{{random(1000)}}", "a", "b", "c", "--seed", "1")
    assert len({out for _, out, _ in draws.values()}) == 3
    assert len(set(draws["1"][1].split())) > 1


def test_bytes_that_are_not_utf_8_come_out_as_they_went_in() -> None:
    argv = (SCRIPT, "map", "*", "x.$1", b"\xfe", "-")
    told = output_of(*argv, input=b"a\xff\n\xc3\xa9", text=False)
    assert told == b"x.\xfe\nx.a\xff\nx.\xc3\xa9\n"
    shown = json.loads(output_of(*argv, "--json", stdin=subprocess.DEVNULL))["mapped_subject"]
    assert shown.encode("utf-8", "surrogateescape") == b"x.\xfe"


def test_the_shell_took_a_wildcard() -> None:
    err = refused("map", "orders.*", "orders.v2.", "orders.42")
    assert says(err, "empty-token", name="destination")
    assert "if it had a $1, the shell replaced it: put the destination in single quotes" in err
    assert "single quotes" not in run("orders.*", "orders.$2", "orders.42")[2]
