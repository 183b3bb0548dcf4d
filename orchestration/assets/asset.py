"""What an asset of an archive is, before it has a key: the same in every archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster import AutomationCondition as Condition

from orchestration.archive import Archive
from orchestration.metadata.columns import TABLES, columns_of
from orchestration.metadata.values import Results


@dataclass(frozen=True)
class ArchiveAsset:
    """One of the assets of an archive; `translation` and subclasses of the component get it.

    Attributes:
        name: its name, such as `messages`: the last part of its key, unless that is translated.
        description: what Dagster's catalog says of it.
        kinds: what works on it.
        deps: the names of the assets that it is made of.
        is_daily: whether it has a partition for each day.
        follows_mapping: whether a new mapping version makes its days stale.
        checks: the names of its checks.
        config: what a run may be asked for.
        run: makes it, and yields its checks and its materialization.
        code: what its description ends with, as a block of code.
        upstream: the keys of what it is made of besides, which is no asset of the archive.
        is_observed: whether Dagster only looks at it, and does not make it.
    """

    name: str
    description: str
    kinds: frozenset[str]
    run: Callable[[Archive, dg.AssetExecutionContext], Results] = field(repr=False)
    deps: tuple[str, ...] = ()
    is_daily: bool = True
    follows_mapping: bool = False
    checks: tuple[str, ...] = ()
    config: type[dg.Config] | None = None
    code: Callable[[Archive], str] | None = field(default=None, repr=False)
    upstream: Callable[[Archive], Iterable[dg.AssetKey]] = field(default=lambda _: (), repr=False)
    is_observed: bool = False

    def spec(self, archive: Archive) -> dg.AssetSpec:
        """The asset in an archive: its key, and what Dagster's catalog shows of it."""
        more: dict[str, Any] = {}
        if self.is_daily:
            more["partitions_def"] = archive.partitions
            if archive.fresh_hours is not None:
                window = timedelta(hours=archive.fresh_hours)
                more["freshness_policy"] = dg.FreshnessPolicy.time_window(fail_window=window)
        return dg.AssetSpec(
            key=archive.stream_key if self.is_observed else dg.AssetKey([archive.name, self.name]),
            group_name=archive.name,
            deps=[*map(archive.key, self.deps), *self.upstream(archive)],
            description=self.description + (self.code(archive) if self.code else ""),
            kinds=set(self.kinds),
            owners=archive.owners,
            tags=archive.tags,
            metadata=columns_of(archive, self.name) if self.name in TABLES else None,
            automation_condition=stale_days(archive) if self.follows_mapping else None,
            **more,
        )


def stale_days(archive: Archive) -> Condition[Any] | None:
    """The condition under which Dagster reprocesses days by itself, if the archive asks for it.

    A day counts once what it was made of has another data version; a day that was never made is
    left alone.
    """
    if archive.automation != "stale_days":
        return None
    return (
        Condition.any_deps_match(Condition.data_version_changed()).since_last_handled()
        & ~Condition.missing()
        & ~Condition.any_deps_missing()
        & ~Condition.any_deps_in_progress()
        & ~Condition.in_progress()
    ).with_label("stale days")
