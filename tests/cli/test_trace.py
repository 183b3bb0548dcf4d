"""`nats-transform trace`: text for people, JSON for programs, one-line errors."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from tests.support.command import document, nats_transform, printed, refused
from tests.support.files import write_files
from tests.support.saying import mistakes

COPIED = {"src": "orders.>", "dest": "copy.>"}
ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "republish": COPIED}
MAPPING = """accounts { SHOP { mappings {
  "new.*": [
    { destination: "orders.v1.$1", weight: 70% }
    { destination: "orders.v2.$1", weight: 30% }
    { destination: "orders.east.$1", weight: 100%, cluster: east }
  ]
} } }
"""


@pytest.fixture(autouse=True)
def folder(folder: Path) -> Path:
    """A folder with a server configuration and two streams."""
    mirror = {"name": "ALL", "mirror": {"name": "ORDERS", "filter_subject": "orders.v2.>"}}
    streams = {"streams/orders.json": {"config": ORDERS}, "streams/all.json": mirror}
    write_files(folder, {"shop.conf": MAPPING, **streams})
    return folder


run = partial(nats_transform, "trace")


CLUSTER = "clusters with destinations of their own (--cluster NAME)"
SHOP = ("--mapping", "shop.conf", "--account", "SHOP")


def test_mappings_and_streams() -> None:
    assert printed("trace", "new.7", *SHOP, "--streams", "streams") == (
        "new.7 published\n"
        "├─ 30 % orders.v2.7 by new.* -> orders.v2.$1\n"
        "│  └─ stream ORDERS stores orders.v2.7\n"
        "│     ├─ republished as copy.v2.7\n"
        "│     └─ stream ALL mirrors it as orders.v2.7\n"
        "└─ 70 % orders.v1.7 by new.* -> orders.v1.$1\n"
        "   └─ stream ORDERS stores orders.v1.7\n"
        "      ├─ republished as copy.v1.7\n"
        "      └─ stream ALL mirrors it: filtered\n"
        "not looked at: consumers (--consumers DIR, --server URL or --context NAME)\n"
    )


def test_the_cluster_of_the_publisher_is_asked_for() -> None:
    Path("a.conf").write_text(
        'mappings { "new.*": [{ destination: "east.$1", weight: 100%, cluster: east }], old: x }'
    )
    kept = "new.7 published\n└─ 100 % by new.*, no destination drawn: keeps its subject\n"
    assert run("new.7", "--mapping", "a.conf") == (0, f"{kept}not looked at: {CLUSTER}\n", "")
    for subject, *more in (("new.7", "--cluster", "east"), ("old",)):
        assert "not looked at" not in run(subject, "--mapping", "a.conf", *more)[1]


def test_consumers(folder: Path) -> None:
    for name, filter in (("SOME", "orders.v1.*"), ("NONE", "orders.v3.*")):
        config = {"stream_name": "ORDERS", "name": name, "config": {"filter_subject": filter}}
        write_files(folder, {f"consumers/{name}.json": config})
    given = ("--streams", "streams", "--consumers", "consumers")
    assert printed("trace", "orders.v1.7", *given) == (
        "orders.v1.7 published\n"
        "└─ 100 % keeps its subject\n"
        "   └─ stream ORDERS stores orders.v1.7\n"
        "      ├─ republished as copy.v1.7\n"
        "      ├─ consumer SOME gets it\n"
        "      └─ stream ALL mirrors it: filtered\n"
    )
    assert document("trace", "orders.v1.7", *given)["not_looked_at"] == []


def test_json_is_one_document() -> None:
    assert document("trace", "new.7", *SHOP, "--cluster", "east") == {
        "subject": "new.7",
        "cluster": "east",
        "paths": [
            {
                "percent": 100,
                "fate": "mapped",
                "subject": "orders.east.7",
                "mapping_source": "new.*",
                "mapping_destination": "orders.east.$1",
                "is_remainder": False,
                "reason": None,
                "streams": [],
                "leaf_node": [],
            }
        ],
        "not_looked_at": [
            {"what": what, "cure": f"--{what} DIR, --server URL or --context NAME"}
            for what in ("streams", "consumers")
        ],
    }


def test_streams_alone_and_one_file() -> None:
    told = printed("trace", "orders.x", "--streams", "streams/orders.json")
    assert "stream ORDERS stores orders.x" in told


def test_both_sides_of_a_leaf_node() -> None:
    Path("hub.conf").write_text(
        'accounts { HUB { mappings { "orders.v2.*": [ {destination: "hub.$1", weight: 40%} ] } } }'
    )
    assert printed(
        "trace", "new.7", *SHOP, "--leaf-node", "hub.conf", "--leaf-node-account", "HUB"
    ) == (
        "new.7 published\n"
        "├─ 30 % orders.v2.7 by new.* -> orders.v2.$1\n"
        "│  └─ over the leaf node connection\n"
        "│     ├─ 40 % hub.7 by orders.v2.* -> hub.$1\n"
        "│     └─ 60 % by orders.v2.*, no destination drawn: keeps its subject\n"
        "└─ 70 % orders.v1.7 by new.* -> orders.v1.$1\n"
        "   └─ over the leaf node connection\n"
        "      └─ 100 % keeps its subject\n"
    )
    refused("trace", "new.7", *SHOP, "--leaf-node", "hub.conf", "--live")


@pytest.mark.parametrize(("args", "told"), mistakes("trace"))
def test_a_mistake_is_one_line_and_exit_2(folder: Path, args: str, told: str) -> None:
    (folder / "empty").mkdir()
    write_files(folder, {"twice/a.json": ORDERS, "twice/b.json": ORDERS})
    assert re.search(told, refused("trace", "new.7", *args.split()))


BLANK = "a blank; nobody can publish such a subject"


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("new..7", "empty token"),
        *((subject, BLANK) for subject in ("a b", "a\tb", "orders.x\r\nPUB y 0")),
    ],
)
def test_an_illegal_subject_is_exit_1(subject: str, reason: str) -> None:
    code, out, err = run(subject, *SHOP)
    assert (code, err) == (1, "")
    assert f"100 % invalid: {reason}" in out
