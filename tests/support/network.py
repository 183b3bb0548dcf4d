"""Networks between a client and a server: slow, breaking in mid-message, or silent."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlparse


@contextmanager
def network(
    server: str,
    treat: Callable[[int, bytes], tuple[bytes, float, bool]],
    asked: Callable[[bytes], bytes] = bytes,
) -> Iterator[str]:
    """A relay in front of a server, and its URL.

    Args:
        server: URL of the server.
        treat: gets the number of the connection and what the server sent; returns what goes on to
            the client, after how many seconds, and whether the connection breaks then.
        asked: gets what a client sent; returns what goes on to the server.
    """
    address = urlparse(server)
    sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def pump(source: socket.socket, to: socket.socket, number: int | None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                passed, seconds, breaks = (
                    (asked(data), 0, False) if number is None else treat(number, data)
                )
                time.sleep(seconds)
                to.sendall(passed)
                if breaks:
                    break
        for one in (source, to):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def accept(listening: socket.socket) -> None:
        with suppress(OSError):
            for number in itertools.count():
                client = listening.accept()[0]
                upstream = socket.create_connection((address.hostname, address.port))
                sockets.extend([client, upstream])
                for ends in ((client, upstream, None), (upstream, client, number)):
                    threads.append(threading.Thread(target=pump, args=ends))
                    threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        acceptor = threading.Thread(target=accept, args=(listening,))
        acceptor.start()
        try:
            yield f"{address.scheme}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
            acceptor.join()
            for one in sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            for one in sockets:
                one.close()


@contextmanager
def silent_after(url: str, word: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Another URL of a server, which delivers nothing once a client has sent a word.

    The event says that it was sent. Connections stay.
    """
    silent = threading.Event()

    def asked(data: bytes) -> bytes:
        if word in data:
            silent.set()
        return b"" if silent.is_set() else data

    def treat(_: int, data: bytes) -> tuple[bytes, float, bool]:
        return b"" if silent.is_set() else data, 0.0, False

    with network(url, treat, asked) as other:
        yield other, silent
