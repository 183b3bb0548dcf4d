"""The plan job: it writes the steps from the mappings in force to a candidate into a folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jobs.dry_run.portable import PortableCensus, messages_by_source
from jobs.dry_run.question import given_census, looked_at, read_question
from jobs.errors import JobError, text_of
from jobs.jetstream.shown import with_files
from jobs.scratch import temporary_folder
from jobs.session import Spark
from jobs.settings.dry_run import PlanSettings
from nats_transform.config import mapping_version, plain
from nats_transform.config.edit import Unsafe, name_of_one, secrets
from nats_transform.config.files import Files
from nats_transform.config.jwt import find_token
from nats_transform.config.load import load_all
from nats_transform.config.verbatim import NO_CONFIG
from nats_transform.config.yaml_text import parse_yaml
from nats_transform.errors import InvalidConfig, printable
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.unseen import Unseen
from nats_transform.migration import Question
from nats_transform.plan.build import Needs, NoPlan, build
from nats_transform.plan.changes import entries
from nats_transform.plan.files import CERTIFICATE, CONFIGURED, PLAN, files, whole_configs
from nats_transform.plan.model import Accepted, Blocked, Certified, Need, Plan
from nats_transform.plan.stages import Stage
from nats_transform.words import plural

_ACCEPTED = TypeAdapter(tuple[Accepted, ...])


class PlanError(JobError):
    """The folder of a plan cannot be written, read or used."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan and its folder, or the reasons why there is none.

    Attributes:
        folder: the folder of the plan; null if nothing is written.
        plan: the plan; null if there is no safe one.
        blocked: the findings that prevent a plan.
        streams, consumers: how many of each were looked at.
        streams_from: the server, folder or file that showed them; null if none was asked.
        not_looked_at: what the plan knows nothing about.
    """

    folder: Path | None = None
    plan: Plan | None = None
    blocked: tuple[Blocked, ...] = ()
    streams: int = 0
    consumers: int = 0
    streams_from: str | None = None
    not_looked_at: tuple[Unseen, ...] = ()

    def fails(self, level: str) -> bool:
        """Whether there is no plan; `refused` is the only level."""
        return self.plan is None


def plan(spark: Spark, settings: PlanSettings) -> PlanResult:
    """Plan the change, and write the folder.

    Nothing is written if there is no safe plan, or nothing to do.

    Raises:
        InvalidConfig: a file that cannot be read or is refused, with its line and column.
        AcceptsNothing: an accepted finding that is not there.
        PlanError: the folder is not empty, or cannot be written.
        ArchiveError: the stream has no messages on these days; or the server shows no streams.
    """
    refuse_full(settings.out)
    with with_files(settings, settings.account) as given:
        question = read_question(given)
        return _plan(spark, given, question, given_census(given, question))


def _plan(
    spark: Spark, settings: PlanSettings, question: Question, census: PortableCensus | None
) -> PlanResult:
    accepted = read_accepted(settings.accept) if settings.accept else ()
    certified = None
    if settings.certificate is not None:
        certified = read_certificate(settings.certificate, question.candidate)
    if census is None:
        from jobs.census_export import census_of_warehouse
        from jobs.dry_run.subjects import archived_days, with_named

        census = census_of_warehouse(spark, settings)
        question = with_named(question, settings, *archived_days(settings))
    elif settings.census is not None:
        known = [stream.name for stream in question.streams]
        if not settings.stream and known and census.about.stream not in known:
            raise PlanError(
                "census-of-unknown-stream",
                census=settings.census,
                stream=census.about.stream,
                known=", ".join(known),
            )
    question = replace(question, archived=census.archived)
    counted = (census.about.stream,) if census.live is None else census.live.counted
    if certified is not None and certified[1].stream not in counted:
        raise PlanError(
            "certificate-of-other-stream",
            certificate=settings.certificate,
            stream=printable(certified[1].stream),
            counted=printable(counted[0]),
        )
    shown = looked_at(settings, question, census.clusters, knows_headers=census.knows_headers)
    try:
        draft = build(
            question,
            census.dry_run,
            account=settings.account,
            percents=settings.stages,
            accepted=accepted,
            made_from=dict(_digests(settings)),
            needs=_needs(census, question, settings),
            clusters=_clusters(census, settings),
        )
    except NoPlan as error:
        return PlanResult(blocked=error.blocked, **shown)
    if not draft.steps:
        return PlanResult(plan=draft, **shown)
    usual = PlanSettings.model_fields
    criteria = {
        name: value
        for name in ("tolerance", "confidence")
        if (value := getattr(settings, name)) != usual[name].default
    }
    more = {"users_account": settings.permissions_account, "criteria": criteria}
    draft = draft.model_copy(update=more)
    draft, whole = _with_config(draft, settings)
    if certified is not None:
        text, verdict = certified
        draft = draft.model_copy(update={"certificate": verdict})
        whole |= {CERTIFICATE: text}
    from jobs.pages.plan import PAGE, render

    unseen = shown["not_looked_at"]
    texts = files(draft, dict(configs(settings)), whole | {PAGE: render(draft, unseen)}, unseen)
    write_folder(settings.out, texts)
    plan = Plan.model_validate_json(texts[PLAN])
    return PlanResult(settings.out, plan, **shown)


def _with_config(plan: Plan, settings: PlanSettings) -> tuple[Plan, dict[str, str]]:
    """The plan, with the whole configuration of each step where that is safe."""
    file = settings.permissions or settings.mapping
    kinds = {change.kind for step in plan.steps for change in step.changes}
    if file is None or file.suffix in NO_CONFIG or kinds.isdisjoint(CONFIGURED):
        return plan, {}
    text = Files().text(str(file))
    if find_token(text) is not None:
        return plan, {}
    named = plan.model_copy(update={"config": file.name})
    try:
        if lines := sorted(set(secrets(text, str(file)))):
            raise Unsafe("plan-secret", at_line=lines[0], file=file.name)
        if line := name_of_one(text, str(file)):
            raise Unsafe("plan-one-server", at_line=line, file=file.name)
        _refuse_other(file, named)
        return named, whole_configs(named, text, str(file))
    except (Unsafe, InvalidConfig) as error:
        return plan.model_copy(update={"blocks_because": str(error)}), {}


def _refuse_other(file: Path, plan: Plan) -> None:
    """Refuses a file that says something else than what is in force, where a step changes it.

    The mappings, and what an account shares, can come from another file than the users. The file
    that undoes a step would then take them away.

    Raises:
        Unsafe: it does.
    """
    found = {name: one for one in load_all(file) for name in one.accounts}
    first = {(c.kind, c.name): c.before for step in reversed(plan.steps) for c in step.changes}
    for (kind, name), before in first.items():
        if kind not in ("mappings", "exports", "imports") or name not in found:
            continue  # a file without the account is refused where it would change
        config, shares = found[name].config, found[name].shares
        if kind == "mappings":
            is_in_force = (
                isinstance(config, AccountMappings) and mapping_version(config) == plan.current
            )
        else:
            is_in_force = entries(kind, shares) == before
        if not is_in_force:
            raise Unsafe("plan-not-in-force", file=file.name, kind=kind, account=printable(name))


def read_accepted(path: Path) -> tuple[Accepted, ...]:
    """The findings that may stay: a list of `code`, perhaps `about`, and `reason`.

    Raises:
        InvalidConfig: it is no such list.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig("accept-unreadable", str(path), reason=text_of(error)) from error
    try:
        entries = _ACCEPTED.validate_python(plain(parse_yaml(text, str(path))))
    except ValidationError as error:
        raise InvalidConfig("accept-invalid", str(path), reason=text_of(error)) from error
    for entry in entries:
        if not entry.reason.strip():
            raise InvalidConfig("accept-without-reason", str(path), finding=entry.code)
    return entries


def read_certificate(file: Path, candidate: AccountMappings) -> tuple[str, Certified]:
    """The text of a certificate that the candidate holds, and what it says.

    Raises:
        PlanError: it is none, or of other mappings, or the server did not do as predicted.
    """
    try:
        text = file.read_bytes().decode()
        certified = Certified.model_validate_json(text)
    except (OSError, ValueError) as error:
        raise PlanError("not-a-certificate", file=file, reason=text_of(error)) from error
    version = mapping_version(candidate)
    if certified.mapping_version != version:
        raise PlanError(
            "certificate-of-other-version",
            file=file,
            version=printable(certified.mapping_version[:12]),
            candidate=version[:12],
        )
    if certified.divergences or not certified.holds or certified.tried <= 0:
        why = "it tried nothing" if certified.tried <= 0 else "it says that it does not hold"
        if certified.divergences:
            ways = plural(len(certified.divergences), "way")
            why = f"nats-server and the prediction part in {ways}"
        raise PlanError("certificate-not-clean", file=file, why=why)
    return text, certified


def refuse_full(folder: Path) -> None:
    """Refuses a folder that is not empty, or that could not be written once the plan is made.

    Raises:
        PlanError: it is not empty, no folder, or may not be made.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            raise PlanError("plan-folder-not-empty", folder=folder)
        if folder.exists() and folder.samefile("."):  # which shells would lose
            raise PlanError("plan-folder-current", folder=folder)
        above = next(parent for parent in folder.absolute().parents if parent.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise PlanError("plan-folder-unwritable-above", folder=folder, above=above)
    except OSError as error:
        raise PlanError("plan-folder-unusable", folder=folder, reason=text_of(error)) from error


def write_folder(folder: Path, texts: dict[str, str]) -> None:
    """Writes files into a new folder, which is there with all of them or not at all.

    Raises:
        PlanError: it cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(folder.parent) as part:
            for name, text in texts.items():
                file = part / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text.encode("utf-8", "surrogateescape"))
            os.replace(part, folder)  # over an empty folder too
    except OSError as error:
        raise PlanError("plan-folder-unwritable", folder=folder, reason=text_of(error)) from error


def configs(settings: PlanSettings) -> Iterator[tuple[str, dict[str, Any]]]:
    """The configuration that the server showed of each stream and consumer."""
    for place in (settings.streams, settings.consumers):
        for file in _files(place):
            document = json.loads(file.read_bytes())
            config = document.get("config", document)
            if place == settings.consumers:
                name = document.get("name") or config.get("durable_name") or config["name"]
                yield f"{document['stream_name']}/{name}", config
            else:
                yield config["name"], config


def _files(place: Path | None) -> Sequence[Path]:
    if place is None:
        return ()
    return sorted(place.glob("*.json")) if place.is_dir() else (place,)


def _digests(settings: PlanSettings) -> Iterator[tuple[str, str]]:
    """The SHA-256 of each input file, by its purpose, so that paths make no difference."""
    roles = "mapping candidate streams consumers permissions census accept certificate"
    for role in roles.split():
        place: Path | None = getattr(settings, role)
        for file in _files(place):
            name = f"{role}/{file.name}" if place is not None and place.is_dir() else role
            yield name, hashlib.sha256(file.read_bytes()).hexdigest()


def _clusters(census: PortableCensus, settings: PlanSettings) -> tuple[str, ...]:
    if not settings.per_cluster:
        return ()
    names = settings.clusters or census.clusters
    if not names:
        raise PlanError("archive-names-no-cluster")
    return names


def _needs(census: PortableCensus, question: Question, settings: PlanSettings) -> Needs:
    """How long stages must run at the traffic of the census."""
    try:
        import numpy as np

        from nats_transform.audit import Criteria
        from nats_transform.audit.planning import WEEK, Audit, Ends
    except ModuleNotFoundError:  # the base installation has no SciPy
        return lambda stage: ()
    sources = question.current.mappings, question.candidate.mappings
    known = AccountMappings(list({m.source: m for side in sources for m in side}.values()))
    counts = messages_by_source(census, known)

    audit = Audit(Criteria(settings.tolerance, settings.confidence))

    def of_stage(stage: Stage) -> tuple[Need, ...]:
        if stage.percent == 100:
            return ()
        share = stage.percent / 100
        traffic = {
            source: {
                cluster: count / census.hours
                for (name, cluster), count in counts.items()
                if name == source and stage.cluster in (None, cluster)
            }
            for source in stage.split
        }
        ends = [Ends([2] * max(1, len(clusters)), 2) for clusters in traffic.values()]
        needs = []
        for source, clusters in traffic.items():
            # The audit judges each cluster, so the one with the least traffic takes longest.
            slowest = min(clusters.values(), default=0.0)
            needed, _ = audit.messages([share, 1 - share], ends, np.full(WEEK, slowest))
            hours = None
            if needed is not None and slowest:
                hours = round(needed / slowest, 1)
                needed = ceil(needed * sum(clusters.values()) / slowest)
            needs.append(Need(source=source, messages=needed, hours=hours))
        return tuple(needs)

    return of_stage
