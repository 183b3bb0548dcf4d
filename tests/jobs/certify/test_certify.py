"""Certificates: a private nats-server does as predicted, and every planted error is found."""

from __future__ import annotations

import json
import random
import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from jobs.certify import run, server
from jobs.certify.result import Certificate, Divergence
from jobs.certify.run import certify
from jobs.errors import JobError
from jobs.pages.page import page as page_of
from jobs.pages.page import write_page
from jobs.settings.certify import CertifySettings
from jobs.settings.warehouse import Warehouse
from nats_transform.config import load_mappings
from nats_transform.errors import sentence
from nats_transform.kernel import build, program
from nats_transform.kernel.library import library
from nats_transform.plan.model import Certified
from nats_transform.streams.stream import parse_stream
from tests.cases import load, rows
from tests.support.command import nats_transform, printed
from tests.support.command import refused as command_refused
from tests.support.files import write_files, written
from tests.support.jobs import dumped, ingested
from tests.support.refused import refused
from tests.support.rules import mappings

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def nothing_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """After what is expected nothing more comes from upstreams on one machine."""
    monkeypatch.setattr(server, "_CAUGHT_UP_SECONDS", 0.2)


MAPPINGS: str = load("certify.yaml")["mappings"]
STREAMS: list[dict[str, Any]] = load("certify.yaml")["streams"]


def subjects(count: int, seed: int = 33) -> list[str]:
    rng = random.Random(seed)
    kinds = (
        lambda: f"orders.{rng.choice(('eu', 'us', 'ü'))}.{rng.randrange(400)}",
        lambda: f"near.{rng.randrange(9)}",
        lambda: f"dice.{rng.randrange(30)}",
        lambda: "thin",
        lambda: f"split.{rng.randrange(1000, 9999)}",
        lambda: f"shop.direct.eu.{rng.randrange(50)}",
        lambda: f"other.{rng.randrange(50)}",
    )
    return [rng.choice(kinds)() for _ in range(count)]


class Archive:
    """A warehouse with messages, and the files of a certificate."""

    def __init__(
        self, folder: Path, published: Sequence[str], clusters: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.conf = written(folder / "new.conf", MAPPINGS)
        write_files(folder / "streams", {f"{stream['name']}.json": stream for stream in STREAMS})
        lines = (
            {"seq": number, "ts": "2026-11-01T00:00:00Z", "subject": subject}
            | ({"headers": {"Cluster": clusters[number % len(clusters)]}} if clusters else {})
            for number, subject in enumerate(published, 1)
        )
        self.warehouse = Warehouse(dir=folder / "warehouse")
        header = "Cluster" if clusters else None
        ingested(self.warehouse, dumped(folder / "dump.jsonl", lines), cluster_header=header)

    def certify(self, **more: Any) -> Certificate:
        given = {"candidate": self.conf, "streams": self.folder / "streams"} | more
        return certify(CertifySettings(stream="S", warehouse=self.warehouse, **given))

    def agreed(self, **more: Any) -> Certificate:
        """A certificate of a server that did as predicted."""
        certificate = self.certify(**more)
        assert certificate.divergences == ()
        return certificate


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return Archive(tmp_path_factory.mktemp("certify"), subjects(3000))


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Gives the server other mappings than those that are certified."""
    config = server.server_config

    def served(block: str) -> None:
        monkeypatch.setattr(server, "server_config", lambda _, cluster: config(block, cluster))

    return served


def divergences(certificate: Certificate) -> set[tuple[str, str]]:
    return {(one.kind, one.about) for one in certificate.divergences}


def test_a_real_server_does_as_predicted(archive: Archive) -> None:
    certificate = archive.agreed()
    assert not certificate.fails("divergence")
    assert (certificate.tried, certificate.messages, certificate.share) == (3000, 3000, 1.0)
    streams = {one.stream: one for one in certificate.streams}
    assert streams.keys() == {"SHOP", "AUDIT", "WHOLE", "PICKED"}
    assert all(one.predicted == one.seen > 100 for one in streams.values())
    assert {one.source for one in certificate.draws} == {"orders.*.*", "dice.*", "thin"}
    assert all(one.low <= one.weight <= one.high for one in certificate.draws)
    assert [str(one) for one in certificate.not_looked_at][3:] == [
        f"stream {name}, which takes from streams elsewhere or has random()"
        for name in ("ABROAD", "AFTER", "DRAWN")
    ]


def test_a_sample_is_spread_over_the_archive(archive: Archive) -> None:
    certificate = archive.agreed(sample=1000)
    assert (certificate.tried, certificate.share) == (1000, 1 / 3)
    again = archive.certify(sample=1000)
    assert again.tried_digest == certificate.tried_digest
    assert archive.certify(sample=999).tried_digest != certificate.tried_digest


def test_each_cluster_has_a_server_of_its_own(tmp_path: Path) -> None:
    certificate = Archive(tmp_path, subjects(600), ("east", "west", 'x" }', "\u00fc")).agreed()
    # What a publisher calls a cluster starts no server, unless the mappings name it.
    assert set(certificate.clusters) == {"east", None}


def test_odd_bytes_are_tried_and_what_nobody_can_publish_is_counted(tmp_path: Path) -> None:
    published = ["near.\u00fc", "a..b", "", "a.*", "$JS.API.STREAM.DELETE.SHOP", "near.$x", "b c"]
    certificate = Archive(tmp_path, published).agreed()
    assert certificate.tried == 2
    assert certificate.skipped == {run._ILLEGAL: 4, run._RESERVED: 1}


def test_mappings_that_reach_the_services_of_the_server_are_not_tried(tmp_path: Path) -> None:
    made = Archive(tmp_path, ["api.STREAM.DELETE.SHOP", "any.$JS.API.STREAM.DELETE.SHOP", "x"])
    made.conf.write_text('mappings { "api.*.*.*": "$JS.API.$1.$2.$3", "any.*.>": "$1.>" }')
    certificate = made.agreed()
    assert (certificate.tried, certificate.skipped) == (1, {run._RESERVED: 2})


@pytest.mark.parametrize(("before", "after", "found"), rows("certify.yaml", "planted"))
def test_a_server_with_other_mappings_is_found(
    archive: Archive,
    tmp_path: Path,
    serve: Callable[[str], None],
    before: str,
    after: str,
    found: list[str],
) -> None:
    assert before in MAPPINGS
    other = written(tmp_path / "other.conf", MAPPINGS.replace(before, after))
    serve(server.block_of(load_mappings(other)))
    certificate = archive.certify(sample=1500)
    assert certificate.fails("divergence")
    assert divergences(certificate) == {tuple(found)}
    assert all(one.messages and one.predicted != one.seen for one in certificate.divergences)


FOUR_PARTITIONS = {"src": "shop.*.eu.*", "dest": "shop.{{partition(4,1)}}.europe.$2"}


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("subject_transform", FOUR_PARTITIONS, ("stored", "SHOP")),
        ("subjects", ["shop.*.eu.>"], ("stream", "SHOP")),
        ("republish", None, ("stream", "AUDIT")),
    ],
)
def test_a_server_with_another_stream_is_found(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, field: str, value: Any, found: Any
) -> None:
    ask = run.try_messages
    monkeypatch.setattr(server, "QUIET_SECONDS", 0.5)

    def wrong(subjects: Any, block: Any, streams: Any, cluster: Any, expected: Any) -> Any:
        changed = [
            type(one).model_validate(
                one.model_dump(by_alias=True, exclude_unset=True) | {field: value}
            )
            if one.name == "SHOP"
            else one
            for one in streams
        ]
        return ask(subjects, block, changed, cluster, expected)

    monkeypatch.setattr(run, "try_messages", wrong)
    assert found in divergences(archive.certify(sample=1500))


def test_a_source_that_is_not_expected_is_waited_for() -> None:
    """The server reads it late: a wrong prediction that it takes nothing must not come true."""
    sent = [b"foo.%d" % n for n in range(20)]
    streams = [
        parse_stream({"name": "A", "subjects": ["foo.>"]}),
        parse_stream({"name": "B", "sources": [{"name": "A"}]}),
    ]
    block = server.block_of(mappings({}))
    seen = server.try_messages(sent, block, streams, None, lambda _: {"A": 20})
    assert {name: len(messages) for name, messages in seen.stored.items()} == {"A": 20, "B": 20}


USERS = """authorization { users: [
  { user: old, password: x, permissions: { publish: "orders.>", subscribe: "orders.>" } }
  { user: new, password: x, permissions: {
    publish: { allow: ["shop.>", "canary.>", "near.*"], deny: "shop.far.3.>" }
    subscribe: { allow: ["shop.>", "other.*"], deny: "shop.direct.*.7" }
  } }
  { user: free, password: x }
] }
"""


def test_users_may_do_what_is_predicted(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "users.conf").write_text(USERS)
    certificate = archive.agreed(sample=1500, permissions=tmp_path / "users.conf")
    old, new = certificate.users
    assert (old.user, new.user) == ("old", "new")
    # Nobody who publishes old names may publish what they are mapped to, but for the remainder.
    assert 0 < old.published < old.subjects / 4
    assert new.subjects / 3 < new.published < new.subjects
    assert old.got < new.got < new.subjects


def test_a_server_with_other_permissions_is_found(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users.conf").write_text(USERS)
    others = {"publish": ["shop.>", "canary.>"], "subscribe": {"deny": ["shop.0.>"]}}
    monkeypatch.setattr(server, "permissions_of", lambda user: others)
    certificate = archive.certify(sample=1500, permissions=tmp_path / "users.conf")
    assert divergences(certificate) == {*product(("publish", "subscribe"), ("old", "new"))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "wrong", "found"),
    [
        ("16777619u", "16777621u", {"orders.*.*"}),
        ("part(token, 0, first)", "part(token, 1, first)", {"split.*"}),
    ],
)
def test_a_kernel_with_a_wrong_function_is_found(
    archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    wrong: str,
    found: set[str],
) -> None:
    folder = tmp_path / "kernel"
    shutil.copytree(Path(build.__file__).parent, folder)
    source = folder / "transform.c"
    assert line in source.read_text()
    source.write_text(source.read_text().replace(line, wrong))
    build.compile_library(folder / "kernel.so", folder, tmp_path / "scratch")
    broken = library(folder)
    monkeypatch.setattr(program, "library", lambda: broken)
    certificate = archive.certify(sample=1500)
    assert {one.about for one in certificate.divergences} == found


def test_a_server_that_loses_messages_is_found(
    tmp_path: Path, serve: Callable[[str], None]
) -> None:
    made = Archive(tmp_path, ["thin"] * 5)
    made.conf.write_text('mappings { "thin": kept }')
    serve(server.block_of(mappings({"thin": [("thin", 0)]})))
    (one,) = made.certify().divergences
    assert (one.kind, one.about, one.messages) == ("delivery", "thin", 5)
    assert (one.predicted, one.seen) == ("kept", "nobody")


def test_the_smallest_example_is_shown(archive: Archive, serve: Callable[[str], None]) -> None:
    serve("{}")
    certificate = archive.certify(sample=1500)
    (one,) = (one for one in certificate.divergences if one.about == "near.*")
    assert one.subject == "near.0"
    assert (one.predicted, one.seen) == ("shop.far.0.x", "near.0")
    assert one.messages > 10


def test_streams_in_a_circle_are_refused(archive: Archive, tmp_path: Path) -> None:
    for name, to in (("A", "b"), ("B", "a")):
        stream = {"name": name, "subjects": [f"{name.lower()}.>"]}
        stream |= {"republish": {"src": f"{name.lower()}.>", "dest": f"{to}.>"}}
        (tmp_path / f"{name}.json").write_text(json.dumps(stream))
    with refused(JobError, "republish-circle", streams="A and B"):
        archive.certify(streams=tmp_path)


def test_nothing_is_sent_to_addresses_of_the_candidate(archive: Archive, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.1)
        url = f"nats://127.0.0.1:{other.getsockname()[1]}"
        conf = tmp_path / "new.conf"
        conf.write_text(
            f'{MAPPINGS}\nleafnodes {{ remotes: [{{ url: "{url}" }}] }}\n'
            f'gateway {{ name: a, gateways: [{{ name: b, url: "{url}" }}] }}\n'
            f'cluster {{ name: a, routes: ["{url}"] }}\n'
        )
        assert archive.certify(candidate=conf, streams=None).divergences == ()
        with pytest.raises(TimeoutError):
            other.accept()


def test_the_page_says_whether_they_agree(archive: Archive, tmp_path: Path) -> None:
    certificate = archive.certify(sample=10)
    render = partial(page_of, "certificate.html")
    write_page(render(result=certificate), tmp_path / "page.html")
    assert "nats-server does as predicted" in (tmp_path / "page.html").read_text("utf-8")
    parted = replace(certificate, divergences=(Divergence("stream", "A", 1, 1, "a", None, "", ""),))
    write_page(render(result=parted), tmp_path / "page.html")
    assert "nats-server does not do as predicted" in (tmp_path / "page.html").read_text("utf-8")
    page = render(result=replace(certificate, tried=0))
    assert "treated each one as predicted" not in page
    assert "No message was tried" in page


def test_the_command(archive: Archive, serve: Callable[[str], None]) -> None:
    line = ("certify", "--stream", "S", "--candidate", str(archive.conf), "--sample", "500")
    line += ("--warehouse", str(archive.warehouse.dir))
    page = archive.folder / "page.html"
    out = printed(*line, "--report", page)
    assert "500 messages of 3,000 tried (16.7 %)" in out
    assert "nats-server does as predicted" in out
    assert "nats-server does as predicted" in page.read_text("utf-8")
    document = json.loads(printed(*line, "--json"))
    assert (document["holds"], document["tried"], document["divergences"]) == (True, 500, [])
    # A plan reads it.
    kept = Certified.model_validate(document)
    words = "did as predicted with 500 messages (16.7 %) of stream S"
    assert kept.words == f"nats-server {document['nats_server']} {words}"
    serve("{}")
    code, out, _ = nats_transform(*line)
    assert code == 1
    assert "differs subject (near.*)" in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('mappings { "a": "" }', sentence("destination-empty", source="'a'")),
        *(("mappings {", "new.conf"), ('{"a": 1}', "new.conf")),
    ],
)
def test_a_mistake_is_one_line(archive: Archive, tmp_path: Path, text: str, told: str) -> None:
    conf = tmp_path / "new.conf"
    conf.write_text(text)
    at = ("--stream", "S", "--warehouse", archive.warehouse.dir)
    assert told in command_refused("certify", *at, "--candidate", conf)


@pytest.mark.slow
def test_200_000_messages_of_three_clusters(tmp_path: Path) -> None:
    made = Archive(tmp_path, subjects(250_000), ("east", "central", "west"))
    certificate = made.agreed()
    assert (certificate.tried, certificate.share) == (200_000, 0.8)
    assert len({(one.source, one.cluster) for one in certificate.draws}) == 6


def test_a_file_that_we_would_misread_is_found(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads the text of the file, and not what our reader made of it."""
    text = MAPPINGS.replace("shop.far", "shop.near")
    misread = load_mappings(written(tmp_path / "other.conf", text))
    assert archive.certify(sample=1500).reads_file
    monkeypatch.setattr(run, "load_mappings", lambda path, account: misread)
    certificate = archive.certify(sample=1500)
    assert divergences(certificate) == {("subject", "near.*")}


def test_a_file_with_odd_bytes(tmp_path: Path) -> None:
    made = Archive(tmp_path, ["near.1", "x"])
    made.conf.write_bytes(b'mappings { "near.*": "\xff\xfe.$1" }\n')
    certificate = made.agreed()
    assert certificate.reads_file


def test_a_file_with_variables_is_read_by_us(archive: Archive) -> None:
    archive.conf.write_text('to: "shop.far.$1.x"\nmappings { "near.*": $to }\n')
    certificate = archive.agreed(sample=1500)
    assert not certificate.reads_file
    why = sentence("line-not-plain", at_line=2)
    assert any(why in str(one) for one in certificate.not_looked_at)
