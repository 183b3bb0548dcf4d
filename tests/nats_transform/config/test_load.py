"""`load`: one entry for every file; bad files give one line, and no secret."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest

from nats_transform import AccountMappings, InvalidConfig
from nats_transform.config import load
from nats_transform.config.files import MAX_BYTES
from nats_transform.streams.stream import StreamConfig
from tests.cases import load as load_cases
from tests.fuzz.__main__ import mutated
from tests.fuzz.targets import load_as
from tests.support.files import written
from tests.support.refused import refused, told
from tests.support.rules import mappings
from tests.support.server_check import checked

ORDERS = mappings({"orders.*": [("a.$1", 70), ("b.$1", 30, "east")]})
STREAM = {"name": "ORDERS", "subjects": ["orders.*"], "retention": "limits"}

MAPPING_FILES = load_cases("config_files.yaml")
STREAM_FILES = {
    "info": {"config": STREAM, "created": "2026-01-01T00:00:00Z", "state": {"messages": 5}},
    "config": STREAM,
}


def names(suffixes: str) -> list[str]:
    return [f"file{suffix}" for suffix in suffixes.split(",")]


@pytest.mark.parametrize("name", names(",.txt,.conf"))
@pytest.mark.parametrize("text", MAPPING_FILES.values(), ids=MAPPING_FILES)
def test_mappings_are_known_by_their_content(tmp_path: Path, text: str, name: str) -> None:
    path = written(tmp_path / name, text)
    assert load(path) == load(str(path)) == ORDERS


@pytest.mark.parametrize("name", names(",.json,.yaml"))
@pytest.mark.parametrize("data", STREAM_FILES.values(), ids=STREAM_FILES)
def test_streams_are_known_by_their_content(tmp_path: Path, data: object, name: str) -> None:
    path = written(tmp_path / name, json.dumps(data, indent=2))
    assert load(path) == StreamConfig.model_validate(STREAM)


@pytest.mark.parametrize(
    ("text", "suffixes"),
    [
        ("{}", ",.json,.yaml,.conf"),
        ('{"accounts": []}', ",.json,.yaml,.conf"),
        ("# nothing", ",.conf"),
        ("port: 4222", ",.yaml,.conf"),
    ],
)
def test_a_file_without_mappings(tmp_path: Path, text: str, suffixes: str) -> None:
    for name in names(suffixes):
        assert load(written(tmp_path / name, text)) == AccountMappings(())


JWT = "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJqdGkiOiJTRUNSRVQifQ.c2lnbmF0dXJl"
BESIDE = 'mappings: { "orders.*": "evil.$1" }\n'
LOOK_LIKE_OTHERS = {
    "JWT in comments": "# -----BEGIN NATS ACCOUNT JWT-----\n# x\n"
    f"# -----BEGIN NATS ACCOUNT JWT----- {JWT} ------END NATS ACCOUNT JWT------\n",
    "claims": "nats: { type: account }\niss: x\nserver_metadata: $nats\nserver_name: $iss\n",
    "stream": "name: S\nsubjects: [ a ]\nserver_name: $name\nserver_tags: $subjects\n",
    "stream in a section": "config: { name: S }\nserver_metadata: $config\n",
}


@pytest.mark.server
@pytest.mark.parametrize("name", names(",.conf,.json,.yaml"))
@pytest.mark.parametrize("text", LOOK_LIKE_OTHERS.values(), ids=LOOK_LIKE_OTHERS)
def test_what_nats_server_takes_is_a_server_config(tmp_path: Path, text: str, name: str) -> None:
    path = written(tmp_path / name, text + BESIDE)
    assert checked(path)[0]
    assert load(path) == mappings({"orders.*": "evil.$1"})


REFUSED = [
    # id, name, text, line, column, code or the parser's words
    ("empty", "f", "", None, None, "file-empty"),
    ("blank", "f", " \n\t", None, None, "file-empty"),
    ("binary", "f", "\x7fELF\0\1", None, None, "file-has-nul"),
    ("words", "f", "hello, world", 1, 1, "unknown-account-field"),
    ("JSON list", "f.json", "[1]", 1, 1, "not-a-section"),
    ("JSON string", "f.json", '"x"', 1, 1, "not-a-section"),
    ("broken JSON", "f.json", '{"a": [{"subject": ]}', 1, 20, "expected a string or a value"),
    ("JSON with a comment", "f.json", '{\n  // a\n"a": []}', 2, 3, "JSON has no comments"),
    ("a configuration in YAML", "f.yaml", "mappings:\n  a:\n    - dest: b\n", None, None,
     "yaml-for-server"),
    ("JSON twice", "f.json", '{"a": [],\n "a": []}', 2, 2, "json-key-twice"),
    ("JSON not UTF-8", "f.json", '{"a":\n "\udcff"}', 2, None, "json-not-utf8"),
    ("JSON number", "f.json", '{"a": 1e999}', 1, 7, "number-too-large"),
    ("whole JSON number that is no float", "f.json", f'{{"a": {"1" * 350}}}', 1, 7,
     "not-a-list-of-destinations"),
    ("long JSON number", "f.json", f'{{"a": {"1" * 500}}}', 1, 7, "number-too-long"),
    ("deep JSON", "f.json", '{"a":' * 200, 1, 501, "too-deep"),
    ("broken YAML", "f.yaml", "a:\n  - subject: [\n", 3, 1, "expected"),
    ("YAML list", "f.yaml", "- a\n- b", 1, 1, "not-a-section"),
    ("YAML text", "f.yaml", "a: b", 1, 4, "not-a-list-of-destinations"),
    ("YAML tag", "f.yaml", "a: !!python/object:os.system x", 1, 4, "yaml-tag"),
    ("YAML twice", "f.yaml", "a: []\na: []", 2, 1, "yaml-key-twice"),
    ("YAML documents", "f.yaml", "a: []\n---\nb: []", 2, 1, "yaml-second-document"),
    ("YAML alias", "f.yaml", "a: &x [*x]", 1, 8, "yaml-alias"),
    ("YAML not UTF-8", "f.yaml", "a: \udcff", None, None, "yaml-not-utf8"),
    ("YAML control byte", "f.yaml", "a: \x01", None, None, "yaml-bytes"),
    ("deep YAML", "f.yaml", "[" * 200, 1, 101, "too-deep"),
    ("YAML that multiplies", "f.yaml", "x0: &x0 [1]\n" + "".join(
        f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 20)),
     8, 5, "too-many-values"),
    ("a field", "f.yaml", "a:\n- subject: b\n  wieght: 5", 3, 3, "unknown-json-destination-field"),
    ("a weight", "f.yaml", "a:\n- subject: b\n  weight: 101", 3, 11, "weight-out-of-range"),
    ("text weight", "f.yaml", "a:\n- subject: b\n  weight: '5'", 3, 11, "weight-not-a-percentage"),
    ("mapping of a document", "f.yaml", "x: []\na:\n- subject: b..c", 2, 1, "invalid-subject"),
    ("stream field", "f.json", '{"name": "S",\n "subjects": 5}', 2, 14, "stream-invalid"),
    ("stream rule", "f.json", '{"created": "x", "config":\n {"name": "a.b", "subjects": []}}',
     2, 2, "stream-not-taken: stream name is required"),
    ("consumer", "f.json", '{"stream_name": "S", "name": "c",\n "config": {"name": "c"}}',
     2, 12, "consumer-as-stream"),
    ("consumer of no stream", "f.json", '{"config": {"name": "c", "ack_policy": "none"}}',
     1, 12, "consumer-as-stream"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "line", "column", "what"),
    [pytest.param(*row[1:], id=row[0]) for row in REFUSED],
)
def test_files_that_are_refused(
    tmp_path: Path, name: str, text: str, line: int | None, column: int | None, what: str
) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(InvalidConfig) as raised:
        load(path)
    assert what in told(raised.value)
    assert str(raised.value).startswith(f"{path}:")
    assert (raised.value.line, raised.value.column) == (line, column)


def test_a_missing_file_a_folder_or_a_pipe(tmp_path: Path) -> None:
    with refused(InvalidConfig, "file-unreadable", reason="No such file or directory"):
        load(tmp_path / "none.conf")
    os.mkfifo(tmp_path / "pipe")  # which must not block
    for path in (tmp_path, tmp_path / "pipe"):
        with refused(InvalidConfig, "not-a-regular-file"):
            load(path)
    with refused(InvalidConfig, "path-has-nul"):
        load("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = written(tmp_path / "server.conf", "port: 1")
    path.chmod(0)
    with refused(InvalidConfig, "file-unreadable", reason="Permission denied"):
        load(path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(200 * MAX_BYTES)  # sparse
    with refused(InvalidConfig, "file-too-large"):
        load(path)


# --- secrets --------------------------------------------------------------------------------

PASSWORD = "Tr0ub4dor-horse"  # noqa: S105 - planted
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
HASH = "$2b$11$UP3xizk94sWF9SHF/wkklOfBT9jphTGNrhZqz2OHoBdk9yO1kvErG"
PLANTED = [
    f"authorization {{ user: a, password: {PASSWORD} oops }}",
    f"authorization {{ user: a, password: ${PASSWORD} }}",
    f"authorization {{ user: a, token: ${PASSWORD.replace('-', '')} }}",
    f'authorization {{ user: a, password: "{PASSWORD} }}',
    f"authorization {{ user: a, password: '{PASSWORD} }}",
    f'authorization {{ user: a, password: "{PASSWORD}\\q" }}',
    f"authorization {{ user: a, password: {PASSWORD}\\q }}",
    f"authorization {{ users [ {{user: a, password: (\n{PASSWORD} ) }} ] }}",
    f"authorization {{ users [ {{user: a, password: {HASH} }} ] }}",
    f"authorization {{ nkey_seed: {SEED} oops }}",
    f"leafnodes {{ remotes [ {{ url: nats://a:{PASSWORD}@host:4222 oops }} ] }}",
    f"nats://a:{PASSWORD}@host:4222",
    f"resolver_preload {{ A: {JWT} oops }}",
    f"A {JWT}",
    f"{JWT}",
    f"{JWT}x.y",
    f"-----BEGIN NATS ACCOUNT JWT-----\n{JWT}\n------END",
    f"-----BEGIN NATS ACCOUNT JWT-----\n{JWT}\n------END NATS ACCOUNT JWT------\n",
    SEED,
    f"{SEED} x",
    f"{SEED}: x",
    f"${{{SEED}}}",
    f"x: ${SEED}",
    f"include {SEED} oops",
    f"mappings {{ foo: {{ dest: bar, weight: 50, password: {PASSWORD} }} }}",
    f'{{"authorization": {{"password": "{PASSWORD}" oops}}}}',
    f'{{"authorization": {{"password": "{PASSWORD}}}}}',
    f'{{"password": "{PASSWORD}"}}',
    f'{{"password": "{PASSWORD}", "password": "{PASSWORD}"}}',
    f"password: *{PASSWORD}",
    f"password: !{PASSWORD} x",
    f"password: &{PASSWORD} x\n&{PASSWORD}: [",
    f'password: "{PASSWORD}\\q"',
    f"- password: {PASSWORD}\n -x",
    f'{{"config": {{"name": "S", "subjects": "{PASSWORD}"}}}}',
    f'{{"config": {{"name": "S", "retention": "{PASSWORD}"}}}}',
]


@pytest.mark.parametrize("name", names(",.conf,.json,.yaml,.jwt"))
@pytest.mark.parametrize("text", PLANTED)
def test_errors_show_no_secret(tmp_path: Path, text: str, name: str) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(InvalidConfig) as raised:
        load(path)
    shown = str(raised.value).removeprefix(str(path))
    for secret in (PASSWORD, PASSWORD.replace("-", ""), SEED, HASH, JWT):
        for part in re.findall(r"\w{8,}", secret):
            assert part not in shown


def test_the_text_of_an_environment_variable_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_PASSWORD", f"{PASSWORD} x")
    text = "authorization { user: a, password: $NATS_PASSWORD }"
    with refused(InvalidConfig, "variable-invalid") as raised:
        load(written(tmp_path / "server.conf", text))
    assert PASSWORD not in str(raised.value)


# --- any bytes at all -----------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".json", ".yaml"])
def test_any_bytes_give_a_result_or_one_line(suffix: str, seed: int) -> None:
    chance, read = random.Random(seed), load_as(suffix)
    seeds = [text.encode() for text in (*MAPPING_FILES.values(), *PLANTED, json.dumps(STREAM))]
    for _ in range(300):
        read(mutated(chance.choice(seeds), seeds, chance))
