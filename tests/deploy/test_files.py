"""The files of deploy/: valid for the tools that read them, and they keep what the docs promise."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagster as dg
import jsonschema
import pytest
import yaml

from tests.support.programs import BIN, ended, output_of

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted([*DEPLOY.glob("*.sh"), *(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run"])


def tool(name: str) -> str:
    """A program beside the interpreter or on PATH; without it the test is skipped."""
    found = shutil.which(name, path=str(BIN)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not there for this platform")
    return found


passes = partial(output_of, cwd=ROOT)
"""What a program prints that finds nothing wrong."""


# --- Containers -----------------------------------------------------------------------------------


def test_the_dockerfile_is_linted() -> None:
    passes(tool("hadolint"), "deploy/Dockerfile")


def test_the_image_is_locked_down() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert len(re.findall(r"^FROM ", text, re.MULTILINE)) == 2
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001"]
    installs = re.findall(r"pip install .*", text)
    assert installs
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert all("--no-deps" in line for line in installs)
    assert "HEALTHCHECK" in text
    assert "DAGSTER_DISABLE_TELEMETRY=1" in text
    assert "GX_ANALYTICS_ENABLED=false" in text
    for sources in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source


def test_the_image_has_no_tools_of_development() -> None:
    wanted = re.findall(r"^([\w-]+)==", (DEPLOY / "requirements.lock").read_text(), re.MULTILINE)
    locked = set((ROOT / "requirements.lock").read_text().splitlines())
    assert {"dagster-postgres", "psycopg2-binary", "pyspark"} <= set(wanted)
    assert not {"pytest", "mypy", "ruff", "hypothesis", "polars"} & set(wanted)
    pinned = re.findall(r"^[\w-]+==\S+", (DEPLOY / "requirements.lock").read_text(), re.MULTILINE)
    tested = {line.split(" ")[0] for line in locked}
    assert [pin for pin in pinned if pin not in tested] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts(script: Path) -> None:
    passes(tool("shellcheck"), str(script))


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_compose_is_valid() -> None:
    vendored = files("check_jsonschema").joinpath("builtin_schemas", "vendor", "compose-spec.json")
    jsonschema.validate(compose(), json.loads(vendored.read_text()))


def test_compose_opens_nothing_and_waits_for_what_it_needs() -> None:
    services = compose()["services"]
    dagster = {"code", "webserver", "daemon", "metrics"}
    others = {"postgres", "reports", "spark-master", "spark-worker", "nats"}
    assert services.keys() == dagster | others
    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert not service.get("privileged"), name
        for other in service.get("depends_on", {}):
            assert other in services, name
            assert "healthcheck" in services[other] or other == "code", name
        if "build" in service:
            assert service["read_only"], name
            assert service["cap_drop"] == ["ALL"], name
    archives = {str(mount) for mount in services["code"]["volumes"] if "ARCHIVES" in str(mount)}
    assert archives
    assert archives <= set(services["spark-worker"]["volumes"])
    secrets = [file["file"] for file in compose()["secrets"].values()]
    assert all(file.startswith("./secrets/") for file in secrets)
    ignored = ["git", "-c", "safe.directory=*", "check-ignore", "-q"]
    passes(*ignored, *(str(DEPLOY / file) for file in secrets))


def test_docker_compose_takes_it() -> None:
    docker = tool("docker")
    if ended(docker, "compose", "version").returncode:
        pytest.skip("docker has no compose here")
    passes(docker, "compose", "--file", "deploy/compose.yaml", "config", "--quiet")


# --- Kubernetes -----------------------------------------------------------------------------------


def kubernetes() -> list[dict[str, Any]]:
    text = passes(tool("kubectl"), "kustomize", "deploy/kubernetes")
    return [document for document in yaml.safe_load_all(text) if document]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods of everything that runs, with its name."""
    for document in kubernetes():
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield document["metadata"]["name"], spec["template"]["spec"]


def test_kubernetes_takes_the_manifests(tmp_path: Path) -> None:
    """By the schemas of two Kubernetes versions; unknown fields are refused."""
    built = tmp_path / "built.yaml"
    built.write_text(yaml.safe_dump_all(kubernetes()))
    for version in ("1.30", "1.32"):
        for path in (built, DEPLOY / "kubernetes" / "executor.yaml"):
            passes(tool("kubernetes-validate"), "--strict", "-k", version, str(path))


def test_pods_are_restricted() -> None:
    for name, pod in pods():
        assert pod["securityContext"]["runAsNonRoot"], name
        for container in pod["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert not container["securityContext"]["allowPrivilegeEscalation"], name
            assert container["resources"]["limits"]["memory"], name
            assert (ROOT / container["args"][0]).exists(), name
            # There Kubernetes makes a folder for the token, which it cannot in one of ours.
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert not [path for path in mounts if "run/secrets" in path], name


def test_spark_settings_can_be_read() -> None:
    """Each line is a name and a value, as Spark's own reader has it; the image is one image."""
    lines = (DEPLOY / "kubernetes" / "spark-defaults.conf").read_text().splitlines()
    settings = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    assert all(name.startswith("spark.") for name in settings)
    images = {container["image"] for _, pod in pods() for container in pod["containers"]}
    assert images == {settings["spark.kubernetes.container.image"]}
    template = settings["spark.kubernetes.executor.podTemplateFile"]
    assert (ROOT / template.removeprefix("/opt/project/")).exists()


# --- Dagster --------------------------------------------------------------------------------------


@pytest.mark.dagster
def test_the_local_instance_loads(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "local" / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert not instance.telemetry_enabled
        assert instance.run_monitoring_enabled
        pools = instance.get_concurrency_config().pool_config
        assert pools.default_pool_limit == 1
        assert pools.pool_granularity.value == "run"


@pytest.mark.dagster
@pytest.mark.slow
def test_the_local_workspace_loads(tmp_path: Path) -> None:
    """That of production is used by `test_production.py`."""
    shutil.copy(DEPLOY / "local" / "dagster.yaml", tmp_path)
    workspace = DEPLOY / "local" / "workspace.yaml"
    home = {"DAGSTER_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", "dagster", "sensor", "list", "--workspace", workspace)
    assert "orphaned_runs" in output_of(*command, env=os.environ | home)


def test_every_variable_is_set_wherever_dagster_runs() -> None:
    """What the YAML of Dagster reads is what compose and Kubernetes give, or the secrets script."""
    files = [DEPLOY / "production" / name for name in ("dagster.yaml", "workspace.yaml")]
    read = {name for file in files for name in re.findall(r"env: (\w+)", file.read_text())}
    exports = (DEPLOY / "with_secrets.sh").read_text()
    script = set(re.findall(r"^export (\w+)", exports, re.MULTILINE))
    compose_gives = set(compose()["services"]["code"]["environment"])
    (settings,) = [
        document["data"]
        for document in kubernetes()
        if document["kind"] == "ConfigMap" and "DAGSTER_POSTGRES_DB" in document["data"]
    ]
    for given in (compose_gives, set(settings)):
        assert read <= given | script


@pytest.mark.parametrize(
    "secret", ["simple", "with space", "p@ss:w/rd%?#&", "quote'\"$HOME`id`", "ü"]
)
def test_secrets_reach_the_command_as_they_are(tmp_path: Path, secret: str) -> None:
    (tmp_path / "password").write_text(secret + "\n")
    show = (
        "import os, sqlalchemy\n"
        "print(os.environ['DAGSTER_POSTGRES_PASSWORD'])\n"
        "print(sqlalchemy.make_url(os.environ['PYICEBERG_CATALOG__ARCHIVE__URI']).password)"
    )
    environment = os.environ | {
        "POSTGRES_PASSWORD_FILE": str(tmp_path / "password"),
        "DAGSTER_POSTGRES_HOST": "postgres.example.com",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    told = output_of(DEPLOY / "with_secrets.sh", sys.executable, "-c", show, env=environment)
    assert told.splitlines() == [secret, secret]


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    environment = os.environ | {"POSTGRES_PASSWORD_FILE": str(tmp_path / "none")}
    done = ended(DEPLOY / "with_secrets.sh", "true", env=environment)
    assert done.returncode == 2
    assert "cannot be read" in done.stderr
