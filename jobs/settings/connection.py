"""How to reach a nats-server: the one connection setting of every command and job that needs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import SecretStr, field_validator, model_validator

from jobs.errors import ArchiveError, text_of
from jobs.settings.base import Folder, Option, Settings, setting
from jobs.settings.contexts import selected_context, values_of
from nats_transform.errors import InvalidValue
from nats_transform.untrusted import visible

if TYPE_CHECKING:
    import ssl

_SCHEMES = ("nats", "tls", "ws", "wss")
_URL = re.compile(r"(\w+://)?(.*@)?(\[[^\]]+\]|[^\s/@:\[\]]+)(:\d+)?(/.*)?")
# Whoever wrote a project file would get the credentials of its reader.
_OWN = Option(
    cure="because the file's author would get your credentials: save a context with `nats context "
    "save` and write context = its name",
)
_File = Annotated[Path, Option(metavar="FILE"), _OWN]
_Text = Annotated[str, Option(metavar="TEXT"), _OWN]
_Secret = Annotated[SecretStr, Option(metavar="TEXT"), _OWN]
_SAFER = ". It is safer in the environment."


class NatsSettings(Settings):
    """How to reach a nats-server."""

    alternatives = (("servers", "context"),)

    servers: _Text = setting(
        ...,
        "The URL of a server, or several with commas between them.",
        key="server",
        short="s",
        metavar="URL",
        env="NATS_URL",
    )
    context: str | None = setting(
        None,
        "A context of the `nats` command. Options of the connection override it.",
        metavar="NAME",
        env="NATS_CONTEXT",
        combines=True,
        completes="contexts",
        otherwise="the one that `nats context select` chose, if no --server is given",
        in_project=r"(?!.*\.json$)[^/\\]*",
        cure="context must be the name of a context that you have saved, because the author of "
        "a file with one would get your credentials: give it with --context",
    )
    creds: _File | None = setting(
        None, "A credentials file with a user JWT and its seed.", env="NATS_CREDS"
    )
    credentials: SecretStr | None = setting(
        None, "The content of a credentials file, instead of the file.", is_option=False
    )
    nkey: _File | None = setting(None, "A file with an NKey seed.", env="NATS_NKEY")
    user: _Text | None = setting(None, "The user's name.", metavar="NAME", env="NATS_USER")
    password: _Secret | None = setting(None, f"The user's password{_SAFER}", env="NATS_PASSWORD")
    token: _Secret | None = setting(None, f"A token{_SAFER}", env="NATS_TOKEN")
    tls_ca: _File | None = setting(
        None, "The certificate authority to trust (PEM).", name="tlsca", env="NATS_CA"
    )
    tls_cert: _File | None = setting(
        None, "The client's certificate (PEM).", name="tlscert", env="NATS_CERT"
    )
    tls_key: _File | None = setting(
        None, "The certificate's key (PEM).", name="tlskey", env="NATS_KEY"
    )
    tls_first: Annotated[bool, _OWN] = setting(
        False, "Start TLS before the server says anything (`handshake_first`).", name="tlsfirst"
    )
    domain: str | None = setting(None, "The JetStream domain.", name="js-domain", metavar="NAME")
    js_api_prefix: _Text | None = setting(
        None,
        "The subject prefix of the JetStream API, instead of a domain.",
        metavar="SUBJECT",
    )
    inbox_prefix: _Text | None = setting(
        None,
        "The subject prefix of answers, if the user may not use _INBOX.",
        metavar="SUBJECT",
    )
    connect_timeout: float = setting(
        5.0, "The seconds for one attempt to connect, and for one request.", is_option=False
    )
    patience: float = setting(
        60.0,
        "The seconds without progress after which a job gives up, such as while a server restarts.",
        is_option=False,
    )

    @classmethod
    def given(cls, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The connection of options, else of the selected context; None if neither names one."""
        if "user" in values and "password" not in values:
            # As natscli has it: a user without a password is a token.
            values = {"token": values["user"], **values, "user": None}
        if "servers" in values or "context" in values:
            # Not with the selected context: its credentials are for its own servers.
            return values
        selected = selected_context()
        return None if selected is None else {**values, "context": selected}

    @model_validator(mode="before")
    @classmethod
    def _with_context(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("context") is not None:
            others = {name: value for name, value in values.items() if name != "context"}
            return values_of(str(values["context"]), others)
        return values

    @field_validator("servers")
    @classmethod
    def _some_server(cls, servers: str) -> str:
        urls = _urls_of(servers)
        if not urls:
            raise InvalidValue("no-server")
        for scheme, separator, _ in (url.partition("://") for url in urls):
            if separator and scheme.lower() not in _SCHEMES:
                raise InvalidValue("server-scheme", scheme=visible(scheme))
        for number, url in enumerate(urls):
            # A comma in a password would make an address of its first half, which is printed.
            if (number and "@" in url and "://" not in url) or not _URL.fullmatch(url):
                raise InvalidValue("server-address")
        return servers

    @property
    def urls(self) -> list[str]:
        """The URLs of `servers`."""
        return _urls_of(self.servers)

    @property
    def where(self) -> str:
        """The servers without user and password, for messages."""
        return ",".join(url.rsplit("@", 1)[-1].removeprefix("nats://") for url in self.urls)

    @property
    def has_credentials(self) -> bool:
        """Whether there is anything that says who we are."""
        own = (self.creds, self.credentials, self.nkey, self.user, self.token, self.tls_cert)
        return any(credential is not None for credential in own) or any(
            "@" in url for url in self.urls
        )

    @property
    def api_prefix(self) -> str:
        """The start of the subjects of the JetStream API."""
        if self.js_api_prefix:
            return self.js_api_prefix.rstrip(".")
        return f"$JS.{self.domain}.API" if self.domain else "$JS.API"

    @property
    def wants_tls(self) -> bool:
        """Whether nothing may be sent without TLS."""
        schemes = {url.partition("://")[0].lower() for url in self.urls if "://" in url}
        certificates = (self.tls_ca, self.tls_cert, self.tls_key)
        return "tls" in schemes or self.tls_first or any(certificates)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context, or None to let the server decide with the system's authorities."""
        import ssl

        if not (self.tls_ca or self.tls_cert or self.tls_first):
            return None
        reading = self.tls_ca
        try:
            context = ssl.create_default_context(cafile=reading and str(reading))
            if self.tls_cert:
                reading = self.tls_key or self.tls_cert
                # A key with a password is refused; without ours, OpenSSL asks on the terminal.
                context.load_cert_chain(self.tls_cert, self.tls_key, password="")
        except (OSError, ValueError) as error:
            raise ArchiveError("tls-unusable", file=reading, reason=text_of(error)) from error
        return context

    def check_files(self) -> None:
        """Reads every file that is named.

        Raises:
            ArchiveError: a file is missing or has the wrong content. nats-py itself would search
                such a credentials file for a JWT without end, and would not name the file.
        """
        for path in (self.creds, self.nkey, self.tls_ca, self.tls_cert, self.tls_key):
            if path is not None and not path.is_file():
                raise ArchiveError("no-credentials-file", path=path)
        user = "JWT and seed of a NATS user (a .creds file of nsc)"
        for given, form, what in (
            (self.creds, _CREDS, user),
            (self.credentials, _CREDS, user),
            (self.nkey, _SEED, "NKey seed"),
        ):
            if given is None:
                continue
            import nkeys  # a dry run of files needs none of it

            where = given if isinstance(given, Path) else "the text of the credentials"
            try:
                seed = form.search(_content(given))
                if seed is None:
                    raise ValueError("not found")
                nkeys.from_seed(bytearray(seed[1])).wipe()  # type: ignore[no-untyped-call]
            except (OSError, ValueError, nkeys.NkeysError) as error:
                # The error's text is left out, because it may have parts of the secret.
                raise ArchiveError(
                    "credentials-without", where=where, what=what, error=type(error).__name__
                ) from None


def _urls_of(servers: str) -> list[str]:
    return [url.strip() for url in servers.split(",") if url.strip()]


def _content(given: Path | SecretStr) -> bytes:
    if isinstance(given, SecretStr):
        return given.get_secret_value().encode()
    with given.open("rb") as file:
        return file.read(_MAX_CREDENTIALS)


_MAX_CREDENTIALS = 1024 * 1024
_SEED = re.compile(rb"^\s*(S[A-Z2-7]{20,})=*\s*$")
_CREDS = re.compile(
    rb"BEGIN NATS USER JWT-+\r?\n[\w-]+\.[\w-]+\.[\w-]+\s"
    rb"(?:.*\n)*?.*BEGIN USER NKEY SEED-+\r?\n(S[A-Z2-7]{20,})=*\s"
)


class ShownSettings(Settings):
    """The streams and consumers of an account, in files or as a server shows them."""

    streams: Folder | None = setting(
        None, "A folder with one file per stream: the output of `nats stream info NAME --json`."
    )
    consumers: Folder | None = setting(
        None,
        "A folder with one file per consumer: the output of `nats consumer info "
        "STREAM NAME --json`.",
    )
    nats: Annotated[NatsSettings | None, Option(unless=("streams", "consumers"))] = None

    @model_validator(mode="after")
    def _shown_once(self) -> Self:
        if self.nats is not None and (self.streams or self.consumers):
            raise InvalidValue("files-or-server")
        return self
