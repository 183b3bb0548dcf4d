"""The settings of an audit, and of a plan for a canary that is to be audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from jobs.settings.base import Moment, Name, Option, Probability, Settings, setting
from jobs.settings.days import DayRange, Stream
from jobs.settings.mappings import JudgedDays, MappedDays
from nats_transform.errors import InvalidValue, printable
from nats_transform.mappings.subject import is_valid_filter

if TYPE_CHECKING:
    from nats_transform.audit import Criteria
    from nats_transform.audit.planning import Audit

_Filter = Annotated[str, Option(metavar="FILTER")]


class InForce(Settings):
    """A mapping file and the time in which it was in force; as a text `MOMENT[..MOMENT]=FILE`."""

    since: Moment = setting(..., "When it took over, such as 2026-10-01T12:00Z.")
    until: Moment | None = setting(None, "When it ended. The next one must start then.")
    mapping: Path = setting(..., "The file with the mappings from then on.")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        moments, _, file = value.partition("=")
        if not file:
            raise InvalidValue("not-a-moment-and-file", value=value)
        since, _, until = moments.partition("..")
        return {"since": since, "until": until or None, "mapping": file}


class Published(Settings):
    """How many messages were published to the source of a mapping, from a counter."""

    source: str = setting(..., "The source of the mapping.")
    messages: int = setting(..., "The number of messages.", ge=0)
    cluster: str | None = setting(None, "The cluster, or null if the archived messages name none.")


def _git_alone(value: Any) -> Any:
    return "git" if value in (["git"], ("git",)) else value


class AuditSettings(JudgedDays, MappedDays):
    """The settings of an audit."""

    stream: Stream = setting(..., "The stream whose messages are counted.")
    mapping: Path | None = setting(  # type: ignore[assignment]
        None,
        "The mappings: a server configuration, an account JWT, JSON or YAML. By default, the "
        "mappings that transformed the messages, as the warehouse recorded them.",
    )
    observed: bool = setting(
        False,
        "The stream holds messages that nats-server has already mapped. Without this option, the "
        "audit takes them as published and applies the mapping itself.",
    )
    in_force: Annotated[tuple[InForce, ...] | Literal["git"], BeforeValidator(_git_alone)] = (
        setting(
            (),
            "From MOMENT on, such as 2026-10-01T12:00Z, the mappings in FILE were in force "
            "instead. MOMENT..MOMENT=FILE also names the end. Give the oldest first. With `git`, "
            "each commit of the mapping file was in force from its time on, or from its merge on.",
            metavar="MOMENT=FILE",
            parts=(str,),
        )
    )
    since: Moment | None = setting(None, "Count only messages from this moment on.")
    until: Moment | None = setting(
        None, "Count only messages before this moment, which must be in the past."
    )
    cluster: Name | None = setting(
        None, "Count only this cluster's messages, and messages that name no cluster."
    )
    by: Literal["hour", "day"] = setting("day", "Also judge each hour, or each day.")
    sequential: bool = setting(
        False,
        "Look at a running canary as often as you like: false alarms stay as rare as --confidence "
        "says. Use the same --since every time.",
    )
    key: int | None = setting(
        None,
        "Count the values of wildcard N of a source that went to more than one destination.",
        ge=1,
        metavar="N",
    )
    source_stream: Name | None = setting(
        None, "If observed: the stream that holds the same messages as published."
    )
    published: tuple[Published, ...] = setting(
        (),
        "If observed: how many messages were published to a mapping's source (in --cluster, if "
        "given).",
        metavar="SOURCE COUNT",
        parts=(str, int),
    )
    captured: tuple[_Filter, ...] = setting((), "If observed: subjects that the stream captures.")
    publishers: tuple[_Filter, ...] = setting(
        (),
        "If observed: subjects that also get messages from elsewhere, not only through this "
        "mapping.",
        name="publisher",
    )

    allow_nothing: bool = setting(
        False, "Exit with 0 even if there is nothing to audit: no weights, or no messages for them."
    )

    @model_validator(mode="before")
    @classmethod
    def _published_there(cls, values: Any) -> Any:
        match values:
            case {"published": [*counts]}:
                cluster = values.get("cluster")
                named = [
                    {"source": count[0], "messages": count[1], "cluster": cluster}
                    if isinstance(count, list | tuple) and len(count) == 2
                    else count
                    for count in counts
                ]
                return {**values, "published": named}
        return values

    @model_validator(mode="after")
    def _checked(self) -> AuditSettings:
        if self.mapping is None and (self.observed or self.in_force):
            raise InvalidValue("audit-without-mapping")
        _check_turns(() if self.in_force == "git" else self.in_force)
        if self.since and self.until and self.since >= self.until:
            raise InvalidValue("audit-ends-early")
        if self.published and (self.in_force or self.since or self.until):
            raise InvalidValue("counts-without-moments")
        if not self.observed and (
            self.source_stream or self.published or self.captured or self.publishers
        ):
            raise InvalidValue("observed-only")
        if self.source_stream and self.published:
            raise InvalidValue("source-and-counts")
        counted = Counter((count.source, count.cluster) for count in self.published)
        for (source, _), times in counted.items():
            if times > 1:
                raise InvalidValue("counted-several-times", source=printable(source), times=times)
        for filter in (*self.captured, *self.publishers):
            if not is_valid_filter(filter):
                raise InvalidValue("not-a-filter", filter=printable(filter))
        return self

    @property
    def days(self) -> DayRange | None:
        """Every day of the range, or of the window; None for all that the archive has."""
        first, last = self.since, self.ends
        if self.first_day is not None or first is None or last is None:
            return super().days
        last = last.astimezone(UTC) - timedelta(microseconds=1)
        return DayRange(first.astimezone(UTC).date(), last.date())

    @property
    def ends(self) -> datetime | None:
        """The end of the time that counts: of the window, or of the last mapping."""
        last = self.in_force[-1].until if self.in_force and self.in_force != "git" else None
        return min((end for end in (self.until, last) if end is not None), default=None)

    @property
    def criteria(self) -> Criteria:
        """The criteria that splits are compared with."""
        from nats_transform.audit import Criteria  # SciPy takes longer to import than all else

        return Criteria(self.tolerance, self.confidence, self.by, self.sequential)

    @property
    def range(self) -> str:
        """The days in words."""
        return str(self.days or "any day")


def _check_turns(in_force: Sequence[InForce]) -> None:
    """Refuses mappings in force that overlap or leave a gap."""
    for version in in_force:
        if version.until is not None and version.until <= version.since:
            raise InvalidValue(
                "in-force-ends-early",
                mapping=printable(str(version.mapping)),
                since=version.since,
                until=version.until,
            )
    for earlier, later in pairwise(in_force):
        names = f"{printable(str(earlier.mapping))} and {printable(str(later.mapping))}"
        if later.since <= earlier.since:
            raise InvalidValue(
                "in-force-out-of-order", pair=names, earlier=earlier.since, later=later.since
            )
        if earlier.until is not None and earlier.until != later.since:
            code = "in-force-overlap" if earlier.until > later.since else "in-force-gap"
            raise InvalidValue(code, pair=names, until=earlier.until, since=later.since)


class CanarySettings(MappedDays):
    """The canaries to plan, and the audit that is to judge them."""

    stream: Stream = setting(..., "The stream whose traffic is counted, as published.")
    shares: tuple[Annotated[float, Field(gt=0, lt=100)], ...] = setting(
        (1, 2, 5, 10), "The canary's share.", name="share", metavar="PERCENT"
    )
    tolerance: Annotated[float, Field(gt=0, lt=100)] = setting(
        1.0, "How many percentage points the audit will allow a share to differ from its weight."
    )
    confidence: Probability = setting(
        0.99, "The probability, from 0 to 1, that all of the audit's intervals are right."
    )
    # As nats_transform.audit.statistics.POWER; SciPy takes longer to import than all else.
    power: Probability = setting(
        0.95, "The probability, from 0 to 1, that the audit reaches the right verdict."
    )
    by: Literal["hour", "day"] = setting("day", "Whether the audit will also judge hours or days.")
    hours: int | None = setting(
        None, "How many hours the audit will cover. The default is as many as it takes.", ge=1
    )
    destinations: int | None = setting(
        None,
        "How many destinations each mapping will have. All but the canary get equal shares. By "
        "default they are the mapping's own, and the lightest is the canary.",
        ge=2,
        metavar="N",
    )
    clusters: int | None = setting(
        None,
        "In how many clusters the audit will judge each mapping. The default is as many as the "
        "stream names.",
        ge=1,
        metavar="N",
    )

    @property
    def audit(self) -> Audit:
        """The audit that is to judge the canaries."""
        from nats_transform.audit import Criteria  # SciPy takes longer to import than all else
        from nats_transform.audit.planning import Audit

        criteria = Criteria(self.tolerance, self.confidence, self.by)
        return Audit(criteria, self.power, self.hours, self.destinations, self.clusters)
