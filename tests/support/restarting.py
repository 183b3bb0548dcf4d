"""A nats-server that goes away and comes back."""

from __future__ import annotations

import signal
import time

from jobs.jetstream.process import NatsServer, _end, _launch, _wait_for_port, nats_server_binary


def restart(
    server: NatsServer, how: signal.Signals = signal.SIGTERM, down_seconds: float = 0.0
) -> None:
    """Stops a server with a signal, and starts it again on the same port and store."""
    _end(server.process, how)
    time.sleep(down_seconds)
    arguments = ["--port", server.url.rsplit(":", 1)[1], "--store_dir", str(server.store)]
    server.process = _launch(nats_server_binary(), server.config, server.log, arguments)
    _wait_for_port(server.config.parent, server.process, server.log)
