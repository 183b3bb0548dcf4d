"""Every way to prove who we are, against a real server that asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from typing import Any
from urllib.parse import urlparse

import pytest
from nats import connect
from nats.js.api import StorageType

from jobs.errors import ArchiveError
from jobs.jetstream.account import stream_origins
from jobs.jetstream.answers import Answer
from jobs.jetstream.connection import api, connection
from jobs.jetstream.process import NatsServer, nats_server
from jobs.settings.connection import NatsSettings
from jobs.settings.warehouse import Warehouse
from tests.support.jobs import archived
from tests.support.jwt_signing import credentials, new_key, operator_config, public, seed
from tests.support.network import silent_after
from tests.support.refused import refused
from tests.support.serving import serving
from tests.support.streams import batches_of, column_of

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[3]
STREAM = "GUARDED"
COUNT = 50


def fill(**options: Any) -> None:
    """Makes the stream, with nats-py's own options of a connection."""

    async def work() -> None:
        async with await connect(**options) as client:
            js = client.jetstream()
            await js.add_stream(name=STREAM, subjects=["guarded.>"], storage=StorageType.MEMORY)
            for n in range(COUNT):
                await js.publish("guarded.x", b"%d" % n)

    asyncio.run(work())


def reaching(server: NatsServer, **given: Any) -> NatsSettings:
    """How to reach a server; secrets are given as text."""
    return NatsSettings.model_validate({"servers": server.url} | given)


def read_all(settings: NatsSettings) -> list[bytes]:
    """The payloads of the stream, read with the settings as a task gets them."""
    nats = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own
    assert nats == settings
    return column_of(nats, STREAM, "data")


def why_refused(settings: NatsSettings, code: str | None = None) -> str:
    """The one line that says why the server cannot be read."""
    with pytest.raises(ArchiveError) as caught:
        read_all(settings)
    assert code in (None, caught.value.code)
    return str(caught.value)


ALL = [b"%d" % n for n in range(COUNT)]


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two authorities, a server's certificate and a client's by the first."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other-ca"):
        openssl(
            "req", "-x509", *key, "-days", "2", "-subj", f"/CN={name}",
            "-addext", "keyUsage=critical,keyCertSign",  # Python 3.13 asks for it
            "-keyout", f"{name}.key", "-out", f"{name}.pem",
        )  # fmt: skip
    for name, extensions in (
        ("server", "subjectAltName=IP:127.0.0.1"),
        ("elsewhere", "subjectAltName=DNS:example.com"),
        ("client", "subjectAltName=email:archive@example.com"),
    ):
        (folder / f"{name}.ext").write_text(extensions)
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "request")
        openssl(
            "x509", "-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
            "-CAcreateserial", "-extfile", f"{name}.ext", "-out", f"{name}.pem",
        )  # fmt: skip
    return folder


def tls_config(folder: Path, more: str = "verify: true") -> str:
    paths = {"cert_file": "server.pem", "key_file": "server.key", "ca_file": "ca.pem"}
    lines = [f"{name}: {json.dumps(str(folder / file))}" for name, file in paths.items()]
    return "tls {\n" + "\n".join([*lines, more]) + "\n}"


def client_files(folder: Path) -> dict[str, Any]:
    """What a client needs that shows a certificate."""
    return {
        "tls_ca": folder / "ca.pem",
        "tls_cert": folder / "client.pem",
        "tls_key": folder / "client.key",
    }


@contextmanager
def tls_server(folder: Path, config: str) -> Iterator[tuple[NatsServer, NatsSettings]]:
    with nats_server(config) as server:
        settings = reaching(server, **client_files(folder))
        fill(servers=server.url, tls=settings.tls())
        yield server, settings


def test_a_silent_server_is_not_waited_for(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS would say goodbye, and wait for the answer; here for an hour."""
    monkeypatch.setattr("asyncio.sslproto.constants.SSL_SHUTDOWN_TIMEOUT", 3600)

    async def stay(nats: NatsSettings, connected: asyncio.Event) -> None:
        async with connection(nats) as client:
            await client.flush()
            connected.set()
            await asyncio.Event().wait()

    async def give_up(nats: NatsSettings, silent: threading.Event) -> None:
        connected = asyncio.Event()
        task = asyncio.create_task(stay(nats, connected))
        await connected.wait()
        silent.set()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    with (
        tls_server(certificates, tls_config(certificates)) as (_, settings),
        silent_after(f"tls://{urlparse(settings.servers).netloc}", b"\0never") as (url, silent),
    ):
        asyncio.run(give_up(settings.model_copy(update={"servers": url}), silent))


MAPPED_USER = 'authorization { users [ { user: "archive@example.com" } ] }'


def test_tls_with_a_client_certificate(certificates: Path, warehouse: Warehouse) -> None:
    with tls_server(certificates, tls_config(certificates)) as (_, settings):
        assert read_all(settings) == ALL
        assert archived(warehouse, STREAM, server=settings).messages == COUNT

        no_certificate = settings.model_copy(update={"tls_cert": None, "tls_key": None})
        # The server's alert comes or, if it hung up first, the broken connection.
        assert settings.where in why_refused(no_certificate)
        wrong_ca = settings.model_copy(update={"tls_ca": certificates / "other-ca.pem"})
        assert "certificate verify failed" in why_refused(wrong_ca, "tls-failed")
        no_ca = NatsSettings(servers=settings.servers)
        assert "certificate verify failed" in why_refused(no_ca)


def test_a_certificate_for_another_name(certificates: Path) -> None:
    """By the authority that we trust: whoever has it could answer in the place of the server."""
    config = tls_config(certificates, "verify: false").replace("server.", "elsewhere.")
    with nats_server(config) as server:
        settings = NatsSettings(servers=server.url, tls_ca=certificates / "ca.pem")
        assert "certificate is not valid for '127.0.0.1'" in why_refused(settings)


def test_tls_before_the_first_word(certificates: Path) -> None:
    config = tls_config(certificates, "handshake_first: true\nverify: true")
    with nats_server(config) as server:
        settings = NatsSettings(servers=server.url, tls_first=True, **client_files(certificates))
        fill(servers=server.url, tls=settings.tls(), tls_handshake_first=True)
        assert read_all(settings) == ALL


def test_the_certificate_names_the_user(certificates: Path) -> None:
    config = tls_config(certificates, "verify_and_map: true") + "\n" + MAPPED_USER
    with tls_server(certificates, config) as (_, settings):
        assert read_all(settings) == ALL


@pytest.mark.parametrize(
    ("field", "content"),
    [
        pytest.param("tls_ca", None, id="no-authority"),
        pytest.param("tls_cert", None, id="no-certificate"),
        pytest.param("tls_ca", "not PEM", id="an-authority-that-is-none"),
        pytest.param("tls_key", "not PEM", id="a-key-that-is-none"),
        pytest.param("tls_key", "locked", id="a-key-with-a-password"),
        pytest.param("tls_key", "other", id="the-key-of-another-certificate"),
    ],
)
def test_certificate_files_that_cannot_be_used(
    certificates: Path, tmp_path: Path, field: str, content: str | None
) -> None:
    path = tmp_path / "file.pem"
    match content:
        case "other":
            path.write_bytes((certificates / "server.key").read_bytes())
        case "locked":
            lock = ["openssl", "ec", "-aes256", "-passout", "pass:sesame", "-out", path]
            lock += ["-in", certificates / "client.key"]
            subprocess.run(lock, check=True, capture_output=True)
        case str():
            path.write_text(content)
    given = client_files(certificates) | {field: path}
    assert str(path) in why_refused(NatsSettings(servers="nats://127.0.0.1:1", **given))


class Eavesdropper(TCPServer):
    """A server that introduces itself as it is told, and keeps whatever it gets."""

    def __init__(self, **info: Any) -> None:
        self.info = {"server_id": "S", "version": "2.15.1", "max_payload": 1048576, "headers": True,
                     "auth_required": True, "nonce": "abc"} | info  # fmt: skip
        self.got = b""
        super().__init__(("127.0.0.1", 0), Answering)


class Answering(BaseRequestHandler):
    """Its part in each connection."""

    server: Eavesdropper

    def handle(self) -> None:
        self.request.settimeout(2)
        with contextlib.suppress(OSError):
            self.request.sendall(b"INFO " + json.dumps(self.server.info).encode() + b"\r\n")
            while data := self.request.recv(65536):
                self.server.got += data
                if b"PING" in data:
                    self.request.sendall(b"PONG\r\n")


@pytest.mark.parametrize(
    ("scheme", "has_ca"),
    [pytest.param("tls", False, id="url"), pytest.param("nats", True, id="authority")],
)
@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"user": "u", "password": "sesame"}, id="password"),
        pytest.param({"token": "sesame"}, id="token"),
        pytest.param({}, id="nothing"),
    ],
)
def test_no_word_to_a_server_without_tls(
    certificates: Path, scheme: str, has_ca: bool, given: dict[str, str]
) -> None:
    with serving(server := Eavesdropper()):
        ca = certificates / "ca.pem" if has_ca else None
        url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        settings = NatsSettings(servers=url, connect_timeout=1, tls_ca=ca, **given)
        assert "doesn't offer TLS" in why_refused(settings)
    assert server.got == b""


@pytest.mark.parametrize("offer", ["tls_required", "tls_available"])
def test_what_a_server_says_in_clear_is_not_believed(certificates: Path, offer: str) -> None:
    """It says that it has TLS, and then has none: a handshake goes out, and no credentials."""
    with serving(server := Eavesdropper(**{offer: True})):
        given = {"tls_ca": certificates / "ca.pem", "user": "u", "password": "sesame"}
        url = f"tls://127.0.0.1:{server.server_address[1]}"
        why_refused(NatsSettings(servers=url, connect_timeout=0.25, **given))
    assert server.got.startswith(b"\x16\x03")  # a TLS record
    assert b"sesame" not in server.got
    assert b"CONNECT" not in server.got


def test_tls_where_it_is_optional_for_clients(certificates: Path) -> None:
    config = tls_config(certificates, "verify: false") + "\nallow_non_tls: true"
    with nats_server(config) as server:
        fill(servers=server.url)
        settings = NatsSettings(servers=server.url, tls_ca=certificates / "ca.pem")

        async def is_encrypted() -> bool:
            async with connection(settings) as client:
                return client._transport._io_writer.get_extra_info("cipher") is not None

        assert asyncio.run(is_encrypted())
        assert read_all(settings) == ALL


# --- Keys, tokens, users --------------------------------------------------------------------------


def test_an_nkey(tmp_path: Path) -> None:
    user, other = new_key("user"), new_key("user")
    (tmp_path / "seed").write_bytes(seed(user))
    (tmp_path / "other").write_bytes(seed(other))
    with nats_server(f"authorization {{ users [ {{ nkey: {public(user)} }} ] }}") as server:
        fill(servers=server.url, nkeys_seed=str(tmp_path / "seed"))
        settings = NatsSettings(servers=server.url, nkey=tmp_path / "seed")
        assert read_all(settings) == ALL
        why_refused(settings.model_copy(update={"nkey": tmp_path / "other"}), "credentials-refused")
        (tmp_path / "torn").write_bytes(seed(user)[:20])
        told = why_refused(settings.model_copy(update={"nkey": tmp_path / "torn"}))
        assert str(tmp_path / "torn") in told
        assert seed(user)[:20].decode() not in told


LOGIN, USER = {"user": "u", "password": "sesame"}, "user: u, password: sesame"
OF_ACCOUNT = f"accounts {{ A {{ jetstream: enabled, users [ {{ {USER} }} ] }} }}"


@pytest.mark.parametrize(
    ("config", "given"),
    [
        pytest.param("authorization { token: sesame }", {"token": "sesame"}, id="token"),
        pytest.param(f"authorization {{ {USER} }}", LOGIN, id="user"),
        pytest.param(OF_ACCOUNT, LOGIN, id="user-of-an-account"),
    ],
)
def test_words(config: str, given: dict[str, str]) -> None:
    with nats_server(config) as server:
        fill(servers=server.url, **given)
        assert read_all(reaching(server, **given)) == ALL
        wrong = given | {name: "wrong" for name in given if name != "user"}
        assert "wrong" not in why_refused(reaching(server, **wrong), "credentials-refused")
        why_refused(reaching(server), "needs-credentials")
        # A URL may hold them too; no message shows it.
        in_url = server.url.replace("nats://", f"nats://{':'.join(given.values())}@")
        assert read_all(NatsSettings(servers=in_url)) == ALL


def test_the_rights_that_reading_takes() -> None:
    """Those that deploy/production/nats.conf names are enough, and do not let us write."""
    text = (ROOT / "deploy" / "production" / "nats.conf").read_text()
    rights = re.findall(r"`(\$JS[^`]+)`", text)
    assert rights[-1] == "$JS.API.STREAM.LIST", "the right that only --stream '*' needs"
    reader, lister = (
        f"publish: {json.dumps(some)}, subscribe: [{json.dumps('_INBOX.>')}]"
        for some in (rights[:-1], rights)
    )
    config = f"""
    accounts {{ A {{ jetstream: enabled, users [
      {{ user: all, password: p }}
      {{ user: reader, password: p, permissions: {{ {reader} }} }}
      {{ user: lister, password: p, permissions: {{ {lister} }} }}
    ] }} }}
    """
    with nats_server(config) as server:
        fill(servers=server.url, user="all", password="p")  # noqa: S106 - the config's above
        settings = reaching(server, user="reader", password="p", connect_timeout=1)  # noqa: S106
        assert read_all(settings) == ALL
        assert stream_origins(settings.model_copy(update={"user": "lister"})) == {STREAM: []}
        with pytest.raises(ArchiveError):
            stream_origins(settings)

        async def delete() -> None:
            async with connection(settings) as client:
                await api(client, Answer, f"STREAM.DELETE.{STREAM}")

        with pytest.raises(ArchiveError):
            asyncio.run(delete())
        assert read_all(settings) == ALL


# --- JWTs -----------------------------------------------------------------------------------------


class Realm:
    """An operator, an account with JetStream, and credentials files of its users."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.operator, self.account = new_key("operator"), new_key("account")
        self.system = new_key("account")

    def config(self, expires: int | None = None) -> str:
        keys = (self.operator, self.account, self.system)
        return operator_config(*keys, self.folder, expires=expires)

    def creds(self, name: str, expires: int | None = None, signer: Any = None) -> Path:
        user = new_key("user")
        path = self.folder / f"{name}.creds"
        path.write_text(credentials(user, signer or self.account, expires=expires))
        return path


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    return Realm(tmp_path)


def test_credentials_files(realm: Realm) -> None:
    with nats_server(realm.config()) as server:
        good = realm.creds("good", expires=int(time.time()) + 3600)
        fill(servers=server.url, user_credentials=str(good))
        settings = NatsSettings(servers=server.url, creds=good)
        assert read_all(settings) == ALL
        for name, creds in (
            ("expired", realm.creds("expired", expires=int(time.time()) - 60)),
            ("of another account", realm.creds("other", signer=new_key("account"))),
        ):
            other = settings.model_copy(update={"creds": creds})
            assert "eyJ" not in why_refused(other, "credentials-refused"), name


def test_an_account_that_expired(realm: Realm) -> None:
    with nats_server(realm.config(expires=int(time.time()) - 60)) as server:
        expired = NatsSettings(servers=server.url, creds=realm.creds("user"))
        why_refused(expired, "credentials-refused")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("-----BEGIN NATS USER JWT-----\neyJ\n", id="torn"),
        pytest.param("\x00\xff" * 50, id="binary"),
    ],
)
def test_a_credentials_file_that_is_none(tmp_path: Path, realm: Realm, text: str) -> None:
    path = tmp_path / "broken.creds"
    path.write_text(text, encoding="latin-1")
    with nats_server(realm.config()) as server:
        assert str(path) in why_refused(NatsSettings(servers=server.url, creds=path))


def test_credentials_that_expire_in_mid_read(realm: Realm) -> None:
    """The server ends the connection; we say so at once and do not wait for it to come back."""
    with nats_server(realm.config()) as server:
        fill(servers=server.url, user_credentials=str(realm.creds("good")))
        short = realm.creds("short", expires=int(time.time()) + 4)
        nats = NatsSettings(servers=server.url, creds=short, patience=120)

        async def read() -> None:
            async for _ in batches_of(nats, STREAM, batch=5):
                await asyncio.sleep(1)  # ten batches: longer than the credentials live

        started = time.monotonic()
        with refused(ArchiveError, "credentials-refused", reason=re.compile("xpired")):
            asyncio.run(read())
        assert time.monotonic() - started < nats.patience


# --- Domains and clusters -------------------------------------------------------------------------


ACCOUNTS = """
accounts {
  A { jetstream: enabled, users [ { user: u, password: p } ] }
  S { users [ { user: s, password: p } ] }
}
system_account: S
"""


def leaf_node_port(server: NatsServer) -> int:
    """Where a server that was told port -1 listens for leaf nodes; only its log says so."""
    (port,) = re.findall(r"leafnode connections on 127\.0\.0\.1:(\d+)", server.log.read_text())
    return int(port)


def test_a_domain() -> None:
    """The stream is behind a leaf node, in a domain of its own, and is read through the hub."""
    listen = "leafnodes { listen: 127.0.0.1:-1 }\njetstream { domain: hub }"
    with nats_server(ACCOUNTS + listen) as hub:
        remote = f'url: "nats://u:p@127.0.0.1:{leaf_node_port(hub)}", account: A'
        behind = f"leafnodes {{ remotes [ {{ {remote} }} ] }}\njetstream {{ domain: leaf }}"
        with nats_server(ACCOUNTS + behind) as leaf:
            fill(servers=leaf.url, user="u", password="p")  # noqa: S106 - the config's above
            through_hub = partial(reaching, hub, user="u", password="p")  # noqa: S106 - as above
            until_it_answers(through_hub(domain="leaf"))
            assert read_all(through_hub(domain="leaf")) == ALL
            assert STREAM in why_refused(through_hub(), "no-stream")
            with refused(ArchiveError, "stream-refused", reason="domain-not-reached"):
                read_all(through_hub(domain="nowhere"))


def until_it_answers(settings: NatsSettings) -> None:
    """Waits for the leaf node's connection."""
    while True:
        try:
            read_all(settings)
        except ArchiveError:
            time.sleep(0.1)  # pytest's timeout ends it
        else:
            return
