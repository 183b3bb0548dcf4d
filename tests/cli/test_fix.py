"""`check --fix`: what it cures, that it keeps what nats-server does, and what it leaves alone."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path

import pytest

from cli.explanations import Explanation, explanations
from jobs.jetstream.process import nats_server
from nats_transform import Transform
from nats_transform.config.cure import CURED, cured_destination, cured_text
from nats_transform.errors import sentence
from tests.cases import load
from tests.cli.test_explain import lay_out
from tests.conformance.client import Client
from tests.support.command import document, nats_transform, printed, refused

CONF = """# ours
mappings {
  "orders.*": [
    { destination: "shop.{{wildcard(1)}}-{{new}}", weight: 50% } // half
    { destination: 'new.{{left(1,0)}}', weight: 50% }, # the other half
  ]
}
"""
CURED_CONF = CONF.replace("-{{new}}", "").replace("left(1,0)", "wildcard(1)")


run = partial(nats_transform, "check")


@pytest.mark.parametrize(
    "text",
    [
        'accounts { A { users: [{user: u, pass: planted}]\n maps: { k.*: "l.{{left(1,0)}}" } } }',
        'authorization { token: planted }, mappings { k.*: "l.{{left(1,0)}}" }',
        'mappings { k.*: "l.{{left(1,0)}}" }\nleafnodes { remotes: [{url: "nats://planted@h"}] }',
        'authorization { token: planted } # \u2028 x\nmappings { k.*: "l.{{left(1,0)}}" }',
        'authorization { token: planted # \f x\n}\nmappings { k.*: "l.{{left(1,0)}}" }',
    ],
    ids=["beside", "on-the-line", "url", "line-separator", "form-feed"],
)
def test_a_diff_shows_no_secret(folder: Path, text: str) -> None:
    (folder / "a.conf").write_text(text)
    out = printed("check", "a.conf", "--fix")
    assert "(a line with a secret)" in out
    assert "planted" not in out
    assert (folder / "a.conf").read_text() == text.replace("left(1,0)", "wildcard(1)")


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a.conf", CONF, CURED_CONF),
        ("crlf.conf", CONF.replace("\n", "\r\n"), CURED_CONF.replace("\n", "\r\n")),
        *load("cured.yaml"),
    ],
    ids=lambda value: value if value.endswith((".conf", ".yaml", ".json")) else "",
)
def test_only_the_destination_changes(folder: Path, name: str, before: str, after: str) -> None:
    (folder / name).write_bytes(before.encode())
    found = {one["code"] for one in document("check", name)["findings"]}
    assert found & CURED
    shown = document("check", name, "--diff")["diff"]
    assert (folder / name).read_bytes() == before.encode()
    out = printed("check", name, "--fix")
    assert (folder / name).read_bytes() == after.encode()
    assert out.startswith(f"{shown}\n")
    assert shown.startswith(f"--- {name}\n+++ {name}\n@@ ")
    left = document("check", name)["findings"]
    assert {one["code"] for one in left} == found - CURED
    assert document("check", name, "--fix")["diff"] == ""


@pytest.mark.parametrize(
    "destination",
    [
        "p.{{wildcard(1)}}abc{{y}}.$2",
        "p.{{partition(3,1)}}{{wildcard(1)}}.{{ Wildcard ( 2 ) }}",
        "p.x{{wildcard(1)}}.$2",
        "p.{{wildcard(2)}}}.$1",
        "p.{{left(1,0)}}.{{right(2,-3)}}",
        "p.{{slicefromleft(2,0)}}.{{SliceFromRight(1,-1)}}.{{split(2,-)}}",
        "p.{{left(0,0)}}.$1.$2",
        "p.{{left(1,0)}}x.{{partition(1,1)}}.$2",
        "p.$1.$2",
    ],
)
def test_a_cure_keeps_the_meaning(destination: str) -> None:
    old = Transform("a.*.b.*", destination)
    new = Transform("a.*.b.*", cured_destination("a.*.b.*", destination))
    for subject in ("a.eu.b.1", "a.x-y.b.-", "a.é.b.日本"):
        assert new.apply(subject) == old.apply(subject)
    assert cured_destination(new.source, new.destination) == new.destination


@pytest.mark.server
def test_a_real_server_maps_as_before(folder: Path) -> None:
    mappings = (
        '"a.*": "shop.{{wildcard(1)}}-{{new}}", "b.*.*": "new.{{left(1,0)}}.{{right(2,-1)}}", '
        '"c.*": "p.{{partition(3,1)}}{{wildcard(1)}}"'
    )
    (folder / "a.conf").write_text(f"mappings {{ {mappings} }}")
    seen = []
    for _ in range(2):
        with nats_server((folder / "a.conf").read_text()) as server, Client(server.url) as client:
            everything = client.subscribe(">")
            for subject in ("a.eu", "b.eu.1", "c.eu", "c.us"):
                client.publish(subject)
            seen.append([one.subject for one in client.wait_for(4, everything)])
        run("a.conf", "--fix")
    assert seen[0] == seen[1] == ["shop.eu", "new.eu.1", "p.eu", "p.us"]
    assert "{{new}}" not in (folder / "a.conf").read_text()


FOUND_BY_CHECK = [one for one in explanations() if one.command == "check"]


@pytest.mark.parametrize("one", FOUND_BY_CHECK, ids=lambda one: one.code)
def test_what_has_another_cure_is_left_alone(folder: Path, one: Explanation) -> None:
    files = lay_out(one.has, folder)
    _, *arguments = one.has.command.split()
    found = json.loads(run(*arguments, "--fix", "--json")[1])
    codes = {finding["code"] for finding in found["findings"]}
    assert (one.code in codes) is (one.code not in CURED)
    assert bool(found["diff"]) is (one.code in CURED)
    same = [(folder / name).read_text() == text for name, text in files.items()]
    assert all(same) is (one.code not in CURED)


def test_what_cannot_be_changed_for_sure_stays(folder: Path) -> None:
    included = 'mappings { "a.*": "b.{{left(1,0)}}" }'
    (folder / "included.conf").write_text(included)
    texts = {
        "top.conf": "include included.conf\n",
        "escaped.json": '{"name": "S", "subjects": ["a.*"], "subject_transform": '
        '{"src": "a.*", "dest": "b.{{le\\u0066t(1,0)}}"}}',
        # YAML counts more line ends than others do.
        "separators.yaml": "# \u2028\u2028\u2028\u2028\na.*:\n- {subject: 'b.{{left(1,0)}}'}\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        found = document("check", name, "--fix")["findings"]
        assert [one["code"] for one in found] == ["size-without-effect"]
        assert (folder / name).read_text() == text
    assert (folder / "included.conf").read_text() == included


def test_another_account_keeps_what_it_does(folder: Path) -> None:
    """The cure of a text can be wrong for the same text of an account that was not checked."""
    text = """accounts {
      A { mappings { "*.x": "{{left(0,0)}}.y" } }
      B { mappings { "a.*": "{{left(0,0)}}.y" } }
    }"""
    (folder / "a.conf").write_text(text)
    run("a.conf", "--account", "A", "--fix")
    assert (folder / "a.conf").read_text() == text


def test_a_large_file_is_cured_in_time(folder: Path) -> None:
    lines = [f'  "o{n}.*": "s{n}.{{{{left(1,0)}}}}"' for n in range(20_000)]
    (folder / "a.conf").write_text("\n".join(["mappings {", *lines, "}"]))
    cures = {f"s{n}.{{{{left(1,0)}}}}": f"s{n}.{{{{wildcard(1)}}}}" for n in range(20_000)}
    start = time.process_time()
    old, new = cured_text("a.conf", cures)
    assert new == old.replace("left(1,0)", "wildcard(1)")
    assert time.process_time() - start < 5  # summing all lines before each place took 12


def test_a_file_keeps_its_mode_and_a_link_stays_one(folder: Path) -> None:
    (folder / "real.conf").write_text(CONF)
    (folder / "real.conf").chmod(0o640)
    (folder / "link.conf").symlink_to("real.conf")
    assert run("link.conf", "--fix")[0] == 0
    assert (folder / "link.conf").is_symlink()
    assert (folder / "real.conf").read_text() == CURED_CONF
    assert (folder / "real.conf").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(folder)) == ["link.conf", "real.conf"]


def test_a_write_that_fails_keeps_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.conf").write_text(CONF)

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    told = sentence("check-not-written", file="a.conf", reason="No space left on device")
    assert run("a.conf", "--fix") == (2, "", f"nats-transform: {told}\n")
    assert (folder / "a.conf").read_text() == CONF
    assert os.listdir(folder) == ["a.conf"]


def test_no_repository_makes_check_write(folder: Path) -> None:
    (folder / "a.conf").write_text(CONF)
    (folder / "nats-transform.toml").write_text("[check]\nfix = true\n")
    assert "fix cannot be in a project file" in refused("check", "a.conf")


def test_the_cures_are_offered(folder: Path) -> None:
    (folder / "a.conf").write_text(CONF)
    offer = "--diff shows the cures that don't change what nats-server does, and --fix makes them\n"
    assert run("a.conf")[1].endswith(offer)
    (folder / "a.conf").write_text('mappings { "a.*": "b" }')
    assert offer not in run("a.conf")[1]
