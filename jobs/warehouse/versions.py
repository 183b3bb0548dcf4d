"""Every mapping version ever used, in the table `nats.mapping_versions`; no Spark is needed.

One row for each version. What is kept is what decides outputs and what people said about it: never
the text of the file, which may hold passwords of the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, date, datetime
from typing import Any, cast

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from jobs.errors import JobError, NoTable
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import specs, tables
from jobs.warehouse.raw import readable
from nats_transform import AccountMappings
from nats_transform.config import canonical, from_canonical, mapping_version
from nats_transform.config.block import mapping_fields, mappings_block
from nats_transform.lint.check import check
from nats_transform.mappings.subject import encode

_RULE = pa.struct(
    [
        ("source", pa.string()),
        ("destination", pa.string()),
        ("weight", pa.int64()),
        ("cluster", pa.string()),
    ]
)
_FINDING = pa.struct(
    [(name, pa.string()) for name in ("code", "severity", "message", "source", "destination")]
)

MAPPING_VERSIONS = specs.table_spec(
    "mapping_versions",
    {
        "mapping_version": pa.string(),
        "recorded_at": pa.timestamp("us", "UTC"),
        "account": pa.string(),
        "seed": pa.int64(),
        "canonical": pa.string(),
        "rules": pa.list_(_RULE),
        "findings": pa.list_(_FINDING),
        "config": pa.string(),
    },
    about={
        "recorded_at": "When the version was first used (UTC).",
        "account": "The account of the mappings.",
        "seed": "The number that decides the draws.",
        "canonical": "The mappings and the seed, without comments, order and layout.",
        "rules": "The same to query: one entry for each destination.",
        "findings": "What `check` found.",
        "config": "The mappings alone, as nats-server reads them.",
    },
    partitions=(),
)
"""One row for each version."""


class UnknownVersion(JobError):
    """A mapping version that was never recorded."""


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """One destination of a mapping.

    Attributes:
        cluster: the cluster it is for; empty for those without an entry of their own.
    """

    source: str
    destination: str
    weight: int
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """One mapping version.

    Attributes:
        mapping_version: SHA-256 of the canonical form.
        canonical: the canonical form; `nats_transform.config.from_canonical` reads it.
        rules: one for each destination, in the order of the file.
        findings: what `check` found: code, severity, message, source and destination of each.
        config: the mappings alone, in the syntax of nats-server's configuration.
    """

    mapping_version: str
    recorded_at: datetime
    account: str
    seed: int
    canonical: str
    rules: tuple[Rule, ...]
    findings: tuple[dict[str, str], ...]
    config: str

    @property
    def mappings(self) -> AccountMappings:
        """The mappings that give the same results under this seed as those of the file."""
        config, _ = from_canonical(self.canonical)
        assert isinstance(config, AccountMappings)  # noqa: S101 - nothing else is recorded
        return config


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two versions.

    Attributes:
        added, removed: the rules that only one of the two has.
        changed: pairs of rules, before and after, with the same source and destination.
        seed: the seeds before and after, if they differ.
        reordered: whether the same rules are in another order, and the order can matter.
    """

    added: tuple[Rule, ...] = ()
    removed: tuple[Rule, ...] = ()
    changed: tuple[tuple[Rule, Rule], ...] = ()
    seed: tuple[int, int] | None = None
    reordered: bool = False


def render(mappings: AccountMappings) -> str:
    """The mappings as nats-server reads them in its configuration, and nothing else."""
    return mappings_block(mapping_fields(mappings, _legible))


def record(warehouse: Warehouse, mappings: AccountMappings, *, account: str, seed: int) -> Version:
    """The version of these mappings as it is in the table, where it is put if it is new.

    Raises:
        ConcurrentWrite: other jobs kept writing to the table.
        WarehouseError: the table cannot be read or written.
    """
    version = mapping_version(mappings, seed)
    table = tables.open_table(warehouse, MAPPING_VERSIONS, create=True)
    recorded = None
    for _ in tables.attempts(MAPPING_VERSIONS.name):
        if known := _in(table, version):
            return known[0]
        recorded = recorded or Version(
            mapping_version=version,
            recorded_at=datetime.now(UTC),
            account=account,
            seed=seed,
            canonical=canonical(mappings, seed),
            rules=tuple(
                Rule(mapping.source, d.subject, d.weight, d.cluster or "")
                for mapping in mappings.mappings
                for d in mapping.destinations
            ),
            findings=tuple(
                {field.name: str(getattr(finding, field.name)) for field in _FINDING}
                for finding in check(mappings)
            ),
            config=render(mappings),
        )
        with contextlib.suppress(CommitFailedException):
            table.append(
                pa.Table.from_pylist([_row(recorded)], schema=schema_to_pyarrow(table.schema())),
                snapshot_properties={
                    tables.PROPERTY + "job": "mapping_version",
                    tables.PROPERTY + "mapping-version": version,
                },
            )
            break
        table = tables.open_table(warehouse, MAPPING_VERSIONS)
    assert recorded is not None  # noqa: S101 - the last attempt raises
    return recorded


def read(warehouse: Warehouse) -> list[Version]:
    """Every version, in the order in which they were first used.

    Raises:
        NoTable: none was ever recorded.
    """
    versions = _in(tables.open_table(warehouse, MAPPING_VERSIONS))
    return sorted(versions, key=lambda version: version.recorded_at)


def _in(table: Table, version: str | None = None) -> list[Version]:
    """The versions of the table, or the one that is asked for."""
    chosen = AlwaysTrue() if version is None else cast(Any, EqualTo)("mapping_version", version)
    return [_version(row) for row in table.scan(row_filter=chosen).to_arrow().to_pylist()]


def find(warehouse: Warehouse, version: str) -> Version:
    """One version by its hash, or by a beginning of it that no other has.

    Raises:
        UnknownVersion: none or several begin so.
    """
    try:
        recorded = read(warehouse)
    except NoTable:  # the commands of 0.1.0 recorded none
        recorded = []
    versions = [known for known in recorded if known.mapping_version.startswith(version)]
    if not versions:
        raise UnknownVersion("unknown-version", version=version[:12], warehouse=warehouse)
    if len(versions) > 1:
        what = f"{len(versions)} mapping versions begin"
        raise UnknownVersion("version-unrecorded", what=what, version=version, warehouse=warehouse)
    return versions[0]


def of_stream(warehouse: Warehouse, stream: str, days: Sequence[date] | None) -> Version:
    """The version that messages of some days were transformed with.

    Raises:
        UnknownVersion: none, several, or one that is not recorded.
        NoTable: nothing was ever transformed.
    """
    table = tables.open_table(warehouse, specs.TRANSFORMED)
    files = tables.data_files(table, stream, days)
    named = sorted({tables.mapping_version_of(table, file) for file in files})
    if len(named) != 1:
        code = "several-versions-on-days" if named else "not-transformed-on-days"
        raise UnknownVersion(code, stream=stream, count=len(named))
    return find(warehouse, named[0])


def difference(before: Version, after: Version) -> Difference:
    """What changed from one version to another, in plain rules."""
    old = {(rule.source, rule.destination): rule for rule in before.rules}
    new = {(rule.source, rule.destination): rule for rule in after.rules}
    changed = [(old[key], rule) for key, rule in new.items() if key in old and old[key] != rule]
    changes = Difference(
        added=tuple(rule for key, rule in new.items() if key not in old),
        removed=tuple(rule for key, rule in old.items() if key not in new),
        changed=tuple(changed),
        seed=None if before.seed == after.seed else (before.seed, after.seed),
    )
    if changes == Difference() and before.mapping_version != after.mapping_version:
        return replace(changes, reordered=True)
    return changes


def _row(version: Version) -> dict[str, Any]:
    # A subject may hold bytes that are not UTF-8; the canonical form alone keeps them.
    row = asdict(version)
    for entry in (*row["rules"], *row["findings"]):
        entry |= {k: _legible(text) for k, text in entry.items() if isinstance(text, str)}
    for rule in row["rules"]:
        rule["cluster"] = rule["cluster"] or None
    return row


def _legible(text: str) -> str:
    return readable(encode(text))


def _version(row: dict[str, Any]) -> Version:
    known = {field.name: row[field.name] for field in fields(Version)}
    rules = [rule | {"cluster": rule["cluster"] or ""} for rule in row["rules"]]
    return Version(
        **known
        | {"rules": tuple(Rule(**rule) for rule in rules), "findings": tuple(row["findings"])}
    )
