"""Account JWTs: what a NATS operator signed about an account.

Source: nats-io/jwt v2 `Decode` and `AccountClaims`. The token itself is never shown in an error.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from nats_transform.config.accounts import Located
from nats_transform.config.documents import mappings_of, zeros_of
from nats_transform.config.json_text import parse_json
from nats_transform.config.shares import shares_of_claims
from nats_transform.config.tree import Node, Section, quoted
from nats_transform.errors import Place
from nats_transform.mappings.subject import decode

MAX_TOKEN = 1024 * 1024
"""Bytes of the longest token that nats-server decodes."""

_TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
_DECORATED = re.compile(
    r"-{3,}BEGIN NATS (\w+) JWT-{3,}\s+([\w.=-]+)\s+-{3,}END NATS \1 JWT-{3,}", re.ASCII
)
_NEWEST_VERSION = 2
_OPERATOR, _ACCOUNT = 14 << 3, 0  # first bytes of public keys: O... and A... in base32


def find_token(text: str) -> str | None:
    """The token that is the whole text, but for the lines that `nsc` puts around it; else None.

    A token in a comment of a server's configuration is none.
    """
    stripped = text.strip()
    if decorated := _DECORATED.fullmatch(stripped):
        return decorated[2]
    return stripped if stripped.startswith("eyJ") and _TOKEN.fullmatch(stripped) else None


def decode_account(token: str, path: str) -> Located:
    """The claims in an account JWT whose signature is that of the issuer it names.

    Like `Decode`, this does not check whether the issuer can be trusted.

    Args:
        token: the token without decoration.
        path: the file, for errors.

    Raises:
        InvalidConfig: it is no account JWT, its mappings are refused, or the signature is wrong.
    """
    place = Place(path)
    if len(token) > MAX_TOKEN:
        raise place.error("jwt-too-long")
    chunks = token.split(".")
    if len(chunks) != 3:
        raise place.error("jwt-not-three-parts")
    header = _part(chunks[0], "header", path)
    algorithm = _text(header, "alg").lower()
    if _text(header, "typ").upper() != "JWT" or algorithm not in ("ed25519", "ed25519-nkey"):
        raise place.error("jwt-header")
    payload = _part(chunks[1], "payload", path)
    claims = account_claims(payload, path)
    if not _text(payload, "sub"):
        raise place.error("jwt-no-sub")
    is_old = "type" in payload  # version 1 signs the payload alone
    signed = chunks[1] if is_old else f"{chunks[0]}.{chunks[1]}"
    _verify(signed, chunks[2], _text(payload, "iss"), place)
    return claims


def account_claims(payload: Section, path: str) -> Located:
    """The claims in the payload of an account JWT.

    Raises:
        InvalidConfig: it is of another type or version, or its mappings are refused.
    """
    place = Place(path)
    claims = payload["nats"].node.value if "nats" in payload else None
    if not isinstance(claims, Mapping):
        raise place.error("jwt-no-nats")
    kind = _text(payload, "type") or _text(claims, "type")
    if kind != "account":
        raise place.error("jwt-of-another-kind", kind=quoted(kind or "unknown type"))
    version = claims["version"].node.value if "version" in claims else 0
    if isinstance(version, int) and version > _NEWEST_VERSION:
        raise place.error("jwt-too-new", version=version, newest=_NEWEST_VERSION)
    entry = claims.get("mappings")
    mappings = Node({}, place) if entry is None or entry.node.value is None else entry.node
    expires = payload["exp"].node.value if "exp" in payload else None
    return Located(
        mappings_of(mappings),
        tuple(filter(None, (_text(payload, "name"), _text(payload, "sub")))),
        expires=expires if isinstance(expires, int) and expires > 0 else None,
        shares=shares_of_claims(claims),
        zeros=zeros_of(mappings),
    )


def _part(chunk: str, name: str, path: str) -> Section:
    text = _decoded(chunk)
    if text is not None:
        # Line and column within the decoded part would name no place in the file.
        value = parse_json(decode(text), f"{path} ({name})").value
        if isinstance(value, Mapping):
            return value
    raise Place(path).error("jwt-part-not-json", part=name)


def _decoded(chunk: str) -> bytes | None:
    try:
        return base64.b64decode(chunk + "=" * (-len(chunk) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None


def _text(fields: Section, key: str) -> str:
    value = fields[key].node.value if key in fields else None
    return value if isinstance(value, str) else ""


def _verify(signed: str, signature: str, issuer: str, place: Place) -> None:
    import nacl.exceptions  # comes with the nkeys extra of nats-py
    import nacl.signing

    key = _public_key(issuer)
    if key is None:
        raise place.error("jwt-issuer")
    try:
        nacl.signing.VerifyKey(key).verify(signed.encode(), _decoded(signature) or b"")
    except (nacl.exceptions.CryptoError, ValueError):
        raise place.error("jwt-signature") from None


def _public_key(text: str) -> bytes | None:
    """The 32 bytes of the public nkey of an operator or account; None for any other text."""
    try:
        raw = base64.b32decode(text.encode() + b"=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return None
    # One byte for the kind, the key, and a CRC-16 (XMODEM).
    if len(raw) != 35 or raw[0] not in (_OPERATOR, _ACCOUNT):
        return None
    return raw[1:-2] if binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") == raw[-2:] else None
