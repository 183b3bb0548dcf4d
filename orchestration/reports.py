"""Serves the reports of archives: the pages of audits and dry runs, and Data Docs.

    python -m orchestration.reports FOLDER --port 3001

Its first page lists them, the latest first, each by its verdict.

A process and an address of its own, not a route of Dagster's webserver: pages show what publishers
sent, and a page at the webserver's address could use its API, which starts runs. The server reads
files of the folder and nothing else. Whoever reaches the port can read them: it listens on this
machine only, and has no login.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import click
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from jobs.pages.page import page

PORT = 3001
# Pages carry their styles and pictures: they load nothing, run nothing, and are in no frame.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
PATIENCE = 30
"""Seconds for a request with its answer."""
_LARGEST_HEAD = 32_768  # bytes of a request; uvicorn's faster parser has no limit
_MOST_CLIENTS = 200
LISTED = 100
"""Pages that the first page lists, the latest; the others are in the folder all the same."""
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_TITLE_WITHIN = 8192  # bytes from the start of a page


class Listed(NamedTuple):
    """A page in the folder: where it is, what its title says, and when it was written."""

    path: str
    title: str
    written: datetime


def home(folder: Path) -> str:
    """The first page, as HTML: audits and dry runs by their titles, and where the Data Docs are."""
    listed = []
    for file in folder.glob("*.html"):
        with contextlib.suppress(OSError):  # it may not be readable, or be gone by now
            if not file.is_file() or file.is_symlink():
                continue
            with file.open("rb") as opened:
                title_there = _TITLE.search(opened.read(_TITLE_WITHIN).decode("utf-8", "replace"))
            title = html.unescape(title_there[1]) if title_there else file.name
            written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            listed.append(Listed(file.name, title, written))
    listed.sort(key=lambda report: report.written, reverse=True)
    return page(
        "reports.html",
        reports=listed[:LISTED],
        left_out=len(listed[LISTED:]),
        has_checks=(folder / "data_docs" / "index.html").is_file(),
    )


class _Pages(StaticFiles):
    """The files of a folder, GET and HEAD only; a link that leads out of it is not followed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            response = await super().get_response(path, scope)
        except OSError as error:  # a link to itself
            raise HTTPException(HTTPStatus.NOT_FOUND) from error
        response.headers.update(HEADERS)
        return response


class _Patience(H11Protocol):
    """Hangs up on a client that takes too long to ask or to read; uvicorn itself waits for ever."""

    _answers = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look(-1)

    def on_response_complete(self) -> None:
        self._answers += 1
        super().on_response_complete()

    def _look(self, before: int) -> None:
        if self._answers == before:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.loop.call_later(PATIENCE, self._look, self._answers)


def site(folder: Path, hosts: tuple[str, ...] = ()) -> Starlette:
    """The application.

    Args:
        hosts: names that browsers may know this machine by, apart from localhost. Others are
            refused: a page of the Internet may have a name that leads to this machine.
    """
    pages = _Pages(directory=folder, html=True)
    return Starlette(
        routes=[
            Route("/", lambda _: HTMLResponse(home(folder), headers=HEADERS)),
            Mount("/", pages),
        ],
        middleware=[
            Middleware(
                TrustedHostMiddleware,
                allowed_hosts=["127.0.0.1", "localhost", "[::1]", *hosts],
                www_redirect=False,
            )
        ],
    )


@click.command(help="Serve the reports in FOLDER, read-only, until stopped.")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=PORT, show_default=True)
@click.option("--name", "names", multiple=True, help="This machine's name in links to it.")
def main(folder: Path, host: str, port: int, names: tuple[str, ...]) -> None:
    """Serves until it is stopped."""
    uvicorn.run(
        site(folder, (host, *names)),
        host=host,
        port=port,
        access_log=False,
        http=_Patience,
        ws="none",
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        limit_concurrency=_MOST_CLIENTS,
    )


if __name__ == "__main__":
    main()
