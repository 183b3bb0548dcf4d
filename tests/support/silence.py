"""A way to a server that falls silent: connections stay, and nothing comes any more."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlparse


@contextmanager
def silent_after(url: str, word: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Another URL of a server, which delivers nothing once a client has sent a word.

    The event says that it was sent.
    """
    server = urlparse(url)
    silent = threading.Event()
    sockets: list[socket.socket] = []

    def pump(source: socket.socket, target: socket.socket, of_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if of_client and word in data:
                    silent.set()
                if not silent.is_set():
                    target.sendall(data)

    def accept(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                behind = socket.create_connection((server.hostname, server.port))
                sockets.extend((client, behind))
                for one, other in ((client, behind), (behind, client)):
                    arguments = (one, other, one is client)
                    threading.Thread(target=pump, args=arguments, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, args=(listening,), daemon=True).start()
        try:
            yield f"{server.scheme}://127.0.0.1:{listening.getsockname()[1]}", silent
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for each in sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
