"""The verify job: whether a step of a plan is in force, by looking at the servers."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import nats.errors
from pydantic import BaseModel, ConfigDict, ValidationError

from jobs.errors import text_of
from jobs.jetstream.connection import ApiError, NatsSettings, RawClient, api, connection
from jobs.plan import PlanError
from nats_transform.config import load_all, parse_server_config
from nats_transform.migration import users_of
from nats_transform.plan.around import as_configured, permissions_of
from nats_transform.plan.files import PLAN, edited, path
from nats_transform.plan.model import FORMAT, Change, Plan
from nats_transform.plan.state import Fields, Thing, cumulative, differences, other_fields
from nats_transform.sharing import NO_SHARES

_NOT_FOUND = (10059, 10014)  # no such stream, no such consumer
_ACCOUNTZ = "$SYS.REQ.SERVER.PING.ACCOUNTZ"
_QUIET_SECONDS = 0.5  # after the answer of one server, until no other is expected


class VerifySettings(BaseModel):
    """Which step to look for, and where.

    Attributes:
        plan: the folder of the plan.
        step: the last step that should be in force; 0: none is.
        nats: how to reach a server; None: streams and consumers are not looked at.
        config: the server configuration with the permissions.
        monitor: the URL of a server's monitoring port, for the mappings.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    plan: Path
    step: int
    nats: NatsSettings | None = None
    config: Path | None = None
    monitor: str | None = None


class VerifyResult(BaseModel):
    """What was found.

    Attributes:
        step: the step.
        differences: one line for each thing that is not as it is after the step.
        seen, unseen: what was looked at, and what could not be, such as `stream ORDERS`.
    """

    step: int
    differences: tuple[str, ...]
    seen: tuple[str, ...]
    unseen: tuple[str, ...]

    def fails(self, level: str) -> bool:
        """Whether the step is not in force; `missing` is the only level."""
        return bool(self.differences)


def verify(settings: VerifySettings) -> VerifyResult:
    """Look whether a step and all before it are in force, and none after it. Changes nothing.

    Raises:
        PlanError: the folder is no plan, was edited, or has no such step; or what the step changes
            cannot be seen.
        ArchiveError: the server cannot be reached.
        InvalidConfig: the configuration cannot be read.
    """
    plan, texts = read_plan(settings.plan)
    if not 0 <= settings.step <= len(plan.steps):
        raise PlanError(f"the plan has no step {settings.step}: it has 0 to {len(plan.steps)}")
    changes = {(c.kind, c.name): (s, c) for s in plan.steps for c in s.changes}
    seen: dict[Thing, Fields] = {}
    found: list[str] = []
    if settings.nats is not None:
        asyncio.run(_look(settings.nats, plan, texts, seen, found))
    if settings.monitor is not None:
        name = ("mappings", plan.account)
        if name in changes:
            seen[name] = _monitored(settings.monitor, plan.account)
    if settings.config is not None:
        _configured(settings.config, plan.account, changes, seen)
    unseen = [thing for thing in changes if thing not in seen]
    own = [(c.kind, c.name) for s in plan.steps if s.number == settings.step for c in s.changes]
    for kind, _ in own:
        if kind in {one[0] for one in unseen} and not found:
            raise PlanError(f"step {settings.step} cannot be seen: {_CURES[kind]}")
    found += differences(plan, settings.step, seen)
    return VerifyResult(
        step=settings.step,
        differences=tuple(found),
        seen=tuple(" ".join(thing) for thing in seen),
        unseen=tuple(" ".join(thing) for thing in unseen),
    )


def _configured(
    config: Path, account: str, wanted: Collection[Thing], seen: dict[Thing, Fields]
) -> None:
    """Look at the configuration that the servers have."""
    if any(kind == "permissions" for kind, _ in wanted):
        users = {
            user.name: permissions_of(user)
            for user in users_of(parse_server_config(config), account)
        }
        seen.update(
            {thing: users.get(thing[1], {}) for thing in wanted if thing[0] == "permissions"}
        )
    shares = {name: one.shares for one in load_all(config) for name in one.accounts}
    for kind, name in wanted:
        if kind in ("exports", "imports"):
            entries = getattr(shares.get(name, NO_SHARES), kind)
            seen[kind, name] = {kind: [as_configured(one) for one in entries]}


_CURES = {
    "stream": "give --server URL",
    "consumer": "give --server URL",
    "permissions": "give --config FILE, the configuration that the servers have",
    "exports": "give --config FILE, the configuration that the servers have",
    "imports": "give --config FILE, the configuration that the servers have",
    "mappings": "connect as a user of the system account, or give --monitor URL; or publish a "
    "message of your own under a subject of the step some hundred times, and count what comes out",
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
        changed = edited(plan, texts)
    except OSError as error:
        raise PlanError(f"{error.filename}: {error.strerror}; name the folder of a plan") from error
    except (ValidationError, ValueError) as error:
        raise PlanError(f"{folder / PLAN}: not a plan: {text_of(error)}") from error
    if plan.format != FORMAT:
        raise PlanError(f"{folder / PLAN}: a plan of another release; make it again")
    if changed is not None:
        raise PlanError(f"{folder / changed} was edited after the plan was made; make it again")
    return plan, texts


async def _look(
    settings: NatsSettings,
    plan: Plan,
    texts: Mapping[str, str],
    seen: dict[Thing, Fields],
    found: list[str],
) -> None:
    async with connection(settings) as client:
        for server, mappings in await _accountz(client, plan.account):
            found += _other_server(seen.get(("mappings", plan.account)), mappings, server)
            seen.setdefault(("mappings", plan.account), mappings)
        asked: set[Thing] = set()
        for step in plan.steps:
            for change in step.changes:
                thing = (change.kind, change.name)
                if thing in asked or change.kind not in ("stream", "consumer"):
                    continue
                asked.add(thing)
                planned = json.loads(texts[path(step, change, False)])
                try:
                    await _config(client, settings, change, planned, seen, found)
                except ApiError:
                    if not seen:  # the system account has no streams
                        raise


def _other_server(known: Fields | None, mappings: Fields, server: str) -> Iterator[str]:
    if known is not None and known != mappings:
        yield f"server {server} has other mappings than the server that answered first: reload it"


async def _config(
    client: RawClient,
    settings: NatsSettings,
    change: Change,
    planned: Fields,
    seen: dict[Thing, Fields],
    found: list[str],
) -> None:
    """Look at a stream or consumer."""
    name = change.name.replace("/", ".")
    try:
        info = await api(client, settings, f"{change.kind.upper()}.INFO.{name}")
    except ApiError as error:
        if error.code not in _NOT_FOUND:
            raise
        found.append(
            f"there is no {change.kind} {change.name} on {settings.where}: is it the server, and "
            "the account, that the plan is for?"
        )
        return
    config = info["config"]
    if change.kind == "stream":
        seen["stream", change.name] = {name: config.get(name) or None for name in change.after}
    else:
        one = config.get("filter_subject")
        filters = [one] if one else config.get("filter_subjects") or []
        seen["consumer", change.name] = {"filter_subjects": filters}
    for field in other_fields(change, planned, config):
        found.append(
            f"{change.kind} {change.name}: its {field} has changed since the plan was made, and "
            "the files of the plan would change it back: make the plan again"
        )


async def _accountz(client: RawClient, account: str) -> list[tuple[str, Fields]]:
    """The mappings of the account on each server that answers; only a system user is answered."""
    answers: list[tuple[str, Fields]] = []
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        await client.publish(_ACCOUNTZ, json.dumps({"account": account}).encode(), reply=inbox)
        while True:
            message = await subscription.next_msg(timeout=_QUIET_SECONDS * (1 if answers else 4))
            if not message.data:  # nobody responds
                break
            document = json.loads(message.data)
            detail = (document.get("data") or {}).get("account_detail")
            if detail is not None:
                mappings = cumulative(detail.get("mappings") or {})
                answers.append((document["server"]["name"], mappings))
    except nats.errors.Error:  # no answer within the time
        pass
    finally:
        await subscription.unsubscribe()
    return answers


def _monitored(url: str, account: str) -> Fields:
    """The mappings of the account that the monitoring port of a server shows."""
    if not url.startswith(("http://", "https://")):
        raise PlanError(f"{url} is no URL of a monitoring port, such as http://localhost:8222")
    where = f"{url.rstrip('/')}/accountz?acc={quote(account)}"
    try:
        with urllib.request.urlopen(where, timeout=10) as answer:  # noqa: S310 - as checked above
            detail = json.load(answer).get("account_detail")
    except (OSError, ValueError) as error:
        raise PlanError(f"{url} does not answer: {text_of(error)}") from error
    if detail is None:
        raise PlanError(f"{url} has no account {account}: is it a server that the plan is for?")
    return cumulative(detail.get("mappings") or {})
