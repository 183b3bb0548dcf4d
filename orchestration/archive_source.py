"""Where the messages of an archive come from, as its YAML says it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from jobs.settings.base import nested, settings_of
from jobs.settings.ingest import IngestSettings
from jobs.settings.warehouse import Warehouse
from nats_transform.errors import InvalidValue
from orchestration.resources import NatsResource
from orchestration.settings import yaml_of

_OWN = {"stream", "day", "since", "until", "run_id", "warehouse", "catalog"}
"""What an archive says of all its sources, or Dagster of a run."""


_ARCHIVESOURCE = yaml_of(IngestSettings, {s.key for s in settings_of(IngestSettings)} - _OWN)


class ArchiveSource(_ARCHIVESOURCE):  # type: ignore[misc, valid-type]
    """Where messages of the archive come from: a server, a backup or a dump."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [self.server or self.context, self.backup, self.parquet, self.jsonl]
        if sum(source is not None for source in given) != 1:
            raise InvalidValue("not-one-archive-source")
        return self

    @property
    def nats(self) -> NatsResource:
        """The server that the messages come from."""
        return NatsResource(**self._texts(set(NatsResource.model_fields)))

    def ingest_settings(
        self, stream: str, warehouse: Warehouse, days: tuple[date, date], run_id: str
    ) -> IngestSettings:
        """What to ingest of this source for a range of days, both inclusive."""
        first, last = days
        return IngestSettings.model_validate(
            nested(settings_of(IngestSettings), self._texts())
            | {
                "stream": stream,
                "since": datetime.combine(first, time(), UTC),
                "until": datetime.combine(last + timedelta(days=1), time(), UTC),
                "warehouse": warehouse,
                "run_id": run_id,
            }
        )

    def _texts(self, only: set[str] | None = None) -> dict[str, Any]:
        """What the YAML gives, by its keys; paths as texts."""
        given = self.model_dump(include=only, exclude_unset=True, exclude_none=True)
        return {
            key: str(value) if isinstance(value, Path) else value for key, value in given.items()
        }
