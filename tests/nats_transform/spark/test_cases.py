"""The tables of the semantics and cases of our own: scalar = Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nats_transform import AccountMappings, Destination, Mapping
from tests.cases import account, load, transforms
from tests.nats_transform.spark.conftest import Case, Compare, Message

pytestmark = pytest.mark.spark


def test_table_of_transforms(compare: Compare) -> None:
    """Every row that may stand as an account mapping, all in one account.

    A first token of its own keeps the rows apart; what becomes of a subject is not changed by it,
    except that `partition(n)` hashes it too, on both paths.
    """
    rows = [c for c in transforms() if c.error is None and not c.strict and c.source]
    mappings, messages = [], []
    for number, row in enumerate(rows):
        mapping = _mapping(f"t{number}.{row.source}", row.destination)
        if mapping is not None:
            mappings.append(mapping)
            messages += [Message(f"t{number}.{row.subject}", seq=seq) for seq in range(3)]
    assert len(mappings) > 50
    assert compare([Case(AccountMappings(mappings), messages)]) == len(messages)


def _mapping(source: str, destination: str) -> Mapping | None:
    try:
        return Mapping(source, [Destination(destination)])
    except ValueError:
        return None


def test_table_of_mappings(compare: Compare) -> None:
    """Every row, with all of its outcomes."""
    together: list[Mapping] = []
    messages: list[Message] = []
    alone: list[Case] = []
    for number, row in enumerate(load("mappings.yaml")):
        if "error" in row:
            continue
        mappings, cluster = account(row["mappings"]), row.get("cluster")
        if row["id"].startswith("partition-of-a-lone"):
            alone.append(Case(mappings, [Message(row["subject"]), Message("none")]))
            continue
        # In one account with a first token of their own, which keeps a source that is listed so.
        moved = [
            Mapping(
                f"m{number}.{mapping.source}",
                [replace(d, subject=f"m{number}.{d.subject}") for d in mapping.destinations],
            )
            for mapping in mappings.mappings
        ]
        ours = [Message(f"m{number}.{row['subject']}", cluster, seq=seq) for seq in range(300)]
        ends = {
            outcome.fate.value if outcome.subject is None else outcome.subject.split(".", 1)[1]
            for m in ours
            for outcome in [
                AccountMappings(moved).replay(m.subject, cluster, stream="S", seq=m.seq)
            ]
        }
        assert ends == set(row["outcomes"])
        together += moved
        messages += ours
    assert len(alone) == 3
    assert len(together) > 20
    compare([Case(AccountMappings(together), messages), *alone])


CLUSTERS = [None, "", "east", "west", "nowhere"]
ODD = [
    *(None, "", ".", "a..b", ".a", "a.", "*", ">", "a.*", "a.>.b", "a.*b", "a b", "a\n.b\n"),
    "\udcff",
    "a." + "x" * 4000,
    ".".join("abcdefgh"[i % 8] for i in range(64)),
    ".".join(["t"] * 64),
]


@pytest.mark.parametrize(
    "mappings",
    [
        pytest.param([], id="no-mapping"),
        pytest.param([Mapping(">", [Destination("x.>", 30)])], id="everything-with-remainder"),
        pytest.param(
            [Mapping("a.>", [Destination("b.>", 40), Destination("a.>", 10)])], id="lossy"
        ),
        pytest.param([Mapping("a", [Destination("p.{{partition(9)}}")])], id="literal-first"),
        pytest.param(
            [
                Mapping("a.*b", [Destination("p.{{partition(99)}}", 50)]),
                Mapping("*.é", [Destination("p.{{partition(99)}}")]),
            ],
            id="starred-literal-first",
        ),
        pytest.param(
            [
                Mapping("z", [Destination("y")]),
                Mapping("a", [Destination("p.{{partition(9)}}")]),
                Mapping("a.*", [Destination("p.{{partition(9)}}.{{partition(7,1)}}")]),
            ],
            id="whole-subject-hashed",
        ),
        pytest.param(
            [Mapping("t.>", [Destination(".".join(["{{random(97)}}"] * 40) + ".>")])],
            id="forty-random-numbers",
        ),
        pytest.param(
            [
                Mapping(
                    ".".join(["*"] * 64),
                    [Destination(".".join(f"${64 - i}" for i in range(64)))],
                )
            ],
            id="sixty-four-wildcards",
        ),
        pytest.param([Mapping("a.*", [Destination("")])], id="empty-destination"),
        pytest.param(
            [
                Mapping(
                    "a.*",
                    [
                        Destination("e.$1", 50, "east"),
                        Destination("a.west.$1", 100, "west"),
                        Destination("g.$1", 5),
                    ],
                )
            ],
            id="clusters",
        ),
        pytest.param(
            [
                Mapping("a.*", [Destination("first.$1")]),
                Mapping("*.*", [Destination("second.$2.$1")]),
                Mapping("a.>", [Destination("third.>")]),
                Mapping(">", [Destination("last.>")]),
            ],
            id="overlapping-in-order",
        ),
    ],
)
def test_odd_subjects(compare: Compare, mappings: list[Mapping]) -> None:
    subjects = [*ODD, "a", "z", "a.b", "a.b.c", "a.é", "b.a"]
    messages = [
        Message(subject, cluster, seq=seq)
        for seq, subject in enumerate(subjects)
        for cluster in CLUSTERS
    ]
    assert compare([Case(AccountMappings(mappings), messages, seed=3)]) == len(messages)


def test_keys_of_any_length(compare: Compare) -> None:
    """`partition` over keys of 1 to 200 bytes, any bytes in them."""
    mappings = AccountMappings([Mapping("k.*", [Destination("p.{{partition(2147483647,1)}}")])])
    keys = ["".join(chr(33 + (n * 7 + i) % 90) for i in range(n)) for n in range(1, 200)]
    keys = [key.replace(".", "-").replace("*", "+") for key in keys]
    messages = [
        Message(f"k.{key}") for key in [*keys, "é" * 9, "\udcff" * 33, "\x00" * 5, "日" * 8]
    ]
    assert compare([Case(mappings, messages)]) == len(messages)


def test_characters_of_any_length(compare: Compare) -> None:
    """`split` at every character, the last of several bytes: text, and what is no UTF-8."""
    mappings = AccountMappings([Mapping("s.*", [Destination("{{split(1,)}}.end")])])
    tokens = [
        "é",
        "aé",
        "日本",
        "a😀",
        "é\udcff",
        "\udce2\udc82",
        "日\udce6",
        "\udcff日",
        "a",
        "ab",
    ]
    assert compare([Case(mappings, [Message(f"s.{token}") for token in tokens])]) == len(tokens)


def test_thousands_of_mappings(compare: Compare) -> None:
    """Many shapes, and many mappings of each: the first in order applies."""
    shapes = ["r{0}.*", "r{0}.*.>", "*.r{0}", "a.*.r{0}.*", "a.b.c{0}", "r{0}.x.y.>", "*.*.r{0}.>"]
    mappings = [
        Mapping(
            shapes[i % 7].format(i // 7),
            [Destination(f"to.{i}" + (".>" if ">" in shapes[i % 7] else ""), 60)],
        )
        for i in range(5000)
    ]
    messages = [
        Message(subject.format(i), seq=i)
        for i in range(0, 720, 40)
        for subject in (
            *("r{0}.q", "r{0}.q.w", "q.r{0}", "a.q.r{0}.w", "a.b.c{0}"),
            *("r{0}.x.y.z", "q.q.r{0}.w", "none"),
        )
    ]
    assert compare([Case(AccountMappings(mappings), messages)]) == len(messages)
