"""Account JWTs, signed here with real keys."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nkeys
import pytest

from nats_transform import AccountMappings, InvalidConfig
from nats_transform.config import load, load_all, shared_by
from nats_transform.config.jwt import decode_account
from tests.support import jwt_signing
from tests.support.files import written
from tests.support.jwt_signing import part, public
from tests.support.refused import refused, told
from tests.support.rules import mappings


def key(kind: int, byte: int) -> Any:
    return nkeys.from_seed(nkeys.encode_seed(bytes([byte]) * 32, kind))


OPERATOR = key(nkeys.PREFIX_BYTE_OPERATOR, 1)
OTHER = key(nkeys.PREFIX_BYTE_OPERATOR, 2)
ACCOUNT = key(nkeys.PREFIX_BYTE_ACCOUNT, 3)


MAPPINGS = {
    "orders.*": [
        {"subject": "orders.v1.$1", "weight": 90},
        {"subject": "orders.v2.$1", "weight": 10},
        {"subject": "orders.east.$1", "cluster": "east"},
    ],
    "a": [{"subject": "b", "weight": 0}],
}
MEANING = mappings(
    {
        "orders.*": [("orders.v1.$1", 90), ("orders.v2.$1", 10), ("orders.east.$1", 100, "east")],
        "a": "b",
    }
)


def claims(given: object = MAPPINGS, kind: str = "account") -> dict[str, Any]:
    said = jwt_signing.claims(ACCOUNT, OPERATOR, kind, mappings=given)
    return said | {"jti": "X", "name": "ORDERS"}


def token(payload: object, header: object = None, signer: Any = OPERATOR) -> str:
    return jwt_signing.token(payload, signer, header)


def decorated(text: str, kind: str = "ACCOUNT") -> str:
    return f"-----BEGIN NATS {kind} JWT-----\n{text}\n------END NATS {kind} JWT------\n\n"


@pytest.mark.parametrize("account", ["$G", "ORDERS", public(ACCOUNT)])
@pytest.mark.parametrize(
    "text",
    [
        token(claims()),
        f"\n {token(claims())}\n",
        decorated(token(claims())),
        json.dumps(claims(), indent=2),
    ],
    ids=["bare", "blanks around", "decorated", "claims"],
)
def test_the_mappings_of_an_account(tmp_path: Path, text: str, account: str) -> None:
    path = written(tmp_path / "account.jwt", text)
    assert load(path, account) == MEANING
    assert [m.source for m in load(path, account).mappings] == ["orders.*", "a"]


def test_an_account_without_mappings() -> None:
    assert decode_account(token(claims({})), "x").config == AccountMappings(())
    without = claims()
    del without["nats"]["mappings"]
    assert decode_account(token(without), "x").config == AccountMappings(())


def test_another_account_is_not_in_it(tmp_path: Path) -> None:
    with refused(InvalidConfig, "no-account", name="'B'", listed=re.compile("^'ORDERS', 'A")):
        load(written(tmp_path / "account.jwt", token(claims())), "B")


def test_version_1_signs_the_payload_alone() -> None:
    payload = {**claims(), "type": "account"}
    body = part(payload)
    head = part({"typ": "jwt", "alg": "ed25519"})
    assert decode_account(f"{head}.{body}.{part(OPERATOR.sign(body.encode()))}", "x")
    with refused(InvalidConfig, "jwt-signature"):
        decode_account(f"{head}.{body}.{part(OPERATOR.sign(f'{head}.{body}'.encode()))}", "x")


@pytest.mark.parametrize(
    "text",
    [
        token(claims(), signer=OTHER),
        token(claims())[:-20],
        token(claims()).rsplit(".", 1)[0] + ".",
        token(claims()).rsplit(".", 1)[0] + ".!!!!",
    ],
    ids=["another signer", "cut", "none", "no base64"],
)
def test_a_wrong_signature_is_refused(text: str, tmp_path: Path) -> None:
    with refused(InvalidConfig, "jwt-signature"):
        decode_account(text, "x")
    with pytest.raises(InvalidConfig):
        load(written(tmp_path / "account.jwt", decorated(text)))


NO_KEYS = ["", "O", "é", public(OPERATOR)[:-1] + "A", public(key(nkeys.PREFIX_BYTE_USER, 5))]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (token(claims(kind="user")), "jwt-of-another-kind"),
        (token({**claims(), "nats": 5}), "jwt-no-nats"),
        (token({**claims(), "sub": ""}), "jwt-no-sub"),
        (token({**claims(), "nats": {"type": "account", "version": 3}}), "jwt-too-new"),
        (token(claims(), {"typ": "JWT", "alg": "HS256"}), "jwt-header"),
        (token(claims(), {"typ": 1, "alg": "ed25519"}), "jwt-header"),
        (token([1]), "jwt-part-not-json"),
        (token(b"{"), "expected a string"),
        (token(claims(), b"\xff"), "json-not-utf8"),
        ("a.b", "jwt-not-three-parts"),
        ("eyJ!.b.c", "jwt-part-not-json"),
        (token(claims({"a": [{"subject": "b", "weight": 256}]})), "weight-out-of-range"),
        (token(claims({"a": [{"subject": "b"}, {"subject": "c"}]})), "zero-means-all-here"),
        (token(claims({"a": [{"subject": "b", "wieght": 5}]})), "unknown-json-destination-field"),
        (token(claims({"a..b": []})), "source-not-a-subject"),
        (token(claims([1])), "not-a-section"),
        ("e" * 2**21, "jwt-too-long"),
        *[(token({**claims(), "iss": issuer}), "jwt-issuer") for issuer in NO_KEYS],
    ],
)
def test_a_jwt_that_is_refused(text: str, what: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        decode_account(text, "x")
    assert what in told(raised.value)
    assert len(str(raised.value)) < 300


def test_credentials_of_a_user_are_no_configuration(tmp_path: Path) -> None:
    seed = nkeys.encode_seed(bytes([7]) * 32, nkeys.PREFIX_BYTE_USER).decode()
    key_block = f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    for text in (decorated(token(claims(kind="user")), "USER") + key_block, key_block, seed):
        with refused(InvalidConfig, "credentials-as-mappings") as raised:
            load(written(tmp_path / "user.creds", text))
        assert seed not in str(raised.value)


def test_the_jwts_in_a_server_configuration(tmp_path: Path) -> None:
    preload = f"resolver: MEMORY\nresolver_preload {{ {public(ACCOUNT)}: {token(claims())}\n}}"
    path = written(tmp_path / "server.conf", f"mappings {{ x: y }}\n{preload}")
    assert [each.accounts for each in load_all(path)] == [("$G",), ("ORDERS", public(ACCOUNT))]
    assert load(path, "ORDERS") == load(path, public(ACCOUNT)) == MEANING
    assert load(path) == mappings({"x": "y"})


@pytest.mark.parametrize(
    ("preload", "column", "what"),
    [
        (f"{public(ACCOUNT)}: 5", 77, "not-a-jwt"),
        (f"{public(ACCOUNT)}: eyJ", 77, "jwt-under: jwt-not-three-parts"),
        (f"AB: {token(claims())}", 19, "jwt-of-another-account"),
        ("AB", 22, "has no value"),
    ],
)
def test_jwts_in_a_server_configuration_that_are_refused(
    tmp_path: Path, preload: str, column: int, what: str
) -> None:
    with pytest.raises(InvalidConfig) as raised:
        load(written(tmp_path / "server.conf", f"resolver_preload {{{preload} }}"))
    assert what in told(raised.value)
    assert (raised.value.line, raised.value.column) == (1, column)


def test_what_an_account_exports_and_who_imports_it(tmp_path: Path) -> None:
    importer = key(nkeys.PREFIX_BYTE_ACCOUNT, 4)
    said = claims()
    said["nats"]["exports"] = [
        {"subject": "orders.>", "type": "stream"},
        {"subject": "ask", "type": "service"},
    ]
    other = claims({}) | {"name": "SHOP", "sub": public(importer)}
    other["nats"]["imports"] = [
        {"subject": "orders.eu", "account": public(ACCOUNT), "type": "stream"},
        {"subject": "ask", "account": public(ACCOUNT), "type": "service"},
        {"subject": "else", "account": public(OTHER), "type": "stream"},
    ]
    for name, payload in (("a.jwt", said), ("b.jwt", other)):
        (tmp_path / name).write_text(token(payload))
    everything = [one for name in ("a.jwt", "b.jwt") for one in load_all(tmp_path / name)]
    assert set(map(str, shared_by("ORDERS", everything))) == {
        "export orders.>",
        "import of orders.eu by account SHOP",
    }
    assert shared_by("SHOP", everything) == ()
