"""scripts/setup.sh: what it takes, what it refuses, and that it repairs itself."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.programs import ended
from tests.test_repository import tracked_files

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with this environment and nothing else in it."""
    return ended(*command, cwd=cwd, env=environment)


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of this checkout, without its .venv, in a path with a space."""
    copy = tmp_path / "a b" / "checkout"
    for file in tracked_files("*"):
        target = copy / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return copy


@pytest.mark.parametrize(
    ("script", "found"),
    [
        pytest.param('echo "Python 3.10.13"; [ "$1" = --version ]', "Python 3.10.13", id="old"),
        pytest.param("exit 127", "missing", id="a shim that does not run"),
    ],
)
def test_refuses_other_pythons(checkout: Path, tmp_path: Path, script: str, found: str) -> None:
    python = executable(tmp_path / "python3", script)
    done = run(
        *("sh", "scripts/setup.sh"),
        cwd=checkout,
        PATH=os.environ["PATH"],
        JAVA_HOME=os.environ.get("JAVA_HOME", ""),
        PYTHON=str(python),
    )
    assert done.stderr == (
        f"setup: Python 3.11 or newer is needed, {python} is {found}: install one, "
        "or name it with PYTHON=/path/to/python3\n"
    )
    assert done.returncode == 2
    assert not (checkout / ".venv").exists()


def test_the_matrix_takes_the_oldest_python_and_the_newest_of_each(tmp_path: Path) -> None:
    for name, script in {
        "a/python3.11": "echo 3 11 0 /old",
        "b/python3.11": "echo 3 11 1 /between",
        "b/python3.29": "echo 3 29 9 /new python",
        "b/python3.28": "exit 127",
    }.items():
        executable(tmp_path / name, script)

    def matrix(*arguments: str) -> list[str]:
        path = ":".join([f"{tmp_path}/a", f"{tmp_path}/b", os.environ["PATH"]])
        command = (sys.executable, ROOT / "scripts/matrix.py", *arguments)
        return run(*command, cwd=tmp_path, PATH=path, HOME=str(tmp_path)).stdout.splitlines()

    assert matrix("--oldest") == ["/old"]
    cells = matrix("--list")
    assert [name for name in cells if name.startswith(("3.11.1-", "3.28"))] == []
    assert len([name for name in cells if name.startswith("3.11.0-")]) == 2
    assert [name.split("-")[1] for name in cells if name.startswith("3.29.9-")] == ["pip", "uv"]
    assert len(matrix("--all", "--list")) == len(cells) * (2 if os.getuid() == 0 else 1)


@pytest.fixture(scope="module")
def complete() -> None:
    """Completes the set-up of this checkout; skips where the tests run in another environment."""
    if Path(sys.prefix) != ROOT / ".venv" or not (ROOT / ".venv/made-from").exists():
        pytest.skip("these tests do not run in the .venv that scripts/setup.sh makes")
    subprocess.run(["sh", ROOT / "scripts/setup.sh"], check=True)


JAVA_21 = "echo '    java.home = {home}\n    java.specification.version = 21' >&2"


@pytest.mark.usefixtures("complete")
class TestJava:
    """Which Java is taken, of one in JAVA_HOME and one on PATH; the machine has a good one."""

    def chosen(self, tmp_path: Path, home: str | None, path: str | None) -> Path:
        """The JAVA_HOME that commands get, with these scripts as the two Javas."""
        places = {}
        for name, script in (("home", home), ("path", path)):
            if script is not None:
                script = script.format(home=tmp_path / name)
                executable(tmp_path / name / "bin" / "java", script)
                places[name] = tmp_path / name
        bin_on_path = places.get("path", tmp_path / "absent") / "bin"
        done = run(
            *("sh", "scripts/setup.sh", "printenv", "JAVA_HOME"),
            cwd=ROOT,
            PATH=f"{bin_on_path}:{os.environ['PATH']}",
            JAVA_HOME=str(places.get("home", "")),
        )
        assert (done.returncode, done.stderr) == (0, "")
        return Path(done.stdout.removesuffix("\n"))

    def test_of_java_home_is_first(self, tmp_path: Path) -> None:
        assert self.chosen(tmp_path, JAVA_21, JAVA_21) == tmp_path / "home"

    def test_on_path_if_there_is_no_java_home(self, tmp_path: Path) -> None:
        assert self.chosen(tmp_path, None, JAVA_21) == tmp_path / "path"

    @pytest.mark.parametrize(
        "script",
        [
            pytest.param("echo 'Unrecognized option: --add-modules' >&2; exit 1", id="8"),
            pytest.param(JAVA_21.replace("21", "16"), id="16"),
            pytest.param(JAVA_21.replace("21", "25"), id="25"),
            pytest.param("echo 'Module jdk.incubator.vector not found' >&2; exit 1", id="minimal"),
            pytest.param("exit 0", id="silent"),
        ],
    )
    def test_unfit_is_passed_over(self, tmp_path: Path, script: str) -> None:
        assert self.chosen(tmp_path, script, JAVA_21) == tmp_path / "path"
        assert self.chosen(tmp_path, JAVA_21, script) == tmp_path / "home"
        machines = self.chosen(tmp_path, script, script)
        assert not machines.is_relative_to(tmp_path)
        assert (machines / "bin" / "java").exists()


@pytest.mark.usefixtures("complete")
def test_complete_set_up_is_quick_and_silent() -> None:
    """Quick in processor time, which says more than the clock on a busy machine."""
    seconds = []
    for _ in range(3):
        before = os.times()
        done = run("sh", ROOT / "scripts/setup.sh", cwd=Path("/"), PATH=os.environ["PATH"])
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))  # of processes that have ended
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert min(seconds) < 2


@pytest.mark.usefixtures("complete")
@pytest.mark.parametrize("name", ["PYTHONPATH", "SPARK_HOME", "PYTHONDONTWRITEBYTECODE"])
def test_settings_of_another_place_do_not_reach_a_command(name: str) -> None:
    given = {"PATH": os.environ["PATH"], name: "/elsewhere"}
    done = run("sh", "scripts/setup.sh", "printenv", name, cwd=ROOT, **given)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


TOLD = r"""printf '%s\n' "$*" "$UV_FIND_LINKS" "$UV_DEFAULT_INDEX" "$SSL_CERT_FILE" >>"$TOLD" """


def test_uv_gets_the_settings_of_pip_and_pip_its_work(checkout: Path, tmp_path: Path) -> None:
    """With a program in the place of uv, to see what it is told; it fails, and so does pip."""
    record = tmp_path / "told"
    executable(tmp_path / "bin" / "uv", f"{TOLD}\nexit 1")
    done = run(
        *("sh", "scripts/setup.sh", "true"),
        cwd=checkout,
        PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        JAVA_HOME=os.environ.get("JAVA_HOME", ""),
        HOME=str(tmp_path),
        TOLD=str(record),
        PIP_CONFIG_FILE=os.devnull,
        PIP_FIND_LINKS="/wheels /more",
        PIP_INDEX_URL="file:///no/index",
        PIP_CERT="/ca.pem",
    )
    first, *settings = record.read_text().splitlines()
    assert first.startswith("pip install --python .venv/bin/python --no-deps --require-hashes -r ")
    assert settings == ["/wheels,/more", "file:///no/index", "/ca.pem"]
    assert done.returncode == 2
    assert "trying pip" in done.stderr
    assert "could not be installed" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_sets_up_from_nothing_and_after_a_kill(checkout: Path, tmp_path: Path, tool: str) -> None:
    """What `make setup` makes of a fresh checkout; needs the network or a warm cache."""
    uv = shutil.which("uv")
    if tool == "uv" and uv is None:
        pytest.skip("uv is not installed here")
    home = tmp_path / "home"
    home.mkdir()
    cache = subprocess.check_output([sys.executable, "-m", "pip", "cache", "dir"], text=True)
    environment = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    path = os.environ["PATH"].split(os.pathsep)
    if tool == "pip":
        path = [folder for folder in path if not Path(folder, "uv").exists()]
    environment |= {"PIP_CACHE_DIR": cache.strip(), "HOME": str(home), "PATH": ":".join(path)}
    environment["UV_CACHE_DIR"] = str(tmp_path / "cache")

    interrupted = subprocess.Popen(
        ["make", "setup"],
        cwd=checkout,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = checkout / ".venv/setup.log"
    while not log.exists() or not re.search("Collecting|Resolved", log.read_text()):
        assert interrupted.poll() is None
        time.sleep(0.1)
    os.killpg(interrupted.pid, signal.SIGKILL)
    interrupted.wait()

    repaired = run("make", "setup", cwd=checkout, **environment)
    assert repaired.returncode == 0, repaired.stderr
    assert "making .venv" in repaired.stderr
    assert run(checkout / ".venv/bin/pip", "check", cwd=tmp_path, **environment).returncode == 0
    command = checkout / ".venv/bin/nats-transform"
    assert run(command, "--help", cwd=tmp_path, **environment).returncode == 0
    kernel = "from nats_transform.kernel.library import library; library()"
    python = checkout / ".venv/bin/python"
    assert run(python, "-c", kernel, cwd=tmp_path, **environment).returncode == 0

    again = run("make", "setup", cwd=checkout, **environment)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    changed = run("make", "setup", cwd=checkout, **environment)
    assert changed.returncode == 0, changed.stderr
    assert "updating .venv" in changed.stderr

    with (checkout / "nats_transform/kernel/digest.c").open("a") as file:
        file.write("/* changed */\n")
    compiled = run("make", "setup", cwd=checkout, **environment)
    assert compiled.returncode == 0, compiled.stderr
    assert "compiling its kernel" in compiled.stderr
    assert "updating .venv" not in compiled.stderr
    assert run(python, "-c", kernel, cwd=tmp_path, **environment).returncode == 0
    assert list(home.iterdir()) == []
