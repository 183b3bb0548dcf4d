"""What `nsc` makes: keys, signed JWTs, credentials files and the configuration of an operator."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import nkeys

_KINDS = {
    "operator": nkeys.PREFIX_BYTE_OPERATOR,
    "account": nkeys.PREFIX_BYTE_ACCOUNT,
    "user": nkeys.PREFIX_BYTE_USER,
}
_UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = _UNLIMITED | {
    "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1,
    "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
}  # fmt: skip


def new_key(kind: str) -> Any:
    """A random key pair of an operator, account or user."""
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), _KINDS[kind]))


def public(pair: Any) -> str:
    """Its public key, as claims name it."""
    return str(pair.public_key.decode().rstrip("="))


def seed(pair: Any) -> bytes:
    """Its seed, as a file holds it."""
    return bytes(pair.seed).rstrip(b"=")


def part(value: object) -> str:
    """A part of a token: JSON or bytes in URL-safe base64."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def token(payload: object, signer: Any, header: object = None) -> str:
    """A signed JWT of version 2."""
    head = part({"typ": "JWT", "alg": "ed25519-nkey"} if header is None else header)
    signed = f"{head}.{part(payload)}"
    return f"{signed}.{part(signer.sign(signed.encode()))}"


def claims(
    pair: Any, signer: Any, kind: str, expires: int | None = None, **nats: Any
) -> dict[str, Any]:
    """What a JWT of this kind says; `expires` in seconds since 1970."""
    body = {
        "jti": os.urandom(8).hex(),
        "iat": 1_700_000_000,
        "iss": public(signer),
        "name": kind,
        "sub": public(pair),
        "nats": {"type": kind, "version": 2} | nats,
    }
    return body if expires is None else body | {"exp": expires}


def credentials(user: Any, account: Any, expires: int | None = None) -> str:
    """A credentials file of a user of an account."""
    said = claims(user, account, "user", expires, pub={}, sub={}, **_UNLIMITED)
    return (
        f"-----BEGIN NATS USER JWT-----\n{token(said, account)}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed(user).decode()}\n------END USER NKEY SEED------\n"
    )


def operator_config(
    operator: Any,
    account: Any,
    system: Any,
    folder: Path,
    expires: int | None = None,
    **nats: object,
) -> str:
    """Server configuration with an account with JetStream, and a system account, in memory."""
    (folder / "operator.jwt").write_text(token(claims(operator, operator, "operator"), operator))
    whole = ACCOUNT_LIMITS
    without_jetstream = whole | {"mem_storage": 0, "disk_storage": 0}
    said = claims(account, operator, "account", expires, limits=whole, **nats)
    of_system = claims(system, operator, "account", limits=without_jetstream)
    return f"""\
operator: {json.dumps(str(folder / "operator.jwt"))}
system_account: {public(system)}
resolver: MEMORY
resolver_preload {{
{public(account)}: {token(said, operator)}
{public(system)}: {token(of_system, operator)}
}}"""
