"""Plans that are killed while they are made, and while a server is compared with them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.jetstream.process import nats_server
from tests.support.censuses import census_file
from tests.support.disks import contents
from tests.support.programs import SCRIPT, output_of
from tests.support.streams import Stream

pytestmark = [pytest.mark.slow, pytest.mark.server]

KILLED = """
import os, signal, sys
from pathlib import Path
from nats_transform.__main__ import main

left = int(sys.argv.pop(1))

def dying(function):
    def call(*args, **more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **more)
    return call

Path.write_bytes, os.replace = dying(Path.write_bytes), dying(os.replace)
main()
"""
MAPPING = 'mappings { "orders.*": "shop.orders.$1" }'


def planned(folder: Path) -> list[str]:
    """The command that makes a plan in a folder, from files in it."""
    census_file(folder / "census.parquet", {b"orders.eu": 60_000, b"other.x": 10})
    (folder / "new.conf").write_text(MAPPING)
    config = {"config": {"name": "ORDERS", "subjects": ["orders.*"]}}
    (folder / "stream.json").write_text(json.dumps(config))
    return [
        *("plan", "--census", "census.parquet", "--candidate", "new.conf"),
        *("--streams", "stream.json", "--without-streams", "--out", "made"),
    ]


def test_a_plan_that_is_killed_at_every_file(tmp_path: Path) -> None:
    """The folder is there with all its files or not at all; the next run leaves nothing else."""
    command = planned(tmp_path)
    output_of(SCRIPT, *command, cwd=tmp_path)
    (tmp_path / "made").rename(tmp_path / "whole")
    wanted, before = contents(tmp_path / "whole"), {file.name for file in tmp_path.iterdir()}
    for kills in range(1, 100):
        process = subprocess.run([sys.executable, "-c", KILLED, f"{kills}", *command], cwd=tmp_path)
        if process.returncode == 0:
            break
        assert process.returncode == -9
        assert not (tmp_path / "made").exists()
    assert kills > len(wanted)
    assert contents(tmp_path / "made") == wanted
    assert {file.name for file in tmp_path.iterdir()} == before | {"made"}


def test_a_verify_that_is_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    """It changes nothing on the server, and the next run says what an undisturbed one does."""
    chance = random.Random(seed)
    command = planned(tmp_path)
    with nats_server() as server:
        stream = Stream(server, "ORDERS")
        stream.run(lambda js: js.add_stream(name="ORDERS", subjects=["orders.*"]))
        output_of(SCRIPT, *command, cwd=tmp_path)
        verify = [SCRIPT, "verify", "--plan", "made", "--step", "0", "--json"]
        verify += ["--server", server.url]
        began = time.monotonic()
        undisturbed = subprocess.run(verify, cwd=tmp_path, capture_output=True)
        took = time.monotonic() - began
        before = stream.run(lambda js: js.stream_info("ORDERS"))
        for _ in range(30):
            process = subprocess.Popen(verify, cwd=tmp_path, stdout=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, took))
            process.kill()
            process.wait()
        assert stream.run(lambda js: js.stream_info("ORDERS")) == before
        again = subprocess.run(verify, cwd=tmp_path, capture_output=True)
        assert (again.returncode, again.stdout) == (undisturbed.returncode, undisturbed.stdout)
        assert b"ORDERS" in again.stdout
