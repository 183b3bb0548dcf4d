"""The wheel, in an environment with what its base needs and nothing else."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from jobs.ending import EXTRAS
from jobs.jetstream.process import nats_server
from nats_transform.kernel.build import platform_tag
from tests.conformance.client import Client
from tests.support.censuses import census_file
from tests.support.configs import CANARY
from tests.support.files import save_context, write_files
from tests.support.libraries import read_library
from tests.support.programs import ended, output_of

ROOT = Path(__file__).parents[1]
OURS = ("jobs", "cli", "orchestration", "expectations")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, from an sdist as `make dist` does it; parallel workers share one."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    with open(shared / "dist.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("*.whl")):
            output_of(*command)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the packages of its base, linked from our own."""
    home = tmp_path_factory.mktemp("environment")
    packages = installed(wheel, home)
    for name in distributions():
        found = distribution(name)
        for top in {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(found.locate_file(top))).resolve())
    return home


def installed(wheel: Path, home: Path) -> Path:
    """Where the packages are of a new environment that has the wheel and nothing else."""
    output_of(sys.executable, "-m", "venv", "--without-pip", home)
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install")
    output_of(*pip, "--quiet", "--no-deps", "--no-index", wheel)
    return next(home.glob("lib/python*/site-packages"))


def distributions(of_extra: str = "") -> set[str]:
    """The names of all distributions that `pip install 'nats-transform[EXTRA]'` installs."""
    found: set[tuple[str, str]] = set()
    waiting = [("nats-transform", of_extra)]
    while waiting:
        name, extra = waiting.pop()
        for line in distribution(name).requires or ():
            requirement, _, marker = line.partition(";")
            if "extra ==" in marker and f"'{extra}'" not in marker.replace('"', "'"):
                continue
            if re.search(r"(platform_|sys_platform|python_version|implementation)", marker):
                continue  # for another machine; cffi's parser is needed to build only
            match = re.match(r"([\w.-]+)(?:\[(\w+)\])?", requirement.strip())
            needed = match[1], match[2] or ""
            if needed not in found:
                found.add(needed)
                waiting.append(needed)
    return {name for name, _ in found}


def run(environment: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return ended(environment / "bin" / arguments[0], *arguments[1:], cwd=folder, env=clean)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with packages that are called as the folders of this repository are."""
    write_files(tmp_path, {f"{name}/__init__.py": "MINE = True\n" for name in OURS})
    (tmp_path / "server.conf").write_text(CANARY)
    return tmp_path


def test_holds_one_package(wheel: Path) -> None:
    """Nothing stands beside it that could hide, or be hidden by, a user's own packages."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"nats_transform"}
    assert "nats_transform/py.typed" in names


# Library -> its functions; and what else of the system it needs.
FUNCTIONS = {
    "kernel/kernel.so": {"nats_digest", "nats_map", "nats_prove", "nats_source"},
    "backup/backup.so": {
        "nats_archive_scan", "nats_archive_write", "nats_checksum", "nats_gather", "nats_s2_decode",
        "nats_source",
    },
}  # fmt: skip
NEEDED = {"libc.so.6", "libc.so", "/usr/lib/libSystem.B.dylib"}


def inspect(wheel: Path, tag: str) -> None:
    """Asserts that a wheel is for a platform, and tells nothing of the machine that built it."""
    assert wheel.name.endswith(f"-py3-none-{tag}.whl")
    system, major, minor, machine = re.fullmatch(r"([a-z]+)_(\d+)_(\d+)_(\w+)", tag).groups()
    files = zipfile.ZipFile(wheel)
    assert not [name for name in files.namelist() if str(ROOT).encode() in files.read(name)]
    libraries = {name for name in files.namelist() if name.endswith(".so")}
    assert libraries == {f"nats_transform/{name}" for name in FUNCTIONS}
    for name, functions in FUNCTIONS.items():
        data = files.read(f"nats_transform/{name}")
        library = read_library(data)
        assert (library.machine, library.exported) == (machine, functions)
        assert set(library.needed) <= NEEDED
        oldest = library.oldest or (0, 0)
        assert system == "musllinux" or (0, 0) < oldest <= (int(major), int(minor))
        assert library.is_signed == (tag == "macosx_11_0_arm64")
        texts = re.findall(rb"\0([\w.@+-]*(?:/[\w.+ -]+)+)(?=\0)", data)
        paths = {text.decode() for text in texts if len(text) > 6}  # shorter ones are code
        assert paths <= {*NEEDED, "/usr/lib/dyld", f"@rpath/{Path(name).name}"}


def test_libraries_of_this_platform(wheel: Path) -> None:
    inspect(wheel, platform_tag())


@pytest.mark.slow
@pytest.mark.parametrize(
    "tag",
    [
        "manylinux_2_17_x86_64",
        "manylinux_2_17_aarch64",
        "musllinux_1_2_x86_64",
        "macosx_11_0_arm64",
        "macosx_11_0_x86_64",
    ],
)
def test_a_wheel_for_every_platform(wheel: Path, tmp_path: Path, tag: str) -> None:
    """From the sdist, with no program on PATH, so with no compiler of the system."""
    (sdist,) = wheel.parent.glob("*.tar.gz")
    home = tmp_path / "home"
    home.mkdir()
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    output_of(
        *(*pip, f"--config-settings=--build-option=--plat-name={tag}", sdist),
        cwd=tmp_path,
        env={"PATH": "/nonexistent", "HOME": str(home), "PIP_NO_CACHE_DIR": "1"},
    )
    assert not [*home.iterdir()]
    (made,) = tmp_path.glob("*.whl")
    inspect(made, tag)
    # A library says which sources it was made from; these are beside it.
    sources = {f"nats_transform/kernel/{name}" for name in ("column.h", "digest.c", "transform.c")}
    assert sources <= set(zipfile.ZipFile(made).namelist())


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        pytest.param(["map", "orders.*", "v1.$1", "orders.7"], "v1.7\n", id="map"),
        pytest.param(["check", "server.conf"], "\n1 file checked, nothing found\n", id="check"),
        pytest.param(["trace", "orders.7", "--mapping", "server.conf"], "v1.7", id="trace"),
    ],
)
def test_commands_of_the_base(
    environment: Path, project: Path, arguments: list[str], answer: str
) -> None:
    done = run(environment, "nats-transform", *arguments, folder=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert answer in done.stdout


def test_a_census_is_tried_with_the_base(environment: Path, project: Path) -> None:
    census_file(project / "census.parquet", {b"orders.7": 3, b"x": 1})
    write_files(project, {"streams/ORDERS.json": {"name": "ORDERS", "subjects": ["orders.*"]}})
    given = ("--census", "census.parquet", "--candidate", "server.conf")
    for command, more, told in (
        ("dry-run", ("--fail-on", "never", "--report", "page.html"), "ORDERS: 4 messages"),
        (
            "plan",
            ("--streams", "streams", "--without-streams", "--out", "plan"),
            "1. Let streams store",
        ),
    ):
        done = run(environment, "nats-transform", command, *given, *more, folder=project)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(told)
    assert "README.md" in {file.name for file in (project / "plan").iterdir()}


@pytest.mark.server
def test_the_first_command_of_the_readme_with_the_base(
    environment: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server with three streams, named by a saved context."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"```sh\nnats-transform (dry-run .*)\n```", readme)
    (project / "canary.conf").write_text(CANARY)
    with nats_server() as server, Client(server.url) as client:
        for name in ("ORDERS", "BILLS", "USERS"):
            subject = name.lower()
            client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{subject}.*"]})
            for number in range(10):
                client.request(f"{subject}.{number}")
        save_context(project / "config", "prod", url=server.url)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "config"))
        done = run(environment, "nats-transform", *line.split(), folder=project)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("all streams: 30 messages under 30 subjects, as they are now")
    assert "in BILLS, ORDERS, USERS" in done.stdout
    assert "error not-captured: stream ORDERS" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        pytest.param(["audit", "--stream", "S", "--mapping", "server.conf"], "archive", id="audit"),
        pytest.param(["transform", "--stream", "S", "--mapping", "server.conf"], "archive", id="t"),
        pytest.param(["maintain"], "archive", id="maintain"),
        pytest.param(["demo"], "dagster", id="demo"),
    ],
)
def test_a_missing_extra_is_named(
    environment: Path, project: Path, arguments: list[str], extra: str
) -> None:
    done = run(environment, "nats-transform", *arguments, folder=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert f"pip install 'nats-transform[{extra}]'" in done.stderr


def test_extras_bring_what_is_said_of_them() -> None:
    by_extra = {extra: distributions(extra) for extra in ("", *EXTRAS.values())}
    for package, extra in EXTRAS.items():
        assert package.replace("_", "-") in by_extra[extra] - by_extra[""], package
    assert {"pandas", "pyspark"} <= by_extra["spark"] & by_extra["dagster"]
    assert not {"pandas", "pyspark"} & by_extra["archive"]
    assert by_extra["archive"] < by_extra["spark"] < by_extra["dagster"]


def test_lives_beside_packages_of_the_same_names(environment: Path, project: Path) -> None:
    code = (
        "import jobs, cli, nats_transform.jobs.ending as ending, nats_transform.cli.main\n"
        "print(jobs.MINE, cli.MINE, ending.__name__)"
    )
    done = run(environment, "python", "-c", code, folder=project)
    assert (done.stdout, done.stderr) == ("True True nats_transform.jobs.ending\n", "")


@pytest.mark.slow
def test_component_beside_packages_of_the_same_names(wheel: Path, project: Path) -> None:
    """The component for Dagster too, and all that it imports."""
    installed = project / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    code = (
        "import sys; sys.path[:0] = ['.', 'installed']\n"
        "from nats_transform.dagster import SubjectArchive\n"
        "from nats_transform.great_expectations import ExpectWeightsToHold, aggregates\n"
        "import jobs, pkgutil, importlib, nats_transform.jobs as ours\n"
        "for found in pkgutil.walk_packages(ours.__path__, 'nats_transform.jobs.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
        "assert jobs.MINE and not {'jobs.ingest', 'orchestration.components'} & set(sys.modules)\n"
        "print(SubjectArchive.__module__)\n"
    )
    told = output_of(sys.executable, "-I", "-c", code, cwd=project)
    assert told == "nats_transform.orchestration.components.subject_archive\n"


USERS_SAMPLE = """
from nats_transform import AccountMappings, Mapping, Transform

answer: str | None = Transform("orders.*", "v1.$1").apply("orders.7")
wrong: int = Transform("orders.*", "v1.$1").apply("orders.7")
"""


@pytest.mark.slow
def test_types_reach_the_user(environment: Path, project: Path) -> None:
    """The types of the library hold for a user's own code: `py.typed` is in the wheel."""
    (project / "sample.py").write_text(USERS_SAMPLE)
    interpreter = f"--python-executable={environment / 'bin' / 'python'}"
    command = (sys.executable, "-m", "mypy", "--strict", "--config-file=", interpreter)
    lines = ended(*command, "sample.py", cwd=project).stdout.splitlines()
    assert len(lines) == 2, lines
    assert lines[0].startswith("sample.py:5: error: Incompatible types in assignment")
