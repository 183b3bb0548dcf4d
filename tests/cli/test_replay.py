"""`nats-transform replay`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.jetstream.process import NatsServer
from tests.conformance.client import Client
from tests.support.command import nats_transform, printed
from tests.support.jobs import dumped

pytestmark = pytest.mark.server


@pytest.mark.usefixtures("folder")
def test_refused_then_sent(nats_server: NatsServer) -> None:
    rows = [
        {"seq": 1, "ts": "2026-01-01T00:00:00Z", "subject": "old.a", "data": "1"},
        {"seq": 2, "ts": "2026-01-01T00:00:01Z", "subject": "other \u001b[31m", "data": "2"},
        {"seq": 3, "ts": "2026-01-01T00:00:02Z", "subject": "other", "data": "3"},
    ]
    dumped(Path("dump.jsonl"), rows)
    Path("mapping.conf").write_text('mappings { "old.*": "new.$1" }')
    with Client(nats_server.url) as client:
        client.add_stream("TARGET", "new.>")
    printed("ingest", "--stream", "S", "--jsonl", "dump.jsonl")
    printed("transform", "--stream", "S", "--mapping", "mapping.conf")
    replay = ("replay", "--stream", "S", "--to", "TARGET", "--server", nats_server.url)
    for more in (("--dry-run",), ()):
        code, out, _ = nats_transform(*replay, *more)
        assert code == 1
        assert "refused: 1 message has a subject that the protocol cannot carry" in out
        assert "(other: stream TARGET does not capture it)" in out
        assert "--allow skips" in out
        assert "S into TARGET: nothing would be sent" in out
        assert "\x1b" not in out
    code, out, _ = nats_transform(*replay, "--fates", "mapped")
    assert (code, "S into TARGET: 1 message sent" in out) == (0, True)
    assert "TARGET holds 1 message" in out
    code, out, _ = nats_transform(*replay, "--allow", "skips", "--json")
    document = json.loads(out)
    assert (code, document["sent"], document["already"]) == (0, 0, 1)
    assert document["not_sent"] == {"captured": 1, "subject": 1}
    assert nats_transform(*replay, "--fates", "lost")[0] == 2
