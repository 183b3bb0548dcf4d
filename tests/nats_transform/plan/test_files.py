"""What a plan writes is read as it was meant, by us and by a real server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.jetstream.process import nats_server
from nats_transform.config.block import configured, mapping_fields, mappings_block
from nats_transform.config.server_conf import parse_server_text
from nats_transform.config.tree import plain
from nats_transform.plan.files import Unnameable, files, path
from nats_transform.plan.model import Change, Plan, Step
from tests.support import rules
from tests.support.refused import refused
from tests.support.rollout import monitor

# Legal in a token of a source.
ODD = [
    *("a\\b", "a\\\\b", "a\\", "a\\x41", "a\\tb", 'a"b', 'a\\"b', "a'b", "a#b", "//b", "$A", "{a}"),
    *("a;b", "a=b", "a:b", "[a]", "a,b", "%a", "include", "a\x01b", "a\x7fb", "\u2028", "é"),
]


def mappings(tokens: list[str]) -> dict[str, Any]:
    return mapping_fields(
        rules.mappings({f"{one}.*": [(f"out.{one}.$1", 100, one)] for one in tokens})
    )


def read(text: str) -> Any:
    return plain(parse_server_text(text, "plan.conf"))


@given(st.lists(st.from_regex(r"[^\s.*>\x00]{1,5}", fullmatch=True), max_size=3, unique=True))
def test_any_mappings_are_read_as_they_are(tokens: list[str]) -> None:
    wanted = mappings([one for one in tokens if not ({"'", '"'} <= set(one))])
    found = read(mappings_block(wanted))["mappings"]
    assert list(found) == list(wanted)
    assert [[d["destination"] for d in one] for one in found.values()] == [
        [d["destination"] for d in one] for one in wanted.values()
    ]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=5))
def test_any_string_is_read_as_it_is(text: str) -> None:
    assert read(f"a: {configured({'b': text, 'c': [text]})}") == {"a": {"b": text, "c": [text]}}


@pytest.mark.server
def test_a_server_has_the_mappings_of_a_block(tmp_path: Path) -> None:
    block = mappings_block(mappings(ODD))
    with (
        nats_server(f"http: 127.0.0.1:-1\n{block}") as server,
        urlopen(f"{monitor(server)}/accountz?acc=$G") as answer,  # noqa: S310 - of our own server
    ):
        told = json.load(answer)["account_detail"]["mappings"]
    # Before it stands the source itself, for the other clusters.
    assert {source: to[-1]["subject"] for source, to in told.items()} == {
        f"{one}.*": f"out.{one}.$1" for one in ODD
    }


@pytest.mark.parametrize("kind", get_args(Change.model_fields["kind"].annotation))
def test_names_that_look_alike_have_files_of_their_own(kind: Any) -> None:
    step = Step.model_construct(number=1, phase="expand")
    names = ["A+B", "A=B", "A B/C", "A.B/C", "..", "."]
    changes = [Change(kind=kind, name=name, before={}, after={}) for name in names]
    found = {path(step, change, False) for change in changes}
    assert len(found) == len(names)
    assert all(one.count("/") == 1 for one in found)


def test_two_changes_with_one_file_are_refused() -> None:
    changes = [
        Change(kind="imports", name=name, before={"imports": []}, after={"imports": []})
        for name in ("$G", "G")
    ]
    step = Step(number=2, phase="expand", title="", why="", changes=tuple(changes))
    plan = Plan(current="", candidate="", account="$G", made_from={}, steps=(step,))
    with refused(Unnameable, "unnameable-same-file", file=re.compile("^02-expand")):
        files(plan, {})
