"""The census that the settings name: a file, or a server that counts now."""

from __future__ import annotations

from jobs.dry_run.portable import PortableCensus, check_redaction, read_census
from jobs.settings.dry_run import DryRunSettings
from nats_transform.migration import Question


def given_census(settings: DryRunSettings, question: Question) -> PortableCensus | None:
    """The census in a file or of a server; None if an archive is to be counted.

    Raises:
        InvalidConfig: the file cannot be read, or is of another stream; or the question looks into
            a token that the file has as a hash.
        ArchiveError: the server cannot be asked, or has no message.
    """
    if settings.census is not None:
        census = read_census(settings.census, settings.stream)
        check_redaction(census, question, settings.census)
        return census
    if not settings.is_live or settings.nats is None:
        return None
    from jobs.dry_run.live import live_census

    return live_census(settings.nats, settings.stream, question.streams)
