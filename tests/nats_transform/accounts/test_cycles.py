"""Imports that lead back to their account: what we find, and what a real server refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_transform.accounts.cycles import import_cycles
from nats_transform.config.load import load_all
from tests.support.server_check import checked

# The exports and imports of accounts A, B and C, and the imports in circles.
CASES = {
    "through-local-subjects": (
        {
            "A": ("{stream: a.*}", '{stream: {account: B, subject: "c.*"}}'),
            "B": ("{stream: c.*}", '{stream: {account: A, subject: "a.*"}, to: "c.$1"}'),
        },
        ["A c.*"],
    ),
    "nothing-goes-on": (
        {
            "A": ("{stream: a.*}", '{stream: {account: B, subject: "c.*"}}'),
            "B": ("{stream: c.*}", '{stream: {account: A, subject: "a.*"}, to: "d.$1"}'),
        },
        [],
    ),
    "round-three-accounts": (
        {
            "A": ("{stream: s.>}", "{stream: {account: B, subject: s.x}}"),
            "B": ("{stream: s.>}", '{stream: {account: C, subject: "s.>"}}'),
            "C": ("{stream: s.>}", '{stream: {account: A, subject: "s.>"}}'),
        },
        ["A s.x", "B s.>", "C s.>"],
    ),
    "renamed-in-each": (  # which goes round for ever, but the server does not see it
        {
            "A": ("{stream: a.>}", "{stream: {account: B, subject: b.x}, to: a.x}"),
            "B": ("{stream: b.>}", '{stream: {account: C, subject: "c.>"}, to: "b.>"}'),
            "C": ("{stream: c.>}", '{stream: {account: A, subject: "a.>"}, to: "c.>"}'),
        },
        [],
    ),
    "what-is-not-exported": (
        {
            "A": ("{stream: a.x}", '{stream: {account: B, subject: "b.*"}, to: "a.$1"}'),
            "B": ("{stream: b.*}", "{stream: {account: A, subject: a.x}, to: c.x}"),
        },
        ["B a.x"],
    ),
    "services": (
        {
            "A": ("{service: a}", "{service: {account: B, subject: b}, to: a}"),
            "B": ("{service: b}", "{service: {account: A, subject: a}, to: b}"),
        },
        ["A b", "B a"],
    ),
    "a-service-and-a-stream": (
        {
            "A": ("{stream: a}", "{service: {account: B, subject: b}, to: a}"),
            "B": ("{service: b}", "{stream: {account: A, subject: a}, to: b}"),
        },
        [],
    ),
}  # fmt: skip


@pytest.mark.server
@pytest.mark.parametrize(("accounts", "expected"), CASES.values(), ids=CASES)
def test_imports_in_circles(
    accounts: dict[str, tuple[str, str]], expected: list[str], tmp_path: Path
) -> None:
    texts = (
        f"{name} {{ users: [{{user: {name}, password: x}}], exports: [{out}], imports: [{into}] }}"
        for name, (out, into) in accounts.items()
    )
    (config := tmp_path / "server.conf").write_text(f"accounts {{ {chr(10).join(texts)} }}")
    known = [(one.accounts, one.shares) for one in load_all(config) if one.accounts]
    circles = [f"{known[n][0][0]} {entry.subject}" for n, entry in import_cycles(known)]
    assert circles == expected
    # It refuses one in eight of its starts where one order of two accounts shows the circle.
    said = (checked(config) for _ in range(200 if expected else 10))
    assert any("import forms a cycle" in text for _, text in said) == bool(expected)
