"""The files of a plan: those that a step needs, those that undo it, and a page with all steps."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nats_transform.accounts.sharing import PRIVATE
from nats_transform.config.accounts import GLOBAL_ACCOUNT
from nats_transform.config.block import configured, mappings_block, quoted_string
from nats_transform.config.edit import Edit, edited
from nats_transform.errors import NatsTransformError, printable
from nats_transform.mappings.unseen import Unseen
from nats_transform.plan.model import Change, Plan, Step
from nats_transform.plan.state import has_to_drain, is_split
from nats_transform.untrusted import markdown_code, markdown_text, one_line
from nats_transform.words import plural

PLAN = "plan.json"
CERTIFICATE = "certificate.json"
PAGE = "README.md"

Configs = Mapping[str, Mapping[str, Any]]


class Unnameable(NatsTransformError):
    """A file or a command of a step cannot name what the step changes."""


CONFIGURED = ("permissions", "mappings", "exports", "imports")
"""The kinds of changes that stand in the configuration of servers."""


def files(
    plan: Plan,
    configs: Configs,
    more: Mapping[str, str] | None = None,
    unseen: Iterable[Unseen] = (),
) -> dict[str, str]:
    """The text of each file by its path in the folder of the plan.

    Args:
        plan: the plan.
        configs: the configuration of each stream, and of each consumer under `STREAM/NAME`, as the
            server shows it.
        more: other files, such as those of `whole_configs`.
        unseen: what the plan knows nothing about.

    Raises:
        Unnameable: a command cannot name a stream or consumer, or a block the source of a mapping;
            or two changes would have the same file.
    """
    texts = {PAGE: page(plan, unseen), **(more or {})}
    for step in plan.steps:
        for change in step.changes:
            for undo in (False, True):
                name = path(step, change, undo)
                if name in texts:
                    raise Unnameable(
                        "unnameable-same-file",
                        kind=change.kind,
                        name=printable(change.name),
                        file=name,
                    )
                texts[name] = _content(change, undo, configs)
    digests = {name: digest(text) for name, text in texts.items()}
    signed = plan.model_copy(update={"files": {PLAN: _own_digest(plan), **digests}})
    return {PLAN: signed.model_dump_json(indent=2) + "\n", **texts}


def whole_configs(plan: Plan, text: str, file: str) -> dict[str, str]:
    """The whole configuration of the servers, before and after each step that changes it.

    Args:
        plan: the plan; its `config` names the files.
        text: the configuration before the first step.
        file: the path of that configuration.

    Raises:
        Unsafe: a step cannot be made in the text without a change of anything else.
        Unnameable: a block cannot name the source of a mapping.
    """
    texts = {}
    for step in plan.steps:
        edits = [
            Edit(change.kind, change.name, _block(change.kind, change.after))
            for change in step.changes
            if change.kind in CONFIGURED
        ]
        if edits:
            new = edited(text, file, plan.users_account or plan.account, edits)
            texts[f"{_folder(step)}/{plan.config}"] = new
            texts[f"{_folder(step)}/undo/{plan.config}"] = text
            text = new
    return texts


def digest(text: str) -> str:
    """The SHA-256 of the bytes of a file."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _own_digest(plan: Plan) -> str:
    return digest(plan.model_copy(update={"files": {}}).model_dump_json())


def edited_file(plan: Plan, texts: Mapping[str, str]) -> str | None:
    """The name of a file of a folder that was changed after it was written; None if there is none.

    Args:
        plan: the content of `plan.json` of the folder.
        texts: the other files of the folder, as they are now.
    """
    if plan.files.get(PLAN) != _own_digest(plan):
        return PLAN
    changed = (
        name
        for name, known in plan.files.items()
        if name != PLAN and (name not in texts or digest(texts[name]) != known)
    )
    return next(changed, None)


def path(step: Step, change: Change, undo: bool) -> str:
    """The path of the file of a change in the folder, such as `02-consumer/ORDERS.eu.json`."""
    ending = "json" if change.kind in ("stream", "consumer") else "conf"
    name = "".join(c if c.isalnum() or c in "-_" else "." for c in change.name).strip(".")
    whole = change.name.replace("/", ".") if change.kind == "consumer" else change.name
    # Two names can look alike then.
    is_global = change.name == GLOBAL_ACCOUNT and change.kind not in ("stream", "permissions")
    if name != whole and not is_global:
        name += "-" + hashlib.sha256(change.name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{_folder(step)}/{'undo/' if undo else ''}{change.kind}-{name}.{ending}"


def _folder(step: Step) -> str:
    return f"{step.number:02}-{step.phase}"


def _content(change: Change, undo: bool, configs: Configs) -> str:
    fields = change.before if undo else change.after
    if change.kind in ("stream", "consumer"):
        config = dict(configs[change.name])
        if change.kind == "consumer":
            config.pop("filter_subject", None)
        config |= fields
        known = {name: value for name, value in config.items() if value is not None}
        return json.dumps(known, indent=2, sort_keys=True) + "\n"
    of = {"permissions": f"# Of the user {quoted_string(change.name)}.\n", "mappings": ""}
    return of.get(change.kind, f"# Of the account {quoted_string(change.name)}.\n") + _block(
        change.kind, fields
    )


def _block(kind: str, fields: Mapping[str, Any]) -> str:
    """The text of a block of a server's configuration."""
    if kind == "mappings":
        # Such a key has no quotes that could stand around it, as it has no escapes.
        if odd := next((source for source in fields if {"'", '"'} <= set(source)), None):
            raise Unnameable("unnameable-quotes", source=printable(odd))
        return mappings_block(fields)
    if kind == "permissions":
        return f"permissions {configured(fields)}\n"
    entries = "".join(f"  {configured(entry)}\n" for entry in fields[kind])
    return f"{kind}: [\n{entries}]\n"


def commands(step: Step, plan: Plan, undo: bool = False) -> Iterator[str]:
    """The commands of a step, to be run in the folder of the plan.

    A comment stands where something has to be done for which there is no command.
    """
    by_jwt: list[str] = []
    if by_hand := step.undo_by_hand if undo else step.by_hand:
        yield f"# {by_hand}"
    for change in step.changes:
        if change.kind in ("stream", "consumer") and "/-" in f"/{change.name}":
            raise Unnameable("unnameable-dash", kind=change.kind, name=printable(change.name))
        file = shlex.quote(path(step, change, undo))
        fields = (change.after, change.before) if undo else (change.before, change.after)
        if change.kind == "stream":
            yield f"nats stream edit {shlex.quote(change.name)} --config {file} --force"
        elif change.kind == "consumer":
            stream, _, name = change.name.partition("/")
            names = f"{shlex.quote(stream)} {shlex.quote(name)}"
            yield f"nats consumer edit {names} --config {file} --force"
        elif plan.config is None:
            whose = {
                "permissions": "this user's permissions",
                "mappings": "the mappings of every server",
            }.get(change.kind, f"this account's {change.kind}")
            yield f"# replace {whose} with the block in {file}"
        if change.kind == "mappings":
            by_jwt += _nsc(plan.account, *fields)
        elif change.kind in ("exports", "imports"):
            by_jwt += _nsc_shares(change.name, change.kind, *(side[change.kind] for side in fields))
    if any(change.kind in CONFIGURED for change in step.changes):
        if plan.config is not None:
            file = shlex.quote(f"{_folder(step)}/{'undo/' if undo else ''}{plan.config}")
            yield f"# replace {plan.config} on every server with {file}, then"
        yield "nats-server --signal reload"
    if by_jwt and plan.config is None:
        yield from ("# or, where accounts are JWTs:", *by_jwt)


def _nsc(account: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """The commands that lead from one set of mappings to another.

    `nsc` refuses weights that add up to more than 100, so weights that get smaller come first. It
    takes a weight of 0 for 100 (nsc issue 775), so a destination with the weight 0 is deleted.
    """
    here = f"--account {shlex.quote(account)}"
    steps = []
    for source in dict.fromkeys([*before, *after]):
        old = {d["destination"]: d for d in before.get(source, ())}
        new = {d["destination"]: d for d in after.get(source, ()) if d["weight"]}
        names = f"{here} --from {shlex.quote(source)} --to "
        for destination in dict.fromkeys([*old, *new]):
            share, was = new.get(destination), old.get(destination)
            if share == was:
                continue
            to = names + shlex.quote(destination)
            if share is None:
                steps.append((-100, f"nsc delete mapping {to}"))
                continue
            cluster = f" --cluster {shlex.quote(share['cluster'])}" if "cluster" in share else ""
            change = share["weight"] - (was["weight"] if was else 0)
            steps.append((change, f"nsc add mapping {to} --weight {share['weight']}{cluster}"))
    yield from (command for _, command in sorted(steps, key=lambda pair: pair[0]))
    if steps:
        yield f"nsc push {here}"


def _nsc_shares(account: str, side: str, before: Any, after: Any) -> Iterator[str]:
    """The commands that lead from one set of exports or imports of an account to another."""
    here = f"--account {shlex.quote(account)}"
    for entry in after:
        if entry not in before:
            yield f"nsc add {side[:-1]} {here} {_nsc_entry(entry)}"
    for entry in before:
        if entry not in after:
            subject = _share(entry)[1]
            yield f"nsc delete {side[:-1]} {here} --subject {shlex.quote(subject)}"
    yield f"nsc push {here}"


def _nsc_entry(entry: Mapping[str, Any]) -> str:
    kind, subject, account = _share(entry)
    service = " --service" if kind == "service" else ""
    if not account:
        name = f" --name {shlex.quote(subject)}"
        private = " --private" if entry.get(PRIVATE) else ""
        return f"--subject {shlex.quote(subject)}{name}{service}{private}"
    local = f" --local-subject {shlex.quote(entry['to'])}" if "to" in entry else ""
    of = f"--src-account {shlex.quote(account)} --remote-subject {shlex.quote(subject)}"
    return f"{of}{local}{service}"


def _share(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    """The kind, the subject and the exporting account ("" of an export) of an entry."""
    kind = "stream" if "stream" in entry else "service"
    value = entry[kind]
    if isinstance(value, str):
        return kind, value, ""
    return kind, value["subject"], value["account"]


def page(plan: Plan, unseen: Iterable[Unseen] = ()) -> str:
    """The plan for people, in Markdown."""
    lines = [
        "# From the mappings in force to the candidate",
        "",
        f"Account {markdown_code(plan.account)}, from version `{plan.current[:12]}` to "
        f"`{plan.candidate[:12]}`.",
        "Run the commands in this folder. Finish and verify each step before you begin the next",
        "one. To go back, undo the steps in the opposite order.",
        "",
        "The plan can't cover what has no configuration on the servers: subscribers without",
        "JetStream and ordered consumers must take both names before the first messages move.",
        "",
    ]
    if looked := [str(one) for one in unseen]:
        lines += [f"Nobody looked at {markdown_text('; '.join(looked))}.", ""]
    if plan.certificate is not None:
        lines += [f"{markdown_text(plan.certificate.words)}: `{CERTIFICATE}`.", ""]
    if plan.blocks_because:
        lines += [
            "Steps have the blocks of a server's configuration that change, not the whole file:",
            f"{markdown_text(plan.blocks_because)}.",
            "",
        ]
    if plan.accepted:
        lines += ["These findings were accepted:", ""]
        lines += [
            f"- {markdown_code(entry.code)}"
            f"{f' of {markdown_text(entry.about)}' if entry.about else ''}: "
            f"{markdown_text(entry.reason)}"
            for entry in plan.accepted
        ]
        lines.append("")
    if plan.at_once:
        lines += [
            "Weights can't split these sources, so all of each moves with the first stage:",
            "",
        ]
        lines += [
            f"- {markdown_code(source)}: {markdown_text(why)}"
            for source, why in plan.at_once.items()
        ]
        lines.append("")
    for step in plan.steps:
        lines += [f"## {step.number}. {markdown_text(step.title)}", "", f"Why: {step.why}.", ""]
        if step.programs:
            lines += [f"Before you take or undo this step, {step.programs}.", ""]
        lines.append("```sh")
        lines += [*map(one_line, commands(step, plan)), "```", ""]
        lines += ["Verify:", "", "```sh", verify_command(step), "```", ""]
        lines += _audit(step, plan)
        if step.wait:
            lines += [f"Then wait until {step.wait}.", ""]
        if has_to_drain(plan, step.number, undo=True):
            lines += ["Before you undo it, wait until this has exit code 0:", "", "```sh"]
            lines += [f"{verify_command(step)} --undo", "```", ""]
        lines += ["Undo:", "", "```sh", *map(one_line, commands(step, plan, undo=True)), "```", ""]
    return "\n".join(lines)


def _audit(step: Step, plan: Plan) -> Iterator[str]:
    """How long a stage must run, and the audit that judges it."""
    if not (audit := audit_commands(step, plan)):
        return
    for need in step.needs:
        source = markdown_code(need.source)
        if need.messages is None:
            yield f"- {source}: no number of messages can confirm this share."
            continue
        hours = "no traffic was seen" if need.hours is None else f"about {need.hours:,.1f} hours"
        messages = plural(need.messages, "message")
        yield f"- {source} needs about {messages} ({hours} at this traffic)."
    if step.needs:
        yield ""
    yield from (
        "Audit the messages since the servers took the mappings, at a MOMENT such as",
        "2026-11-30T12:00Z. The verdict must be `within`:",
        "",
        "```sh",
        *audit,
        "```",
        "",
    )


def audit_commands(step: Step, plan: Plan) -> tuple[str, ...]:
    """The commands that judge a stage; none if nothing is split in it, as in most last ones."""
    if not is_split(step.changes):
        return ()
    mapping = next(path(step, change, False) for change in step.changes)
    stream = shlex.quote(plan.audited or "STREAM")
    given = "".join(f" --{name} {value:g}" for name, value in plan.criteria.items())
    return (
        f"nats-transform ingest --stream {stream}",
        f"nats-transform audit --observed --stream {stream} --mapping {mapping} --since MOMENT"
        f"{given}",
    )


def verify_command(step: Step) -> str:
    """The command that says whether a step is in force."""
    return f"nats-transform verify --plan . --step {step.number}"
