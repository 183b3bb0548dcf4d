"""What a result did not look at, so that nobody takes it for a verdict on everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nats_transform.mappings.functions import Partition, Random
from nats_transform.mappings.mapping import AccountMappings

_SERVER = "--server URL or --context NAME"
_CONSUMER = "its file in --consumers DIR"
_COUNTED = "a warehouse, or a census exported by this release"


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that a result says nothing about.

    Attributes:
        what: a noun.
        cure: what shows it; empty if no option does.
    """

    what: str
    cure: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.cure})" if self.cure else self.what


def unseen_line(unseen: Iterable[Unseen]) -> str:
    """One line for people."""
    return f"not looked at: {'; '.join(map(str, unseen))}"


def unseen_in_files(
    mappings: Iterable[AccountMappings],
    *,
    has_streams: bool,
    clusters: Iterable[str],
    unknown: Iterable[str],
    has_keys: bool,
) -> Iterator[Unseen]:
    """What a check of files alone does not look at.

    Args:
        mappings: the mappings in the files, of each account.
        has_streams: whether the files have a stream.
        clusters: the names of all clusters, if they are known.
        unknown: consumers that no file shows, from `Network.unknown`.
        has_keys: whether some of the given subjects reach a `partition()`.
    """
    accounts = list(mappings)
    if not has_streams:
        yield Unseen("streams", "give their files too")
    if not any(account.mappings for account in accounts):
        yield Unseen("mappings", "give the file of the account too")
    if has_streams and sum(1 for account in accounts if account.mappings) > 1:
        yield Unseen(
            "what the mappings do to the streams, because several accounts have mappings",
            "--account NAME, or one file of mappings at a time",
        )
    yield from (Unseen(name, _CONSUMER) for name in unknown)
    yield from _unknown_clusters(accounts, clusters)
    if not has_keys:
        yield Unseen("keys of partition(), because no given subject reaches one")
    yield Unseen("consumers, permissions and published subjects", "nats-transform dry-run")


def unseen_streams(
    *, has_streams: bool, has_consumers: bool, unknown: Iterable[str]
) -> Iterator[Unseen]:
    """The streams and consumers that nobody shows.

    Args:
        has_streams, has_consumers: whether files or a server show them.
        unknown: what is missing there, from `Network.unknown`.
    """
    if not has_streams:
        yield Unseen("streams", f"--streams DIR, {_SERVER}")
    if not has_consumers:
        yield Unseen("consumers", f"--consumers DIR, {_SERVER}")
    yield from (Unseen(name, _CONSUMER) for name in unknown)


def unseen_of_archive(
    mappings: Iterable[AccountMappings],
    *,
    stream: str,
    is_live: bool,
    has_streams: bool,
    has_consumers: bool,
    has_permissions: bool,
    clusters: Iterable[str],
    unknown: Iterable[str],
    knows_headers: bool,
    headers: Sequence[str],
    has_other_side: bool,
) -> Iterator[Unseen]:
    """What a dry run or a plan on the subjects of streams does not look at.

    Args:
        mappings: the mappings before and after the change.
        stream: the only stream whose subjects are known; "" if those of all are.
        is_live: whether a server showed the subjects that its streams have now.
        has_streams, has_consumers, has_permissions: whether files or a server show them.
        clusters: the clusters that the archive or the user names.
        unknown: what is missing in the files or on the server, from `Network.unknown`.
        knows_headers: whether the census looked at the headers of messages.
        headers: those whose values were looked at.
        has_other_side: whether the mappings beyond each leaf node connection are known.
    """
    yield from unseen_streams(has_streams=has_streams, has_consumers=has_consumers, unknown=unknown)
    if not has_permissions:
        yield Unseen("permissions of users", "--permissions FILE")
    accounts = list(mappings)
    yield from _unknown_clusters(accounts, clusters)
    destinations = [t.tokens for a in accounts for m in a.mappings for t in m.transforms]
    if any(sum(isinstance(token, Partition) for token in tokens) > 1 for tokens in destinations):
        yield Unseen("whether the second partition() of a destination, and later ones, move keys")
    if any(isinstance(token, Random) for tokens in destinations for token in tokens):
        yield Unseen("how many messages get each number of random(), if not all go the same way")
    if is_live:
        yield Unseen("messages that no stream holds now", "the archives of streams")
    if not knows_headers:
        yield Unseen("conditional publishes, schedules and ids of messages", _COUNTED)
    if stream:
        yield Unseen(f"subjects that {stream} does not have", "the archives of other streams")
    yield Unseen("subscribers without JetStream")
    if not has_other_side:
        yield Unseen("mappings beyond leaf node connections", "--leaf-node FILE")
    if headers:
        yield Unseen(
            f"subjects in headers other than {', '.join(headers)}", "--subject-header NAME"
        )
    else:
        yield Unseen("subjects in headers, such as the targets of schedules", "a warehouse")
    yield Unseen("subjects in payloads")


def _unknown_clusters(
    mappings: Iterable[AccountMappings], clusters: Iterable[str]
) -> Iterator[Unseen]:
    """The clusters that mappings name, if nobody says which there are."""
    if not any(clusters) and any(mapping.clusters for a in mappings for mapping in a.mappings):
        yield Unseen("which clusters there are", "--cluster NAME for each")
