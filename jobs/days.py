"""Some days of a stream, which every job after the ingest gets as settings."""

from __future__ import annotations

from datetime import date, timedelta

from pydantic import BaseModel, ConfigDict, model_validator

from jobs.warehouse.where import Warehouse


class StreamDays(BaseModel):
    """Some days of a stream in a warehouse; the settings of jobs extend it.

    Attributes:
        stream: the name of the stream.
        warehouse: the warehouse with the tables.
        first_day: the first day; None is every day of the archive.
        last_day: the last day; None is the same as `first_day`.
        run_id: an id that is kept with the snapshot; if it is None, a random one is made.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    stream: str
    warehouse: Warehouse = Warehouse()
    first_day: date | None = None
    last_day: date | None = None
    run_id: str | None = None

    @model_validator(mode="after")
    def _ordered(self) -> StreamDays:
        if self.last_day is not None and (self.first_day is None or self.last_day < self.first_day):
            raise ValueError(
                "the last day needs a first day, and the first must not be after the last"
            )
        return self

    @property
    def days(self) -> list[date] | None:
        """Every day of the range; None for all that the archive has."""
        if self.first_day is None:
            return None
        last = self.last_day or self.first_day
        return [self.first_day + timedelta(days=n) for n in range((last - self.first_day).days + 1)]


def day_range(text: str | None) -> tuple[date | None, date | None]:
    """First and last day of `A` or `A..B`; None for both is every day.

    Raises:
        ValueError: not dates as YYYY-MM-DD.
    """
    if text is None:
        return None, None
    first, _, last = text.partition("..")
    return date.fromisoformat(first), date.fromisoformat(last) if last else None
