"""Contexts of the `nats` command: connections that people have saved under a name.

They are read as natscli reads them (jsm.go, package natscontext): `context/NAME.json` and the
selected name in `context.txt`, both under `$XDG_CONFIG_HOME/nats` or `~/.config/nats`. A context
with a setting that this program does not support is refused; no setting is left out.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from jobs.errors import ArchiveError

# Field of a context: field of NatsSettings.
_FIELDS = {
    "url": "servers",
    "token": "token",
    "user": "user",
    "password": "password",
    "creds": "creds",
    "nkey": "nkey",
    "cert": "tls_cert",
    "key": "tls_key",
    "ca": "tls_ca",
    "jetstream_domain": "domain",
    "jetstream_api_prefix": "js_api_prefix",
    "inbox_prefix": "inbox_prefix",
    "tls_first": "tls_first",
}
_JWT = {"user_jwt", "user_seed"}
# They change nothing here: texts for people, and events that this program does not read.
_WITHOUT_EFFECT = {"name", "description", "color_scheme", "jetstream_event_prefix"}
_PATHS = {"creds", "nkey", "cert", "key", "ca"}
_SECRETS = {"token", "password", *_JWT}
# In natscli's order: a connection uses the first of these that there is.
_CREDENTIALS = ("user", "creds", "nkey", "credentials")

_DEFAULT_URL = "nats://127.0.0.1:4222"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):(//)?", re.IGNORECASE)


def selected_context() -> str | None:
    """The name that `nats context select` chose, or None."""
    try:
        return (_folder() / "context.txt").read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def known_contexts() -> list[str]:
    """The names of all saved contexts."""
    return sorted(file.stem for file in (_folder() / "context").glob("*.json"))


def values_of(name: str, given: Mapping[str, object]) -> dict[str, object]:
    """The connection of a context, of which some settings are replaced by given ones.

    A user, credentials file, NKey or token that is given replaces all credentials of the context.

    Args:
        name: the name of a saved context, or the path of a file whose name ends with `.json`.
        given: fields of NatsSettings; None means that a field is not given.

    Raises:
        ArchiveError: there is no such context, it cannot be read, or it has an unsupported setting.
    """
    of_context = _read(name)
    over = {field: value for field, value in given.items() if value is not None}
    if not over.keys().isdisjoint((*_CREDENTIALS, "token")):
        of_context = {
            field: value
            for field, value in of_context.items()
            if field not in (*_CREDENTIALS, "token", "password")
        }
    return {"servers": _DEFAULT_URL, **of_context, **over}


def _folder() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "nats"


def _read(name: str) -> dict[str, object]:
    is_file = name.endswith(".json") and Path(name).is_file()
    if not is_file and (".." in name or "/" in name or "\\" in name or not name):
        raise ArchiveError("not-a-context-name", name=name)
    file = Path(name) if is_file else _folder() / "context" / f"{name}.json"
    try:
        values = json.loads(file.read_bytes())
    except FileNotFoundError:
        known = ", ".join(known_contexts()) or "there are none"
        raise ArchiveError("no-context", name=name, folder=file.parent, known=known) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArchiveError("context-unreadable", file=file, error=type(error).__name__) from None
    if not isinstance(values, dict):
        raise ArchiveError("context-not-an-object", file=file)
    settings: dict[str, object] = {}
    jwt: dict[str, str] = {}
    for field, value in values.items():
        if not value or field in _WITHOUT_EFFECT:
            continue
        if field not in _FIELDS and field not in _JWT:
            cure = "give --creds FILE" if field == "nsc" else "remove it, or give --server"
            raise ArchiveError("context-field", file=file, field=field, cure=cure)
        if field == "tls_first" and value is True:
            settings[field] = True
        elif not isinstance(value, str):
            raise ArchiveError("context-field-type", file=file, field=field)
        elif field in _JWT:
            jwt[field] = _secret(value, field, file)
        elif field == "creds" and _SCHEME.match(value) and not value.lower().startswith("file:"):
            settings["credentials"] = _secret(value, field, file)
        elif field in _PATHS:
            settings[_FIELDS[field]] = _path(value, field, file)
        else:
            secret = field in _SECRETS
            settings[_FIELDS[field]] = _secret(value, field, file) if secret else value
    if jwt:
        if len(jwt) < 2:
            raise ArchiveError("context-jwt-without-seed", file=file)
        settings["credentials"] = _credentials(**jwt)
    first = next((kind for kind in _CREDENTIALS if kind in settings), None)
    others = set(_CREDENTIALS) - {first}
    return {field: value for field, value in settings.items() if field not in others}


def _path(value: str, field: str, file: Path) -> str:
    """A path with `$VARIABLE` and `~` as natscli expands them."""
    scheme = _SCHEME.match(value)
    if scheme and scheme[1].lower() != "file":
        raise ArchiveError("context-scheme", file=file, field=field, scheme=scheme[1])
    path = re.sub(r"\$\{?(\w+)\}?", lambda match: os.environ.get(match[1], ""), value)
    path = path.removeprefix("file://")
    return str(Path.home()) + path[1:] if path.startswith("~") else path


def _secret(value: str, field: str, file: Path) -> str:
    """A secret: the text itself, or what `env://NAME`, `data:;base64,` or `file://` leads to."""
    scheme = _SCHEME.match(value)
    kind = scheme[1].lower() if scheme else ""
    if kind == "env":
        variable = value[len("env://") :]
        if secret := os.environ.get(variable):
            return secret.rstrip("\r\n")
        raise ArchiveError("context-variable-not-set", file=file, field=field, variable=variable)
    if kind == "data":
        try:
            return base64.b64decode(value.rpartition(",")[2], validate=True).decode().rstrip("\r\n")
        except (binascii.Error, UnicodeDecodeError):
            raise ArchiveError("context-not-base64", file=file, field=field) from None
    if kind == "file":
        try:
            return Path(value[len("file://") :]).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ArchiveError(
                "context-field-unreadable",
                file=file,
                field=field,
                error=type(error).__name__,
                value=value,
            ) from None
    if kind in ("nsc", "op"):
        raise ArchiveError("context-credentials-scheme", file=file, field=field, scheme=kind)
    return value


def _credentials(user_jwt: str, user_seed: str) -> str:
    """The text of a credentials file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{user_seed}\n------END USER NKEY SEED------\n"
    )
