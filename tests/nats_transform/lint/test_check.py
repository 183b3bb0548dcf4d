"""Configurations that give exactly one code, and near misses that give nothing.

tests/cli/test_explain.py has an example of every code.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from nats_transform.accounts.sharing import SharedStream, SharedSubject
from nats_transform.errors import Place
from nats_transform.lint.check import Config, Origin, check
from nats_transform.lint.findings import CODES, Finding, Severity
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.stream import StreamConfig, parse_stream
from tests.cases import account, load, transforms
from tests.support.rules import mappings as maps


def stream(name: str, *subjects: str, **fields: Any) -> StreamConfig:
    return parse_stream({"name": name, "subjects": list(subjects), **fields})


def ingress(subject: str, source: str, destination: str, **fields: Any) -> StreamConfig:
    return stream("S", subject, subject_transform={"src": source, "dest": destination}, **fields)


def sources(*given: dict[str, Any], **fields: Any) -> StreamConfig:
    return parse_stream({"name": "S", "sources": list(given), **fields})


COUNTS = stream("C", "o.*", "s.*", allow_msg_counter=True)


def sums_of(**names: str) -> StreamConfig:
    """A stream that adds counters up, some under other names."""
    renames = [{"src": f"{one}.*", "dest": f"{new}.$1"} for one, new in names.items()]
    return sources({"name": "C", "subject_transforms": renames}, allow_msg_counter=True)


def part_of(part: dict[str, Any]) -> AccountMappings | StreamConfig:
    return parse_stream(part) if "name" in part else maps(part)


def config_of(config: Any) -> Config | list[Config]:
    return [part_of(part) for part in config] if isinstance(config, list) else part_of(config)


def asked_of(row: dict[str, Any]) -> dict[str, Any]:
    """What else check() is asked in a row."""
    asked: dict[str, Any] = {name: row[name] for name in ("clusters", "subjects") if name in row}
    if "consumers" in row:
        given = {(*name.split("."), tuple(filters)) for name, filters in row["consumers"].items()}
        asked["consumers"] = [Consumer(*one) for one in given]
    shared = [SharedStream(*one) for one in row.get("shared", ())]
    imports = [SharedSubject(*one) for one in row.get("imports", ())]
    if shared or imports:
        asked["origins"] = [Origin(shared=shared, imports=imports)]
    if "beyond" in row:
        beyond = [(maps(row["beyond"]), "b"), (maps({}), "c")]
        asked["origins"] = [Origin("a", beyond=beyond)]
    return asked


CASES = load("check.yaml")


def codes(config: Config | list[Config], **more: Any) -> set[str]:
    return {finding.code for finding in check(config, **more)}


@pytest.mark.parametrize("row", CASES, ids=[f"{n}-{row['code']}" for n, row in enumerate(CASES)])
def test_a_code_is_given_where_it_should_and_not_beside(row: dict[str, Any]) -> None:
    more = asked_of(row)
    found = check(config_of(row["config"]), **more)
    assert {finding.code for finding in found} == {row["code"]}
    assert not any("\n" in finding.message + finding.cure for finding in found)
    for miss in row.get("near", ()):
        assert check(config_of(miss), **more) == []


def test_counters_that_a_sum_takes_under_one_name() -> None:
    def told(**names: str) -> set[str]:
        return codes([maps({"o.*": "s.$1"}), COUNTS, sums_of(**names)])

    assert told(o="t", s="t") == {"counter-restarts", "counted-twice"}
    assert told() == told(o="t", s="u") == {"counter-restarts"}
    assert told(o="s") == {"counter-restarts", "source-stops"}


def test_a_mapping_with_wildcards_moves_a_bucket_that_is_given() -> None:
    mappings = maps({"*.B.*": "x.$1.$2"})
    assert "bucket-moves" not in codes([mappings, stream("S", "x.>")])
    assert "bucket-moves" in codes([mappings, stream("KV_B", "$KV.B.>")])


def test_a_mapping_has_one_finding_however_many_others_are_concerned() -> None:
    covering = {"a.b": "x", "*.b": "y", "a.*": "z", "a.>": "x.>", "*.>": "y.>", "*.*": "v.$2.$1"}
    streams = [stream(f"S{n}", "a.b", no_ack=True) for n in range(4)]
    imports = [SharedSubject("stream", subject, "B") for subject in ("a.>", "*.b")]
    findings = check([maps(covering), *streams], origins=[Origin(imports=imports), *[Origin()] * 4])
    of_one = {f.code: f.message for f in findings if f.source == "a.b" and f.place == "mapping"}
    assert of_one == {
        "shadowed": "the mapping of '*.b' (and 4 more) covers all of its subjects, and which of "
        "them nats-server tries first is random after each reload",
        "escapes-stream": "stream S0 (and 3 more) captures the source, and no stream captures the "
        "result",
        "import-not-mapped": "what the account imports under 'a.>' (and 1 more) keeps its subjects",
    }
    overlaps = {f.place: f.message for f in findings if f.code == "streams-overlap"}
    assert list(overlaps) == ["stream S0", "stream S1", "stream S2"]
    assert " and the subject 'a.b' of stream S1 (and 2 more) " in overlaps["stream S0"]
    crossing = check(maps({"x.*.c": "d.$1", **{f"x.{n}.*": f"e.{n}.$1" for n in range(9)}}))
    assert [(f.code, f.source) for f in crossing] == [("overlap", "x.*.c")]
    assert "'x.0.*' (and 8 more) covers some" in crossing[0].message


def test_a_source_has_one_finding_however_many_others_store_the_same() -> None:
    several = [{"src": "c", "dest": ""}, {"src": "a.*", "dest": ""}]
    upstreams = [{"name": "U", "filter_subject": one} for one in ("x", "a.b", "*.b", "a.>")]
    upstreams[:1] = [{"name": "U", "subject_transforms": several}, {"name": "V"}]
    found = check(sources(*upstreams))
    assert [(f.code, f.source, f.message.partition("filters ")[2]) for f in found] == [
        ("sourced-twice", "a.b", "'a.*' and 'a.b' (and 2 more) cover the same subjects"),
        ("sourced-twice", "*.b", "'a.b' and '*.b' (and 1 more) cover the same subjects"),
        ("sourced-twice", "a.>", "'*.b' and 'a.>' cover the same subjects"),
    ]


@pytest.mark.parametrize("count", [300, 3_000])
def test_mappings_that_all_cover_each_other_do_not_multiply(count: int) -> None:
    findings = check(maps({f"*.a{n}.>": "x.>" for n in range(count)}))
    found = Counter(finding.code for finding in findings)
    assert found.pop("wildcards-dropped") == found.pop("maps-into-itself") == count
    if count == 300:
        assert found == {"not-chained": count}
        assert all("(and 298 more)" in f.message for f in findings if f.code == "not-chained")
    else:  # it says that it gave up
        assert 0 < found.pop("not-chained") < count
        assert found == {"not-compared": 1}


def test_subjects_are_not_held_against_every_mapping() -> None:
    account = maps({f"orders.{n}.*": f"o.{n}.{{{{partition(8,1)}}}}.$1" for n in range(2_000)})
    subjects = [f"orders.{n % 2_000}.{n}" for n in range(20_000)]
    start = time.process_time()
    assert codes(account, subjects=subjects) == set()
    assert codes(account, subjects=subjects[:9_000]) == {"few-keys"}
    assert time.process_time() - start < 5  # each with each took over 10


def test_services_are_not_held_against_each_other() -> None:
    account = maps({"orders.>": "x.orders.>"})
    names = [(f"tax.s{n}.*", f"orders.s{n}.*") for n in range(3_000)]
    imports = [SharedSubject("service", subject, "TAX", local) for subject, local in names]
    start = time.process_time()
    assert codes(account, origins=[Origin(imports=imports)]) == set()
    assert time.process_time() - start < 5  # each with each took over 20


OF_EXAMPLES = {
    "adr30-split": "split-empty",
    # It is mistaken: nothing that it takes in is under foo.>.
    "adr36-two-streams": "unreachable same-ids",
    "page-artificial-loss": "loss",
    "page-drop": "wildcards-dropped",
    "page-split": "split-empty",
    "page-split-and-loss": "remainder-kept",
    "page-split-two": "split-empty",
}
"""What is found of examples nevertheless."""


def examples() -> Iterator[Any]:
    """What NATS recommends: the mapping page, ADR-30 (its transforms as ingress) and ADR-36."""
    for row in transforms():
        if row.id.startswith("adr30-"):
            yield row.id, ingress(row.source, row.source, row.destination, no_ack=True)
        elif row.id.startswith("page-"):
            yield row.id, maps({row.source: row.destination})
    for row in load("mappings.yaml"):
        if row["id"].startswith(("adr30-", "page-")):
            yield row["id"], account(row["mappings"])
    for row in load("streams.yaml"):
        if row["id"].startswith("adr36-"):
            yield row["id"], parse_stream(row["config"])


@pytest.mark.parametrize(
    ("name", "config"), [pytest.param(*example, id=example[0]) for example in examples()]
)
def test_the_examples_of_nats_are_fine(name: str, config: Config) -> None:
    assert codes(config) == set(OF_EXAMPLES.get(name, "").split())


def test_the_worst_comes_first_and_each_names_its_file() -> None:
    found = check(
        [maps({"foo": [("foo", 50)], "bar": ""}), ingress("o", "x", "y")],
        origins=[
            Origin("server.conf", "SHOP", {"bar": Place("included.conf", 7)}),
            Origin("S.json"),
        ],
    )
    assert [(f.code, f.severity, f.path, f.line, f.place) for f in found] == [
        ("empty-destination", Severity.ERROR, "included.conf", 7, "mapping of account SHOP"),
        ("unreachable", Severity.WARNING, "S.json", None, "stream S, subject_transform"),
        ("loss", Severity.INFO, "server.conf", None, "mapping of account SHOP"),
    ]


def test_streams_are_not_held_against_the_mappings_of_several_accounts() -> None:
    leaving = [maps({"a.*": "b.$1"}), stream("A", "a.*")]
    assert codes([*leaving, maps({})]) == {"escapes-stream"}
    assert codes([*leaving, maps({"x": "y"})]) == set()


def test_a_finding_says_where_and_what_to_do() -> None:
    (found,) = check(ingress("o.*.*", "o.*.*", "p.$2"))
    assert found == Finding(
        "wildcards-dropped",
        "`*` number 1 is not in the result, so subjects that differ in it become one",
        "o.*.*",
        "p.$2",
        "stream S, subject_transform",
    )
    assert found.cure == CODES["wildcards-dropped"].cure
    (found,) = check(stream("S", "o.*", "x", subject_transform={"src": "p", "dest": "q"}))
    assert (found.code, found.message) == ("unreachable", "no subject under 'o.*', 'x' matches")
