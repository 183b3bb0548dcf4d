"""What a user adds to the checks of an archive."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, Literal

import pytest
from great_expectations.checkpoint import ActionContext, CheckpointResult, ValidationAction

from tests.support.dagster_project import Project, failures

pytestmark = pytest.mark.dagster

SEEN: list[tuple[str, bool]] = []


class Remember(ValidationAction):
    """An action as users write them."""

    type: Literal["remember"] = "remember"

    def run(
        self, checkpoint_result: CheckpointResult, action_context: ActionContext | None = None
    ) -> dict[str, Any]:
        SEEN.append((checkpoint_result.checkpoint_config.name, bool(checkpoint_result.success)))
        return {}


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a server that keeps what it gets."""
    received: list[dict[str, Any]] = []

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Keep) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/secret", received
        finally:
            server.shutdown()
            thread.join()


ACTIONS = """  actions:
    - type: slack
      name: tell
      slack_webhook: "{{ env.TEST_WEBHOOK }}"
      notify_on: all
    - class: tests.orchestration.test_suites:Remember
"""


def test_actions_follow_the_checks(bare_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    bare_project.add("east", ACTIONS)
    with webhook() as (address, received):
        monkeypatch.setenv("TEST_WEBHOOK", address)
        result = bare_project.materialize(
            "east", ["mapping_version", "messages", "transformed_messages"]
        )
    assert result.success, failures(result)
    assert SEEN == [("messages", True), ("transformed_messages", True)]
    assert len(received) == 2
    assert "transformed_messages" in json.dumps(received[1])


def test_an_action_that_fails_loses_nothing(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_project.add("east", ACTIONS)
    monkeypatch.setattr(Remember, "run", lambda *_, **__: 1 / 0)
    with webhook() as (address, _):
        monkeypatch.setenv("TEST_WEBHOOK", address)
        result = bare_project.materialize("east", ["mapping_version", "messages"])
    assert result.success, failures(result)
    assert all(check.passed for check in result.get_asset_check_evaluations())


@pytest.mark.parametrize(
    ("yaml", "fault"),
    [
        pytest.param("{type: pigeon}", "actions.0 of archive east: .*pigeon", id="unknown"),
        pytest.param("{type: slack}", "Please provide either slack_webhook", id="incomplete"),
        pytest.param("{class: nowhere:Class}", "No module named 'nowhere'", id="no class"),
    ],
)
def test_an_action_that_cannot_be_stops_the_run_first(
    bare_project: Project, yaml: str, fault: str
) -> None:
    bare_project.add("east", f"  actions: [{yaml}]\n")
    result = bare_project.materialize("east", ["messages"])
    (why,) = failures(result).values()
    assert re.search(fault, why), why
