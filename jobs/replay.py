"""The job `replay` sends transformed messages into a JetStream stream, each of them once.

Before the first message is sent, all messages are checked: whether the protocol can carry them
(`jobs.jetstream.wire`), whether the target captures their subjects and keeps them as they are, and
which of them the target already has (`jobs.jetstream.target`). Each reason against the replay is a
`Refusal`; the user can allow some of them. A dry run ends here.

Messages are sent in the order of their sequences. Each is stored once, however often and wherever
the replay is started and killed (`jobs.jetstream.chain`). A message keeps its payload and headers,
except headers that would act again (`jobs.jetstream.control`). The replay adds these headers:

- `Nats-Transform-Source`: mapping version, archived sequence and stream; progress is read from it;
- `Nats-Transform-Time`: when the message was stored first (nanoseconds, ISO 8601);
- `Nats-Msg-Id`, `Nats-Expected-Stream` and `Nats-Expected-Last-Msg-Id` or
  `Nats-Expected-Last-Sequence`, which make the server store the message once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import BaseModel

from jobs.errors import JobError
from jobs.files.selection import Selection
from jobs.jetstream import wire
from jobs.jetstream.answers import ApiError
from jobs.jetstream.chain import Chain, Outgoing, StreamLost, StreamReplaced
from jobs.jetstream.connection import RawClient, connection
from jobs.jetstream.outgoing import COLUMNS, Making, iso_time, look, messages
from jobs.jetstream.schedules import COLUMNS as SCHEDULES
from jobs.jetstream.schedules import Rewriting
from jobs.jetstream.stream import StreamState, counts_by_subject, stream_state
from jobs.jetstream.target import Sent, Target, source_stream
from jobs.progress import advance, step
from jobs.settings.replay import CONSENTS, Consent, ReplaySettings
from jobs.warehouse.accounting import Archived
from jobs.warehouse.specs import MESSAGES, QUARANTINED, TRANSFORMED
from jobs.warehouse.tables import count_rows, find_table, open_table
from jobs.warehouse.versions import find as find_version
from nats_transform.kernel.coverage import Coverage
from nats_transform.mappings.subject import decode, encode
from nats_transform.words import plural

EXAMPLES = 3
"""How many of the messages that cannot be sent are named."""
_ATTEMPTS = 5  # when the stream lost what it had stored, as after a crash of its server


class Refusal(BaseModel):
    """Why a replay does not start.

    Attributes:
        reason: a word for programs.
        message: a sentence for people, with the first examples.
        allow: the value of `--allow` that allows it; null if nothing does.
    """

    reason: str
    message: str
    allow: Consent | None = None


class ReplayResult(BaseModel):
    """The result of a replay. If there are refusals, it sent nothing.

    Attributes:
        stream: the stream whose messages are sent.
        to: the stream that gets them.
        dry_run: whether nothing was sent on purpose.
        sent: how many messages this run stored; with `dry_run`, how many it would store.
        already: how many messages the target already had, or another replay sent meanwhile.
        not_sent: how many messages are not sent, by their fate or by the reason.
        schedules: how many messages have a schedule (header Nats-Schedule).
        acting: how many of these act again, because they still waited.
        rewritten: how many headers have a subject that is rewritten, by the header's name.
        refusals: the reasons why nothing was sent, or would be sent.
        target_messages: how many messages the target holds afterwards, of all publishers.
        removed: how many messages the target removed meanwhile that it should hold.
        breaks: how often other clients or lost connections made the replay look again.
        allow: the values of `allow` in the settings.
    """

    stream: str
    to: str
    sent: int = 0
    already: int = 0
    not_sent: dict[str, int] = {}
    schedules: int = 0
    acting: int = 0
    rewritten: dict[str, int] = {}
    dry_run: bool
    refusals: list[Refusal] = []
    target_messages: int = 0
    removed: int = 0
    breaks: int = 0
    allow: list[Consent] = []

    def fails(self, level: str) -> bool:
        """Whether the replay was refused, or the target removed what it should keep."""
        # A schedule removes its message when it fires, and the one before when it is stored.
        expected = 2 * self.acting
        return bool(self.refusals) or (self.removed > expected and "limits" not in self.allow)


def replay(settings: ReplaySettings) -> ReplayResult:
    """Sends the messages, and returns when all of them are in the target, or when it is refused.

    Raises:
        JobError: the target refuses a message or stays away; run again to resume.
        ArchiveError: there is no such server or stream.
        WarehouseError: the tables cannot be read.
    """
    table = open_table(settings.warehouse, TRANSFORMED)
    archive = Selection(table, settings.stream, settings.days, settings.fates, COLUMNS)
    if len(archive.versions) > 1:
        raise JobError(
            "replay-several-versions", stream=settings.stream, versions=len(archive.versions)
        )
    if not archive.versions:
        raise JobError("replay-nothing", stream=settings.stream)
    return asyncio.run(_Run(settings, archive).replay())


class _Run:
    """One replay, from the checks to the last answer."""

    def __init__(self, settings: ReplaySettings, archive: Selection) -> None:
        self.settings, self.archive = settings, archive
        self.stream = source_stream(settings.stream)
        accounts = Archived.of(find_table(settings.warehouse, MESSAGES), settings.stream)
        self.archived = accounts.coverage
        apart = count_rows(settings.warehouse, QUARANTINED, settings.stream, settings.days)
        there = archive.messages + apart
        untransformed = max(accounts.digest_of(settings.days).rows - there, 0)
        self.lacking = {"quarantined": apart, "untransformed": untransformed}
        self.version = next(iter(archive.versions)).encode()
        self.total = sum(archive.fates[fate] for fate in settings.fates)
        self.rewriting = Rewriting()
        self.sent = Sent()
        self.held = 0  # messages of the archive that the target has, as far as this run knows
        counts = sorted(archive.fates.items())
        self.result = ReplayResult(
            stream=settings.stream,
            to=settings.to,
            dry_run=settings.dry_run,
            not_sent={fate: n for fate, n in counts if fate not in settings.fates}
            | {reason: n for reason, n in self.lacking.items() if n},
            allow=sorted(settings.allow),
        )

    async def replay(self) -> ReplayResult:
        result = self.result
        loss: StreamLost | None = None
        async with connection(self.settings.server) as client:
            for attempt in range(_ATTEMPTS):
                # First: what another replay stores from now on counts as sent by this one, too.
                before = await self._counts(client)
                state = await stream_state(client, self.settings.to)
                target = Target(self.settings.to, state, self.archived)
                there = await self._there(target)
                self._refuse(target)
                await asyncio.to_thread(self._find_schedules, target)
                making = self._making(client, target)
                with step(f"checking {self.settings.stream}", self.total):
                    already = await asyncio.to_thread(self._look_at_messages, target, making, there)
                if result.refusals and loss is not None:
                    reasons = "; ".join(refusal.message for refusal in result.refusals)
                    raise JobError("replay-lost-again", loss=loss, reasons=reasons) from loss
                if result.refusals or self.settings.dry_run:
                    result.already, result.target_messages = already, state.messages
                    if self.settings.dry_run:
                        kept_out = sum(result.not_sent.get(reason, 0) for reason in _KEPT_OUT)
                        result.sent = max(self.total - already - kept_out, 0)
                    return result
                # What the stream lost of this run is sent, and counted, again.
                result.sent = max(result.sent - max(self.held - already, 0), 0)
                self.held = already
                try:
                    with step(f"sending {self.settings.stream}", self.total):
                        await self._send(client, target, making, there, before)
                except StreamLost as error:
                    if attempt == _ATTEMPTS - 1 or isinstance(error, StreamReplaced):
                        raise
                    loss = error
                    continue
                now = await stream_state(client, target.name)
                result.target_messages = now.messages
                result.removed = self._removed(target, now)
                break
        return result

    def _making(self, client: RawClient, target: Target) -> Making:
        most = client.max_payload
        if (limit := target.state.config.get("max_msg_size", -1)) >= 0:
            most = min(most, limit)
        acts = self.settings.allow & {"rollup", "ttl"}
        return Making(self.version, self.stream, acts, most, self.rewriting)

    # --- Before ---------------------------------------------------------------------------------

    def _refusal(self, reason: str, message: str, allow: Consent | None = None) -> None:
        if allow is None or allow not in self.settings.allow:
            cure = f"; give --allow {allow} if you want it: {CONSENTS[allow]}" if allow else ""
            self.result.refusals.append(Refusal(reason=reason, message=message + cure, allow=allow))

    def _refuse(self, target: Target) -> None:
        """Notes the reasons against the replay in the settings of the target."""
        for why in target.impossible():
            self._refusal("target", why)
        for reason, lacking in self.lacking.items():
            if lacking:
                many = f"{plural(lacking, 'message')} of stream {self.settings.stream}"
                text = f"{many} {'is' if lacking == 1 else 'are'} {_LACKING[reason]}"
                self._refusal(reason, text, "skips")
        if forgets := list(target.forgets()):
            text = f"stream {target.name} removes messages ({', '.join(forgets)})"
            self._refusal("limits", text, "limits")
        config = target.state.config
        if "rollup" in self.settings.allow and (
            not config.get("allow_rollup_hdrs") or config.get("deny_purge")
        ):
            self._refusal("rollup", f"stream {target.name} takes no rollups (allow_rollup_hdrs)")
        if "ttl" in self.settings.allow and not config.get("allow_msg_ttl"):
            self._refusal("ttl", f"stream {target.name} takes no TTL of messages (allow_msg_ttl)")

    def _find_schedules(self, target: Target) -> None:
        """Finds the schedules that act again, if they may, and their new headers."""
        if not self.settings.rewrite_headers:
            return
        if not target.state.config.get("allow_msg_schedules"):
            text = f"stream {target.name} takes no schedules (allow_msg_schedules)"
            self._refusal("schedules", text)
        # Whether a schedule fired may stand in a message of another day or fate.
        table = open_table(self.settings.warehouse, TRANSFORMED)
        everything = Selection(table, self.settings.stream, None, None, SCHEDULES)
        mappings = find_version(self.settings.warehouse, self.version.decode()).mappings
        self.rewriting = Rewriting.of(
            everything.rows(), self.archive.rows(["seq"]), mappings, target.fault
        )
        self.result.acting = len(self.rewriting.values)
        self.result.rewritten = self.rewriting.rewritten

    def _look_at_messages(self, target: Target, making: Making, there: Coverage) -> int:
        """Counts the messages that the target has; notes the reasons against sending the others."""
        kept_out: dict[str, _Examples] = {}
        renamed, replaced = _Examples(), _Examples()
        already = self.result.schedules = 0
        for reason in _KEPT_OUT:
            self.result.not_sent.pop(reason, None)
        fault_of = lru_cache(_SUBJECTS)(target.fault)
        stored_as = lru_cache(_SUBJECTS)(target.stored_as)
        for rows in self.archive.rows():
            advance(len(rows))
            already += int(there.has(rows.column("seq")).sum())
            for seq, sent, here in self.sent.replaced(rows):
                times = f"of {iso_time(sent)}, here of {iso_time(here)}"
                replaced.add(1, f"sequence {seq} {times}", seq)
            looked = look(making, rows)
            self.result.schedules += looked.schedules
            for seq, fault in looked.faults:
                kept = kept_out.setdefault(fault.about, _Examples())
                kept.add(1, f"sequence {seq}: {fault}", seq)
            for name, count in looked.subjects.items():
                subject = decode(name)
                if (text := fault_of(subject)) is not None:
                    captured = kept_out.setdefault("captured", _Examples())
                    captured.add(count, f"{wire.shown(name)}: {text}")
                elif (stored := stored_as(subject)) != subject:
                    renamed.add(count, f"{wire.shown(name)} as {wire.shown(encode(stored))}")
        whats = {
            "subject": "have a subject that the protocol cannot carry",
            "headers": "have headers that the protocol cannot carry",
            "size": "are too large for the server or the stream",
            "schedule": "have a schedule that cannot be rewritten",
            "captured": f"have a subject that stream {target.name} does not take",
        }
        for reason, kept in sorted(kept_out.items()):
            self.result.not_sent[reason] = kept.messages
            many = whats[reason]
            single = many.replace("have ", "has ", 1).replace("are ", "is ", 1)
            text = plural(kept.messages, f"message {single}", f"messages {many}")
            self._refusal(reason, f"{text} ({kept})", "skips")
        if renamed.messages:
            text = f"{plural(renamed.messages, 'message')} would be stored under another subject"
            self._refusal("ingress", f"{text} ({renamed})", "ingress")
        if replaced.messages:
            text = f"{plural(replaced.messages, 'message')} of {self.settings.stream} that this"
            self._refusal(
                "replaced",
                f"stream {target.name} has {text} archive has other messages for ({replaced}); "
                "delete them there, or replay into another stream",
            )
        coming = self.total - already - sum(kept.messages for kept in kept_out.values())
        room = target.room()
        if room is not None and coming > room:
            text = f"stream {target.name} has room for {plural(room, 'more message')} (max_msgs)"
            self._refusal("room", f"{text}, but {coming:,} would come: raise its limit")
        return already

    async def _there(self, target: Target) -> Coverage:
        """The archived sequences that need not be sent, because the target has them."""
        self.sent = Sent()
        if not target.state.messages or not target.is_readable:
            return Coverage()
        names, others = list[bytes](), 0
        state = target.state
        messages = target.messages(self.settings.server, state.first, state.last)
        async with aclosing(messages):  # type: ignore[type-var]
            async for _, replayed in messages:
                if replayed is None or replayed.stream != self.stream:
                    continue
                if replayed.version == self.version:
                    self.sent.add(replayed)
                else:
                    others += 1
                    if len(names) < EXAMPLES and replayed.version not in names:
                        names.append(replayed.version)
        if names and not self.result.refusals:
            known = plural(others, "message")
            text = f"stream {target.name} has {known} of {self.settings.stream} under"
            versions = ", ".join(wire.shown(name[:12]) for name in sorted(names))
            self._refusal("versions", f"{text} another mapping version ({versions})", "versions")
        there = self.sent.close()
        if there and any(target.forgets()):
            # Messages are sent in order: what is before the last one was sent, and may be gone.
            return Coverage(((1, there[-1][1]),))
        return Coverage(there)

    # --- Sending --------------------------------------------------------------------------------

    async def _send(
        self,
        client: RawClient,
        target: Target,
        making: Making,
        there: Coverage,
        before: Counter[str] | None,
    ) -> None:
        settings, result = self.settings, self.result
        fault = lru_cache(_SUBJECTS)(target.fault)
        chain = Chain(
            client, target, version=self.version, stream=self.stream,
            window=settings.window, rate=settings.rate,
        )  # fmt: skip
        already = written = 0
        sent: Counter[bytes] = Counter()
        try:
            async with chain, aclosing(self._messages(making)) as archived:
                async for message in archived:
                    if message.seq in there:
                        already += 1
                    elif fault(decode(message.subject)) is None:
                        await chain.send(message)
                        if message.subject in sent or len(sent) < _SUBJECTS:
                            sent[message.subject] += 1
                        written += 1
                        if written == _FIRST:
                            await chain.settle()
                            with contextlib.suppress(ApiError):  # away; it is looked at again
                                await self._look_at_subjects(client, target, before, sent)
                    advance()
            await self._look_at_subjects(client, target, before, sent)
        finally:
            self.held += chain.sent + chain.already
            result.already = max(already + chain.already - result.sent, 0)
            result.sent += chain.sent
            result.breaks += chain.breaks

    async def _messages(self, making: Making) -> AsyncGenerator[Outgoing]:
        """The messages by sequence. Another thread reads the files while messages are sent."""
        batches = self.archive.in_order()
        reading = asyncio.create_task(asyncio.to_thread(next, batches, None))
        try:
            while (rows := await reading) is not None:
                reading = asyncio.create_task(asyncio.to_thread(next, batches, None))
                for at in range(0, len(rows), _AT_ONCE):
                    for message in messages(making, rows.slice(at, _AT_ONCE)):
                        yield message
        finally:
            with contextlib.suppress(Exception):
                await reading

    # --- After ----------------------------------------------------------------------------------

    async def _counts(self, client: RawClient) -> Counter[str] | None:
        try:
            return await counts_by_subject(client, self.settings.to)
        except ApiError:
            return None  # `stream_state` says what is wrong

    async def _look_at_subjects(
        self,
        client: RawClient,
        target: Target,
        before: Counter[str] | None,
        sent: Counter[bytes],
    ) -> None:
        """Looks whether messages are stored under the subjects that they were sent under.

        Mappings of the account change what is sent, and no answer of the server tells so. Nothing
        is looked at where the target has very many subjects, or removes messages.

        Raises:
            JobError: some are stored under other subjects.
        """
        if any(target.forgets()) or target.state.config.get("subject_transform"):
            return  # the operator allowed what changes the counts
        server = self.settings.server
        if before is None or (now := await self._counts(client)) is None:
            return
        state = await stream_state(client, target.name)
        if self.settings.allow & {"rollup", "ttl"} or self._removed(target, state):
            return
        for subject, count in sent.items():
            name = decode(subject)
            if name.isprintable() and now[name] - before[name] < count:
                raise JobError(
                    "replay-remapped",
                    stream=target.name,
                    where=server.where,
                    subject=wire.shown(subject),
                    from_sequence=target.state.last + 1,
                )

    @staticmethod
    def _removed(target: Target, state: StreamState) -> int:
        """How many messages the target removed since it was looked at first."""
        stored = state.last - target.state.last
        return max(target.state.messages + stored - state.messages, 0)


_AT_ONCE = 2000  # messages that are made before they are sent
_FIRST = 500  # messages after which it is looked at how they are stored
_SUBJECTS = 100_000  # whose fates, or counts, are remembered
_LACKING = {
    "quarantined": "in quarantine: transform with a mapping that passes the checks",
    "untransformed": "not transformed: run `nats-transform transform`, or choose other days",
}
_KEPT_OUT = ("subject", "headers", "size", "schedule", "captured")


@dataclass
class _Examples:
    """How many messages, and texts about those with the lowest sequences."""

    messages: int = 0
    texts: list[tuple[int, str]] = field(default_factory=list)

    def add(self, messages: int, text: str, seq: int = 0) -> None:
        self.messages += messages
        if (seq, text) not in self.texts:
            self.texts = sorted([*self.texts, (seq, text)])[:EXAMPLES]

    def __str__(self) -> str:
        return "; ".join(text for _, text in self.texts)
