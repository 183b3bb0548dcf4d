"""`nats-transform check`: findings, refusals, files that cannot be read, exit codes."""

from __future__ import annotations

import json
import re
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from nats_transform.config import load
from nats_transform.errors import InvalidConfig, sentence
from nats_transform.lint.findings import CODES, PAGE
from tests.cases import load as load_cases
from tests.support.command import nats_transform, printed, refused
from tests.support.files import write_files
from tests.support.jwt_signing import claims, new_key, public, token
from tests.support.saying import pattern_of

CANARY = """mappings {
  shop: [ { destination: shop.v1, weight: 90% }, { destination: shop.v2, weight: 8% } ]
  "orders.*": "orders.$1.new"
}
"""
STREAM = {"name": "ORDERS", "subjects": ["orders.*"]}
REST = "consumers, permissions and published subjects (nats-transform dry-run)\n"
REST_IN_JSON = {
    "what": "consumers, permissions and published subjects",
    "cure": "nats-transform dry-run",
}
UNSEEN = f"not looked at: streams (give their files too); {REST}"


run = partial(nats_transform, "check")


def document(*args: str) -> tuple[int, Any]:
    code, out, err = run(*args, "--json")
    assert (err, out.count("\n")) == ("", 1)
    return code, json.loads(out)


def found(*args: str, of: str = "code") -> list[tuple[Any, ...]]:
    """These fields of each finding."""
    return [tuple(one[name] for name in of.split()) for one in document(*args)[1]["findings"]]


def test_findings_have_file_line_severity_code_and_cure(folder: Path) -> None:
    (folder / "a.conf").write_text(CANARY)
    assert printed("check", "a.conf") == (
        "a.conf:2:3: warning remainder-kept: mapping 'shop': 2 % of the messages in all clusters "
        "keep their subject\n"
        f"    {CODES['remainder-kept'].cure}\n"
        "what it means: nats-transform explain remainder-kept\n"
        f"{PAGE}#check-remainder-kept\n"
        f"{UNSEEN}1 file checked: 1 warning\n"
    )


def test_only_so_many_findings_are_printed(folder: Path) -> None:
    lines = [f'"*.a{n}": b{n}' for n in range(501)]
    (folder / "a.conf").write_text("mappings {\n" + "\n".join(lines) + "\n}")
    out = printed("check", "a.conf")
    *findings, left, _, _, _, summary = out.splitlines()
    assert len(findings) == 2 * 500
    assert left == "and 1 more finding: see --json"
    assert summary == "1 file checked: 501 warnings"
    assert len(document("a.conf")[1]["findings"]) == 501


def test_what_was_not_looked_at(folder: Path) -> None:
    """It is said before nothing is found, in every form; what is given is left out."""
    two = "mappings { foo: bar }\naccounts { A { mappings { 'orders.*': 'new.$1' } } }"
    one = "mappings { foo: [ {destination: bar, weight: 100, cluster: east} ] }"
    write_files(folder, {"a.conf": one, "s.json": STREAM, "two.conf": two})
    several = (
        "what the mappings do to the streams, because several accounts have mappings "
        "(--account NAME, or one file of mappings at a time)"
    )
    clusters = "which clusters there are (--cluster NAME for each)"
    given = "a.conf", "s.json", "--cluster", "east"
    for arguments, line in (
        (("a.conf",), f"{UNSEEN.removesuffix(REST)}{clusters}; {REST}"),
        (("s.json",), f"not looked at: mappings (give the file of the account too); {REST}"),
        (given, f"not looked at: {REST}"),
        (("two.conf", "s.json"), f"not looked at: {several}; {REST}"),
        (("two.conf", "s.json", "--account", "$G"), f"not looked at: {REST}"),
    ):
        _, out, _ = run(*arguments)
        assert line in out
        assert out.index(line) < out.index("nothing found")
        assert line.strip() in run(*arguments, "--format", "github")[1]
        markdown = unescape(run(*arguments, "--format", "markdown")[1])
        assert line.strip() in markdown
        (sarif,) = json.loads(run(*arguments, "--format", "sarif")[1])["runs"]
        (told,) = sarif["invocations"][0]["toolExecutionNotifications"]
        assert (told["level"], told["message"]["text"]) == ("note", line.strip())
    assert document(*given)[1]["not_looked_at"] == [REST_IN_JSON]


def test_the_consumer_that_a_source_reads(folder: Path) -> None:
    reads = {"name": "ORDERS", "consumer": {"name": "OLD", "deliver_subject": "to.old"}}
    orders = STREAM | {"subjects": ["orders.*", "shop.*"]}
    streams = {
        "streams/ORDERS.json": orders,
        "streams/ALL.json": {"name": "ALL", "sources": [reads]},
    }
    write_files(folder, {"a.conf": 'mappings { "orders.*": "shop.$1" }', **streams})
    told = "the filter of consumer OLD of stream ORDERS, which stream ALL reads (its file in"
    code, out, _ = run("a.conf", "--streams", "streams")
    assert (code, told in out, "source-stops" in out) == (0, True, False)
    old = {"stream_name": "ORDERS", "config": {"durable_name": "OLD", "filter_subject": "orders.*"}}
    write_files(folder, {"consumers/OLD.json": old})
    code, out, _ = run("a.conf", "--streams", "streams", "--consumers", "consumers")
    assert (code, told in out, "source-stops" in out) == (0, False, True)
    assert "stream ALL: it will not take from ORDERS what the mapping moves" in out


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("mappings { foo: '' }", {"error": 1, "warning": 1, "info": 1, "never": 0}),
        (CANARY, {"error": 0, "warning": 1, "info": 1, "never": 0}),
        ("mappings { foo.>: foo.v2.> }", {"error": 0, "warning": 0, "info": 1, "never": 0}),
        ("mappings { foo: bar }", {"error": 0, "warning": 0, "info": 0, "never": 0}),
    ],
    ids=["error", "warning", "info", "fine"],
)
def test_fail_on_decides_the_exit_code(folder: Path, text: str, levels: dict[str, int]) -> None:
    (folder / "a.conf").write_text(text)
    assert {level: run("a.conf", "--fail-on", level)[0] for level in levels} == levels
    assert run("a.conf")[0] == levels["error"]
    # What never fails is not called fine.
    told = document("a.conf", "--fail-on", "never")[1]
    assert (told["summary"]["error"], told["fine"]) == (levels["error"], not levels["error"])


def test_json_is_one_document(folder: Path) -> None:
    (folder / "a.conf").write_text(CANARY)
    assert document("a.conf") == (
        0,
        {
            "files": ["a.conf"],
            "fine": True,
            "summary": {"error": 0, "warning": 1, "info": 0},
            "findings": [
                {
                    "code": "remainder-kept",
                    "severity": "warning",
                    "message": "2 % of the messages in all clusters keep their subject",
                    "cure": CODES["remainder-kept"].cure,
                    "help": f"{PAGE}#check-remainder-kept",
                    "source": "shop",
                    "destination": "",
                    "place": "mapping",
                    "path": "a.conf",
                    "line": 2,
                    "column": 3,
                }
            ],
            "diff": "",
            "not_looked_at": [
                {"what": "streams", "cure": "give their files too"},
                REST_IN_JSON,
            ],
        },
    )


REFUSED = load_cases("refused.yaml")


@pytest.mark.parametrize("row", REFUSED)
def test_all_that_the_server_refuses_is_told(folder: Path, row: str) -> None:
    name, text, lines = (REFUSED[row][key] for key in ("file", "text", "lines"))
    (folder / name).write_text(text)
    code, found = document(name, "--fail-on", "error")
    assert (code, found["summary"]) == (1, {"error": len(lines), "warning": 0, "info": 0})
    findings = found["findings"]
    assert {(one["code"], one["severity"], one["path"]) for one in findings} == {
        ("refused", "error", name)
    }
    assert [one["line"] for one in findings] == lines
    messages = [one["message"] for one in findings]
    assert len({*messages}) == len(lines)
    assert re.search(pattern_of(REFUSED[row].get("reason", "")), messages[0])
    assert not any(name in message for message in messages)
    # Whatever reads the file for another purpose names the first.
    with pytest.raises(InvalidConfig) as caught:
        load(folder / name)
    assert str(caught.value).endswith(messages[0])


def test_an_error_in_an_included_file_names_that_file(folder: Path) -> None:
    (folder / "a.conf").write_text("include 'b.conf'")
    (folder / "b.conf").write_text("\nmappings { foo: 'b.*' }")
    assert found("a.conf", of="code path line") == [("refused", "b.conf", 2)]


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("none.conf", "none.conf: No such file or directory"),
        (".", sentence("check-folder", file=".")),
        ("-", "-: No such file or directory; give a file's name, we don't read standard input"),
        ("/dev/zero", sentence("check-not-regular", file="/dev/zero")),
    ],
)
def test_a_file_that_cannot_be_read_is_exit_2(folder: Path, file: str, told: str) -> None:
    assert run(file) == (2, "", f"nats-transform: {told}\n")
    (folder / "a.conf").write_text("mappings { foo: bar }")
    assert run("a.conf", "--subjects", file) == (2, "", f"nats-transform: {told}\n")


def test_nothing_found_and_a_file_without_mappings(folder: Path) -> None:
    (folder / "a.conf").write_text("port: 4222")
    (folder / "b.conf").write_text("mappings { foo: bar }")
    assert printed("check", "b.conf") == f"{UNSEEN}1 file checked, nothing found\n"
    both = f"{UNSEEN}2 files checked, nothing found\na.conf has no mappings\n"
    assert printed("check", "a.conf", "b.conf") == both


def test_accounts(folder: Path) -> None:
    (folder / "a.conf").write_text(
        "mappings { foo: bar }\naccounts { A { mappings { foo: foo } }\n B {} }"
    )
    everything = [("changes-nothing", "mapping of account A", 2)]
    assert found("a.conf", of="code place line") == everything
    for account, codes in (("$G", []), ("B", []), ("A", [("changes-nothing",)])):
        assert found("a.conf", "--account", account) == codes
    assert run("a.conf", "--account", "B")[1].endswith("\na.conf has no mappings of account B\n")
    told = sentence("no-account", name="'C'", listed="'$G', 'A', 'B'")
    assert run("a.conf", "--account", "C") == (2, "", f"nats-transform: a.conf: {told}\n")


def test_mappings_of_other_accounts_do_not_pass_unseen(folder: Path) -> None:
    """A server shows the streams of one account, which is `$G` if none is named."""
    (folder / "a.conf").write_text("accounts { A { mappings { foo: '' } } }")
    told = sentence("account-without-mappings", name="'$G'", listed="'A'")
    line = refused("check", "a.conf", "--server", "nats://127.0.0.1:1")
    assert line == f"nats-transform: a.conf: {told}\n"


def test_an_account_is_seen_with_those_that_import_from_it(folder: Path) -> None:
    (folder / "a.conf").write_text(
        "accounts { A { exports: [{stream: '>'}], mappings { 'orders.*': 'shop.$1' } }\n"
        "B { imports: [{stream: {account: A, subject: 'orders.*'}}], mappings { foo: foo } } }"
    )
    told = found("a.conf", "--account", "A", of="code place")
    assert told == [("escapes-export", "mapping")]


def test_an_account_is_seen_with_those_beyond_a_leaf_node(folder: Path) -> None:
    (folder / "leaf.conf").write_text(
        "leafnodes { remotes: [{url: 'nats://u:p@hub', account: A}] }\n"
        "accounts { A { mappings { 'o.*': 's.$1' } } }"
    )
    (folder / "hub.conf").write_text(
        "accounts { A {}, HUB { users: [{user: u, password: p}], mappings { 's.*': 't.$1' } } }\n"
        "leafnodes { port: 7422 }"
    )
    told = found("leaf.conf", "hub.conf", "--account", "A", of="code path")
    assert told == [("mapped-twice", "leaf.conf")]


def test_two_streams_of_one_name_are_refused(folder: Path) -> None:
    """One of them would hide that messages leave the other."""
    (folder / "a.conf").write_text("mappings { 'orders.*': 'orders.$1.new' }")
    moved = STREAM | {"subjects": ["orders.*.new"]}
    write_files(folder, {"1.json": STREAM, "2.json": moved})
    clash = sentence("stream-twice", stream="ORDERS", places="1.json")
    told = refused("check", "a.conf", "1.json", "2.json")
    assert told == f"nats-transform: 2.json: {clash}\n"
    (folder / "shown").mkdir()
    (folder / "1.json").rename(folder / "shown" / "1.json")
    told = refused("check", "a.conf", "2.json", "--streams", "shown")
    assert told == f"nats-transform: shown: {clash.replace('1.json', '2.json')}\n"


def test_several_files_are_held_against_each_other(folder: Path) -> None:
    (folder / "a.conf").write_text("mappings { 'orders.*': 'orders.$1.new' }")
    write_files(folder, {"s.json": {"config": STREAM}, "bad.json": STREAM | {"name": "a.b"}})
    assert found("a.conf") == []
    told = found("a.conf", "s.json", "bad.json", of="code path")
    assert told == [("refused", "bad.json"), ("escapes-stream", "a.conf")]


def test_clusters_and_subjects_of_the_caller(folder: Path) -> None:
    (folder / "a.conf").write_text(
        "mappings { foo: [{dest: a, weight: 100, cluster: eest}, {dest: b, weight: 100}]\n"
        " 'o.*': 'p.{{partition(4,1)}}.$1' }"
    )
    (folder / "subjects").write_bytes(b"o.a\r\no.b\n\no.\xff\nfoo\n")
    assert found("a.conf") == []
    given = ("--cluster", "east", "--cluster", "west", "--subjects", "subjects")
    (_, cluster, _), (_, keys, told) = found("a.conf", *given, of="line code message")
    assert (cluster, keys) == ("unknown-cluster", "few-keys")
    assert told.startswith("the given subjects have 3 different keys for 4")
    uncounted = "keys of partition(), because no given subject reaches one"
    assert uncounted not in run("a.conf", "--subjects", "subjects")[1]
    (folder / "subjects").write_text("p.a\no\n")
    assert uncounted in run("a.conf", "--subjects", "subjects")[1]


def test_a_jwt_that_is_not_to_be_trusted(folder: Path) -> None:
    operator, account = new_key("operator"), new_key("account")
    mappings = {"foo": [{"subject": "bar"}]}

    def write(signer: Any, expires: int | None = None) -> None:
        said = claims(account, operator, "account", expires, mappings=mappings)
        (folder / "a.jwt").write_text(token(said, signer))

    write(operator)
    assert found("a.jwt") == []
    write(new_key("operator"))
    assert found("a.jwt", of="severity code message") == [
        ("error", "refused", sentence("jwt-signature"))
    ]
    write(operator, 1_600_000_000)
    told = "the JWT expired on 2020-09-13 at 12:26:40 UTC"
    assert found("a.jwt", of="severity code message") == [("error", "expired", told)]


def test_jwts_import_in_a_circle_by_public_keys(folder: Path) -> None:
    """Which alone tell accounts apart: names need not differ."""
    operator, *accounts = new_key("operator"), new_key("account"), new_key("account")
    for pair, other, to in zip(accounts, accounts[::-1], ("a.*", "b.*"), strict=True):
        exports = [{"subject": to, "type": "stream"}]
        theirs = {"a.*": "b.*", "b.*": "a.*"}[to]
        imports = [{"subject": theirs, "account": public(other), "type": "stream"}]
        imports[0]["local_subject"] = to.replace("*", "$1")
        said = claims(pair, operator, "account", exports=exports, imports=imports)
        said["nats"]["mappings"] = {"x": [{"subject": "y"}]}
        (folder / f"{to[0]}.jwt").write_text(token(said, operator))
    files = found("a.jwt", "b.jwt", of="code path")
    assert files == [("import-cycle", "a.jwt"), ("import-cycle", "b.jwt")]


def test_a_jwt_beside_a_server_keeps_its_exports(folder: Path) -> None:
    """In a file of its own an account goes by $G too, but it isn't that of the server beside it."""
    operator, account = new_key("operator"), new_key("account")
    exports = [{"subject": "orders.>", "type": "stream"}]
    said = claims(account, operator, "account", exports=exports)
    (folder / "hub.jwt").write_text(token(said, operator))
    (folder / "leaf.conf").write_text('mappings { "orders.*": "shop.$1" }')
    assert found("leaf.conf", "hub.jwt") == []
    mappings = {"orders.*": [{"subject": "shop.$1"}]}
    said = claims(account, operator, "account", exports=exports, mappings=mappings)
    (folder / "hub.jwt").write_text(token(said, operator))
    assert found("hub.jwt") == [("escapes-export",)]
