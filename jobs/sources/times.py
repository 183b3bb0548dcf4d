"""Times in dumps: the one strict parser, for JSON lines and for Parquet."""

from __future__ import annotations

import functools
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from nats_transform.errors import InvalidValue

_SECOND_NS = 1_000_000_000
_ISO_TIME = re.compile(
    r"(?P<whole>\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d)?)"
    r"(?:(?<=:\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?P<zone>[Zz]|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
# Epochs below these are in s, ms and us: each holds for the years 1973 to 5138 of its unit.
EPOCH_UNITS = ((10**11, _SECOND_NS), (10**14, 1_000_000), (10**17, 1_000))


def epoch_ns(value: Any) -> int:
    """Nanoseconds since 1970 of an ISO 8601 text (UTC if it names no zone) or an epoch.

    A text needs a date. Its fraction may follow a point or a comma and have nine digits.

    Raises:
        ValueError: it is neither, or not a time that 64 bits of nanoseconds can hold.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidValue("not-a-time", value=value)
    if isinstance(value, str):
        ns = _iso_ns(value)
    elif not math.isfinite(value):
        raise InvalidValue("not-a-time", value=value)
    else:
        unit = next((unit for below, unit in EPOCH_UNITS if abs(value) < below), 1)
        ns = value * unit if isinstance(value, int) else round(value * unit)
    return _in_range(ns, value)


def _iso_ns(text: str) -> int:
    parts = _ISO_TIME.fullmatch(text.strip())
    if parts is None:
        raise InvalidValue("not-a-written-time", text=text)
    whole, second, fraction, zone = parts.groups()
    if second is not None and second > "59":
        if second == "60":
            raise InvalidValue("leap-second", text=text)
        raise InvalidValue("not-a-time-second", text=text)
    try:
        seconds = _minute(whole, zone)
    except ValueError as error:
        raise InvalidValue("not-a-time-because", text=text, reason=error) from error
    return (seconds + int(second or 0)) * _SECOND_NS + int((fraction or "").ljust(9, "0"))


@functools.lru_cache(maxsize=1000)  # neighbours in a dump are mostly of the same minute
def _minute(whole: str, zone: str | None) -> int:
    """Seconds since 1970 of a day or a minute."""
    moment = datetime.fromisoformat(whole + (zone or "").upper())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)


def exact_ns(value: Any) -> int:
    """The value of a column that holds nanoseconds, whatever their size."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidValue("not-nanoseconds", value=value)
    return _in_range(value, value)


def _in_range(ns: int, value: Any) -> int:
    if not -(2**63) <= ns < 2**63:
        raise InvalidValue("time-out-of-range", value=value)
    return ns
