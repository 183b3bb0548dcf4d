"""A server on loopback that keeps what it gets, for what posts JSON to somebody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tests.support.serving import serving


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its URL, and the documents that were posted; it answers `ok`, as Slack does."""
    posted: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    with serving(server := HTTPServer(("127.0.0.1", 0), Receiver)):
        yield f"http://127.0.0.1:{server.server_port}", posted
