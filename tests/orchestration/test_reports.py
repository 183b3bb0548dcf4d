"""Reports are served read-only, from one folder, as pages that can do nothing."""

from __future__ import annotations

import contextlib
import html
import http.client
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.reports import home
from tests.support.browser import Browser
from tests.support.hostile import HOSTILE, look_at
from tests.support.spark_cluster import daemon, free_port

ROOT = Path(__file__).parents[2]
PAGE = "<!doctype html><title>fine</title>"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server on a folder with a page, and a file beside the folder that it must not show."""
    above = tmp_path_factory.mktemp("reports")
    folder = above / "reports"
    (folder / "data_docs").mkdir(parents=True)
    (folder / "data_docs" / "index.html").write_text(PAGE)
    (folder / "audit 2.html").write_text("<title>outside &lt;b&gt;</title>")
    (folder / "audit.json").write_text("{}")
    (above / "secret.html").write_text("secret")
    (folder / "link.html").symlink_to(above / "secret.html")
    (folder / "up").symlink_to(above)
    (folder / "itself.html").symlink_to("itself.html")
    (folder / "data_docs" / "circle").symlink_to("../data_docs/circle/x")
    port = free_port()
    patient = "from orchestration import reports; reports.PATIENCE = 2; reports.main()"
    command = [sys.executable, "-c", patient, str(folder), "--port", str(port)]
    with daemon(command, above / "log", {"PYTHONWARNINGS": "ignore"}, ROOT) as server:
        server.wait_for(f"running on http://127.0.0.1:{port}")
        yield port


def asked(
    port: int, path: str, method: str = "GET", host: str = "127.0.0.1"
) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of an answer; the path goes out as it stands."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("path", ["/data_docs/index.html", "/data_docs/"])
def test_pages_are_shown_and_can_do_nothing(port: int, path: str) -> None:
    status, headers, body = asked(port, path)
    assert (status, body.decode()) == (200, PAGE)
    policy = headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert not any(rule.startswith(("script-src", "connect-src")) for rule in policy)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-type"].startswith("text/html")


def test_the_first_page_leads_to_all_others(port: int) -> None:
    status, headers, body = asked(port, "/")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert re.findall(r'href="([^"]+)"', body.decode()) == [
        "data:,",
        "data_docs/",
        "audit%202.html",
    ]
    assert b"outside &lt;b&gt;" in body
    assert b"secret" not in body


def test_the_first_page_in_chromium(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    text = HOSTILE.replace("\udcff", r"\udcff")
    for name in ("a", "b" * 200, "c" * 200 + "<b>"):
        (folder / f"{name}.html").write_text(f"<title>{html.escape(text)} {name}</title>", "utf-8")
    page = tmp_path / "page.html"
    page.write_text(home(folder))
    browser.look(page)
    look_at(browser, page)


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.html",
        "/..%2fsecret.html",
        "/%2e%2e/secret.html",
        "/data_docs/../../secret.html",
        "//secret.html",
        "/..\\secret.html",
        "/link.html",
        "/up/secret.html",
        "/etc/passwd",
        "//etc/passwd",
        "/%00",
        "/data_docs/index.html%00.json",
        "/up",
        "/itself.html",
        "/itself.html/x",
        "/data_docs/circle",
        "/" + "x" * 5000,
    ],
)
def test_nothing_else_is_shown(port: int, path: str) -> None:
    status, _, body = asked(port, path)
    assert status == 404, (status, body)
    assert b"secret" not in body


def test_clients_that_do_not_go_on(port: int) -> None:
    starts = [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    ]
    with contextlib.ExitStack() as stack:
        clients = []
        for start in starts:
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            clients.append(stack.enter_context(client))
            client.sendall(start)
        for client in clients:
            with contextlib.suppress(ConnectionResetError):
                while client.recv(65_536):
                    pass


def test_a_client_that_sends_drop_by_drop(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: ")
        client.settimeout(0.3)
        ended = False
        while not ended:
            try:
                client.sendall(b"x")
                ended = not client.recv(1)
            except TimeoutError:
                pass
            except OSError:
                ended = True


@pytest.mark.parametrize(
    "head", [b"X: " + b"x" * 10_000_000, b"X: x\r\n" * 1_000_000], ids=["long", "many"]
)
def test_a_head_without_end(port: int, head: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        answer = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")
            answer = client.recv(65_536)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert asked(port, "/audit.json")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_is_written(port: int, method: str) -> None:
    assert asked(port, "/audit.json", method)[0] == 405
    assert asked(port, "/audit.json")[2] == b"{}"


@pytest.mark.parametrize(("host", "status"), [("evil.example", 400), ("localhost:3001", 200)])
def test_other_names_of_this_machine_are_refused(port: int, host: str, status: int) -> None:
    assert asked(port, "/audit.json", host=host)[0] == status
