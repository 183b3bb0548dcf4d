"""Configurations that give exactly one code, and near misses that give nothing.

tests/cli/test_explain.py has an example of every code.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nats_transform.accounts.leaf_nodes import LeafNodes
from nats_transform.accounts.sharing import Entry, SharedStream
from nats_transform.config import Place
from nats_transform.lint.check import Config, Origin, check
from nats_transform.lint.findings import CODES, Finding, Severity
from nats_transform.mappings.mapping import AccountMappings, Destination, Mapping
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.source import bucket_source
from nats_transform.streams.stream import StreamConfig, parse_stream

EAST_WEST = {"clusters": ("east", "west")}


def maps(table: dict[str, Any]) -> AccountMappings:
    """Mappings as a server configuration has them: a destination, or a list with weights."""
    return AccountMappings(
        [
            Mapping(
                source,
                [
                    Destination(*d) if isinstance(d, tuple) else Destination(d)
                    for d in ([given] if isinstance(given, str) else given)
                ],
            )
            for source, given in table.items()
        ]
    )


def stream(name: str, *subjects: str, **fields: Any) -> StreamConfig:
    return parse_stream({"name": name, "subjects": list(subjects), **fields})


def ingress(subject: str, source: str, destination: str, **fields: Any) -> StreamConfig:
    return stream("S", subject, subject_transform={"src": source, "dest": destination}, **fields)


def republish(name: str, subject: str, source: str, destination: str) -> StreamConfig:
    return stream(name, subject, republish={"src": source, "dest": destination})


def sources(*given: dict[str, Any], **fields: Any) -> StreamConfig:
    return parse_stream({"name": "S", "sources": list(given), **fields})


COUNTS = stream("C", "o.*", "s.*", allow_msg_counter=True)


def sums_of(**names: str) -> StreamConfig:
    """A stream that adds counters up, some under other names."""
    renames = [{"src": f"{one}.*", "dest": f"{new}.$1"} for one, new in names.items()]
    return sources({"name": "C", "subject_transforms": renames}, allow_msg_counter=True)


MOVES, BOTH = maps({"o.*": "s.$1"}), stream("O", "o.*", "s.*")
EXTERNAL = {"api": "$JS.x.API", "deliver": ""}


def reads(consumer: str, **names: str) -> dict[str, Any]:
    """A source that reads a consumer, and gives some subjects other names."""
    renames = [{"src": f"{one}.*", "dest": f"{new}.$1"} for one, new in names.items()]
    reading = {"name": consumer, "deliver_subject": f"to.{consumer}"}
    return {"name": "O", "consumer": reading, "subject_transforms": renames}


AGAIN = {"name": "M", "republish": {"src": "b.*", "dest": "b.$1"}}

# code, configuration that gives it, near misses, more arguments of check().
CASES: list[tuple[str, Any, list[Any], dict[str, Any]]] = [
    ("empty-destination", maps({"foo": ""}), [maps({"foo": "bar"})], {}),
    ("empty-destination", maps({"foo": [("", 50), ("bar", 50)]}), [], {}),
    (
        # The server looks at the text of the destination, where $1 is no wildcard.
        "republish-loop",
        republish("A", "orders.new", "orders.*", "orders.$1"),
        [
            republish("A", "orders.new", "orders.*", "copies.$1"),
            republish("A", "orders.new", "orders.*", "orders.$1.copy"),
        ],
        {},
    ),
    (
        "republish-loop",
        [republish("A", "a.*", "a.*", "b.$1"), republish("B", "b.*", "b.*", "a.$1")],
        [[republish("A", "a.*", "a.*", "b.$1"), republish("B", "c.*", "c.*", "d.$1")]],
        {},
    ),
    (
        # A mirror republishes too; what a stream sources has a header that no other stream takes.
        "republish-loop",
        [stream("B", "b.*"), parse_stream({"mirror": {"name": "B"}, **AGAIN})],
        [[stream("B", "b.*"), parse_stream({"sources": [{"name": "B"}], **AGAIN})]],
        {},
    ),
    (
        "remainder-kept",
        maps({"foo": [("a", 90), ("b", 8)]}),
        [maps({"foo": [("a", 90), ("b", 10)]}), maps({"foo": [("a", 100, "east")]})],
        {},
    ),
    (
        "remainder-kept",
        maps({"foo": [("a", 50, "east"), ("b", 100)]}),
        [maps({"foo": [("a", 50, "east"), ("c", 50, "east"), ("b", 100)]})],
        {},
    ),
    (
        # A source with `*` is never listed: as a destination it would not be accepted.
        "remainder-kept",
        maps({"foo.*": [("foo.$1", 50), ("bar.$1", 40)]}),
        [maps({"foo.*": [("foo.$1", 60), ("bar.$1", 40)]})],
        {},
    ),
    (
        "lost-elsewhere",
        maps({"foo": [("foo", 100, "east")]}),
        [maps({"foo": [("foo", 100, "east"), ("bar", 100)]})],
        {},
    ),
    ("lost-elsewhere", maps({"foo": [("bar", 90), ("foo", 100, "east")]}), [], {}),
    (
        "loss",
        maps({"foo": [("bar", 50), ("foo", 0)]}),
        [maps({"foo": [("bar", 50), ("foo", 50)]})],
        {},
    ),
    ("loss", maps({"foo.>": [("foo.>", 50)]}), [], {}),
    ("shadowed", maps({"a.*": "r.$1", "a.b": "q"}), [maps({"a.*": "r.$1", "a.b.c": "q"})], {}),
    ("shadowed", maps({"a.b": "q", "a.>": "r.>"}), [], {}),
    (
        "unreachable",
        ingress("orders.>", "bills.>", "b.>"),
        [ingress("orders.>", "orders.eu.>", "b.>"), ingress("orders.>", "", "b.>")],
        {},
    ),
    (
        "unreachable",
        ingress("o.>", "o.>", "stored.>", republish={"src": "o.>", "dest": "copy.>"}),
        [
            ingress("o.>", "o.>", "stored.>", republish={"src": "stored.>", "dest": "copy.>"}),
            ingress("o.>", "o.eu.>", "stored.>", republish={"src": "o.>", "dest": "copy.>"}),
        ],
        {},
    ),
    (
        "unreachable",
        sources({"name": "U", "subject_transforms": [{"src": "", "dest": "x.>"}]}),
        [
            sources({"name": "U", "subject_transforms": [{"src": ">", "dest": "x.>"}]}),
            parse_stream(
                {
                    "name": "S",
                    "mirror": {"name": "U", "subject_transforms": [{"src": "", "dest": "x.>"}]},
                }
            ),
        ],
        {},
    ),
    (
        "unreachable",
        sources(
            {"name": "U", "filter_subject": "a.>"}, subject_transform={"src": "b.>", "dest": "c.>"}
        ),
        [
            sources({"name": "U"}, subject_transform={"src": "b.>", "dest": "c.>"}),
            sources(
                {"name": "U", "subject_transforms": [{"src": "a.>", "dest": "b.>"}]},
                subject_transform={"src": "b.>", "dest": "c.>"},
            ),
        ],
        {},
    ),
    (
        "unknown-cluster",
        maps({"foo": [("a", 100, "East"), ("b", 100)]}),
        [maps({"foo": [("a", 100, "east"), ("b", 100)]})],
        EAST_WEST,
    ),
    (
        "cluster-without-entry",
        maps({"foo": [("a", 100, "east")]}),
        [
            maps({"foo": [("a", 100, "east"), ("b", 100, "west")]}),
            maps({"foo": [("a", 100, "east"), ("b", 100)]}),
        ],
        EAST_WEST,
    ),
    (
        "not-chained",
        maps({"a.*": "b.$1", "b.*": "c.$1"}),
        [
            maps({"a.*": "b.$1.x", "b.*": "c.$1"}),
            maps({"a.*": "b.{{partition(8,1)}}.$1", "b.new.*": "c.$1"}),
            maps({"a.*": "b.{{partition(8,1)}}.$1", "b.8.*": "c.$1"}),
        ],
        {},
    ),
    (
        "not-chained",
        maps({"a.*": "b.{{partition(8,1)}}.$1", "b.7.*": "c.$1"}),
        [maps({"a.*": "{{splitfromleft(1,2)}}", "b.7.*": "c.$1"})],
        {},
    ),
    ("changes-nothing", maps({"foo.>": "foo.>"}), [maps({"foo.>": "bar.>"})], {}),
    (
        "changes-nothing",
        maps({"foo.*.*": [("foo.$1.$2", 80), ("foo.{{wildcard(1)}}.{{wildcard(2)}}", 20)]}),
        [maps({"foo.*.*": "foo.$2.x.$1"}), maps({"foo.*.*": [("foo.$1.$2", 80), ("b.$1.$2", 20)]})],
        {},
    ),
    ("changes-nothing", maps({"foo": []}), [], {}),
    (
        "maps-into-itself",
        maps({"foo.>": "foo.v2.>"}),
        [maps({"foo.*": "foo.v2.$1"}), maps({"foo.*": "foo.{{wildcard(1)}}.{{partition(3,1)}}"})],
        {},
    ),
    ("maps-into-itself", maps({"a.*.*": "a.$2.$1"}), [maps({"a.*.*": "b.$2.$1"})], {}),
    (
        "system-subjects",
        maps({"*.*.*": "x.$1.$2.$3"}),
        [
            maps({"*.*": "x.$1.$2"}),
            maps({"*.two.three.>": "uno.four.$1.>"}),
            maps({"_INBOX.*.*": "x.$1.$2"}),
        ],
        {},
    ),
    (
        "weighted-partition",
        maps({"o.*": [("a.{{partition(4,1)}}.$1", 50), ("b.$1", 50)]}),
        [maps({"o.*": "a.{{partition(4,1)}}.$1"}), maps({"o.*": [("a.$1", 50), ("b.$1", 50)]})],
        {},
    ),
    (
        "random-order",
        maps({"o.*": "p.{{random(4)}}.$1"}),
        [maps({"o.*": "p.{{partition(4,1)}}.$1"})],
        {},
    ),
    ("random-order", ingress("o.*", "o.*", "p.{{random(4)}}.$1"), [], {}),
    (
        "few-keys",
        maps({"o.*.*": "p.{{partition(3,1)}}.$1.$2"}),
        [maps({"o.*.*": "p.{{partition(3,1,2)}}.$1.$2"}), maps({"x.*": "p.{{partition(3,1)}}.$1"})],
        {"subjects": ["o.a.1", "o.a.2", "o.b.3", "x"]},
    ),
    (
        "few-keys",
        ingress("o.*", "o.*", "p.{{partition(3)}}.$1"),
        [ingress("o.*", "o.*", "p.{{partition(2)}}.$1")],
        {"subjects": ["o.a", "o.b", "o.b"]},
    ),
    (
        "one-key",
        maps({"orders": "o.{{partition(4)}}"}),
        [maps({"orders.*": "o.{{partition(4)}}.$1"})],
        {},
    ),
    ("one-key", ingress("orders", "orders", "o.{{partition(4,1)}}"), [], {}),
    (
        "always-zero",
        maps({"o.*": "p.{{partition(1,1)}}.$1"}),
        [maps({"o.*": "p.{{partition(2,1)}}.$1"})],
        {},
    ),
    ("always-zero", maps({"o.*": "p.{{partition(0)}}.$1"}), [], {}),
    ("always-zero", maps({"o": "p.{{random(1)}}"}), [], {}),
    (
        "negative-partition",
        maps({"o.*": "p.{{partition(-4,1)}}.$1"}),
        [maps({"o.*": "p.{{partition(2147483647,1)}}.$1"})],
        {},
    ),
    (
        "wildcards-dropped",
        maps({"o.*.*": "p.$2"}),
        [maps({"o.*.*": "p.$2.$1"}), maps({"o.*.>": "p.$1.>"}), maps({"o.b": "p"})],
        {},
    ),
    (
        "wildcards-dropped",
        maps({"o.*": "p.{{partition(3,1)}}"}),
        [maps({"o.*": "p.{{slicefromleft(1,2)}}"})],
        {},
    ),
    (
        "wildcards-dropped",
        ingress("o.*", "o.*", "p.{{left(1,2)}}"),
        [ingress("o.*", "o.*", "p.{{left(1,2)}}.$1")],
        {},
    ),
    *[
        ("literal-function", maps({"o.*": f"p.{token}.$1"}), [maps({"o.*": "p.$1"})], {})
        for token in (
            "x$1",
            "$1x",
            "$1_0",
            "${1}",
            "$name",
            "$",
            "x{{wildcard(1)}}",
            "{{wildcard(1)",
            "{wildcard(1)}",
            "wildcard(1)",
            "{{split(1,.)}}",
        )
    ],
    (
        "literal-function",
        ingress("o.*", "o.*", "p.v{{partition(3,1)}}.$1"),
        [
            ingress("o.*", "o.*", "$KV.B.$1"),
            ingress("o.*", "o.*", "$O.B-1.us$.$1"),
            ingress("o.*", "o.*", "a{b}.left.split-1.$1"),
        ],
        {},
    ),
    (
        "text-dropped",
        maps({"o.*": "p.{{wildcard(1)}}abc{{y}}"}),
        [maps({"o.*": "p.{{ Wildcard (1) }}"}), maps({"o.*": "p.{{slicefromleft( 1 , 2 )}}"})],
        {},
    ),
    ("text-dropped", maps({"o.*": "p.{{partition(3,1)}}{{wildcard(1)}}"}), [], {}),
    ("text-dropped", maps({"o.*": "p.{{wildcard(1)}}}"}), [], {}),
    ("index-not-positive", maps({"o.*": "p.$0.$1"}), [maps({"o.*": "p.$01"})], {}),
    ("index-not-positive", maps({"o.*": "p.{{partition(3,-1)}}.$1"}), [], {}),
    *[
        ("size-without-effect", maps({"o.*": f"p.{{{{{function}(1,-1)}}}}"}), [], {})
        for function in ("right", "splitfromleft", "SplitFromRight", "slicefromleft")
    ],
    ("split-empty", maps({"o.*": "p.{{split(1,-)}}"}), [maps({"o.*": "p.{{split(1,)}}"})], {}),
    ("any-token", maps({"o.*a": "p"}), [maps({"o.a*": "p"}), maps({"o.*": "p.$1"})], {}),
    ("any-token", ingress("o.>", "o.**", "p"), [], {}),
    (
        "blank",
        republish("A", "a.*", "a.*", "b x.$1"),
        [republish("A", "a.*", "a.*", "bx.{{ wildcard(1) }}")],
        {},
    ),
    (
        "sourced-twice",
        sources({"name": "U", "filter_subject": "a.>"}, {"name": "U", "filter_subject": "a.b"}),
        [
            sources({"name": "U", "filter_subject": "a.>"}, {"name": "U", "filter_subject": "b"}),
            sources({"name": "U"}, {"name": "V"}),
            sources({"name": "U"}, {"name": "U", "external": {"api": "$JS.hub.API"}}),
        ],
        {},
    ),
    (
        "republish-caught",
        [republish("A", "a.*", "a.*", "b.$1"), stream("B", "b.*")],
        [
            [republish("A", "a.*", "a.*", "b.$1"), stream("B", "b", "c.*")],
            [
                sources({"name": "A"}, republish={"src": "a.*", "dest": "b.$1"}),
                stream("B", "b.*"),
            ],
        ],
        {},
    ),
    (
        "caught-by-stream",
        [maps({"a.*": "b.$1"}), stream("B", "b.*")],
        [
            [maps({"a.*": "b.$1"}), stream("B", "b.*", "a.*")],
            [maps({"a.*": "b.$1"}), stream("B", "c.*")],
        ],
        {},
    ),
    (
        "streams-overlap",
        [stream("A", "a.*", "b"), stream("B", "c", "a.x")],
        [
            [stream("A", "a.*", "b"), stream("B", "x.*")],
            [stream("A", "a.*"), parse_stream({"name": "M", "mirror": {"name": "A"}})],
        ],
        {},
    ),
    # Without subjects of its own a stream listens to its name.
    (
        "streams-overlap",
        [stream("a"), stream("B", "a", "c")],
        [[stream("a"), stream("B", "b")]],
        {},
    ),
    (
        "escapes-export",
        maps({"orders.*": "shop.$1"}),
        [maps({"orders.*": "orders.v2.$1"}), maps({"else.*": "shop.$1"})],
        {"origins": [Origin(shared=[SharedStream("orders.>")])]},
    ),
    (
        "escapes-export",
        maps({"orders.*": "shop.$1"}),
        [maps({"orders.*": "orders.eu.$1"}), maps({"else.*": "shop.$1"})],
        {"origins": [Origin(shared=[SharedStream("orders.>", "B"), SharedStream(">")])]},
    ),
    (
        # Another import brings it to B; nothing that C imports does.
        "escapes-export",
        maps({"orders.*": "shop.$1"}),
        [],
        {
            "origins": [
                Origin(shared=[SharedStream(f, b) for f, b in [(">", "B"), ("orders.>", "C")]])
            ]
        },
    ),
    (
        "escapes-stream",
        [maps({"a.*": "b.$1"}), stream("A", "a.*")],
        [
            [maps({"a.*": "b.$1"}), stream("A", "a.*", "b.*")],
            [maps({"a.*": [("a.$1", 100)], "x": "y"}), stream("X", "x", "y")][1:],
        ],
        {},
    ),
    (
        "bucket-moves",
        maps({"$KV.devices.>": "$KV.fleetdev.>"}),
        [maps({"devices.>": "$KV.devices.>"})],
        {},
    ),
    (
        "bucket-moves",
        maps({"$O.files.C.*": "$O.attic.C.$1"}),
        [],
        {},
    ),
    *(
        (
            code,
            [maps({"o.*": "s.$1"}), stream("S", "o.*", "s.*", **{flag: True})],
            [
                [maps({"o.*": "s.$1"}), stream("S", "o.*", "s.*")],
                [maps({"x.*": "y.$1"}), stream("S", "o.*", "y.*", "x.*")],
                [
                    maps({"o.*": "s.$1"}),
                    stream("S", "o.*", "s.*", subject_transform=back, **{flag: True}),
                ],
                [maps({"o.*": "o.$1", "x": "y"}), stream("S", "x", "y", **{flag: True})][1:],
            ],
            {},
        )
        for code, flag in (
            ("counter-restarts", "allow_msg_counter"),
            ("schedule-not-mapped", "allow_msg_schedules"),
        )
        for back in [{"src": "s.*", "dest": "o.$1"}]
    ),
    (
        "mapped-twice",
        [maps({"o.*": "s.$1"}), maps({"s.*": "t.$1"})],
        [
            [maps({"o.*": "s.$1"}), maps({"o.*": "t.$1"})],
            [maps({"o.*": "s.$1"}), maps({"s.*": "s.$1"})][:1],
        ],
        {
            "origins": [
                Origin("a", leaf_nodes=LeafNodes(goes_as=frozenset(["u"]))),
                Origin("b", leaf_nodes=LeafNodes(comes_as=frozenset(["u", "v"]))),
            ]
        },
    ),
    (
        "batch-split",
        [
            maps({"o.>": "s.>"}),
            stream("S", "o.a.*", allow_atomic=True),
            stream("C", "o.b.*", "s.>", allow_atomic=True),
        ],
        [
            [maps({"o.>": "s.>"}), stream("S", "o.a.*"), stream("C", "o.b.*", "s.>")],
            [maps({"o.>": "s.>"}), stream("S", "o.>", "s.>", allow_atomic=True)],
        ],
        {},
    ),
    (
        # What no consumer filters goes by the filters of the source.
        "source-stops",
        [MOVES, BOTH, sources({"name": "O", "filter_subject": "o.*"})],
        [
            [MOVES, BOTH, sources(*entries)]
            for entries in (
                [{"name": "O"}],
                [{"name": "O", "filter_subject": f"{one}.*"} for one in "os"],
                [{"name": "X", "filter_subject": "o.*"}],
                [{"name": "O", "filter_subject": "o.*", "external": EXTERNAL}],
            )
        ],
        {},
    ),
    *(
        (
            "source-stops",
            [MOVES, BOTH, parse_stream({"name": "S", kind: entry})],
            [[MOVES, BOTH, parse_stream({"name": "S", kind: clean})]],
            {"consumers": [Consumer("O", "OLD", ("o.eu", "x")), Consumer("O", "ALL", ())]},
        )
        for kind, entry, clean in (
            ("mirror", reads("OLD"), reads("ALL")),
            ("sources", [reads("OLD")], [reads("OLD"), reads("ALL")]),
            # The consumer takes both names, and the source renames one.
            ("sources", [reads("ALL", o="t")], [reads("ALL", o="t", s="t")]),
        )
    ),
    (
        "service-import",
        maps({"o.*.*": "s.$2.$1"}),
        [maps({"o.*.*": "s.$1.$2"})],
        {"origins": [Origin(imports=[Entry("service", "req.*.*", "B", "o.*.*")])]},
    ),
    (
        "import-not-mapped",
        maps({"in.*": "shop.$1"}),
        [maps({"out.*": "shop.$1"})],
        {"origins": [Origin(imports=[Entry("stream", one, "B") for one in ("in.eu", "else.>")])]},
    ),
    (
        "same-ids",
        sources({"name": "A"}, {"name": "B"}, duplicate_window=10**9),
        [
            sources({"name": "A"}, {"name": "B"}),
            sources({"name": "A"}, duplicate_window=10**9),
            stream("S", "s", duplicate_window=10**9),
        ],
        {},
    ),
    (
        "bucket-source",
        stream("KV_B", "$KV.B.>", sources=[{"name": "KV_A"}]),
        [
            stream(
                "KV_B",
                "$KV.B.>",
                sources=[bucket_source("A", "B").model_dump(by_alias=True, exclude_unset=True)],
            ),
            stream("B", "$KV.B.>", sources=[{"name": "KV_A"}]),
            stream("KV_B", "$KV.B.>", sources=[{"name": "A"}]),
        ],
        {},
    ),
    (
        "bucket-source",
        stream("OBJ_B", "$O.B.>", sources=[{"name": "OBJ_A", "filter_subject": "$O.A.M.>"}]),
        [],
        {},
    ),
    (
        "republish-interest",
        stream("S", "s", retention="interest", republish={"src": ">", "dest": "live.>"}),
        [
            stream("S", "s", retention="interest"),
            stream("S", "s", republish={"src": ">", "dest": "live.>"}),
        ],
        {},
    ),
]


def codes(config: Config | list[Config], **more: Any) -> set[str]:
    return {finding.code for finding in check(config, **more)}


@pytest.mark.parametrize(
    ("code", "config", "near", "more"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_a_code_is_given_where_it_should_and_not_beside(
    code: str, config: Any, near: list[Any], more: dict[str, Any]
) -> None:
    assert codes(config, **more) == {code}
    for miss in near:
        assert check(miss, **more) == []


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
    imports = [Entry("stream", subject, "B") for subject in ("a.>", "*.b")]
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


def canary(*weights: int) -> list[tuple[str, int]]:
    return [(f"myservice.requests.v{n}", weight) for n, weight in enumerate(weights, 1)]


# What the mapping page recommends, as account mappings.
PAGE = {
    "simple": {"foo": "bar"},
    "reorder": {"bar.*.*": "baz.{{wildcard(2)}}.{{wildcard(1)}}"},
    "split": {"*": "{{split(1,-)}}"},
    "split-2": {"*": "{{split(1,--)}}"},
    "splitfromleft": {"*": "{{splitfromleft(1,4)}}"},
    "splitfromright": {"*": "{{splitfromright(1,4)}}"},
    "slicefromleft": {"*": "{{slicefromleft(1,2)}}"},
    "slicefromright": {"*": "{{slicefromright(1,2)}}"},
    "partition": {"neworders.*": "neworders.{{wildcard(1)}}.{{partition(3,1)}}"},
    "partition-2": {"foo.*.*": "foo.{{wildcard(1)}}.{{wildcard(2)}}.{{partition(5,1,2)}}"},
    "version-1": {"myservice.requests": canary(100)},
    "version-2": {"myservice.requests": canary(98, 2)},
    "shaping": {
        "myservice.requests.*": [
            ("myservice.requests.{{wildcard(1)}}", 80),
            ("myservice.requests.fail.{{wildcard(1)}}", 20),
        ]
    },
    "loss": {"foo.loss.>": [("foo.loss.>", 50)]},
    "clusters": {"foo": [(f"foo.{name}", 100, name) for name in ("west", "central", "east")]},
    "clusters-and-elsewhere": {
        "foo": [("foo.west", 100, "west"), ("foo.east", 100, "east"), ("foo.elsewhere", 100)]
    },
}


@pytest.mark.parametrize("table", PAGE.values(), ids=PAGE)
def test_the_mapping_page_is_fine(table: dict[str, Any]) -> None:
    assert {finding.severity for finding in check(maps(table))} <= {Severity.INFO}


# ADR-30 "Example transforms": source, destination.
ADR_30 = [
    (">", "uno.>"),
    (">", "eins.zwei.drei.vier.>"),
    ("one.>", "uno.>"),
    ("one.two.>", "uno.dos.>"),
    ("one", "uno"),
    ("one.*.three.*.five", "uno.$2.$1"),
    ("one.*.three.*.five", "uno.{{wildcard(2)}}.{{wildcard(1)}}"),
    ("*.two.three.>", "uno.$1.>"),
    ("*", "{{split(1,-)}}"),
    ("*", "{{SplitFromRight(1,3)}}"),
    ("*", "{{SliceFromLeft(1,3)}}"),
]


@pytest.mark.parametrize(("source", "destination"), ADR_30)
def test_the_examples_of_adr_30_are_fine_as_ingress(source: str, destination: str) -> None:
    config = ingress(source, source, destination, no_ack=True)
    assert {finding.severity for finding in check(config)} <= {Severity.INFO}


def test_the_examples_of_adr_36() -> None:
    both = [{"src": "foo", "dest": "foo-transformed"}, {"src": "bar", "dest": ""}]
    mirror = {"name": "S", "mirror": {"name": "U", "subject_transforms": both}}
    assert check(parse_stream(mirror)) == []
    once_each = [{"name": "U", "subject_transforms": [one]} for one in both]
    assert check(sources(*once_each)) == []
    assert check(sources(bucket_source("A", "B").model_dump(by_alias=True))) == []
    third = sources(
        {"name": "source1", "filter_subject": "stream1.foo.>"},
        {"name": "source1", "filter_subject": "stream1.bar.>"},
        {
            "name": "source2",
            "subject_transforms": [
                {"src": "stream2.foo.>", "dest": "foo2.>"},
                {"src": "stream2.bar.>", "dest": "bar2.>"},
            ],
        },
        subject_transform={"src": "foo.>", "dest": "mapped.foo.>"},
    )
    # The example itself is mistaken: nothing that it takes in is under foo.>.
    assert codes(third) == {"unreachable"}


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


def test_findings_are_one_line_each() -> None:
    for code, config, _, more in CASES:
        for finding in check(config, **more):
            assert "\n" not in finding.message + finding.cure, code
