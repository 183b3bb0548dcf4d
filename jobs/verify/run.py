"""The verify job: whether a step of a plan is in force, by looking at the servers."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import nats.errors
from pydantic import BaseModel, ValidationError

from jobs.errors import ArchiveError, text_of
from jobs.jetstream.answers import (
    CONSUMER_NOT_FOUND,
    MESSAGE_NOT_FOUND,
    STREAM_NOT_FOUND,
    AccountDetail,
    Accountz,
    ApiError,
    ConsumerInfo,
    Gatewayz,
    Mapped,
    Message,
    Routez,
    Source,
    Statsz,
    StreamInfo,
    Varz,
    parse_answer,
)
from jobs.jetstream.connection import RawClient, api, connection
from jobs.plan import PlanError
from jobs.settings.connection import NatsSettings
from jobs.settings.verify import VerifySettings
from jobs.verify.probe import probe
from jobs.verify.settled import unsettled
from nats_transform.accounts.sharing import NO_SHARES
from nats_transform.config import load_all, parse_server_config
from nats_transform.config.permissions import users_of
from nats_transform.mappings.subject import subscribes
from nats_transform.plan.changes import entries, permissions_of
from nats_transform.plan.files import PLAN, edited_file, path
from nats_transform.plan.model import FORMAT, Change, Plan
from nats_transform.plan.state import (
    Fields,
    Thing,
    View,
    cumulative,
    differences,
    drained,
    has_to_drain,
    other_fields,
)
from nats_transform.streams.consumer import filters_of

_M = TypeVar("_M", bound=BaseModel)
_NO_ACCOUNT = 400  # what /accountz answers then
_STATSZ = "$SYS.REQ.SERVER.PING.STATSZ"
_ACCOUNTZ = "$SYS.REQ.SERVER.PING.ACCOUNTZ"
_MOST_SERVERS = 10_000  # whatever a server says
_MOST_PAGE, _PAGE_SECONDS = 64 * 2**20, 60  # of a monitoring page
_SYSTEM_SECONDS = 2.0  # until somebody would have answered a user of the system account


class VerifyResult(BaseModel):
    """The result of a look at the servers.

    Attributes:
        step: the step.
        differences: one line for each thing that differs from its state after the step.
        waits: one line for each consumer that still has to read messages before they are taken
            from it, and for each schedule and counter that is not settled.
        seen, unseen: the things that could be seen and those that could not, such as
            `stream ORDERS`.
    """

    step: int
    differences: tuple[str, ...]
    waits: tuple[str, ...]
    seen: tuple[str, ...]
    unseen: tuple[str, ...]

    def fails(self, level: str) -> bool:
        """Whether the step is not in force and done; `missing` is the only level."""
        return bool(self.differences or self.waits)


def verify(settings: VerifySettings) -> VerifyResult:
    """Check that a step and all before it are in force, and none after it. This changes nothing.

    Raises:
        PlanError: the folder is no plan, was edited, or has no such step; or what the step changes
            cannot be seen.
        ArchiveError: a server cannot be reached.
        InvalidConfig: a configuration cannot be read.
    """
    plan, texts = read_plan(settings.plan)
    if not 0 <= settings.step <= len(plan.steps):
        raise PlanError("no-such-step", step=settings.step, last=len(plan.steps))
    changes = _in_order(plan)
    views: list[View] = []
    probed: list[View] = []
    deviations: list[str] = []
    waits: list[str] = []
    settled = not any(planned.settles for planned in plan.steps[: settings.step])
    # Whether what the next step takes away has been read: nobody has looked yet.
    drained = not has_to_drain(plan, settings.step, settings.undo)
    known: set[str] = set()  # the names of servers and clusters that should have the mappings too
    monitored: set[str] = set()  # clusters
    if settings.nats is not None:
        for url in settings.nats.urls:
            server = settings.nats.model_copy(update={"servers": url})
            shown, differing, others = asyncio.run(_look(server, plan, texts))
            views += shown
            deviations += differing
            known |= others
            if not deviations and any(kind in ("stream", "consumer") for kind, _ in views[-1].seen):
                waits += asyncio.run(_unread(server, plan, settings.step, settings.undo))
                drained = True
            if plan.steps[: settings.step] and not deviations and not settings.undo:
                try:
                    waits += unsettled(server, plan, settings.step)
                    settled = True
                except ApiError as error:
                    # Else it is the system account, which has no streams.
                    if error.err_code == STREAM_NOT_FOUND:
                        deviations.append(str(error))
            if settings.probe is not None:
                probed.append(asyncio.run(probe(server, plan, settings.step, settings.probe)))
    if ("mappings", plan.account) in changes:
        for url in settings.monitor:
            view, others, cluster = _monitored(url, plan.account)
            views.append(view)
            known |= others
            monitored.add(cluster)
    for file in settings.config:
        views.append(_configured(file, plan.users_account or plan.account, changes))
    beside: list[str] = []  # mappings that nothing but a probe could show, which is of one source
    if settings.probe is not None and not any(("mappings", plan.account) in v.seen for v in views):
        beside = _beside(plan, settings.probe)
    views += probed
    seen = dict.fromkeys(thing for view in views for thing in view.seen)
    unseen = [" ".join(thing) for thing in changes if thing not in seen]
    unseen += [
        f"mappings {plan.account} on {name}"
        for name in sorted(known - monitored - {view.where for view in views})
    ]
    unseen += [f"mappings {plan.account} of {source}" for source in beside]
    last = plan.steps[settings.step - 1] if settings.step else None
    lacking = [kind for kind, name in _in_order(plan, settings.step) if (kind, name) not in seen]
    if last is not None and last.settles and not settled and not settings.undo:
        lacking.append("stream")
    if not seen:  # a step that changes nothing shows in the others, if in anything
        lacking += [kind for kind, _ in changes]
    if lacking and not deviations:
        raise PlanError("step-unseen", step=settings.step, cures=_CURES[lacking[0]])
    if not settled:
        unseen.append("schedules and counters")
    if last is not None and last.phase == "hold":
        unseen.append("whether publishers are held")
    deviations += differences(plan, settings.step, views)
    if not drained and not deviations:
        raise PlanError(
            "reading-unseen", step=_next(settings.step, settings.undo), cures=_CURES["stream"]
        )
    return VerifyResult(
        step=settings.step,
        differences=tuple(dict.fromkeys(deviations)),
        waits=() if deviations else tuple(dict.fromkeys(waits)),
        seen=tuple(" ".join(thing) for thing in seen),
        unseen=tuple(unseen),
    )


def _configured(file: Path, account: str, wanted: Collection[Thing]) -> View:
    """What the configuration of a server has."""
    view = View(str(file), {})
    users: dict[str, dict[str, object]] = {}
    if any(kind == "permissions" for kind, _ in wanted):
        users = {
            user.name: permissions_of(user) for user in users_of(parse_server_config(file), account)
        }
    shares = {name: located.shares for located in load_all(file) for name in located.accounts}
    for kind, name in wanted:
        if kind == "permissions":
            view.seen[kind, name] = users.get(name, {})
        if kind in ("exports", "imports"):
            view.seen[kind, name] = entries(kind, shares.get(name, NO_SHARES))
    return view


def _beside(plan: Plan, subject: str) -> list[str]:
    """The sources of mappings that steps change, and under which a subject is not."""
    changing = {
        source
        for step in plan.steps
        for change in step.changes
        if change.kind == "mappings"
        for source in change.before.keys() | change.after.keys()
        if change.before.get(source) != change.after.get(source)
    }
    return sorted(source for source in changing if not subscribes(source, subject))


def _in_order(plan: Plan, step: int | None = None) -> list[Thing]:
    """What a step changes, or all steps."""
    steps = [planned for planned in plan.steps if step in (None, planned.number)]
    return list(dict.fromkeys((c.kind, c.name) for planned in steps for c in planned.changes))


_CURES = {
    "stream": "give --server URL",
    "consumer": "give --server URL",
    "permissions": "give --config FILE, the servers' configuration",
    "exports": "give --config FILE, the servers' configuration",
    "imports": "give --config FILE, the servers' configuration",
    "mappings": "connect as a user of the system account, give --monitor URL, or give a subject "
    "that a mapping moves with --probe SUBJECT",
}


def read_plan(folder: Path) -> tuple[Plan, dict[str, str]]:
    """The plan in a folder, with its files.

    Raises:
        PlanError: it is no plan, it is of another release, or it was edited.
    """
    try:
        plan = Plan.model_validate_json((folder / PLAN).read_bytes())
        texts = {
            name: (folder / name).read_bytes().decode("utf-8", "surrogateescape")
            for name in plan.files
            if (folder / name).resolve().is_relative_to(folder.resolve())
        }
        changed = edited_file(plan, texts)
    except OSError as error:
        raise PlanError("no-plan", file=error.filename, reason=error.strerror) from error
    except (ValidationError, ValueError) as error:
        raise PlanError("not-a-plan", plan=folder / PLAN, reason=text_of(error)) from error
    if plan.format != FORMAT:
        raise PlanError("plan-of-another-release", plan=folder / PLAN)
    if changed is not None:
        raise PlanError("plan-edited", file=folder / changed)
    return plan, texts


async def _look(
    settings: NatsSettings, plan: Plan, texts: Mapping[str, str]
) -> tuple[list[View], list[str], set[str]]:
    """What one server shows to this user, what of it deviates, and which servers show nothing."""
    async with connection(settings) as client:
        on_servers, others = await _accountz(client, settings, plan.account)
        view, deviations = View(settings.where, {}), list[str]()
        for step in plan.steps:
            for change in step.changes:
                if change.kind not in ("stream", "consumer"):
                    continue
                if (change.kind, change.name) in view.seen:
                    continue
                planned = json.loads(texts[path(step, change, False)])
                try:
                    seen, differing = await _config(client, settings, change, planned)
                except ApiError:
                    if not on_servers:  # the system account has no streams
                        raise
                else:
                    view.seen.update(seen)
                    deviations += differing
        return [*on_servers, view], deviations, others


async def _config(
    client: RawClient, settings: NatsSettings, change: Change, planned: Fields
) -> tuple[dict[Thing, Fields], list[str]]:
    """What a stream or consumer has, and what of it deviates."""
    name = change.name.replace("/", ".")
    try:
        model: type[StreamInfo | ConsumerInfo]
        model = StreamInfo if change.kind == "stream" else ConsumerInfo
        info = await api(client, model, f"{change.kind.upper()}.INFO.{name}")
    except ApiError as error:
        if error.err_code not in (STREAM_NOT_FOUND, CONSUMER_NOT_FOUND):
            raise
        stream = change.name.partition("/")[0]
        what = (
            f"stream {stream}" if error.err_code == STREAM_NOT_FOUND else f"consumer {change.name}"
        )
        where = f"there is no {what} on {settings.where}"
        return {}, [f"{where}: are the server and the account right for the plan?"]
    config = info.config.model_dump(exclude_unset=True)
    if change.kind == "stream":
        fields = {name: config.get(name) or None for name in change.after}
    else:
        fields = {"filter_subjects": filters_of(config)}
    return {(change.kind, change.name): fields}, [
        f"{change.kind} {change.name}: its {field} has changed since the plan was made, and "
        "the plan's files would change it back: make the plan again"
        for field in other_fields(change, planned, config)
    ]


async def _unread(settings: NatsSettings, plan: Plan, step: int, undo: bool) -> list[str]:
    """The consumers and sources that still have to read messages which they lose next."""
    unread = []
    when = _next(step, undo)
    async with connection(settings) as client:
        for change, gone in drained(plan, step, undo):
            if change.kind == "stream":
                shown = await api(client, StreamInfo, f"STREAM.INFO.{change.name}")
                for source in shown.sources or ():
                    if not any(_is_source(source, removed) for removed in gone):
                        continue
                    filters = [transform.src for transform in source.subject_transforms or ()]
                    filters = filters or [source.filter_subject or ">"]
                    last = await _last(client, source.name, filters)
                    # While a source stands still, its lag can be 0; how far it is stays.
                    if source.lag or (source.seq is not None and last > source.seq):
                        unread.append(
                            f"stream {change.name} has not taken all messages from {source.name} "
                            f"yet: wait before {when}"
                        )
            else:
                stream, _, name = change.name.partition("/")
                last = await _last(client, stream, gone)
                # After the messages: what is read meanwhile counts as read.
                info = await api(client, ConsumerInfo, f"CONSUMER.INFO.{stream}.{name}")
                behind = info.num_pending or info.num_ack_pending
                if behind and info.ack_floor.stream_seq < last:
                    unread.append(
                        f"consumer {change.name} has not read all messages under "
                        f"{', '.join(gone)} yet: wait before {when}"
                    )
    return unread


def _next(step: int, undo: bool) -> str:
    return f"step {step} is undone" if undo else f"step {step + 1} is taken"


async def _last(client: RawClient, stream: str, filters: Iterable[str]) -> int:
    """The sequence of the last message of a stream under any of some filters; 0: there is none."""
    last = 0
    for filter in filters:
        try:
            subject = f"STREAM.MSG.GET.{stream}"
            answer = await api(client, Message, subject, {"last_by_subj": filter})
            last = max(last, answer.message.seq)
        except ApiError as error:
            if error.err_code != MESSAGE_NOT_FOUND:
                raise
    return last


def _is_source(source: Source, configured: Fields) -> bool:
    """Whether a server shows how far it is with this source."""
    shown = source.model_dump(exclude_unset=True)
    return all(
        (shown.get(name) or None) == (configured.get(name) or None)
        for name in ("name", "filter_subject", "subject_transforms")
    )


async def _accountz(
    client: RawClient, settings: NatsSettings, account: str
) -> tuple[list[View], set[str]]:
    """The mappings of the account on each server, and the names of servers that don't show it.

    Only a system user is answered.
    """
    await client.flush()
    if not client.is_system:  # anybody else's requests any user of the account may answer
        return [], set()
    try:
        answer = await client.request(_STATSZ, b"", timeout=_SYSTEM_SECONDS)
    except nats.errors.Error:  # nobody responds, or may
        return [], set()
    servers = parse_answer(Statsz, settings.where, _STATSZ, answer.data).statsz.active_servers
    if servers > _MOST_SERVERS:
        raise ArchiveError("too-many-servers", where=settings.where, servers=servers)
    views, others = list[View](), set[str]()
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish(_ACCOUNTZ, json.dumps({"account": account}).encode(), reply=inbox)
    try:
        for number in range(servers):
            try:
                message = await subscription.next_msg(timeout=settings.connect_timeout)
            except nats.errors.Error as error:
                raise ArchiveError(
                    "servers-silent", silent=servers - number, servers=servers
                ) from error
            shown = parse_answer(Accountz, settings.where, _ACCOUNTZ, message.data)
            if shown.data and (detail := shown.data.account_detail):
                mappings = _mappings(detail)
                views.append(View(shown.server.name, {("mappings", account): mappings}))
            else:
                others.add(shown.server.name)
    finally:
        await subscription.unsubscribe()
    return views, others


def _monitored(url: str, account: str) -> tuple[View, set[str], str]:
    """What the monitoring port of a server shows of the account.

    With the names of the other servers of its cluster and of other clusters, and that of its own.
    """
    if not url.startswith(("http://", "https://")):
        raise PlanError("not-a-monitoring-url", url=url)
    try:
        name = _page(url, Varz, "varz").server_name
        routes = _page(url, Routez, "routez").routes or ()
        gateways = _page(url, Gatewayz, "gatewayz")
        detail = _page(url, AccountDetail, f"accountz?acc={quote(account)}").account_detail
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != _NO_ACCOUNT:
            raise PlanError("monitoring-silent", url=url, reason=text_of(error)) from error
        detail = None
    except (OSError, HTTPException, ValueError) as error:
        raise PlanError("monitoring-silent", url=url, reason=text_of(error)) from error
    if detail is None:
        raise PlanError("monitored-without-account", url=url, account=account)
    others = {f"cluster {name}" for name in gateways.outbound_gateways or ()}
    others |= {route.remote_name for route in routes}
    view = View(name, {("mappings", account): _mappings(detail)})
    return view, others, f"cluster {gateways.name}"


def _page(url: str, model: type[_M], name: str) -> _M:
    where = f"{url.rstrip('/')}/{name}"
    until, text = time.monotonic() + _PAGE_SECONDS, b""
    with urllib.request.urlopen(where, timeout=10) as answer:  # noqa: S310 - checked by the caller
        while part := answer.read1(65_536):
            text += part
            if len(text) > _MOST_PAGE or time.monotonic() > until:
                raise PlanError("monitoring-endless", where=where)
    return parse_answer(model, url, name, text)


def _mappings(detail: Mapped) -> dict[str, Any]:
    return cumulative(detail.model_dump(exclude_unset=True).get("mappings") or {})
