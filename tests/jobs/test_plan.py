"""The command `plan`: its folder, what it refuses, and what it accepts."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import cmarkgfm
import pytest
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as Sarif

from jobs.jetstream.process import NatsServer
from jobs.plan import PlanError
from jobs.verify.run import read_plan
from nats_transform.config import load_mappings, load_streams, mapping_version
from nats_transform.errors import sentence
from nats_transform.lint.findings import PAGE
from nats_transform.plan.model import Plan
from tests.conformance.client import Client
from tests.support import command
from tests.support.censuses import census_file
from tests.support.command import nats_transform, printed
from tests.support.disks import contents
from tests.support.files import write_files
from tests.support.saying import says

SUBJECTS = {b"orders.eu": 60_000, b"orders.us": 30_000, b"other.x": 10}
STREAM = {"name": "ORDERS", "subjects": ["orders.*"], "description": "kept", "max_msgs": 5}
CONSUMER = {"durable_name": "eu", "ack_policy": "explicit", "filter_subject": "orders.eu"}
SERVER = """authorization { users = [
  { user: app, password: x, permissions: { publish: ["orders.*"], subscribe: ["_INBOX.>"] } }
] }
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An account in files, with a census of its stream."""
    monkeypatch.chdir(tmp_path)
    census_file(tmp_path / "census.parquet", SUBJECTS)
    files = {
        "new.conf": 'mappings { "orders.*": "shop.orders.$1" }',
        "server.conf": SERVER,
        "streams/one.json": {"config": STREAM},
        "consumers/one.json": {"stream_name": "ORDERS", "name": "eu", "config": CONSUMER},
    }
    write_files(tmp_path, files)
    return tmp_path


AROUND = ("--streams", "streams", "--consumers", "consumers", "--permissions", "server.conf")


NEW = ("--census", "census.parquet", "--candidate", "new.conf")


def plan(*more: str, around: Sequence[str] = AROUND, out: str = "plan") -> tuple[int, str, str]:
    return nats_transform("plan", *NEW, *around, "--out", out, *more)


def refused(said: str, *more: str, around: Sequence[str] = AROUND, **fields: str) -> str:
    """The line that says why there is no plan."""
    err = command.refused("plan", *NEW, *around, "--out", "plan", *more)
    assert not Path("plan").exists()
    assert says(err, said, **fields)
    return err


def planned(*more: str, around: Sequence[str] = AROUND, out: str = "plan") -> Plan:
    """The plan that the command makes."""
    code, text, err = plan(*more, around=around, out=out)
    assert code == 0, text + err
    return made_in(Path(out))


def made_in(folder: Path) -> Plan:
    return Plan.model_validate_json((folder / "plan.json").read_bytes())


def test_a_folder_with_every_step(project: Path) -> None:
    out = printed("plan", *NEW, *AROUND, "--out", "plan", "--stages", "10,100")
    assert out.splitlines()[0] == "1. Let streams store the new subjects: stream ORDERS"
    folder = project / "plan"
    # Who reviews the folder has not seen what the command printed.
    for page in ("README.md", "index.html"):
        assert "Nobody looked at " in (folder / page).read_text()
        assert "subscribers without JetStream" in (folder / page).read_text()
    made = made_in(folder)
    phases = [*[("expand", None)] * 3, ("shift", 10), ("shift", 100), *[("contract", None)] * 3]
    assert [(step.phase, step.percent) for step in made.steps] == phases
    assert [step.number for step in made.steps] == [*range(1, 9)]
    assert made.audited == "ORDERS"
    (need,) = made.steps[3].needs
    assert need.hours == round(need.messages / 9_000, 1)  # 90,000 in ten hours
    assert set(made.made_from) == {
        "candidate", "streams/one.json", "consumers/one.json", "permissions", "census",
    }  # fmt: skip
    # What servers are given says what it said before, but for what changes.
    (wide,) = load_streams(folder / "01-expand" / "stream-ORDERS.json")
    assert wide.subjects == ["orders.*", "shop.orders.*"]
    (old,) = load_streams(folder / "01-expand" / "undo" / "stream-ORDERS.json")
    assert old.model_dump() == load_streams(project / "streams")[0].model_dump()
    consumer = json.loads((folder / "02-expand" / "consumer-ORDERS.eu.json").read_bytes())
    filters = ["orders.eu", "shop.orders.eu"]
    assert consumer == {"durable_name": "eu", "ack_policy": "explicit", "filter_subjects": filters}
    last = load_mappings(folder / "05-shift" / "mappings-G.conf")
    assert mapping_version(last) == made.candidate
    page = (folder / "README.md").read_text()
    assert f"needs about {need.messages:,} messages (about {need.hours:,.1f} hours" in page
    audit = "audit --observed --stream ORDERS --mapping 04-shift/mappings-G.conf"
    assert audit in page
    # All messages go one way in the last stage: there's nothing to audit.
    assert "--mapping 05-shift" not in page + (folder / "index.html").read_text()
    assert [step.wait for step in made.steps[3:5]] == [
        "the audit of this stage says `within`",
        "consumers and sources have read every message under the old subjects",
    ]
    assert not list(project.glob("nats-transform-*"))


def test_audits_are_as_strict_as_asked(project: Path) -> None:
    assert plan("--stages", "10,100", "--tolerance", "0.2")[0] == 0
    for page in ("README.md", "index.html"):
        assert "--since MOMENT --tolerance 0.2\n" in (project / "plan" / page).read_text()


def test_users_of_another_account(project: Path) -> None:
    user = '{ user: app, password: x, permissions: { publish: ["orders.*"] } }'
    (project / "server.conf").write_text(f"accounts {{ SHOP {{ users: [{user}] }} }}\n")
    planned("--stages", "100", "--permissions-account", "SHOP")
    verify = ("verify", "--plan", "plan", "--config", "server.conf", "--step", "3")
    assert "permissions app: step 3 is not in force" in printed(*verify, code=1)


def test_the_whole_configuration_of_each_step(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server can take, in the order of the steps, and back; only what changes differs."""
    monkeypatch.setenv("PASSWORD", "x")
    text = "# mine\nhttp: 8222 # as always\n" + SERVER.replace("password: x", "password: $PASSWORD")
    (project / "server.conf").write_text(text)
    made, folder = planned("--stages", "10,100"), project / "plan"
    assert (made.config, made.blocks_because) == ("server.conf", "")
    last = text
    for name in ("03-expand", "04-shift", "05-shift", "08-contract"):
        assert (folder / name / "undo" / "server.conf").read_text() == last
        last = (folder / name / "server.conf").read_text()
        assert last.startswith("# mine\nhttp: 8222 # as always\n")
        assert (
            f"on every server with {name}/server.conf, then" in (folder / "README.md").read_text()
        )
    assert mapping_version(load_mappings(folder / "05-shift" / "server.conf")) == made.candidate
    assert mapping_version(load_mappings(folder / "08-contract" / "server.conf")) == made.candidate
    assert "shop.orders.*" in last
    assert '"orders.*"' not in last.partition("mappings")[0]


IN_CLUSTER = "cluster { name: C, port: 6222 }\n"


@pytest.mark.parametrize(
    ("own", "whole"),
    [
        pytest.param(f"server_name: n1\n{IN_CLUSTER}", False, id="one of a cluster"),
        pytest.param(f"server_name: $PASSWORD\n{IN_CLUSTER}", True, id="all of a cluster"),
        pytest.param("server_name: n1\n", True, id="one alone"),
    ],
)
def test_a_file_of_one_server_is_not_for_all(
    project: Path, monkeypatch: pytest.MonkeyPatch, own: str, whole: bool
) -> None:
    monkeypatch.setenv("PASSWORD", "x")
    text = own + SERVER.replace("password: x", "password: $PASSWORD")
    (project / "server.conf").write_text(text)
    assert plan()[0] == 0
    page = (project / "plan" / "README.md").read_text()
    assert ("server.conf on every server with" in page) is whole
    assert says(page, "plan-one-server", at_line=1, file="server.conf") is not whole


def test_a_census_of_another_stream(project: Path) -> None:
    census_file(project / "census.parquet", SUBJECTS, stream="PAYMENTS")
    refused("census-of-unknown-stream", stream="PAYMENTS")
    refused("census-of-other-stream", "--stream", "ORDERS", stream="PAYMENTS", wanted="ORDERS")
    assert plan("--stream", "PAYMENTS")[0] == 0


def test_no_secret_is_copied(project: Path) -> None:
    made, folder = planned(), project / "plan"
    assert made.config is None
    assert says(made.blocks_because, "plan-secret", at_line=2, file="server.conf")
    assert says((folder / "README.md").read_text(), "plan-secret", at_line=2, file="server.conf")
    assert not list(folder.rglob("server.conf"))


IN_FORCE = "mappings { x: y }"
EXPORTS = 'exports: [ { stream: "orders.*" } ]'


@pytest.mark.parametrize(
    ("users_file", "missing"),
    [
        (IN_FORCE.replace("y", "[ { dest: y, weight: 100% } ]") + "\n" + EXPORTS, ""),
        (EXPORTS, "mappings"),
        ("mappings { x: z }\n" + EXPORTS, "mappings"),
        (IN_FORCE, "exports"),
    ],
    ids=["all in force", "no mappings", "other mappings", "no exports"],
)
def test_a_whole_file_has_what_is_in_force(
    project: Path, users_file: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server that gets the file, or the one that undoes a step, would lose it."""
    monkeypatch.setenv("PASSWORD", "hush")
    for name, content in (
        ("users.conf", f"users: [ {{ user: app, password: $PASSWORD }} ]\n{users_file}"),
        ("old.conf", f"{IN_FORCE}\n{EXPORTS}"),
        ("new.conf", 'mappings { x: y, "orders.*": "shop.orders.$1" }'),
    ):
        (project / name).write_text(f"accounts {{ SHOP {{ {content} }} }}\n")
    given = ("--mapping", "old.conf", "--permissions", "users.conf", "--account", "SHOP")
    made = planned(*given, "--stages", "100")
    because = sentence("plan-not-in-force", file="users.conf", kind=missing, account="'SHOP'")
    assert made.blocks_because == (because if missing else "")
    assert bool(list((project / "plan").rglob("users.conf"))) is not bool(missing)


def test_the_same_input_gives_the_same_bytes(project: Path) -> None:
    assert plan(out="one")[0] == plan(out="two")[0] == 0
    assert contents(project / "one") == contents(project / "two") != {}


def _damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes after a fault of a disk, a copy or an editor; sometimes the same."""
    place, other = chance.randrange(len(data)), chance.randrange(len(data))
    match chance.randrange(6):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + data[place : place + other] + data[place:]
        case 2:
            return data[:place] + data[other : other + 1] + data[place + 1 :]
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def test_a_damaged_plan_is_not_followed(project: Path) -> None:
    """What can be read of it is the same plan, with the same files."""
    assert plan("--stages", "10,100")[0] == 0
    folder = project / "plan"
    whole, texts = read_plan(folder)
    chance = random.Random(28)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    errors = []
    for _ in range(120):
        file = chance.choice([folder / "plan.json", *files])
        data = file.read_bytes()
        file.write_bytes(_damaged(data, chance))
        try:
            read, others = read_plan(folder)
            assert (read, others | {"plan.json": ""}) == (whole, texts | {"plan.json": ""})
        except PlanError as error:
            errors.append(str(error))
        file.write_bytes(data)
    assert len(errors) > 90
    assert [text for text in errors if len(text.splitlines()) != 1 or len(text) > 1000] == []


def test_the_current_folder_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "empty").mkdir()
    monkeypatch.chdir(project / "empty")
    given = ("--census", "../census.parquet", "--candidate", "../new.conf", "--without-streams")
    told = f"nats-transform: {sentence('plan-folder-current', folder='.')}\n"
    assert nats_transform("plan", *given, "--out", ".") == (2, "", told)


def test_only_a_folder_that_is_not_empty_is_refused(project: Path) -> None:
    (project / "plan").mkdir()
    mine = project / "plan" / "mine"
    mine.write_text("mine")
    command.refused("plan", *NEW, *AROUND, "--out", "plan")
    assert contents(project / "plan") == {"mine": b"mine"}
    mine.unlink()
    assert plan()[0] == 0


def test_a_source_that_no_block_can_hold(project: Path) -> None:
    (project / "new.json").write_text(json.dumps({"orders.'\"": [{"subject": "x"}]}))
    source = r"""'orders.\'"'"""
    refused("unnameable-quotes", "--candidate", "new.json", source=source)


ACCEPT = "".join(
    f"- {{code: {code}, reason: one counter for all countries}}\n"
    for code in ("collision", "irreversible", "consumer-more")
)


def test_a_refused_plan_writes_nothing(project: Path) -> None:
    (project / "new.conf").write_text('mappings { "orders.*": shop }')
    code, out, err = plan("--stages", "100")
    assert (code, err) == (1, "")
    assert [line.split(": ")[:2] for line in out.splitlines()] == [
        ["no safe plan", "collision"],
        ["no safe plan", "irreversible"],
        ["no safe plan", "consumer-more"],
        ["what it means", "nats-transform explain CODE"],
        PAGE.split(": "),
    ]
    assert not (project / "plan").exists()
    (project / "accept.yaml").write_text(ACCEPT)
    assert plan("--accept", "accept.yaml", "--stages", "100")[0] == 0
    assert "one counter for all countries" in (project / "plan" / "README.md").read_text()


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        pytest.param(ACCEPT, "accepts-nothing", "collision", id="accepts nothing"),
        pytest.param("- {code: collision}", "accept-invalid", "reason", id="no reason"),
        pytest.param("- {code: a, reason: ' '}", "accept-without-reason", "", id="empty reason"),
        pytest.param("- {code: a, reason: b, x: c}", "accept-invalid", "x: ", id="unknown field"),
        pytest.param("code: a", "accept-invalid", "", id="no list"),
        pytest.param("- [", "refused", "accept.yaml", id="no YAML"),
        pytest.param(None, "accept-unreadable", "", id="no file"),
    ],
)
def test_what_cannot_be_accepted(project: Path, text: str | None, code: str, told: str) -> None:
    if text is not None:
        (project / "accept.yaml").write_text(text)
    assert told in refused(code, "--accept", "accept.yaml")


@pytest.mark.parametrize("stages", ["50,10,100", "2,10", "0,100", "2,2,100", "x"])
def test_stages_rise_to_100(project: Path, stages: str) -> None:
    assert refused("refused", "--stages", stages)


def test_nothing_to_do(project: Path) -> None:
    """Also where the file is written in another way, and what was accepted is found no more."""
    (project / "old.conf").write_text(
        '# in force\nmappings { "orders.*": [{dest: "shop.orders.$1", weight: 100}] }'
    )
    (project / "accept.yaml").write_text(ACCEPT)
    told = "the candidate's mappings are in force already"
    accepting = plan("--mapping", "old.conf", "--accept", "accept.yaml")
    assert (accepting[0], accepting[2]) == (0, "")
    assert accepting[1].startswith(f"nothing to do: {told}\nlooked at 1 stream, 1 consumer of ")
    code, out, _ = plan("--mapping", "old.conf", "--json")
    found = json.loads(out)
    assert (code, found["folder"], found["plan"]["steps"], found["blocked"]) == (0, None, [], [])
    assert told in plan("--mapping", "old.conf", "--format", "markdown")[1]
    assert not (project / "plan").exists()


def test_json(project: Path) -> None:
    told: Any = json.loads(plan("--json")[1])
    assert told["folder"] == "plan"
    assert told["plan"] == json.loads((project / "plan" / "plan.json").read_bytes())


@pytest.mark.parametrize("form", ["markdown", "github", "sarif"])
@pytest.mark.parametrize("is_safe", [True, False], ids=["a plan", "no plan"])
def test_in_a_review(project: Path, form: str, is_safe: bool) -> None:
    if not is_safe:
        (project / "new.conf").write_text('# mine\nmappings { "orders.*": shop }')
    code, out, err = plan("--format", form, "--stages", "100")
    assert (code, err) == (0 if is_safe else 1, "")
    if form == "markdown":
        page = str(cmarkgfm.github_flavored_markdown_to_html(out))
        text = unescape(re.sub("<[^>]*>", "", page))
        assert text.startswith("nats-transform plan")
        assert ("1. Let streams store the new subjects: stream ORDERS" in text) == is_safe
        assert ("2 subjects become 1" in text) != is_safe
        assert ("<details>" in page, "<ol" in page) == (False, False)
    elif form == "github":
        annotations = [line for line in out.splitlines() if line.startswith("::")]
        place = "file=new.conf,line=2,col=12,title=collision"
        assert [place in line for line in annotations[:1]] == ([] if is_safe else [True])
        assert len(annotations) == (0 if is_safe else 3)
    else:
        Sarif.model_validate(json.loads(out))
        results = json.loads(out)["runs"][0]["results"]
        assert [one["ruleId"] for one in results] == (
            [] if is_safe else ["collision", "irreversible", "consumer-more"]
        )


def test_the_page_as_github_shows_it(project: Path) -> None:
    """Every step is a heading with its commands as code, and no name acts in it."""
    name = "`x`<b>*u*</b> @team"
    (project / "server.conf").write_text(SERVER.replace("user: app", f'user: "{name}"'))
    (project / "accept.yaml").write_text(
        ACCEPT.replace("one counter for all countries", "'<img src=x> ![x](y)'")
    )
    (project / "new.conf").write_text('mappings { "orders.*": shop }')
    made = planned("--accept", "accept.yaml", "--stages", "10,100")
    written = (project / "plan" / "README.md").read_text()
    page = str(cmarkgfm.github_flavored_markdown_to_html(written))
    headings = [unescape(one) for one in re.findall("<h2>(.*?)</h2>", page)]
    assert headings == [f"{step.number}. {step.title}" for step in made.steps]
    assert page.count("</pre>") == written.count("```sh\n") >= 3 * len(made.steps)
    assert not re.search("<(b|img|em|strong)[ >]", page)


def ask(server: NatsServer, subject: str, body: Any) -> Any:
    with Client(server.url) as client:
        return client.api(subject, body)


@pytest.mark.server
def test_streams_and_consumers_from_a_server(project: Path, nats_server: NatsServer) -> None:
    there = ("--server", nats_server.url)
    refused("no-streams", around=there)
    for n in range(300):  # the server shows 256 at once
        ask(nats_server, f"STREAM.CREATE.S{n}", {"name": f"S{n}", "subjects": [f"s.{n}"]})
    ask(nats_server, "STREAM.CREATE.ORDERS", STREAM)
    for config in (CONSUMER, {"ack_policy": "explicit", "filter_subject": "orders.us"}):
        name = f".{config['durable_name']}" if "durable_name" in config else ""
        body = {"stream_name": "ORDERS", "config": config}
        ask(nats_server, f"CONSUMER.CREATE.ORDERS{name}", body)
    made = planned(around=there, out="one")
    with Client(nats_server.url) as client:
        client.publish("orders.eu", b"x")
    assert plan("--json", around=there, out="two")[0] == 0
    assert contents(project / "one") == contents(project / "two") != {}
    named = {"streams/ORDERS.json", "streams/S299.json", "consumers/ORDERS.eu.json"}
    assert named <= {*made.made_from}
    assert [c.name for step in made.steps for c in step.changes if c.kind == "consumer"] == [
        "ORDERS/eu", "ORDERS/eu",
    ]  # fmt: skip
    # What it was told is not what it would do: nothing has changed on the server.
    assert ask(nats_server, "STREAM.INFO.ORDERS", {})["config"]["subjects"] == ["orders.*"]
    dry = json.loads(nats_transform("dry-run", *NEW, *there, "--fail-on", "never", "--json")[1])
    assert (dry["summary"]["streams"], dry["summary"]["consumers"]) == (301, 1)
    assert {one["code"] for one in dry["findings"]} >= {"not-captured", "consumer-none"}


@pytest.mark.server
@pytest.mark.parametrize(
    ("more", "code"),
    [(("--account", "SHOP"), "other-account"), (("--streams", "streams"), "files-or-server")],
    ids=["another account", "files too"],
)
def test_a_server_that_is_not_meant(
    project: Path, nats_server: NatsServer, more: tuple[str, ...], code: str
) -> None:
    mappings = 'mappings { "orders.*": "s.$1" }'
    (project / "new.conf").write_text(f"accounts {{ SHOP {{ {mappings} }} }}\n{mappings}")
    refused(code, *more, around=("--server", nats_server.url))


@pytest.mark.server
@pytest.mark.parametrize("kind", ["stream", "consumer"])
def test_a_name_that_the_nats_command_takes_for_an_option(
    project: Path, nats_server: NatsServer, kind: str
) -> None:
    """nats-server has nothing against it."""
    stream = {"name": "--help" if kind == "stream" else "PLAIN", "subjects": ["other.*"]}
    consumer = {"durable_name": "-c", "ack_policy": "explicit", "filter_subject": "other.x"}
    wanted = {"stream_name": stream["name"], "config": consumer}
    ask(nats_server, f"STREAM.CREATE.{stream['name']}", stream)
    ask(nats_server, f"CONSUMER.CREATE.{stream['name']}.-c", wanted)
    ask(nats_server, f"STREAM.DELETE.{stream['name']}", {})
    (project / "streams" / "other.json").write_text(json.dumps({"config": stream}))
    if kind == "consumer":
        (project / "consumers" / "other.json").write_text(json.dumps(wanted | {"name": "-c"}))
    (project / "new.conf").write_text('mappings { "other.*": "new.$1" }')
    name = "--help" if kind == "stream" else "PLAIN/-c"
    refused("unnameable-dash", kind=kind, name=repr(name))


def test_nobody_is_asked_who_was_not_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:9")
    refused("server-not-reached", around=("--server", "nats://127.0.0.1:9"))
    assert plan()[0] == 0


@pytest.mark.server
def test_a_source_that_is_behind_is_waited_for(project: Path, nats_server: NatsServer) -> None:
    """A stream that is full takes no more from another one, and must not lose its source then."""
    full = {"max_msgs": 1, "discard": "new", "storage": "memory"}
    for config in (
        {"name": "UP", "subjects": ["up.*"], "storage": "memory"},
        {"name": "DOWN", "sources": [{"name": "UP", "filter_subject": "up.eu"}], **full},
    ):
        ask(nats_server, f"STREAM.CREATE.{config['name']}", config)
    census_file(project / "up.parquet", {b"up.eu": 9}, stream="UP")
    (project / "up.conf").write_text('mappings { "up.*": "new.$1" }')
    up = ("--census", "up.parquet", "--candidate", "up.conf")  # in place of those of the project
    planned(*up, "--stages", "100", around=("--server", nats_server.url))
    for name in ("UP", "DOWN"):
        text = (project / "plan" / "01-expand" / f"stream-{name}.json").read_text()
        ask(nats_server, f"STREAM.UPDATE.{name}", json.loads(text))
    verify = ("verify", "--plan", "plan", "--step", "1", "--undo", "--server", nats_server.url)
    assert nats_transform(*verify)[0] == 0
    assert "Before you undo it" in (project / "plan" / "README.md").read_text()
    with Client(nats_server.url) as client:
        for _ in range(3):
            client.publish("new.eu", b"x")
        client.flush()
    for _ in range(100):
        code, out, _ = nats_transform(*verify)
        if code:
            break
    assert "stream DOWN has not taken all messages from UP yet: wait before step 1 is undone" in out
    # The other source has nothing to take.
    assert nats_transform(*verify[:5], *verify[6:])[0] == 0


def certificate(project: Path, **more: Any) -> str:
    """A certificate as `certify --json` prints it, shortened."""
    document = {
        "holds": True,
        "mapping_version": mapping_version(load_mappings(project / "new.conf")),
        "stream": "ORDERS",
        "tried": 90_010,
        "share": 1.0,
        "nats_server": "2.15.1<b>",
        "divergences": [],
        "draws": [],
    }
    (project / "certificate.json").write_text(json.dumps(document | more))
    return "certificate.json"


def test_a_certificate_goes_into_the_folder(project: Path) -> None:
    given = certificate(project)
    assert plan("--certificate", given)[::2] == (0, "")
    made, texts = read_plan(project / "plan")
    assert texts["certificate.json"] == (project / given).read_text()
    assert made.certificate is not None
    assert "certificate" in made.made_from
    words = "did as predicted with 90,010 messages (100 %) of stream ORDERS"
    assert f"nats-server 2.15.1&#60;b&#62; {words}" in texts["README.md"]
    assert f"nats-server 2.15.1&lt;b&gt; {words}" in texts["index.html"]


@pytest.mark.parametrize(
    ("more", "code", "why"),
    [
        ({"mapping_version": "f" * 64}, "certificate-of-other-version", "'ffffffffffff'"),
        ({"stream": "OTHER"}, "certificate-of-other-stream", "'OTHER'"),
        ({"holds": False}, "certificate-not-clean", "it says that it does not hold"),
        ({"divergences": [{"kind": "subject", "messages": 3}]}, "certificate-not-clean", "1 way"),
        ({"tried": 0, "holds": False}, "certificate-not-clean", "it tried nothing"),
        ({"tried": 0}, "certificate-not-clean", "it tried nothing"),
        ({"share": 7}, "not-a-certificate", "share"),
    ],
)
def test_a_certificate_that_stops_a_plan(
    project: Path, more: dict[str, Any], code: str, why: str
) -> None:
    assert why in refused(code, "--certificate", certificate(project, **more))


def test_a_file_that_is_no_certificate(project: Path) -> None:
    refused("not-a-certificate", "--certificate", "new.conf", file="new.conf")
