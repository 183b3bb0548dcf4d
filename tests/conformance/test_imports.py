"""Imports: what crosses accounts of a real nats-server is what we say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from nats_transform import AccountImport, ImportKind, InvalidTransform
from nats_transform.mappings.subject import is_valid_filter, literal_fault
from tests import cases
from tests.conformance.client import Client
from tests.conformance.generate import Generator
from tests.conformance.test_account_mappings import quoted
from tests.support.files import written
from tests.support.server_check import checked

pytestmark = pytest.mark.server

IMPORTS = 80
SUBJECTS = 8
SUBSCRIPTIONS = 6
CONFIGS = 300


def _user(name: str) -> str:
    return f"users: [{{user: {name}, password: secret}}]"


def _import(imported: AccountImport, exporter: str) -> str:
    destination = f", to: {quoted(imported.to)}" if imported.to else ""
    subject = quoted(imported.subject)
    return f"{{{imported.kind}: {{account: {exporter}, subject: {subject}}}{destination}}}"


EXPORTS = 'exports: [{stream: ">"}, {service: ">"}]'


def pairs(imports: Sequence[AccountImport]) -> str:
    """A configuration with accounts E0 and I0 for the first import, and so on."""
    lines = ["system_account: SYS", "accounts {", f"  SYS {{ {_user('SYS')} }}"]
    for number, imported in enumerate(imports):
        lines.append(f"  E{number} {{ {_user(f'E{number}')}, {EXPORTS} }}")
        entry = _import(imported, f"E{number}")
        lines.append(f"  I{number} {{ {_user(f'I{number}')}, imports: [{entry}] }}")
    return "\n".join([*lines, "}"])


def crossing(
    server: NatsServer, number: int, kind: ImportKind, subjects: Sequence[str]
) -> list[str | None]:
    """The subject under which each published one arrives on the other side, or None."""
    here, there = (
        (f"E{number}", f"I{number}") if kind is ImportKind.STREAM else (f"I{number}", f"E{number}")
    )
    with Client(server.url, there) as receiver, Client(server.url, here) as sender:
        return receiver.through(sender, subjects)


def generated(generator: Generator, kind: ImportKind | None = None) -> AccountImport:
    """An import that we accept."""
    while True:
        subject, to = generator.strict_pair(broken=0.03)
        if " " in to:
            continue  # Accepted, but the server then breaks its own protocol.
        try:
            return AccountImport(kind or generator.choice(list(ImportKind)), subject, to)
        except InvalidTransform:
            continue


def test_generated_imports(seed: int) -> None:
    generator = Generator(seed)
    imports = [generated(generator) for _ in range(IMPORTS)]
    differences = []
    with nats_server(pairs(imports)) as server:
        for number, imported in enumerate(imports):
            published = imported.subject
            if imported.kind is ImportKind.SERVICE:
                published = re.sub(r"\$\d|\{\{[^.]*\}\}", "*", imported.to)
            subjects = [generator.subject(published) for _ in range(SUBJECTS)]
            subjects = [subject for subject in subjects if literal_fault(subject) is None]
            arrived = crossing(server, number, imported.kind, subjects)
            differences += [
                f"{imported}: {subject!r}: {got!r}, ours {imported.apply(subject)!r}"
                for subject, got in zip(subjects, arrived, strict=True)
                if got != imported.apply(subject)
            ]
    assert not differences, "\n".join(differences)


def test_every_row_of_the_table_of_imports() -> None:
    rows = [row for row in cases.load("imports.yaml")["imports"] if not isinstance(row[5], dict)]
    imports = [AccountImport(row[1], row[2], row[3]) for row in rows]
    with nats_server(pairs(imports)) as server:
        for number, (imported, row) in enumerate(zip(imports, rows, strict=True)):
            assert crossing(server, number, imported.kind, [row[4]]) == [row[5]], row


def shadows(server: NatsServer, wanted: dict[int, list[str]]) -> dict[int, list[str]]:
    """What each exporting account is subscribed to while its importer has subscriptions."""
    result = {}
    for number, subscriptions in wanted.items():
        with Client(server.url, f"I{number}") as importer, Client(server.url, "SYS") as system:
            for subscription in subscriptions:
                importer.subscribe(subscription)
            importer.flush()
            answer = system.request(
                "$SYS.REQ.SERVER.PING.SUBSZ", {"subscriptions": True, "account": f"E{number}"}
            )
            entries = answer["data"].get("subscriptions_list", [])
            # A shadow subscription stands in the exporter's list in the importer's name.
            result[number] = sorted(e["subject"] for e in entries if e["account"] == f"I{number}")
    return result


def test_generated_shadow_subscriptions(seed: int) -> None:
    generator = Generator(seed)
    imports = [generated(generator, ImportKind.STREAM) for _ in range(IMPORTS)]
    wanted: dict[int, list[str]] = {}
    expected: dict[int, list[str]] = {}
    for number, imported in enumerate(imports):
        arrives = re.sub(r"\$\d|\{\{[^.]*\}\}", "*", imported.to)
        subscriptions = [generator.subscription(arrives) for _ in range(SUBSCRIPTIONS)]
        try:
            opened = {s: imported.shadow(s) for s in subscriptions if is_valid_filter(s)}
        except InvalidTransform:
            continue  # The server would crash.
        wanted[number] = list(opened)
        expected[number] = sorted(shadow for shadow in opened.values() if shadow is not None)
    with nats_server(pairs(imports)) as server:
        found = shadows(server, wanted)
    differences = [
        f"{imports[number]}: {wanted[number]}: {found[number]}, ours {expected[number]}"
        for number in wanted
        if found[number] != expected[number]
    ]
    assert not differences, "\n".join(differences)


def test_every_row_of_the_table_of_shadows() -> None:
    rows = cases.load("imports.yaml")["shadow"]
    imports = [AccountImport(ImportKind.STREAM, row[1], row[2]) for row in rows]
    with nats_server(pairs(imports)) as server:
        found = shadows(server, {number: [row[3]] for number, row in enumerate(rows)})
    assert found == {n: [row[4]] if row[4] else [] for n, row in enumerate(rows)}


def test_imports_are_accepted_and_refused_alike(seed: int, tmp_path: Path) -> None:
    generator = Generator(seed)
    lines = ["accounts {", f"  E {{ {EXPORTS} }}"]
    ours: dict[str, str] = {}
    for number in range(CONFIGS):
        kind = generator.choice(list(ImportKind))
        subject, to = generator.strict_pair(broken=0.5)
        # The server names what it refuses by its subject.
        subject, to = f"s{number}.{subject}", to and f"t{number}.{to}"
        entry = f"{{{kind}: {{account: E, subject: {quoted(subject)}}}, to: {quoted(to)}}}"
        lines.append(f"  I{number} {{ imports: [{entry}] }}")
        try:
            AccountImport(kind, subject, to)
        except InvalidTransform as error:
            ours[f"s{number}"] = f"{kind} {subject} -> {to}: {error}"
    _, said = checked(written(tmp_path / "imports.conf", "\n".join([*lines, "}"])))
    theirs = re.findall(r'Error adding \w+ import "(s\d+)\.[^\n]*', said)
    assert said.count("\n") <= len(theirs) + 2, said
    assert ours.keys() == {*theirs}, [
        ours.get(name) or [line for line in said.splitlines() if f'"{name}.' in line]
        for name in ours.keys() ^ {*theirs}
    ]
    assert 50 < len(ours) < CONFIGS - 50
