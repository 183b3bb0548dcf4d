"""What lists an account: a user who may subscribe to the requests can answer them first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import ArchiveError
from jobs.jetstream import account
from jobs.jetstream.account import account_files
from jobs.settings.connection import NatsSettings
from nats_transform.errors import sentence
from tests.support.impostor import Impostor, serving
from tests.support.refused import refused

STREAM, CONSUMER = "js.STREAM.LIST", "js.CONSUMER.LIST.S"


@contextmanager
def listed(answers: dict[str, Any]) -> Iterator[tuple[Path, Path | None]]:
    """The files of an account whose server gives these answers."""
    with (
        serving(Impostor(answers=answers)) as server,
        account_files(NatsSettings(servers=server.url, js_api_prefix="js"), "$G") as files,
    ):
        yield files


def page(field: str, *entries: Any, total: Any = 1) -> bytes:
    return json.dumps({field: entries, "total": total}).encode()


def stream(name: Any) -> bytes:
    return page("streams", {"config": {"name": name}})


def consumer(name: Any) -> bytes:
    return page("consumers", {"name": name, "config": {"durable_name": "d"}})


NO_NAME = sentence("not-a-name")
NO_JSON = "(it is not JSON)"
FINE = {STREAM: stream("S"), CONSUMER: consumer("C")}
OUTSIDE = ("../evil", "/evil", "..", "", "a b", "a\0", "\ud800", "x" * 256)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        *(
            pytest.param({STREAM: stream(name)}, NO_NAME, id=f"stream {name!r}"[:30])
            for name in OUTSIDE
        ),
        *(
            pytest.param({STREAM: stream(name)}, "valid string", id=f"stream {name!r}")
            for name in (5, None)
        ),
        pytest.param({CONSUMER: consumer("/../../../evil")}, NO_NAME, id="consumer"),
        pytest.param({STREAM: b"["}, NO_JSON, id="half"),
        pytest.param({STREAM: b"\xff"}, NO_JSON, id="not UTF-8"),
        pytest.param({STREAM: b"[" * 100_000}, NO_JSON, id="deep"),
        pytest.param({STREAM: b"[]"}, "Input should be a valid dictionary", id="a list"),
        pytest.param({STREAM: b'{"x": [' + b"[]," * 250_000 + b"[]]}"}, NO_JSON, id="many values"),
        pytest.param({STREAM: b"9" * 5000}, NO_JSON, id="a huge number"),
        pytest.param({STREAM: b"{}"}, "(total: Field required)", id="nothing"),
        pytest.param({STREAM: page("streams", 7)}, "(streams.0: Input", id="an entry"),
        pytest.param({STREAM: page("streams", {"config": 7})}, "(streams.0.config: I", id="config"),
        pytest.param({STREAM: page("streams", total="many")}, "(total: Input", id="a total"),
        pytest.param({STREAM: page("streams", total=-1)}, "(total: Input", id="below zero"),
        pytest.param({STREAM: page("streams", total=2**63)}, "(total: Input", id="beyond 2^63"),
        pytest.param({STREAM: b'{"streams": 7, "total": 1}'}, "(streams: Input", id="no list"),
        pytest.param({STREAM: b'{"error": 7}'}, "(error: Input", id="an error"),
        pytest.param({STREAM: b'{"error": {"err_code": []}}'}, "err_code", id="a code"),
        pytest.param(
            {STREAM: b'{"streams": [], "total": 1, "missing": ["A"]}'},
            sentence("streams-missing", where="", missing="A"),
            id="missing",
        ),
    ],
)
def test_answers_that_no_server_gives(
    answers: dict[str, bytes], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ArchiveError) as caught, listed(FINE | answers):
        pass
    assert told in str(caught.value)
    assert len(str(caught.value)) < 300
    assert list(tmp_path.iterdir()) == []


def test_a_list_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "MOST_BYTES", 2**20)
    asked = []

    def grows(body: dict[str, int]) -> bytes:
        asked.append(offset := body["offset"])
        entries = [{"config": {"name": f"S{offset + n}", "fill": "x" * 500}} for n in range(256)]
        return page("streams", *entries, total=offset + 10**9)

    with refused(ArchiveError, "streams-too-large", most=1), listed({STREAM: grows}):
        pass
    assert len(asked) < 12


def test_long_names_have_files() -> None:
    """The names of a stream and of a consumer have up to 255 bytes each."""
    names = ["S" * 254 + end for end in "AB"]
    entry = {"name": "C" * 250, "config": {"durable_name": "C" * 250}}
    streams = page("streams", *({"config": {"name": name}} for name in names), total=2)
    answers = {STREAM: streams, "js.CONSUMER.LIST": page("consumers", entry)}
    with listed(answers) as (folder, consumers):
        read = [json.loads(file.read_text()) for file in sorted(folder.iterdir())]
        assert [one["config"]["name"] for one in read] == names
        assert len(list(consumers.iterdir())) == 2


def test_an_impostor_who_gives_what_a_server_gives() -> None:
    """So that the refusals above are for what they say."""
    with listed(FINE) as (streams, consumers):
        assert [file.name for file in streams.iterdir()] == ["S.json"]
        assert [file.name for file in consumers.iterdir()] == ["S.C.json"]
