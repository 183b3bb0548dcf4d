"""As much of the API of Kubernetes as Spark asks for: what it creates is kept, pods run here."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

from tests.support.serving import serving

Manifest = dict[str, Any]
Process = subprocess.Popen[bytes]
_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>[a-z]+)(?:/(?P<name>.+))?")


@dataclass
class KubernetesApi:
    """A cluster without nodes.

    Attributes:
        start: runs a pod.
        url: to ask; without TLS.
        created: every pod that was asked for, as it was sent, with its namespace.
        refused: requests that nobody here understands.
    """

    start: Callable[[Manifest], Process]
    url: str = ""
    created: list[Manifest] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _kept: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    _running: dict[str, Process] = field(default_factory=dict)

    def create(self, namespace: str, kind: str, manifest: Manifest) -> Manifest:
        """Keep something, and start it if it is a pod."""
        name = manifest["metadata"]["name"]
        manifest["metadata"]["namespace"] = namespace
        if kind == "pods":
            self.created.append(copy.deepcopy(manifest))
            self._running[name] = self.start(manifest)
        manifest["metadata"] |= {
            "uid": f"uid-of-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-03-01T00:00:00Z",
        }
        self._kept[kind, name] = manifest
        return self.get(kind, name)

    def get(self, kind: str, name: str) -> Manifest:
        """Something that was created, a pod with how it is."""
        manifest = self._kept[kind, name]
        if kind == "pods":
            code = self._running[name].poll()
            phase = "Running" if code is None else "Failed" if code else "Succeeded"
            manifest["status"] = {"phase": phase, "podIP": "127.0.0.1"}
        return manifest

    def all(self, kind: str, labels: str) -> list[Manifest]:
        """What has these labels, `name=value` or `name!=value` each."""
        found = [self.get(kind, name) for its, name in list(self._kept) if its == kind]
        for name, unequal, value in re.findall("([^,=!]+)(!?)=([^,]*)", labels):
            of = [m["metadata"].get("labels", {}).get(name) == value for m in found]
            found = [m for m, is_it in zip(found, of, strict=True) if is_it != bool(unequal)]
        return found

    def kill_pod(self) -> bool:
        """kill -9 of a pod that runs, if there is one."""
        for process in list(self._running.values()):
            if process.poll() is None:
                process.kill()
                return True
        return False

    def delete(self, kind: str, name: str) -> None:
        """Forget something, and end it if it is a pod."""
        if self._kept.pop((kind, name), None) is not None and kind == "pods":
            self._running[name].kill()
            self._running[name].wait()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: KubernetesApi

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlparse(self.path)
        labels = parse_qs(address.query).get("labelSelector", [""])[0]
        found = _PATH.fullmatch(address.path)
        if found is None:
            self._refuse()
            return
        kind, name = found["kind"], found["name"]
        try:
            match self.command, name:
                case "GET", None:
                    items = self.api.all(kind, labels)
                    metadata = {"resourceVersion": "1"}
                    self._send(200, {"kind": "List", "metadata": metadata, "items": items})
                case "GET", _:
                    self._send(200, self.api.get(kind, name))
                case "POST", None:
                    self._send(201, self.api.create(found["namespace"], kind, json.loads(body)))
                case "DELETE", _:
                    matching = [m["metadata"]["name"] for m in self.api.all(kind, labels)]
                    for one in [name] if name else matching:
                        self.api.delete(kind, one)
                    self._send(200, {"kind": "Status", "status": "Success"})
                case _:
                    self._refuse()
        except KeyError:
            self._send(404, {"kind": "Status", "status": "Failure", "code": 404})

    do_POST = do_DELETE = do_GET  # noqa: N815 - as http.server has them

    def _refuse(self) -> None:
        self.api.refused.append(f"{self.command} {self.path}")
        self._send(404, {"kind": "Status", "status": "Failure", "code": 404})

    def _send(self, code: int, answer: Manifest) -> None:
        data = json.dumps({"apiVersion": "v1"} | answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the test has it all in `created` and `refused`."""


@contextmanager
def kubernetes_api(start: Callable[[Manifest], Process]) -> Iterator[KubernetesApi]:
    """An API on loopback; pods that still run at the end are killed.

    Args:
        start: runs a pod.
    """
    api = KubernetesApi(start)
    handler = type("Handler", (_Handler,), {"api": api})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    api.url = f"http://127.0.0.1:{server.server_port}"
    with serving(server):
        try:
            yield api
        finally:
            for pod in api.all("pods", ""):
                api.delete("pods", pod["metadata"]["name"])
