"""`nats-transform check`: what nats-server refuses in a configuration, and what is doubtful."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import click

from cli.command import command as cli_command
from cli.command import end, output, print_result
from cli.formats import Reported, Review
from cli.output import print_finding, print_help, print_line, print_lines
from jobs.jetstream.shown import with_files
from jobs.settings.base import Name, Option, setting
from jobs.settings.connection import NatsSettings, ShownSettings
from jobs.settings.output import NEVER
from nats_transform.collector import no_search_for_cycles
from nats_transform.errors import InvalidConfig, UnknownAccount, printable, sentence, shown
from nats_transform.lint.findings import CODES, Finding, Severity
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import decode, encode
from nats_transform.mappings.unseen import Unseen, unseen_in_files, unseen_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from nats_transform.config import Located


_MOST_SHOWN = 500
"""The most findings for people to read; --json has all."""


@dataclass(frozen=True)
class CheckResult:
    """What was checked, and what was found.

    Attributes:
        files: the files, as they were given.
        fine: whether no finding is as bad as `--fail-on`; with `never`, as an error.
        summary: how many findings there are of each severity.
        findings: all findings, after the cures if `--fix` made some.
        diff: the cures of `--fix` or `--diff`, as a unified diff.
        not_looked_at: what the check says nothing about.
    """

    files: tuple[str, ...]
    fine: bool
    summary: dict[Severity, int]
    findings: list[Finding]
    diff: str
    not_looked_at: tuple[Unseen, ...]


class CheckSettings(ShownSettings):
    """The files to check, and what is known of the world around them."""

    alternatives = (("fix", "diff"),)

    files: tuple[str, ...] = setting(
        ..., "The files to check.", is_argument=True, metavar="FILE...", min_length=1
    )
    account: Name | None = setting(
        None,
        "Check only the mappings of this account.",
        otherwise="every account in the file",
    )
    clusters: tuple[Name, ...] = setting(
        (),
        "A cluster that you run. Name all of them, and the check finds mistyped names in mappings.",
        name="cluster",
    )
    subjects: str | None = setting(
        None,
        "A file with subjects of real messages, one per line: the check counts the keys of "
        "partition().",
        metavar="FILE",
        is_path=True,
    )
    # Only if the command line asks: a check in a pull request reaches no server.
    nats: Annotated[NatsSettings | None, Option(unless=("files",))] = None
    fix: bool = setting(
        False,
        "Write the cures that don't change what nats-server does into the files, and show "
        "them as a diff.",
        cure="because a check must not change files",
    )
    diff: bool = setting(False, "Show what --fix would write, and write nothing.")


@cli_command(
    "check",
    CheckSettings,
    output(
        json="files, fine, summary, findings, diff.", levels=tuple(map(str, Severity)), review=True
    ),
    exit_codes="0 every finding is milder than --fail-on; 1 some finding isn't; "
    "2 a file cannot be read.",
)
@no_search_for_cycles()
def command(settings: CheckSettings, asked: Any) -> None:
    """Show what nats-server refuses in FILE, and what it accepts but you may not want.

    FILE is a server configuration, an account JWT, a stream configuration (`nats stream info
    --json`), or mappings as `nats auth account mappings` takes them. Several files are also
    compared with each other: give the mappings together with the streams of the account, as files
    or with --server or --context, which show its streams and consumers as they are now. Without
    one of the two it asks no server.

    Every finding has a code, which `nats-transform explain CODE` explains.

    \b
    Examples:
      nats-transform check server.conf
      nats-transform check server.conf --account ORDERS --cluster east --cluster west
      nats-transform check server.conf streams/*.json --fail-on warning --json
      nats-transform check server.conf --context prod
      nats-transform check server.conf --fix
    """
    from nats_transform.config.load import is_empty

    findings, cures, loaded, unseen = _check(settings)
    diff = _cure(settings, cures) if settings.fix or settings.diff else ""
    if settings.fix and diff:
        findings, cures, loaded, unseen = _check(settings)
    # What never fails is not fine for that.
    worst = Severity.ERROR if asked.fail_on == NEVER else Severity(asked.fail_on)
    fine = not any(finding.severity.rank <= worst.rank for finding in findings)
    counts = Counter(finding.severity for finding in findings)
    summary = {severity: counts[severity] for severity in Severity}
    text = _summary(counts, len(settings.files))

    def show() -> None:
        if diff:
            print_lines(diff)
        for finding in findings[:_MOST_SHOWN]:
            place = (finding.path, finding.line, finding.column)
            where = ":".join(str(part) for part in place if part)
            message = _message(finding)
            print_finding(f"{where}: ", finding.severity, finding.code, message, finding.cure)
        if left := findings[_MOST_SHOWN:]:
            print_line(f"and {plural(len(left), 'more finding')}: see --json")
        print_help({finding.code: finding.help for finding in findings})
        print_line(unseen_line(unseen))
        print_line(text)
        if not diff and cures:
            print_line(
                "--diff shows the cures that don't change what nats-server does, and --fix makes "
                "them"
            )
        for file, located in loaded:
            if all(is_empty(entry.config) for entry in located):
                of = f" of account {shown(settings.account)}" if settings.account else ""
                print_line(f"{file} has no mappings{of}")

    print_result(
        asked,
        CheckResult(settings.files, fine, summary, findings, diff, unseen),
        show,
        lambda: Review("nats-transform check", [text], map(_reported, findings), CODES, unseen),
    )
    end(is_fine=fine or asked.fail_on == NEVER)


def _check(
    settings: CheckSettings,
) -> tuple[list[Finding], dict[str, str], list[tuple[str, list[Located]]], tuple[Unseen, ...]]:
    """What the check found, what `--fix` changes, what each file has, and what was not seen."""
    from nats_transform.accounts.cycles import import_cycles
    from nats_transform.accounts.leaf_nodes import NO_LEAF_NODES
    from nats_transform.accounts.sharing import NO_SHARES
    from nats_transform.config import Located, load_all, load_consumers, load_streams, shared_by
    from nats_transform.config.accounts import GLOBAL_ACCOUNT, no_mappings
    from nats_transform.config.cure import cures_of
    from nats_transform.config.folders import refuse_twins
    from nats_transform.config.load import is_empty, of_account
    from nats_transform.lint.check import Origin, check
    from nats_transform.lint.transforms import Subjects
    from nats_transform.streams.network import Network

    account = settings.account or ("$G" if settings.nats else None)  # a server shows one
    origins: list[Origin] = []
    findings: list[Finding] = []
    loaded: list[tuple[str, list[Located]]] = []
    everything: list[tuple[str, Located]] = []  # other accounts import, or map once more
    for file in settings.files:
        try:
            _open(file).close()
            located = load_all(file)
            chosen = of_account(located, account, file)
            others = [
                one.accounts[0] for one in located if one.accounts and not is_empty(one.config)
            ]
            if settings.account is None and others and all(is_empty(one.config) for one in chosen):
                raise no_mappings(account or "", others, file)
            loaded.append((file, chosen))
            everything += ((file, entry) for entry in located)
        except UnknownAccount:
            raise
        except InvalidConfig as error:
            refused = (error, *error.others)
            faults = (fault for fault in refused if isinstance(fault, InvalidConfig))
            findings += (_refused(fault, file) for fault in faults)
    with with_files(settings, account or "$G") as given:
        if given.streams is not None:
            where = settings.nats.where if settings.nats else str(given.streams)
            loaded.append((where, [Located(config) for config in load_streams(given.streams)]))
        placed = [(entry.config, place) for place, located in loaded for entry in located]
        configs = [config for config, _ in placed]
        streams = [config for config in configs if not isinstance(config, AccountMappings)]
        refuse_twins((c, place) for c, place in placed if not isinstance(c, AccountMappings))
        consumers = load_consumers(given.consumers, streams) if given.consumers else ()
    # Of many accounts few have shares or leaf nodes; only with these is each account compared.
    named: dict[str, list[Located]] = defaultdict(list)
    for _, entry in everything:
        for name in entry.accounts:
            named[name].append(entry)
    sharing = [entry for _, entry in everything if entry.shares != NO_SHARES]
    linked = [(path, entry) for path, entry in everything if entry.leaf_nodes != NO_LEAF_NODES]
    for file, located in loaded:
        for entry in located:
            own = entry.accounts[0] if entry.accounts else ""
            name = own if len(located) > 1 else ""
            # Nothing leaves $G, but by this name a JWT in a file of its own goes too.
            has_exports = own not in ("", GLOBAL_ACCOUNT)
            shared = shared_by(own, [*named[own], *sharing]) if has_exports else ()
            beyond = [
                (other.config, path)
                for path, other in linked
                if other is not entry
                and isinstance(other.config, AccountMappings)
                and entry.leaf_nodes.meets(other.leaf_nodes)
            ]
            known = (entry.shares.imports, entry.zeros, entry.has_publishers, beyond)
            origins.append(Origin(file, name, entry.places, entry.expires, shared, *known))
    known_accounts = [(path, entry) for path, entry in everything if entry.accounts]
    circles = import_cycles([(entry.accounts, entry.shares) for _, entry in known_accounts])
    for number, imported in circles:
        path, entry = known_accounts[number]
        message = f"the import of {printable(imported.subject)} leads back to the account"
        place = f"account {entry.accounts[0]}"
        findings.append(Finding("import-cycle", message, place=place, path=path))
    subjects = Subjects(_lines(settings.subjects) if settings.subjects else ())
    findings += check(
        configs,
        clusters=settings.clusters,
        subjects=subjects,
        origins=origins,
        consumers=consumers,
        now=time.time(),
    )
    mappings = (one.config for _, one in everything if isinstance(one.config, AccountMappings))
    unseen = unseen_in_files(
        (config for config in configs if isinstance(config, AccountMappings)),
        has_streams=bool(streams),
        clusters=settings.clusters,
        unknown=Network(streams, consumers).unknown,
        has_keys=subjects.has_keys or not settings.subjects,
    )
    return findings, cures_of(findings, mappings), loaded, tuple(unseen)


def _cure(settings: CheckSettings, cures: dict[str, str]) -> str:
    """The diff of the cures; with `--fix` the files have them then."""
    from difflib import unified_diff

    from nats_transform.config.cure import cured_text
    from nats_transform.config.edit import secrets

    diff = []
    for file in settings.files if cures else ():
        try:
            old, new = cured_text(file, cures)
        except InvalidConfig:  # a finding says so
            continue
        # Not `splitlines`, which cuts at more than the server does, and so a secret from its line.
        olds, news = (t.replace("\r\n", "\n").removesuffix("\n").split("\n") for t in (old, new))
        hidden = set[str]()
        for text, lines in ((old, olds), (new, news)):
            with suppress(InvalidConfig):  # YAML has no secrets of a server
                hidden.update(lines[number - 1] for number in secrets(text, file))
        for line in unified_diff(olds, news, file, file, lineterm=""):
            diff.append(f"{line[0]}(a line with a secret)" if line[1:] in hidden else line)
        if settings.fix and new != old:
            _overwrite(Path(file), new)
    return "\n".join(diff)


def _overwrite(file: Path, text: str) -> None:
    """Put a text in the place of that of a file, all of it or nothing, for the same readers."""
    from jobs.files.output import whole

    try:
        with whole(file) as part:
            part.touch(mode=0o600)
            shutil.copymode(file, part)
            part.write_bytes(encode(text))
    except OSError as error:
        raise click.ClickException(
            sentence("check-not-written", file=file, reason=error.strerror)
        ) from error


def _refused(error: InvalidConfig, file: str) -> Finding:
    path = error.path or file
    return Finding("refused", error.reason, path=path, line=error.line, column=error.column)


def _open(file: str) -> BinaryIO:
    """The open file. A file that cannot be opened is a usage error, not a finding."""
    try:
        mode = os.stat(file).st_mode
        if stat.S_ISDIR(mode):
            raise click.ClickException(sentence("check-folder", file=file))
        # Opening a pipe would wait for its writer.
        if not stat.S_ISREG(mode):
            raise click.ClickException(sentence("check-not-regular", file=file))
        return open(file, "rb")
    except OSError as error:
        cure = "; give a file's name, we don't read standard input" if file == "-" else ""
        raise click.ClickException(
            sentence("check-unreadable", file=file, reason=error.strerror, cure=cure)
        ) from error


def _lines(file: str) -> Iterator[str]:
    with _open(file) as lines:
        for line in lines:
            if text := line.rstrip(b"\r\n"):
                yield decode(text)


def _message(finding: Finding) -> str:
    """What was found, and about what."""
    about = f"{finding.place} " if finding.place else ""
    if finding.source or finding.destination:
        arrow = f" -> {printable(finding.destination)}" if finding.destination else ""
        about += f"{printable(finding.source)}{arrow}"
    return f"{about.strip()}: {finding.message}" if about else finding.message


def _reported(finding: Finding) -> Reported:
    return Reported(
        finding.severity,
        finding.code,
        _message(finding),
        finding.cure,
        finding.path,
        finding.line,
        finding.column,
        help=finding.help,
    )


def _summary(counts: Counter[Severity], files: int) -> str:
    checked = f"{plural(files, 'file')} checked"
    if not counts:
        return f"{checked}, nothing found"
    counted = [
        plural(counts[severity], severity.value) for severity in Severity if counts[severity]
    ]
    return f"{checked}: {', '.join(counted)}"
