"""What reviews run: the action of GitHub, the hook of pre-commit and the page on plans."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.censuses import census_file
from tests.support.command import nats_transform
from tests.support.programs import BIN, ended

ROOT = Path(__file__).parents[1]
GOOD = 'mappings { "orders.*": "shop.orders.$1" }\n'
BAD = 'mappings { "orders.*": shop }\n'


def steps() -> list[dict[str, Any]]:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    return list(action["runs"]["steps"])


def run_step(step: dict[str, Any], folder: Path, inputs: dict[str, str]) -> tuple[int, str]:
    """As GitHub runs it: inputs in the environment, bash with -e and pipefail."""
    env = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    for name, value in step.get("env", {}).items():
        env[name] = re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], value)
    bash = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
    done = ended(*bash, step["run"], cwd=folder, env=env)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (BAD, 1)], ids=["good", "bad"])
def test_the_steps_of_the_action(tmp_path: Path, text: str, code: int) -> None:
    (tmp_path / "new file.conf").write_text(text)
    (tmp_path / "new.conf").write_text(text)
    census_file(tmp_path / "c.parquet", {b"orders.eu": 5, b"orders.us": 4})
    install, sarif, check, dry_run = steps()
    assert install["run"].startswith("python -m pip install")
    inputs = {
        "files": "new.conf", "candidate": "new file.conf", "mapping": "", "census": "c.parquet",
        "sarif": "out.sarif", "streams": "", "consumers": "", "permissions": "",
    }  # fmt: skip
    assert run_step(sarif, tmp_path, inputs) == (0, "")
    assert json.loads((tmp_path / "out.sarif").read_text())["version"] == "2.1.0"
    assert run_step(check, tmp_path, inputs)[0] == 0
    status, out = run_step(dry_run, tmp_path, inputs)
    assert status == code
    assert ("::error file=new file.conf,line=1,col=12,title=collision::" in out) == bool(code)
    assert run_step(dry_run, tmp_path, inputs | {"mapping": "new.conf"})[0] == 0
    assert "not looked at: streams (" in out
    (tmp_path / "a stream.json").write_text('{"name": "ORDERS", "subjects": ["orders.*"]}')
    status, out = run_step(dry_run, tmp_path, inputs | {"streams": "a stream.json"})
    assert (status, "title=not-captured::" in out) == (1, True)
    assert "not looked at: consumers (" in out


@pytest.mark.parametrize("name", ["--help", "--fail-on=never", "--cluster=x.conf"])
def test_no_name_of_a_file_is_an_option(tmp_path: Path, name: str) -> None:
    """Whoever opens a pull request chooses the names of files."""
    (tmp_path / name).write_text('mappings { "orders.*": "x.$7" }\n')
    _, sarif, check, _ = steps()
    inputs = {"files": "*", "sarif": "../out.sarif"}
    assert run_step(sarif, tmp_path, inputs) == (0, "")
    assert name.lstrip("-") in (tmp_path / "../out.sarif").read_text().replace("%3D", "=")
    code, out = run_step(check, tmp_path, inputs)
    assert code == 1
    assert f"::error file={name},line=1," in out


def test_the_hook_runs_a_command_that_is_there(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (tmp_path / "a.conf").write_text(GOOD)
    assert re.search(hook["files"], "conf/a.conf")
    assert not re.search(hook["files"], "a.conf.md")
    program, *rest = (*shlex.split(hook["entry"]), *hook["args"])
    assert program == "nats-transform"
    assert nats_transform(*rest, str(tmp_path / "a.conf"))[0] == 0
    assert "--cluster=a.conf: No such file" in nats_transform(*rest, "--cluster=a.conf")[2]
