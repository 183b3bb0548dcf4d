"""Censuses in files: what comes back, what redaction keeps and hides, and what is refused."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.census_export import redacted
from jobs.dry_run import portable
from jobs.dry_run.portable import (
    CHECKSUM,
    KEY,
    PortableCensus,
    _checksum,
    check_redaction,
    messages_by_source,
    read_census,
    write_census,
)
from jobs.warehouse.raw import readable
from nats_transform.accounts.sharing import SharedStream
from nats_transform.config.permissions import Allowance, User
from nats_transform.errors import InvalidConfig, sentence
from nats_transform.mappings.subject import decode, encode, literal_fault
from nats_transform.migration import Question
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.stream import parse_stream
from tests.cases import account, rows
from tests.nats_transform.kernel import generate
from tests.support import command
from tests.support.censuses import census_file, census_of
from tests.support.command import printed
from tests.support.refused import refused

SUBJECTS = {
    b"orders.eu.alice": 3,
    b"orders.eu.bob": 2,
    b"orders.us.alice": 1,
    b"orders..x": 1,
    b"odd.\xff\\.alice": 4,
    None: 5,
}
subjects = st.dictionaries(
    st.one_of(st.none(), st.binary(max_size=12).filter(lambda one: b" " not in one)),
    st.integers(1, 9),
    min_size=1,
    max_size=6,
)


def asked(**around: Any) -> Question:
    """What mappings do to what is around them, as redaction.yaml has it."""
    leaf_node, consumers = around.get("leaf_node"), around.get("consumers", {}).items()
    return Question(
        account(around.get("mappings", {"orders.*.*": "shop.$2.$1"})),
        account(around.get("current", {})),
        streams=tuple(map(parse_stream, around.get("streams", ()))),
        consumers=tuple(Consumer(*name.split("."), tuple(filters)) for name, filters in consumers),
        users=tuple(User("u", Allowance((s,)), Allowance()) for s in around.get("publish", ())),
        shared=tuple(SharedStream(*one) for one in around.get("shared", ())),
        leaf_node=leaf_node and account(leaf_node),
    )


@given(counts=subjects)
def test_comes_back_as_it_was(counts: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("census") / "census.parquet"
    before = census_of(counts)
    write_census(before, path, readable)
    assert read_census(path, "ORDERS") == before
    pq.read_table(path).validate(full=True)  # the texts are UTF-8 for every reader


def test_what_headers_hold_on_to(tmp_path: Path) -> None:
    counts = {(b"a", None, b"id"): 3, (b"a", None, b""): 2, (b"b", b"east", b"condition id"): 1}
    path = census_file(tmp_path / "c.parquet", counts)
    assert read_census(path) == census_of(counts)
    assert read_census(path).knows_headers
    # As a release wrote it that did not look, and whose checksum has no such column.
    older = census_of({(b"a", None): 5, (b"b", b"east"): 1})
    write_census(older, path, readable)
    table = pq.read_table(path).drop_columns(["carries"])
    told = table.schema.metadata[KEY]
    plain = older.rows.drop_columns(["carries"])
    table = table.replace_schema_metadata({KEY: told, CHECKSUM: _checksum(told, plain)})
    pq.write_table(table, path)
    assert read_census(path) == older
    assert not read_census(path).knows_headers
    pq.write_table(table.append_column("carries", pa.array(["id", ""])), path)
    with refused(InvalidConfig, "census-damaged"):
        read_census(path)


@given(counts=subjects, positions=st.sets(st.integers(1, 4), min_size=1))
def test_redaction_keeps_equality(counts: Any, positions: set[int]) -> None:
    census = census_of(counts)
    hidden = redacted(census, tuple(positions), b"k" * 32)
    assert hidden.about.redacted == tuple(sorted(positions))
    # As many distinct subjects, with the same counts.
    for name in ("messages", "bytes"):
        assert sorted(hidden.rows[name].to_pylist()) == sorted(census.rows[name].to_pylist())
    # Every other token stays; legal subjects stay legal, others illegal.
    shape = [
        sorted(
            (
                ()
                if subject is None
                else tuple(
                    (token in (b"", b"*", b">")) if n in positions else token
                    for n, token in enumerate(subject.split(b"."), 1)
                )
            )
            for subject in one.rows["subject"].to_pylist()
        )
        for one in (census, hidden)
    ]
    assert str(shape[0]) == str(shape[1])


def test_collisions_stay_exact_and_nothing_leaks(tmp_path: Path) -> None:
    census = census_of(SUBJECTS)
    question = asked(mappings={"orders.*.*": "by.$2"})
    plain = census.dry_run(question)
    path = tmp_path / "census.parquet"
    write_census(redacted(census, (2, 3), b"k" * 32), path, readable)
    hidden = read_census(path).dry_run(question)
    assert [(f.code, f.messages, f.subjects) for f in hidden.findings] == [
        (f.code, f.messages, f.subjects) for f in plain.findings
    ]
    assert "collision" in {finding.code for finding in plain.findings}
    # Not in the file, and not behind its compression.
    bytes_of_all = path.read_bytes() + str(pq.read_table(path).to_pylist()).encode()
    assert b"orders" in bytes_of_all
    for secret in (b"alice", b"bob", b"eu", b"us", b"\xff"):
        assert secret + b"." not in bytes_of_all
        assert b"." + secret not in bytes_of_all
    for secret in (b"alice", b"bob", b"\xff\\", b"xff"):
        assert secret not in bytes_of_all


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_some_rows_at_a_time_find_what_all_find(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    census, question = census_of(SUBJECTS), asked(mappings={"orders.*.*": "by.$2"})
    at_once = census.dry_run(question)
    monkeypatch.setattr(portable, "BATCH_ROWS", rows)
    found = census.dry_run(question)
    assert (found.findings, found.flows) == (at_once.findings, at_once.flows)


def test_another_key_gives_other_hashes() -> None:
    census = census_of(SUBJECTS)
    one, other = (redacted(census, (3,), key * 32) for key in (b"k", b"l"))
    assert one.rows != other.rows


@pytest.mark.parametrize(("around", "what"), rows("redaction.yaml", "refused"))
def test_what_looks_at_a_hash_is_refused(around: dict[str, Any], what: str) -> None:
    question, census = asked(**around), census_of(SUBJECTS, redacted=(3,))
    with refused(InvalidConfig, "census-redacted", what=re.compile(what), position=3):
        check_redaction(census, question, Path("c"))
    check_redaction(census_of(SUBJECTS, redacted=(4,)), question, Path("c"))


@pytest.mark.parametrize(("most", "is_refused"), [(1, False), (0, True)])
def test_each_way_through_streams_is_looked_at(
    most: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transform makes no subject again of what it made, and what is not looked at isn't fine."""
    monkeypatch.setattr(portable, "_MOST_SHAPES", most)
    longer = {"src": "shop.>", "dest": "shop.eu.>"}
    question = asked(streams=[{"name": "S", "subjects": ["shop.>"], "subject_transform": longer}])
    census = census_of(SUBJECTS, redacted=(3,))
    if not is_refused:
        check_redaction(census, question, Path("c"))
        return
    with refused(InvalidConfig, "census-redacted", what=re.compile("too many forms")):
        check_redaction(census, question, Path("c"))


def test_what_does_not_look_at_a_hash_is_fine() -> None:
    stream = {"name": "S", "subjects": ["shop.*.eu", "orders.eu.*", "x.eu.>"]}
    question = asked(current={"orders.*.>": "x.$1.>"}, streams=[stream])
    check_redaction(census_of(SUBJECTS, redacted=(3,)), question, Path("c"))


@pytest.mark.parametrize("number", range(20))
def test_messages_of_each_mapping(number: int) -> None:
    """As the scalar library counts them, subject by subject."""
    random = Random(number)
    asked = generate.account(random)
    sources = [mapping.source for mapping in asked.mappings]
    texts = {generate.subject(random, sources): random.randint(1, 9) for _ in range(30)}
    rows = census_of({text if text is None else encode(text): n for text, n in texts.items()}).rows
    names = [random.choice([None, b"", b"east", b"\xff"]) for _ in range(len(rows))]
    rows = rows.set_column(1, "cluster", pa.array(names, pa.binary()))
    wanted = Counter[tuple[str, str | None]]()
    for subject, name, _, messages, _ in zip(*rows.to_pydict().values(), strict=True):
        cluster = None if name is None else decode(name)
        text = None if subject is None else decode(subject)
        if text and literal_fault(text) is None and (mapping := asked.match(text)):
            wanted[mapping.source, cluster] += messages
    census = PortableCensus(census_of({}).about, rows)
    assert messages_by_source(census, asked) == wanted
    assert census.clusters == tuple(sorted({decode(name) for name in names if name}))


def _damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[10:40] = bytes(30)
    path.write_bytes(data)


def _without_counts(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["messages"]), path)


def _counts(*counts: int | None) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        table = pq.read_table(path).slice(0, len(counts))
        place = table.column_names.index("messages")
        spoilt = pa.array(counts, pa.int64())
        pq.write_table(table.set_column(place, "messages", spoilt), path)

    return spoil


def _told(**about: object) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        table = pq.read_table(path)
        told = json.loads(table.schema.metadata[KEY]) | about
        pq.write_table(table.replace_schema_metadata({KEY: json.dumps(told)}), path)

    return spoil


SPOILT = {
    "missing": (lambda path: path.unlink(), "census-unreadable"),
    "no Parquet": (lambda path: path.write_text("no"), "census-not-parquet"),
    "empty": (lambda path: path.write_bytes(b""), "census-not-parquet"),
    "cut off": (lambda path: os.truncate(path, 500), "census-damaged"),
    "t": (lambda path: pq.write_table(pa.table({"subject": ["a"]}), path), "census-other-parquet"),
    "damaged": (_damaged, "census-unreadable"),
    "no counts": (_without_counts, "census-damaged"),
    "null counts": (_counts(None, 1), "census-damaged"),
    "negative counts": (_counts(-5, 5), "census-damaged"),
    "a sum of more than 63 bits": (_counts(2**62, 2**62), "census-damaged"),
    "a later format": (_told(format=2), "census-damaged"),
    "a token before the first": (_told(redacted=[0]), "census-damaged"),
    "no time zone": (_told(first="2026-11-01T00:00:00"), "census-damaged"),
}


@pytest.mark.parametrize(("spoil", "code"), SPOILT.values(), ids=SPOILT)
def test_no_census_is_one_line(spoil: Any, code: str, tmp_path: Path) -> None:
    path = census_file(tmp_path / "c.parquet", SUBJECTS)
    spoil(path)
    with refused(InvalidConfig, code):
        read_census(path)


def test_no_flipped_bit_gives_another_census(tmp_path: Path) -> None:
    path = census_file(tmp_path / "c.parquet", SUBJECTS)
    whole, census = path.read_bytes(), read_census(path)
    refused = 0
    for place in range(0, len(whole), 3):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << place % 8
        path.write_bytes(spoilt)
        try:
            assert read_census(path) == census, place
        except InvalidConfig:
            refused += 1
    assert refused > len(whole) / 9


def test_dry_run_of_a_file(tmp_path: Path) -> None:
    census = census_file(tmp_path / "c.parquet", SUBJECTS)
    (tmp_path / "new.conf").write_text('mappings { "orders.*.*": "by.$2" }')
    given = ("dry-run", "--candidate", tmp_path / "new.conf", "--census", census)
    told = json.loads(printed(*given, "--json", code=1))["summary"]
    assert (told["stream"], told["messages"], told["subjects"]) == ("ORDERS", 16, 6)
    err = command.refused(*given, "--stream", "OTHER")
    assert sentence("census-of-other-stream", stream="ORDERS", wanted="OTHER") in err
