"""A server that speaks the protocol of Google Cloud Storage, with one empty bucket: its argument.

In a process of its own, because PyArrow keeps this one from answering while it asks. The package's
own server answers one request at a time, and PyArrow reads a file by several at once.
"""

from __future__ import annotations

import sys
from functools import partial
from http.server import ThreadingHTTPServer

from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage


class Handler(RequestHandler):  # type: ignore[misc]
    """As the package answers, and as the protocol wants: an upload waits for `100 Continue`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms


storage = Storage(use_memory_fs=True)
create_bucket(sys.argv[1], storage)
with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, storage)) as server:
    print(f"listens on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
