"""Edits of a server's configuration change what they say, and no other byte."""

from __future__ import annotations

import difflib
import re
import time
from pathlib import Path
from typing import Any

import pytest

from nats_transform.config import load_mappings, parse_server_config, plain
from nats_transform.config.edit import Edit, Unsafe, edited, secrets
from tests.support.files import written
from tests.support.jwt_signing import new_key, public
from tests.support.refused import refused
from tests.support.server_check import checked

WORKER = public(new_key("user"))
AT_REST = ("key", "ek", "encryption_key", "prev_key", "prev_ek", "PREV_ENCRYPTION_KEY")
TPM = ("srk_password", "encryption_password")
JWT = "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.e30.x"
PUBLIC = f"U{'A' * 55}"
HARMLESS = {
    "files": "tls { cert_file: a, key_file: b, ca_file: c, pinned_certs: [ab] }",
    "keys of TPM": "jetstream { key: $PLANTED, tpm { keys_file: a, cipher: aes } }",
    "cookies": "websocket { token_cookie: a, pass_cookie: b, jwt_cookie: c }",
    "credentials": "leafnodes { remotes: [ { url: 'tls://hub', credentials: '/a/leaf.creds' } ] }",
    "public keys": f"proxies {{ trusted: [ {{ key: '{PUBLIC}' }} ] }}\ntrusted_keys: [{PUBLIC}]",
    "callout": f"authorization {{ auth_callout {{ issuer: A, key: {PUBLIC} }} }}",
    "positions": "max_sub_tokens: 9\nx { service: a.*, account_token_position: 2 }",
    "sources": "accounts { TOKEN { maps { token: a, key: [ { dest: a, weight: 50% } ] } } }",
    "words about keys": "# the key is elsewhere\nport: 1",
}
CONFIG = """# Cluster of the shop: { do not touch }
port: 4222  // as always
http: 'localhost:8222'
accounts {
  SHOP: {
    jetstream: enabled  # } not the end
    users = [
      { user: app, password: $2a$11$ooooooooooooooooooooooooooooooooooooooooooooooooooooo }
      # the worker {
      {
        nkey: WORKER
        permissions { publish: "orders.*", subscribe: [ "_INBOX.>" ] } # mine
      }
    ]
    mappings = {
      "orders.*": "{old}.{{wildcard(1)}}", # stays?
    }
    exports [ {stream: "orders.*"} ]
  }
  OTHER { imports: [ {stream: {account: SHOP, subject: "orders.*"}} ], users [] }
}
""".replace("WORKER", WORKER)
MAPPINGS = 'mappings {\n  "orders.*": [\n    { destination: "shop.$1", weight: 100% }\n  ]\n}\n'


EDITS = {
    "mappings": (
        Edit("mappings", "SHOP", MAPPINGS),
        ["    mappings = {", '      "orders.*": "{old}.{{wildcard(1)}}", # stays?', "    }"],
    ),
    "mappings in one line": (Edit("mappings", "OTHER", MAPPINGS), ["  OTHER"]),
    "mappings of everybody": (Edit("mappings", "$G", MAPPINGS), []),
    "permissions": (
        Edit("permissions", WORKER, 'permissions { "publish": { "allow": ["x"] } }\n'),
        ["        permissions {"],
    ),
    "permissions of a user who has none": (
        Edit("permissions", "app", 'permissions { "publish": { "deny": ["x"] } }\n'),
        ["      { user: app"],
    ),
    "exports": (
        Edit("exports", "SHOP", 'exports: [\n  { stream: "orders.*" }\n  { service: "b" }\n]\n'),
        ["    exports ["],
    ),
    "imports of an account that has none": (
        Edit("imports", "SHOP", "imports: [\n]\n"),
        ["  SHOP: {"],
    ),
}


@pytest.mark.parametrize(("edit", "gone"), EDITS.values(), ids=EDITS)
def test_nothing_else_changes(edit: Edit, gone: list[str], tmp_path: Path) -> None:
    path = str(written(tmp_path / "server.conf", CONFIG))
    new = edited(CONFIG, path, "SHOP", [edit])
    changes = difflib.ndiff(CONFIG.split("\n"), new.split("\n"))
    lost = [line[2:] for line in changes if line.startswith("- ")]
    assert len(lost) <= len(gone)
    for line in lost:
        assert any(line.startswith(one) for one in gone)
    for comment in ("# Cluster of the shop: { do not touch }", "// as always", "# the worker {"):
        assert comment in new
    # Twice is once, and the way back says what was said.
    assert edited(new, path, "SHOP", [edit]) == new
    config = written(tmp_path / "new.conf", new)
    is_taken, said = checked(config)
    assert is_taken, said
    if edit.kind == "mappings":
        assert load_mappings(config, edit.name).apply("orders.eu").subject == "shop.eu"


def test_braces_around_the_file() -> None:
    text = "{\n port: 4222\n}\n"
    new = edited(text, "x.conf", "$G", [Edit("mappings", "$G", MAPPINGS)])
    assert new.endswith("\n port: 4222\n}\n")


@pytest.mark.parametrize(
    ("text", "edit", "code"),
    [
        ("accounts { A {} }", Edit("mappings", "B", MAPPINGS), "edit-no-account"),
        ("m {}\naccounts { A { mappings: $m } }", Edit("mappings", "A", MAPPINGS), "edit-no-block"),
        (
            "accounts { A { users: [ {user: u, pass: x}, {user: u, pass: y} ] } }",
            Edit("permissions", "u", "permissions { publish: x }\n"),
            "edit-no-user",
        ),
        ("port: 1", Edit("permissions", "u", "permissions { publish: x }\n"), "edit-no-account"),
        (
            "accounts { A { mappings { a: [x, \n# }\n'}' ] } }\n}\nmappings { b: \"c}\" }",
            Edit("mappings", "A", MAPPINGS),
            None,
        ),
    ],
    ids=["no account", "variable", "two users", "no accounts", "braces in comments and strings"],
)
def test_what_is_not_safe(text: str, edit: Edit, code: str | None, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    if code is None:
        tree: Any = plain(parse_server_config(written(path, edited(text, str(path), "A", [edit]))))
        assert tree["mappings"] == {"b": "c}"}
        return
    with refused(Unsafe, code):
        edited(text, str(path), "A", [edit])


def test_what_is_included_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "part.conf").write_text('mappings { "a": "b" }\n')
    text = "accounts { A { include part.conf\n } }"
    with refused(Unsafe, "edit-included", included=re.compile("part.conf$")):
        edited(text, str(tmp_path / "server.conf"), "A", [Edit("mappings", "A", MAPPINGS)])


SECRETS = {
    "password": ("a: 1\nauthorization { user: u, password: planted }", [2]),
    "token": ("authorization { token: planted }", [1]),
    "hash": ("authorization { user: u, password: $2a$11$oooooooooooooooooooooooooooooooo }", []),
    "variable": ("authorization { user: u, password: $PLANTED }", []),
    "URL": ("cluster { routes: [nats://u:planted@host:6222] }", [1]),
    "comment": ("# the old password: planted\nport: 1", [1]),
    "seed": ("x: SUAMK2FG4MI6UE3ACF3FK3OIQBCEIEZV7NSWFFEW63UXMRLFM2XLAXK4GY", [1]),
    "none": ("tls { cert_file: a, key_file: b }\nnkey: UAAA", []),
    "words": ("\nport: 1 // pass, and tokens\t:\n  # planted", [2]),
    "end": ("# no password\n", []),
    **{key: (f"\njetstream {{ {key}: planted }}", [2]) for key in AT_REST},
    **{key: (f"\njetstream {{ tpm {{ {key}: planted }} }}", [2]) for key in TPM},
    "token in a URL": ("leafnodes { remotes: [ { url: 'nats-leaf://planted@hub:7422' } ] }", [1]),
    "JWT": (f"default_sentinel: {JWT}", [1]),
    "variable of the file": (
        "PW: planted\nB: $PW\nauthorization { user: u, password: $B }",
        [1],
    ),
    "first of two": ("authorization { token: planted, token: $PLANTED }", [1]),
    "key in a comment": ('# jetstream { key: "planted" }', [1]),
    "query": ("\nresolver: URL(https://host/jwt?v=1&api_key=planted)", [2]),
    "no query": ("resolver: 'URL(https://host/jwt?v=1&monkey=)'", []),
    **{name: (text, []) for name, text in HARMLESS.items()},
}


@pytest.mark.parametrize(("text", "lines"), SECRETS.values(), ids=SECRETS)
def test_secrets_are_found(text: str, lines: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "x")
    assert list(secrets(text, "server.conf")) == lines


@pytest.mark.parametrize(
    "text",
    [
        "port: 4222 " + "# " * 10**6,
        "# pass" + " " * 10**6,
        "# " + "pass" * 10**6,
        "# ?" + "pass" * 10**6,
        "authorization { users: [\n" + "{ pass: p }\n" * 20_000 + "] }",
    ],
    ids=["marks", "blanks", "word", "query", "passwords"],
)
def test_looking_for_secrets_takes_time_in_proportion(text: str) -> None:
    """A quadratic step would take hours on these; so even a busy machine tells them apart."""
    started = time.process_time()
    list(secrets(text, "server.conf"))
    assert time.process_time() - started < 20
