"""Mapping versions: recorded once, read back, told apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobs.settings.warehouse import Warehouse
from jobs.warehouse import versions
from jobs.warehouse.versions import Difference, Rule, UnknownVersion
from nats_transform import AccountMappings
from nats_transform.config import canonical, load_mappings, mapping_version
from tests.support.refused import refused
from tests.support.rules import mappings as account

CANARY = account(
    {
        "orders.*": [("v1.$1", 98), ("v2.$1", 2), ("west.{{wildcard(1)}}", 90, "west")],
        "paid.*": "paid.{{partition(8,1)}}.$1",
    }
)


def mappings(*rules: tuple[str, str, int]) -> AccountMappings:
    """One mapping for each source, in the order given."""
    sources = dict.fromkeys(source for source, _, _ in rules)
    return account({s: [(to, w) for source, to, w in rules if source == s] for s in sources})


def test_recorded_once_and_read_back(warehouse: Warehouse) -> None:
    first = versions.record(warehouse, CANARY, account="A", seed=7)
    again = versions.record(warehouse, CANARY, account="A", seed=7)
    other = versions.record(warehouse, CANARY, account="A", seed=8)

    assert again == first
    assert versions.read(warehouse) == [first, other]
    assert first.mapping_version == mapping_version(CANARY, 7)
    assert first.canonical == canonical(CANARY, 7)
    assert canonical(first.mappings, 7) == first.canonical
    assert first.rules[2] == Rule("orders.*", "west.{{wildcard(1)}}", 90, "west")
    assert "remainder-kept" in {finding["code"] for finding in first.findings}
    assert versions.find(warehouse, other.mapping_version[:12]) == other


def test_versions_that_are_not_there(warehouse: Warehouse) -> None:
    with refused(UnknownVersion, "unknown-version", version="abc"):
        versions.find(warehouse, "abc")
    versions.record(warehouse, CANARY, account="A", seed=7)
    versions.record(warehouse, CANARY, account="A", seed=8)
    with refused(UnknownVersion, "unknown-version", version="xyz"):
        versions.find(warehouse, "xyz")
    with refused(UnknownVersion, "version-unrecorded", what=re.compile("^2 mapping versions")):
        versions.find(warehouse, "")


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(CANARY, id="weights-clusters-partition"),
        pytest.param(AccountMappings([]), id="nothing"),
        pytest.param(mappings(('a".*', 'b\\.$1."x"', 100)), id="quotes"),
        pytest.param(mappings(("a.>", "b.>", 50), ("a.b.*", "c.$1", 100)), id="order"),
        pytest.param(mappings(("ä.*", "ü.$1", 100)), id="beyond-ascii"),
    ],
)
def test_the_kept_text_is_the_same_version(config: AccountMappings, tmp_path: Path) -> None:
    path = tmp_path / "kept.conf"
    path.write_text(versions.render(config))
    assert mapping_version(load_mappings(path), 7) == mapping_version(config, 7)


def test_no_credentials_are_kept(warehouse: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(
        'authorization { user: admin, password: "s3cret-word" }\nmappings { "a.*": "b.$1" }\n'
    )
    kept = versions.record(warehouse, load_mappings(path), account="$G", seed=0)
    assert "s3cret" not in repr(kept)
    assert "b.$1" in kept.config


OLD = (("a.*", "x.$1", 60), ("a.*", "y.$1", 40))


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(OLD, Difference(), id="same"),
        pytest.param(
            (("a.*", "x.$1", 50), ("a.*", "y.$1", 40)),
            Difference(changed=((Rule(*OLD[0]), Rule("a.*", "x.$1", 50)),)),
            id="weight",
        ),
        pytest.param(
            (OLD[0], ("a.*", "z.$1", 40)),
            Difference(added=(Rule("a.*", "z.$1", 40),), removed=(Rule(*OLD[1]),)),
            id="destination",
        ),
        pytest.param((*OLD, ("b", "c", 100)), Difference(added=(Rule("b", "c", 100),)), id="added"),
    ],
)
def test_difference(
    new: tuple[tuple[str, str, int], ...], expected: Difference, warehouse: Warehouse
) -> None:
    before = versions.record(warehouse, mappings(*OLD), account="A", seed=7)
    after = versions.record(warehouse, mappings(*new), account="A", seed=7)
    assert versions.difference(before, after) == expected


def test_difference_of_seed_and_order(warehouse: Warehouse) -> None:
    rules = (("a.>", "x.>", 100), ("a.b", "y", 100))
    before = versions.record(warehouse, mappings(*rules), account="A", seed=7)
    seed = versions.record(warehouse, mappings(*rules), account="A", seed=8)
    order = versions.record(warehouse, mappings(*reversed(rules)), account="A", seed=7)
    assert versions.difference(before, seed) == Difference(seed=(7, 8))
    assert versions.difference(before, order) == Difference(reordered=True)
