"""The demo: real messages through real nats-servers, then the whole asset graph, in this process.

One archive holds messages as they are published and is rehearsed; the other holds what three real
clusters made of a day, one of which had yesterday's weights for an hour, and is observed.

Everything it makes is in one folder: the dump, the warehouse, the reports, and the Dagster instance
that `make ui` opens.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

import dagster as dg

from jobs.audit.headline import outside_parts, worst_first
from jobs.audit.result import AuditResult
from jobs.errors import JobError, text_of
from jobs.files.scan import Scan, digested
from jobs.jetstream.process import nats_server
from jobs.progress import step
from jobs.settings.demo import DemoSettings
from jobs.warehouse import specs, tables
from nats_transform.config import load_mappings
from orchestration.archive import Archive
from orchestration.assets.checks import SPLIT
from orchestration.components import SubjectArchive
from orchestration.days import range_tags
from orchestration.definitions import defs
from orchestration.demo.clusters import Change, write_mapped
from orchestration.demo.publish import make_stream, publish, remove_stream
from orchestration.demo.traffic import messages, write_dump
from orchestration.failures import reason_of

# One writer an archive at a time, and no reports to anybody.
_DAGSTER_YAML = """\
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    default_limit: 1
    granularity: run
"""
SHOP = ("messages", "subject_census", "transformed_messages", "weight_audit")
SHOP_MAPPED = ("messages", "subject_census", "weight_audit")
STALE = f"shop_mapped/weight_audit/{SPLIT}"
"""The check that must fail: it finds the cluster that was stale."""
STALE_HOUR = 13
_YESTERDAY = "yesterday.conf"
MAPPED_SUBJECTS = ("orders.>", "west.>")
MAPPED = 36_000  # orders; with fewer, chance might leave a verdict undecided
_HOURS = 50
_MARKER = ".nats-transform-demo"  # a folder without it is not ours to empty


@dataclass(frozen=True)
class DemoRun:
    """The result of a demo.

    Attributes:
        days: first and last day of its messages.
        checks: the result of every asset check: its name and whether it passed.
        digest: of the messages and what the mapping made of them, without the times that the
            server set.
        same_as_before: whether an earlier demo with the same seed and size had this digest; None
            if there was none.
        rehearsal: the audit of the weights, as the asset `weight_audit` has it.
        observed: the audit of what the three clusters did.
        caught: what it found, in a few words.
        page: that audit as an HTML file.
        seconds: how long it took.
    """

    days: tuple[date, date]
    checks: dict[str, bool]
    digest: str
    same_as_before: bool | None
    rehearsal: AuditResult
    observed: AuditResult
    caught: str
    page: Path
    seconds: float


def run_demo(settings: DemoSettings) -> DemoRun:
    """Run the demo, and return what it made.

    Raises:
        NatsTransformError: a step or an asset check failed; the text says which.
    """
    started = time.monotonic()
    folder = _empty_folder(settings.folder)
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    history = [(midnight - timedelta(days=days)).date() for days in (2, 1)]
    # About what two days and a half have in an hour.
    live = settings.messages // _HOURS
    # A name of its own, so that no stream of the user's can be meant when it is removed.
    stream = f"NATS_TRANSFORM_DEMO_{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        server = settings.server
        if server is None:
            with step("starting nats-server"):
                server = stack.enter_context(nats_server()).url
        make_stream(server, stream, first_seq=settings.messages - live + 1)
        stack.callback(remove_stream, server, stream)
        os.environ |= _environment(folder, settings.seed, history, server, stream)
        archive, mapped = (_archive(name) for name in ("shop", "shop_mapped"))
        with step("writing a dump of two days and today until now"):
            end = now.replace(minute=0, second=0, microsecond=0)
            start = midnight - timedelta(days=2)
            past = settings.messages - live
            write_dump(folder / "history.parquet", start, end, past, settings.seed + 1)
        with step(f"publishing into stream {stream}", live):
            publish(server, stream, messages(live, settings.seed))
        with step(f"mapping {MAPPED:,} orders in three clusters, one of them stale for an hour"):
            _map(folder / "mapped.parquet", history[1], mapped, settings.seed)
        # Midnight may have passed while they were published.
        days = (history[0], datetime.now(UTC).date())
        with _dagster(folder) as instance:
            checks = _materialize(instance, archive, days, SHOP)
            checks |= _materialize(instance, mapped, (history[1], history[1]), SHOP_MAPPED)
            _require_expected(checks)
    page = mapped.reports_folder / f"{mapped.name}-observed-{history[1]}-{history[1]}.html"
    rehearsal = archive.reports_folder / f"{archive.name}-rehearsal-{days[0]}-{days[1]}.json"
    observed = AuditResult.model_validate_json(page.with_suffix(".json").read_text())
    with step("computing a digest without the times that the server set"):
        digest = _digest(archive)
    return DemoRun(
        days=days,
        checks=checks,
        digest=digest,
        same_as_before=_same_as_before(folder, settings, digest),
        rehearsal=AuditResult.model_validate_json(rehearsal.read_text()),
        observed=observed,
        caught=_caught(observed, mapped.mapping.with_name(_YESTERDAY)),
        page=page,
        seconds=time.monotonic() - started,
    )


def _map(path: Path, day: date, archive: Archive, seed: int) -> None:
    """Writes what three clusters store of a day; the west has old weights for an hour of it."""
    traffic = (m for m in messages(4 * MAPPED, -seed) if m.subject.endswith(".created"))
    now, before = (
        archive.mapping.with_name(name).read_text() for name in ("mapping.conf", _YESTERDAY)
    )
    write_mapped(
        path,
        day,
        islice(traffic, MAPPED),
        MAPPED,
        MAPPED_SUBJECTS,
        now,
        [Change(STALE_HOUR, "west", before), Change(STALE_HOUR + 1, "west", now)],
    )


def _caught(observed: AuditResult, yesterday: Path) -> str:
    """Which cluster ran which weights, and when.

    Raises:
        JobError: what was off are not the weights of yesterday.
    """
    worst = worst_first(observed)[0]
    parts = outside_parts(worst)
    (mapping,) = (m for m in load_mappings(yesterday).mappings if m.source == worst.source)
    weights = {d.subject: d.weight for d in mapping.destinations if d.cluster == worst.cluster}
    for share in (share for part in parts for share in part.destinations):
        if not share.low <= weights.get(share.destination or "", -1) <= share.high:
            raise JobError("demo-weights-unfound", day=yesterday.name)
    times = [time for part in parts for time in (part.from_, part.to) if time]
    when = f"from {min(times):%H:%M} to {max(times):%H:%M}"
    return f"{worst.cluster} ran yesterday's weights {when}"


def _environment(
    folder: Path, seed: int, history: Sequence[date], server: str, stream: str
) -> dict[str, str]:
    """The variables that the YAML of the demo's archive reads, also kept for `make ui`."""
    variables = {
        "DAGSTER_HOME": str(folder / "dagster"),
        "NATS_TRANSFORM_DEMO": str(folder),
        "NATS_TRANSFORM_DEMO_SEED": str(seed),
        "NATS_TRANSFORM_DEMO_START": history[0].isoformat(),
        "NATS_TRANSFORM_DEMO_MAPPED": history[1].isoformat(),
        "NATS_TRANSFORM_DEMO_SERVER": server,
        "NATS_TRANSFORM_DEMO_STREAM": stream,
    }
    if not os.environ.get("NATS_TRANSFORM_SPARK_REMOTE"):
        # So little work would be done without Spark, which the demo is to show.
        master = os.environ.get("NATS_TRANSFORM_SPARK_MASTER") or "local[*]"
        variables["NATS_TRANSFORM_SPARK_MASTER"] = master
        # Jobs this short end before what the JVM's second compiler makes pays for itself.
        os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in variables.items()]
    (folder / "environment").write_text("".join(lines))
    return variables


def _archive(name: str) -> Archive:
    """An archive of the demo, read from its YAML."""
    tree = dg.ComponentTree.for_project(Path(__file__))
    (archive,) = [
        component
        for component in tree.get_all_components(of_type=SubjectArchive)
        if component.name == name
    ]
    return archive


@contextmanager
def _dagster(folder: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in the folder, which reports to nobody."""
    home = folder / "dagster"
    home.mkdir(mode=0o700)  # other users of the host need not see what ran
    (home / "dagster.yaml").write_text(_DAGSTER_YAML)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def _materialize(
    instance: dg.DagsterInstance,
    archive: Archive,
    days: tuple[date, date],
    made_by_day: Sequence[str],
) -> dict[str, bool]:
    """The result of every asset check, once the assets are materialized.

    Raises:
        JobError: an asset failed.
    """
    job = defs().resolve_implicit_global_asset_job_def()
    checks: dict[str, bool] = {}
    doing = ExitStack()

    def follow(entry: dg.EventLogEntry) -> None:
        event = entry.dagster_event
        if event is not None and event.event_type is dg.DagsterEventType.STEP_START:
            asset = event.node_name.replace("__", "/")
            doing.enter_context(step(f"materializing {asset}"))
        elif event is not None and event.event_type is dg.DagsterEventType.STEP_SUCCESS:
            doing.close()

    for assets in (["mapping_version"], made_by_day):
        partitioned = assets != ["mapping_version"]
        run_id = str(uuid.uuid4())
        instance.add_event_listener(run_id, follow)
        with doing:
            result = job.execute_in_process(
                instance=instance,
                asset_selection=[archive.key(asset) for asset in assets],
                tags=range_tags(*days) if partitioned else None,
                raise_on_error=False,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                run_id=run_id,
            )
        checks |= {
            "/".join([*check.asset_key.path, check.check_name]): check.passed
            for check in result.get_asset_check_evaluations()
        }
        if not result.success:
            failure = next(event for event in result.all_events if event.is_step_failure)
            asset = failure.node_name.replace("__", "/")
            raise JobError("demo-asset-failed", asset=asset, reason=reason_of(failure))
    return checks


def _require_expected(checks: dict[str, bool]) -> None:
    """Raises a JobError unless all checks passed but the one that must find the stale cluster."""
    if checks[STALE]:
        raise JobError("demo-stale-unfound", check=STALE)
    failed = [name for name, passed in checks.items() if not passed and name != STALE]
    if failed:
        raise JobError("demo-checks-failed", checks=", ".join(failed))


def _digest(archive: Archive) -> str:
    """The digest of all transformed messages without their times, which differ in a second demo."""
    table = tables.open_table(archive.tables, specs.TRANSFORMED)
    names = specs.TRANSFORMED.rows.names
    columns = [name for name in names if name not in ("ts", "ts_ns", "day")]
    files = tables.data_files(table, archive.stream)
    work = partial(digested, columns=columns)
    scan = Scan.of(table, specs.TRANSFORMED, files)
    return str(scan.sum(archive.session, work, "digesting the messages"))


def _same_as_before(folder: Path, settings: DemoSettings, digest: str) -> bool | None:
    """Whether an earlier demo with this seed and size had this digest; None if there was none."""
    known = json.loads((folder / _MARKER).read_text() or "{}")
    name = f"seed {settings.seed}, {settings.messages} messages"
    before = known.get(name)
    (folder / _MARKER).write_text(json.dumps(known | {name: digest}))
    return None if before is None else before == digest


def _empty_folder(folder: Path) -> Path:
    """The folder, absolute, with nothing in it but what earlier demos remember."""
    folder = folder.absolute()
    marker = folder / _MARKER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()) and not marker.exists():
            raise JobError("demo-folder-not-empty", folder=folder)
        marker.touch()
        for entry in folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry != marker:
                entry.unlink()
    except OSError as error:
        raise JobError("demo-folder-unusable", folder=folder, reason=text_of(error)) from error
    return folder
