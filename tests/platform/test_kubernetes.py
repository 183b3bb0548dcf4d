"""Spark on Kubernetes with the settings of deploy/: pods as it asks for them, run as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer
from tests.deploy.test_files import passes, tool
from tests.support.killing import killing, work_in
from tests.support.kubernetes_api import KubernetesApi, Manifest, kubernetes_api
from tests.support.programs import BIN, ended
from tests.support.spark_cluster import QUICK_JAVA, SPARK_HOME
from tests.support.streams import new_stream, settings_of_ingest

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "deploy" / "kubernetes" / "spark-defaults.conf"
HERE = {
    # A URI, as Spark reads this path as one: a space in it would not do.
    "spark.kubernetes.executor.podTemplateFile": (SETTINGS.parent / "executor.yaml").as_uri(),
    "spark.driver.host": "127.0.0.1",
    "spark.executor.instances": "1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    # There is no watching here, and no time to lose.
    "spark.kubernetes.executor.enableApiWatcher": "false",
    "spark.kubernetes.executor.apiPollingInterval": "1s",
}
IMAGE = {
    "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
    "SPARK_HOME": str(SPARK_HOME),
    "PYSPARK_PYTHON": sys.executable,
    "JDK_JAVA_OPTIONS": QUICK_JAVA,
    "LC_ALL": "C.UTF-8",  # the path of a checkout may have any letters
}


@contextmanager
def pods(folder: Path) -> Iterator[KubernetesApi]:
    """An API whose pods are what deploy/entrypoint.sh starts; their logs are in the folder."""

    def start(pod: Manifest) -> subprocess.Popen[bytes]:
        (container,) = pod["spec"]["containers"]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
        given = {
            one["name"]: one["value"]
            if "value" in one
            else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in container["env"]
        }
        given["SPARK_LOCAL_DIRS"] = str(folder / "local")  # a volume of the pod
        with (folder / f"{pod['metadata']['name']}.log").open("wb") as log:
            return subprocess.Popen(
                ["sh", str(ROOT / "deploy" / "entrypoint.sh"), *container["args"]],
                env=IMAGE | given,
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    with kubernetes_api(start) as api:
        yield api


def submit(api: KubernetesApi, folder: Path, job: str, *more: str) -> Any:
    """What a job says whose settings are in the folder, as spark-submit runs it."""
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", f"k8s://{api.url}"]
    command += ["--deploy-mode", "client", "--properties-file", str(SETTINGS)]
    command += [word for pair in HERE.items() for word in ("--conf", "=".join(pair))]
    command += [*more, str(ROOT / "deploy" / "spark_job.py"), job, f"{job}.json"]
    done = ended(*command, env=os.environ | IMAGE, cwd=folder)
    logs = "".join(log.read_text() for log in folder.glob("*.log"))
    assert done.returncode == 0, f"{api.refused}\n{logs[-3000:]}\n{done.stderr[-5000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def test_executors_as_pods(nats_server: NatsServer, tmp_path: Path) -> None:
    """What deploy/entrypoint.sh starts in a pod does the job; the pod is valid and restricted."""
    stream = new_stream(nats_server)
    stream.count(1000)
    settings_of_ingest(tmp_path, nats_server, stream.name)
    with pods(tmp_path) as api:
        assert submit(api, tmp_path, "ingest")["messages"] == 1000
    logs = "".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert "Successfully registered with driver" in logs
    assert not api.refused
    (pod,) = api.created
    (tmp_path / "pod.yaml").write_text(json.dumps(pod))
    for version in ("1.30", "1.32"):
        passes(tool("kubernetes-validate"), "--strict", "-k", version, str(tmp_path / "pod.yaml"))
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example.com/nats-transform:0.2.0"
    assert "/srv/warehouse" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert container["resources"]["limits"]["memory"] == "1536Mi"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert pod["metadata"]["namespace"] == "nats-transform"


def test_a_pod_that_is_killed(tmp_path: Path) -> None:
    """Spark asks for another one, and the transform is complete; nothing is doubled."""
    work = work_in(tmp_path)
    with (
        pods(work.folder) as api,
        killing(work.table, api.kill_pod, times=1) as signs,
    ):
        result = submit(api, work.folder, "transform", "--conf", "spark.executor.instances=2")
    assert len(signs) == 1
    assert not api.refused
    work.assert_made(result)
