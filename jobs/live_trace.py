"""Compares what servers say of one traced message with our prediction, hop by hop.

Each hop is predicted from what the servers say of the hop before: of the destinations of a mapping
the server draws one, and what follows is predicted for that one. Servers say nothing of what
streams republish, nor of mirrors and sources: a traced message is not stored.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from jobs.errors import JobError
from jobs.jetstream.account import account_streams
from jobs.jetstream.answers import TraceEvent
from jobs.jetstream.connection import connection
from jobs.jetstream.tracing import belongs_to_server, missing, traced
from jobs.settings.connection import NatsSettings
from nats_transform.accounts.imports import AccountImport, ImportKind
from nats_transform.accounts.sharing import SharedSubject
from nats_transform.config import Located, load_all, load_mappings
from nats_transform.errors import printable
from nats_transform.mappings.mapping import AccountMappings, Fate, Outcome
from nats_transform.mappings.subject import (
    SEPARATOR,
    encode,
    is_valid_publish_subject,
    subscribes,
)
from nats_transform.mappings.transform import Transform
from nats_transform.mappings.unresolved import may_be
from nats_transform.streams.network import Network
from nats_transform.streams.stream import StreamConfig

_LOST = "lost by the weights"  # nats-server refuses destinations with a blank
_MOST_ASKED = 1_000
_LEAF = 4
_SERVERS = {1: "route", 2: "gateway", _LEAF: "leaf node"}
"""The kinds of connections to other servers (nats-server `server/client.go`)."""


class Verdict(StrEnum):
    """What comes of one hop."""

    EQUAL = "equal"
    DIFFERS = "differs"
    SEEN = "seen"
    """Nothing that we were given predicts it."""


class Hop(BaseModel):
    """One step of the message.

    Attributes:
        hop: `mapping`, `import`, `stream` or `egress`.
        server: the server that took it; "" if none did.
        predicted: what we predict; of several, any one is right.
        seen: what the server says; None if it says nothing.
        verdict: what comes of it.
    """

    model_config = ConfigDict(frozen=True)

    hop: str
    server: str
    predicted: list[str]
    seen: str | None
    verdict: Verdict


class LiveTrace(BaseModel):
    """A traced message beside our prediction.

    Attributes:
        subject: the published subject.
        server, version: the server that it was published to.
        cluster: its cluster, if it is in one.
        hops: the steps.
        silent: how many servers got the message, but no event came from them.
        reserved: the subject of nats-server's own that the message came to, if any: the server may
            have acted on it.
        is_equal: whether every hop that we predict is as predicted, and there is one before the
            egress, which follows from what the servers say.
    """

    model_config = ConfigDict(frozen=True)

    subject: str
    server: str
    version: str
    cluster: str
    hops: list[Hop]
    silent: int
    reserved: str
    is_equal: bool


@dataclass
class Prediction:
    """What a prediction is made of.

    Attributes:
        mappings: the mappings of the account; None if they are not known.
        account: one of its names.
        accounts: every account of the configuration, with its exports and imports.
        cluster: the cluster of the publisher's server, if it is in one.
    """

    mappings: AccountMappings | None = None
    account: str = "$G"
    accounts: Sequence[Located] = ()
    streams: Sequence[StreamConfig] = ()
    cluster: str | None = None
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.accounts = [located for located in self.accounts if located.accounts]
        self.names = self.names_of(self.account)

    def names_of(self, account: str) -> frozenset[str]:
        """All names of an account: a JWT has a name and a key."""
        names = (a.accounts for a in self.accounts if account in a.accounts)
        return frozenset(next(names, (account,)))

    def results(self, subject: str, account: str) -> list[str]:
        """The subjects that the mappings of an account can give to a subject."""
        known = (a.config for a in self.accounts if account in a.accounts)
        mappings = self.mappings if account in self.names else next(known, None)
        if not isinstance(mappings, AccountMappings):
            return [subject]
        outcomes = mappings.outcomes(subject, self.cluster)
        return list(dict.fromkeys(_result(outcome, subject) for outcome, _ in outcomes))

    def exported(self, subject: str) -> list[tuple[str, str]]:
        """The accounts that import a stream with the subject, and how the subject arrives."""
        return [
            (importer.accounts[0], to)
            for importer in self.accounts
            for entry in importer.shares.imports
            if entry.kind == "stream" and entry.account in self.names
            if (to := _through(entry, subject)) is not None
        ]

    def asked(self, account: str, subject: str) -> list[tuple[str, list[str]]]:
        """The accounts whose services an account imports under a subject, and what each gets."""
        return [
            (entry.account, self.results(to, entry.account))
            for importer in self.accounts
            if account in importer.accounts
            for entry in importer.shares.imports
            if entry.kind == "service"
            if (to := _through(entry, subject)) is not None
        ]

    def reached(self, subject: str) -> list[str]:
        """The subjects that a message can get: by mappings, and in accounts that are asked."""
        following = [(self.account, to) for to in self.results(subject, self.account)]
        # The list grows. nats-server refuses imports in a circle, in which it would not end.
        for account, name in islice(following, _MOST_ASKED):
            for exporter, results in self.asked(account, name):
                following += [(exporter, to) for to in results]
        return [name for _, name in following]


def live_trace(
    subject: str,
    settings: NatsSettings,
    mapping: Path | None = None,
    account: str = "$G",
    cluster: str | None = None,
) -> LiveTrace:
    """Publish a message that servers only trace, and compare what they say with our prediction.

    Args:
        subject: a literal subject in UTF-8.
        mapping: the mappings that should be in force; without them only the rest is compared.
        cluster: predict for this cluster, not for that of the server.

    Raises:
        JobError: the subject cannot be traced, or the server cannot trace it.
        InvalidConfig: the configuration cannot be read.
    """
    prediction = Prediction(account=account)
    if mapping is not None:
        mappings = load_mappings(mapping, account)
        prediction = Prediction(mappings, account, load_all(mapping))
    return asyncio.run(_ask(subject, settings, prediction, cluster))


async def _ask(
    subject: str, settings: NatsSettings, prediction: Prediction, cluster: str | None
) -> LiveTrace:
    async with connection(settings) as client:
        prediction.cluster = client._server_info.get("cluster") or None
        _refuse(subject, prediction)
        prediction.cluster = cluster or prediction.cluster
        prediction.streams = await account_streams(client, prediction.account)
        version = str(client._server_info.get("version", ""))
        events = await traced(client, subject)
    hops = list(compare(subject, events, prediction))
    names = (events[0].mapped, *(step.to for event in events for step in event.of("si")))
    return LiveTrace(
        subject=subject,
        server=events[0].server.name,
        version=version,
        cluster=events[0].server.cluster,
        hops=hops,
        silent=len(missing(events)),
        reserved=next(filter(belongs_to_server, names), ""),
        is_equal={hop.verdict for hop in hops} - {Verdict.SEEN} == {Verdict.EQUAL}
        and any(hop.verdict is Verdict.EQUAL and hop.hop != "egress" for hop in hops),
    )


def _refuse(subject: str, prediction: Prediction) -> None:
    if not is_valid_publish_subject(subject) or not subject.isprintable():
        raise JobError("untraceable", subject=printable(subject))
    for name in (subject, *prediction.reached(subject)):
        if belongs_to_server(name):
            raise JobError("traced-own-subject", subject=printable(name))


def compare(subject: str, events: Sequence[TraceEvent], prediction: Prediction) -> Iterator[Hop]:
    """The hops of a traced message, each beside what we predict.

    Args:
        events: what the servers say; the publisher's server is first.
    """
    first = events[0]
    mapped = first.mapped
    is_known = prediction.mappings is not None
    texts = prediction.results(subject, prediction.account) if is_known else []
    yield _hop("mapping", first.server.name, texts, mapped or _LOST, is_known=is_known)
    if not mapped:
        return
    yield from _imports(mapped, events, prediction)
    yield from _streams(mapped, events, prediction)
    yield from _egress(mapped, events)


def _imports(mapped: str, events: Sequence[TraceEvent], prediction: Prediction) -> Iterator[Hop]:
    texts = [_at(name, to) for name, to in prediction.exported(mapped)]
    for event in events:
        # One for each subscription of the importing account; without any there is none.
        is_known = bool(prediction.accounts) and not _is_beyond_leaf_node(event, events)
        for seen in dict.fromkeys(_at(step.account, step.to) for step in event.of("se")):
            yield _hop("import", event.server.name, texts, seen, is_known=is_known)
    asked = events[0].of("si")
    left = list(asked)
    following = [(prediction.account, mapped)]
    while following:
        account, subject = following.pop()
        for exporter, results in prediction.asked(account, subject):
            names = prediction.names_of(exporter)
            texts = [_at(exporter, to) for to in results]
            step = next((s for s in left if s.account in names and s.asked == subject), None)
            if step is not None:
                left.remove(step)
                following.append((exporter, step.to))
                seen = _at(exporter, step.to or _LOST)
                yield _hop("import", events[0].server.name, texts, seen)
            elif account == prediction.account:  # an exporter's own imports need not be traced
                yield _hop("import", "", texts, None)
    for step in left:
        seen = _at(step.account, step.to)
        is_known = bool(prediction.accounts)
        yield _hop("import", events[0].server.name, [], seen, is_known=is_known)


def _streams(mapped: str, events: Sequence[TraceEvent], prediction: Prediction) -> Iterator[Hop]:
    arrivals = Network(prediction.streams).arrivals(mapped)
    left = {arrival.stream: arrival.subject for arrival in arrivals if arrival.origin is None}
    for event in events:
        is_ours = event.events[0].account in prediction.names
        is_ours &= not _is_beyond_leaf_node(event, events)
        for before, step in zip(event.events, event.events[1:], strict=False):
            if step.type != "js":
                continue
            is_foreign = not is_ours or before.type == "se"
            if event.of("si") and step.stream not in left:
                is_foreign = True  # of the account with the service
            texts: list[str] = []
            if not is_foreign and step.stream in left:
                texts = [f"{step.stream} stores {left.pop(step.stream)}"]
            seen, is_known = f"{step.stream} stores {step.subject}", not is_foreign
            if step.error:
                seen = f"{step.stream}: {step.error}"
            elif len(event.of("js")) > 1 or not step.subject:
                # nats-server keeps one stream of a message: of several the subjects are mixed up.
                seen, is_known = f"{step.stream} stores it", is_known and not texts
            elif step.no_interest:  # which depends on consumers: no prediction of ours
                seen, *texts = (f"{text}, but no consumer wants it" for text in (seen, *texts))
            yield _hop("stream", event.server.name, texts, seen, is_known=is_known)
    for name, stored in left.items():
        yield _hop("stream", "", [f"{name} stores {stored}"], None)


def _egress(mapped: str, events: Sequence[TraceEvent]) -> Iterator[Hop]:
    arrived = {event.hop: event for event in events}
    subjects = {mapped, *(step.to for step in events[0].of("si"))}
    for event in events:
        clients: Counter[tuple[str, str]] = Counter()
        for step in event.of("eg"):
            if step.kind in _SERVERS:
                seen = f"{_SERVERS[step.kind]} to {step.name}"
                if step.hop not in arrived:
                    why = step.error or "no event came from there"
                    yield _hop("egress", event.server.name, [], f"{seen}: {why}", is_known=False)
                    continue
                to = arrived[step.hop].events[0].arrived
                texts = [f"{seen} with {subject}" for subject in sorted(subjects)]
                yield _hop("egress", event.server.name, texts, f"{seen} with {to}")
            else:
                clients[step.subscription, step.error] += 1
        for (filter, error), count in clients.items():
            text = f"{count} x {filter}"
            is_right = any(subscribes(filter, subject) for subject in subjects)
            seen = f"{text}: {error}" if error else text
            is_known = not error and not _is_beyond_leaf_node(event, events)
            texts = [seen] if is_right else [mapped]
            yield _hop("egress", event.server.name, texts, seen, is_known=is_known)


def _is_beyond_leaf_node(event: TraceEvent, events: Sequence[TraceEvent]) -> bool:
    """Whether the message came there through a leaf node, which maps it as we do not know."""
    return any(
        e.events[0].kind == _LEAF and f"{event.hop}.".startswith(f"{e.hop}.") for e in events
    )


def _hop(
    hop: str, server: str, predicted: list[str], seen: str | None, *, is_known: bool = True
) -> Hop:
    """A hop, compared if enough is known for a prediction."""
    if not is_known:
        verdict = Verdict.SEEN
    elif seen is not None and any(_fits(text, seen) for text in predicted):
        verdict = Verdict.EQUAL
    else:
        verdict = Verdict.DIFFERS
    return Hop(hop=hop, server=server, predicted=predicted, seen=seen, verdict=verdict)


def _through(entry: SharedSubject, subject: str) -> str | None:
    """The subject under which an import passes a message on; None if it does not."""
    return AccountImport(ImportKind(entry.kind), entry.subject, entry.to).apply(subject)


def _result(outcome: Outcome, subject: str) -> str:
    """The subject of an outcome, which no subscription gets if a token is empty."""
    if outcome.fate is Fate.INVALID and outcome.mapping_source and outcome.mapping_destination:
        transform = Transform(outcome.mapping_source, outcome.mapping_destination)
        return transform.evaluate(subject.split(SEPARATOR), None)
    return _LOST if outcome.subject is None else outcome.subject


def _at(account: str, subject: str) -> str:
    return f"{account} gets {subject}"


def _fits(predicted: str, seen: str) -> bool:
    """Whether a text is the predicted one, with some number for each `random()`."""
    # Servers show bytes that are not UTF-8 as U+FFFD, once for each or once for several.
    predicted = encode(predicted).decode("utf-8", "replace")
    return may_be(*(re.sub("\ufffd+", "\ufffd", text) for text in (predicted, seen)))
