"""A ResourceManager and a NodeManager of our own: as much of them as Spark on YARN needs.

Real are the protocols (Hadoop's classes serve them, from the jars that pyspark brings), the way
files come to a node (Hadoop's FSDownload) and all that talks to us: Spark's client, its
application master, its executors. Ours are the answers: one application, one node that always has
room, containers that are processes of this machine, started by a script as YARN writes it.
Nothing is queued, limited or isolated; no token is checked; there are no second attempts.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from py4j import java_gateway

from tests.support.spark_cluster import QUICK_JAVA, SPARK_HOME

Java = Any  # an object in the JVM
PY4J: Any = java_gateway  # it has no types
HOST = "127.0.0.1"
NOT_STARTED = -1000  # of Hadoop's ContainerExitStatus
_API = "org.apache.hadoop.yarn.api."
_CLIENT, _MASTER, _NODE = (
    f"{kind}Protocol" for kind in ("ApplicationClient", "ApplicationMaster", "ContainerManagement")
)


@dataclass
class Container:
    """A process with a working folder.

    Attributes:
        id: its ContainerId, as text.
        folder: where it runs.
        logs: the folder of what it writes.
        code: how it ended, once it did.
        told: the application master knows of its end.
    """

    id: str
    folder: Path
    logs: Path
    code: int | None = None
    told: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _killed: bool = False

    @property
    def log(self) -> str:
        """All that it wrote."""
        return "".join(file.read_text(errors="replace") for file in sorted(self.logs.iterdir()))

    def run(self, prepare: Callable[[], Path], environment: Mapping[str, str]) -> None:
        """Runs until it ends.

        Args:
            prepare: brings the files; says which script to run.
            environment: of the node.
        """
        with (self.logs / "prelaunch").open("w") as log:
            try:
                self._process = subprocess.Popen(
                    ["bash", str(prepare())],
                    cwd=self.folder,
                    env=dict(environment),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                if self._killed:  # while its files were brought
                    self.kill()
                self.code = self._process.wait()
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are told
                log.write(str(error))
                self.code = NOT_STARTED

    def kill(self) -> None:
        """Ends it, and what it has started, if it still runs."""
        self._killed = True
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)


@dataclass
class Yarn:
    """The cluster; what the protocols call `getNewApplication` is `get_new_application`.

    Attributes:
        folder: of containers, their logs and the settings.
        environment: of the node, which containers get too.
        jvm: where Hadoop's classes are.
        containers: in the order of their start; the first is the application master.
        refused: calls that nobody here understands.
        final: how it went by the application master's own last words, SUCCEEDED or such.
    """

    folder: Path
    environment: Mapping[str, str]
    jvm: Java
    containers: list[Container] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    final: str = "UNDEFINED"
    _ports: dict[str, int] = field(default_factory=dict)
    _submitted: Java = None
    _attempt: Java = None
    _registered: bool = False
    _allocated: int = 1  # containers; the first is the application master's
    _threads: list[threading.Thread] = field(default_factory=list)
    _files: dict[str, Path] = field(default_factory=dict)
    _fetching: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._records = self.jvm.org.apache.hadoop.yarn.api.records

    @property
    def conf(self) -> Path:
        """The folder for HADOOP_CONF_DIR."""
        return self.folder / "conf"

    def serve(self) -> None:
        """Starts the servers of the protocols, and writes the settings that lead to them."""
        yarn = self.jvm.org.apache.hadoop.yarn
        settings = yarn.conf.YarnConfiguration()
        for name in (_CLIENT, _MASTER, _NODE):
            protocol = self.jvm.java.lang.Class.forName(_API + name)
            address = self.jvm.java.net.InetSocketAddress(HOST, 0)
            calls = _Calls(_API + name, self)
            rpc = yarn.ipc.YarnRPC.create(settings)
            server = rpc.getServer(protocol, calls, address, settings, None, 4)  # handlers
            server.start()
            self._ports[name] = server.getPort()
        values = {
            "fs.defaultFS": "file:///",
            "yarn.resourcemanager.hostname": HOST,
            "yarn.resourcemanager.address": f"{HOST}:{self._ports[_CLIENT]}",
            "yarn.resourcemanager.scheduler.address": f"{HOST}:{self._ports[_MASTER]}",
        }
        text = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>\n"
            for name, value in values.items()
        )
        self.conf.mkdir()
        for file in ("core-site.xml", "yarn-site.xml"):
            (self.conf / file).write_text(f"<configuration>\n{text}</configuration>\n")

    def wait(self) -> None:
        """Until all containers have ended."""
        for thread in self._threads:
            thread.join()

    def kill_executor(self) -> bool:
        """kill -9 of an executor, if one runs; YARN does not restart it, Spark asks for another."""
        for container in self.containers[1:]:
            if container.code is None:
                container.kill()
                return True
        return False

    def kill(self) -> None:
        """Ends the containers that still run."""
        for container in self.containers:
            container.kill()
        self.wait()

    # ApplicationClientProtocol, of the ResourceManager.

    def get_cluster_metrics(self, _: Java) -> Java:
        metrics = self._new("records.YarnClusterMetrics", NumNodeManagers=1)
        return self._answer("GetClusterMetrics", ClusterMetrics=metrics)

    def get_new_application(self, _: Java) -> Java:
        application = self._records.ApplicationId.newInstance(int(time.time() * 1000), 1)
        self._attempt = self._records.ApplicationAttemptId.newInstance(application, 1)
        return self._answer(
            "GetNewApplication", ApplicationId=application, MaximumResourceCapability=self._room()
        )

    def submit_application(self, request: Java) -> Java:
        self._submitted = request.getApplicationSubmissionContext()
        proxy = f"/proxy/{self._submitted.getApplicationId().toString()}"
        more = {"APPLICATION_WEB_PROXY_BASE": proxy}
        self._start(self._container_id(1).toString(), self._submitted.getAMContainerSpec(), more)
        return self._answer("SubmitApplication")

    def get_application_report(self, _: Java) -> Java:
        master, final = self.containers[0], self.final
        state = "RUNNING" if self._registered else "ACCEPTED"
        if final != "UNDEFINED":
            state = "FINISHED"
        elif master.code is not None:
            state = final = "FAILED"
        report = self._new(
            "records.ApplicationReport",
            ApplicationId=self._submitted.getApplicationId(),
            User=getpass.getuser(),
            Queue=self._submitted.getQueue(),
            Diagnostics=master.log[-2000:] if state == "FAILED" else "",
            YarnApplicationState=self._records.YarnApplicationState.valueOf(state),
            FinalApplicationStatus=self._records.FinalApplicationStatus.valueOf(final),
        )
        return self._answer("GetApplicationReport", ApplicationReport=report)

    # ApplicationMasterProtocol, of the ResourceManager.

    def register_application_master(self, _: Java) -> Java:
        self._registered = True
        return self._answer("RegisterApplicationMaster", MaximumResourceCapability=self._room())

    def allocate(self, request: Java) -> Java:
        """The containers that are newly asked for, and which have ended since the last call."""
        given = [
            self._container(ask)
            for ask in request.getAskList()
            if ask.getResourceName() == "*"  # a host or a rack is a wish: we have one of each
            for _ in range(ask.getNumContainers())
        ]
        ended = []
        for container in self.containers[1:]:
            if container.code is not None and not container.told:
                container.told = True
                number = self._records.ContainerId.fromString(container.id)
                complete = self._records.ContainerState.COMPLETE
                status = self._records.ContainerStatus
                ended.append(status.newInstance(number, complete, "", container.code))
        token = self._records.NMToken.newInstance(self._node(), self._token("NMToken", "any"))
        return self._answer(
            "Allocate",
            ResponseId=request.getResponseId() + 1,
            AllocatedContainers=given,
            NMTokens=[token] if given else [],
            CompletedContainersStatuses=ended,
            AvailableResources=self._room(),
            NumClusterNodes=1,
        )

    def finish_application_master(self, request: Java) -> Java:
        self.final = request.getFinalApplicationStatus().toString()
        return self._answer("FinishApplicationMaster", IsUnregistered=True)

    # ContainerManagementProtocol, of the NodeManager.

    def start_containers(self, request: Java) -> Java:
        names = []
        for start in request.getStartContainerRequests():
            names.append(start.getContainerToken().getIdentifier().array().decode())
            self._start(names[-1], start.getContainerLaunchContext(), {})
        ids = [self._records.ContainerId.fromString(name) for name in names]
        return self._answer("StartContainers", SuccessfullyStartedContainers=ids)

    # Records.

    def _new(self, name: str, **values: Java) -> Java:
        """A record of the API with these fields."""
        kind = self.jvm.java.lang.Class.forName(_API + name)
        record = self.jvm.org.apache.hadoop.yarn.util.Records.newRecord(kind)
        for key, value in values.items():
            getattr(record, f"set{key}")(value)
        return record

    def _answer(self, name: str, **values: Java) -> Java:
        return self._new(f"protocolrecords.{name}Response", **values)

    def _room(self) -> Java:
        return self._new("records.Resource", MemorySize=64 * 1024, VirtualCores=64)  # MiB

    def _node(self) -> Java:
        return self._records.NodeId.newInstance(HOST, self._ports[_NODE])

    def _container_id(self, number: int) -> Java:
        return self._records.ContainerId.newContainerId(self._attempt, number)

    def _container(self, ask: Java) -> Java:
        self._allocated += 1
        number = self._container_id(self._allocated)
        return self._new(
            "records.Container",
            Id=number,
            NodeId=self._node(),
            NodeHttpAddress=f"{HOST}:0",
            Resource=ask.getCapability(),
            Priority=ask.getPriority(),
            ContainerToken=self._token("ContainerToken", number.toString()),
        )

    def _token(self, kind: str, name: str) -> Java:
        """A token that is a name: only its issuer reads what is in a token."""
        data = self.jvm.java.nio.ByteBuffer.wrap(name.encode())
        node = self._node().toString()
        return self._new("records.Token", Identifier=data, Password=data, Kind=kind, Service=node)

    # What a NodeManager does.

    def _start(self, name: str, context: Java, more: Mapping[str, str]) -> None:
        """Starts a container; `more` is in its environment too."""
        container = Container(name, self.folder / "containers" / name, self.folder / "logs" / name)
        for folder in (container.folder, container.logs):
            folder.mkdir(parents=True)
        run = (lambda: self._script(container, context, more)), self.environment
        self.containers.append(container)
        self._threads.append(threading.Thread(target=container.run, args=run))
        self._threads[-1].start()

    def _script(self, container: Container, context: Java, more: Mapping[str, str]) -> Path:
        """What YARN calls launch_container.sh; the container's files are there."""
        tokens = container.folder / "container_tokens"
        tokens.write_bytes(context.getTokens().array())
        given = {
            "CONTAINER_ID": container.id,
            "NM_HOST": HOST,
            "NM_PORT": str(self._ports[_NODE]),
            "LOCAL_DIRS": str(self.folder / "local"),
            "LOG_DIRS": str(container.logs),
            "USER": getpass.getuser(),
            "HOME": "/home/",
            "HADOOP_CONF_DIR": str(self.conf),
            "HADOOP_TOKEN_FILE_LOCATION": str(tokens),
        }
        asked = dict(context.getEnvironment().items())
        lines = [f'export {key}="{value}"' for key, value in (given | dict(more) | asked).items()]
        lines += [
            f'ln -sf -- "{self._localized(resource)}" "{name}"'
            for name, resource in context.getLocalResources().items()
        ]
        # In double quotes, as there: Spark puts a backslash before what would be special.
        lines.append(f'exec /bin/bash -c "{" ".join(context.getCommands())}"')
        text = "\n".join(["set -o pipefail -e", *lines, ""])
        text = text.replace("<LOG_DIR>", str(container.logs)).replace("<CPS>", ":")
        script = container.folder / "launch_container.sh"
        script.write_text(re.sub(r"\{\{(\w+)\}\}", r"$\1", text))
        return script

    def _localized(self, resource: Java) -> Path:
        """Where a file, or what was in an archive, lies on the node."""
        hadoop = self.jvm.org.apache.hadoop
        source = resource.getResource().toString()
        with self._fetching:
            if source not in self._files:
                settings = hadoop.yarn.conf.YarnConfiguration()
                fetch = hadoop.yarn.util.FSDownload(
                    hadoop.fs.FileContext.getLocalFSFileContext(settings),
                    hadoop.security.UserGroupInformation.getCurrentUser(),
                    settings,
                    hadoop.fs.Path(str(self.folder / "files" / str(len(self._files)))),
                    resource,
                )
                self._files[source] = Path(fetch.call().toUri().getPath())
            return self._files[source]


class _Calls:
    """What Java calls: one protocol of a cluster."""

    def __init__(self, protocol: str, yarn: Yarn) -> None:
        self.Java = SimpleNamespace(implements=[protocol])  # for py4j
        self._yarn = yarn

    def __getattr__(self, name: str) -> Callable[[Java], Java]:
        method = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
        if not hasattr(self._yarn, method):
            self._yarn.refused.append(name)
            raise AttributeError(name)
        answer: Callable[[Java], Java] = getattr(self._yarn, method)
        return answer


@contextmanager
def yarn(folder: Path, environment: Mapping[str, str]) -> Iterator[Yarn]:
    """A cluster on loopback; what still runs at the end is killed. See `Yarn` for the arguments."""
    (folder / "files").mkdir(parents=True)
    java = [f"{java_home()}/bin/java", *QUICK_JAVA.split(), "-cp", f"{SPARK_HOME}/jars/*"]
    java += ["py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    pipe = subprocess.PIPE
    with (
        (folder / "hadoop.log").open("wb") as log,
        subprocess.Popen(java, stdin=pipe, stdout=pipe, stderr=log) as process,
    ):
        assert process.stdout is not None
        port = int(process.stdout.readline())
        gateway = PY4J.JavaGateway(
            gateway_parameters=PY4J.GatewayParameters(port=port, auto_convert=True),
            callback_server_parameters=PY4J.CallbackServerParameters(
                port=0, daemonize=True, daemonize_connections=True
            ),
        )
        try:
            server, here = gateway.java_gateway_server, gateway.get_callback_server()
            address = server.getCallbackClient().getAddress()
            server.resetCallbackClient(address, here.get_listening_port())
            cluster = Yarn(folder, environment, gateway.jvm)
            try:
                cluster.serve()
                yield cluster
            finally:
                cluster.kill()
        finally:
            gateway.shutdown()


def java_home() -> str:
    """Where the Java is that Spark takes here."""
    java = Path(shutil.which("java") or "").resolve()
    return os.environ.get("JAVA_HOME") or str(java.parents[1])
