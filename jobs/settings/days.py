"""Some days of a stream, which every job after the ingest gets as settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from jobs.settings.base import Name, Option, Settings, setting
from jobs.settings.warehouse import Warehouse
from nats_transform.errors import InvalidValue

Stream = Annotated[Name, Option(completes="streams")]
RunId = Annotated[str, Option(metavar="ID", otherwise="a random name")]


def _day(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise InvalidValue("not-a-day", value=value) from None


@dataclass(frozen=True)
class DayRange(Sequence[date]):
    """Every day from the first to the last, without a list of them: nothing bounds their number."""

    first: date
    last: date

    def __contains__(self, day: object) -> bool:
        return isinstance(day, date) and self.first <= day <= self.last

    def __len__(self) -> int:
        return (self.last - self.first).days + 1

    def __getitem__(self, place: Any) -> Any:
        return self.first + timedelta(days=range(len(self))[place])

    def __str__(self) -> str:
        return f"{self.first}..{self.last}" if self.last > self.first else str(self.first)


def day_ranges(days: Iterable[date], most: int = 0) -> Iterator[DayRange]:
    """The stretches of ascending days without a gap, of at most so many days each (0: any)."""
    stretch: list[date] = []
    for day in days:
        if stretch and (day - stretch[-1] > timedelta(days=1) or len(stretch) == most):
            yield DayRange(stretch[0], stretch[-1])
            stretch = []
        stretch.append(day)
    if stretch:
        yield DayRange(stretch[0], stretch[-1])


class StreamDays(Settings):
    """Some days of a stream in a warehouse; the settings of jobs extend it."""

    stream: Stream = setting(..., "The name of the stream in the tables.")
    first_day: Annotated[date | None, BeforeValidator(_day)] = setting(
        None,
        "A day such as 2026-11-30, or the first and the last of several days: "
        "2026-11-01..2026-11-30.",
        key="day",
        metavar="A[..B]",
        completes="days",
        otherwise="every day of the archive",
    )
    last_day: Annotated[date | None, BeforeValidator(_day)] = setting(
        None, "The last day, if there are several.", is_option=False
    )
    run_id: RunId | None = setting(None, "A name for this run, kept in the result.")
    warehouse: Warehouse = Warehouse()

    @model_validator(mode="before")
    @classmethod
    def _both_days(cls, values: Any) -> Any:
        match values:
            case {"first_day": str(days)} if ".." in days:
                first, _, last = days.partition("..")
                return {**values, "first_day": first, "last_day": last}
        return values

    @model_validator(mode="after")
    def _ordered(self) -> StreamDays:
        if self.last_day is not None and (self.first_day is None or self.last_day < self.first_day):
            raise InvalidValue("days-end-early")
        return self

    @property
    def days(self) -> DayRange | None:
        """Every day of the range; None for all that the archive has."""
        if self.first_day is None:
            return None
        return DayRange(self.first_day, self.last_day or self.first_day)
