"""Input that was made to take memory or time, as large as it was when it did, by the command line.

Each runs in a process of its own, which says at its end what it needed. `-s -n 0` prints the table.
"""

from __future__ import annotations

import gzip
import json
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nats_transform.backup.s2 import IDENTIFIER, LARGEST_BLOCK, chunk
from tests.support.backups import END, archive, entry, state_of, varint
from tests.support.impostor import INFO_OF_STREAM, Impostor, endless, message, once, serving
from tests.support.network import silent_after
from tests.support.programs import in_python
from tests.support.saying import says
from tests.support.spark_cluster import free_port

pytestmark = pytest.mark.slow

MEGABYTES, CPU_SECONDS = 600, 10

RUN = """
import atexit, resource, sys
from nats_transform.__main__ import main

def tell():
    # Not ru_maxrss: Linux lets a new program inherit the peak of the process that started it.
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    with open(needed, "w") as file:
        print(int(peak.split()[1]) / 1024, sum(u.ru_utime + u.ru_stime for u in used), file=file)

_, needed, *sys.argv[1:] = sys.argv
atexit.register(tell)
main()
"""


def within_bounds(folder: Path, *args: str | Path) -> tuple[int, str]:
    """Exit code and output of `nats-transform`, which must not need more than the bounds."""
    needed = folder / "needed"

    def limit() -> None:
        # What is lost must not take the machine with it.
        resource.setrlimit(resource.RLIMIT_CPU, (120, 120))

    began = time.monotonic()
    done = in_python(RUN, needed, *args, cwd=folder, preexec_fn=limit)
    output = done.stdout + done.stderr
    assert needed.exists(), output[-2000:]
    megabytes, cpu = map(float, needed.read_text().split())
    wall = time.monotonic() - began
    print(f"\n{args[0]}: {megabytes:,.0f} MB, {cpu:.1f} CPU s, {wall:.1f} s: {output[:150]!r}")
    assert megabytes < MEGABYTES
    assert cpu < CPU_SECONDS
    assert "Traceback" not in output
    assert len(output) < 6_000_000
    return done.returncode, output


def ingested(folder: Path, *source: str | Path) -> str:
    """What a refused ingest says, in one line."""
    code, output = within_bounds(folder, "ingest", "--stream", "S", *source, "--warehouse", "w")
    assert code == 2, output
    assert output.count("\n") == 1
    return output


# 4 MiB of "x" in 15 bytes: a literal, a copy of it, and a repeat of that copy.
_XS = b"x" * LARGEST_BLOCK
_PACKED_XS = (
    varint(LARGEST_BLOCK) + b"\x00x" + b"\x02\x01\x00"
    + b"\x1d\x00" + (LARGEST_BLOCK - 2 - 4 - 2**16).to_bytes(3, "little")
)  # fmt: skip


def backup(folder: Path, documents: int, blocks: int, consumers: int) -> Path:
    """A backup with consumers of some blocks of 4 MiB each; its state counts others."""
    place = folder / "backup"
    place.mkdir()
    (place / "backup.json").write_text(json.dumps({"type": "stream", **INFO_OF_STREAM}))
    xs, around = chunk(_XS, _PACKED_XS), b'{"config": {}, "state": {"x": "%s"}}'
    first, last = around.split(b"%s")
    with (place / "stream.tar.s2").open("wb") as file:
        file.write(IDENTIFIER)
        file.write(chunk(archive([], state_of([], consumer_count=consumers), end=())))
        for number in range(documents):
            size = blocks * LARGEST_BLOCK + len(first + last)
            sizes = entry(b"consumers/%d" % number, 5, 0, b"", bytes(size))[:-size]
            file.write(chunk(sizes + first) + xs * blocks + chunk(last))
        file.write(chunk(entry(*END)))
    assert (place / "stream.tar.s2").stat().st_size < 14_000 + documents * 100
    return place


@pytest.mark.parametrize(
    ("documents", "blocks", "consumers"),
    [(3, 64, 3), (1, 0, 2**63 - 1), (20_000, 0, 20_000)],
    ids=["large", "counted", "many"],
)
def test_consumers_of_a_backup(tmp_path: Path, documents: int, blocks: int, consumers: int) -> None:
    place = backup(tmp_path, documents, blocks, consumers)
    assert str(place) in ingested(tmp_path, "--backup", place)


@pytest.mark.parametrize("column", ["data", "subject"])
def test_values_of_parquet_that_repeat(tmp_path: Path, column: str) -> None:
    """2 GB in some kilobytes: they are archived, a few rows at a time."""
    rows = {"subject": ["a"] * 2000, "ts": [0] * 2000} | {column: ["x" * 2**20] * 2000}
    file = tmp_path / "dump.parquet"
    dictionary = {name: pa.array(values).dictionary_encode() for name, values in rows.items()}
    pq.write_table(pa.table(dictionary), file, compression="zstd")
    assert file.stat().st_size < 20_000
    args = ("ingest", "--stream", "S", "--parquet", file, "--warehouse", "w")
    assert "2,000 messages added" in within_bounds(tmp_path, *args)[1]


def test_a_line_of_3_gb(tmp_path: Path) -> None:
    """A file of gzip is a chain of files: the line is packed once."""
    file = tmp_path / "dump.jsonl.gz"
    begin = gzip.compress(b'{"subject": "a", "ts": 0, "data": "')
    file.write_bytes(begin + gzip.compress(b"x" * 2**24) * 192)
    assert file.stat().st_size < 4_000_000
    assert says(ingested(tmp_path, "--jsonl", file), "line-too-large")


@pytest.mark.parametrize(
    ("block", "lines"),
    [
        ("mappings", [f'"*.a{n}.>": "b{n}.>"' for n in range(2000)]),
        ("mappings", [f'"a{n}.*": "b{n}.$1"' for n in range(100_000)]),
        ("mappings", [f'"{"*." * (n % 60)}a{n}.>": "b{n}.>"' for n in range(5000)]),
        ("accounts", [f'A{n} {{ mappings {{ "a{n}.*": "b{n}.$1" }} }}' for n in range(10_000)]),
    ],
    ids=["overlapping", "harmless", "of-all-lengths", "of-many-accounts"],
)
def test_mappings(tmp_path: Path, block: str, lines: list[str]) -> None:
    file = tmp_path / "server.conf"
    file.write_text(f"{block} {{\n" + "\n".join(lines) + "\n}\n")
    code, output = within_bounds(tmp_path, "check", file, "--json")
    assert code == 0, output[:1000]


PROTOCOL = {
    "negative": once(b"MSG a SID r -40\r\nx\r\n"),
    "large": endless(b"MSG a SID r 1000000000000\r\n", bytes(65_536)),
    "line": endless(b"MSG a ", b"x" * 65_536),
    "headers": endless(b"HMSG a SID r 999999 999999\r\n", bytes(65_536)),
    "errors": endless(b"", b"-ERR 'x'\r\n" * 1000),
    "pings": endless(b"", b"PING\r\n" * 1000),
    "not-asked": endless(b"", b"MSG a 99 1\r\nx\r\n" * 1000),
    "backwards": lambda inbox, sid: iter(
        message(inbox, sid, sequence, n, 5) for n, sequence in enumerate([1, 1, 2, 2, 3], 1)
    ),
}


@pytest.mark.parametrize("pieces", PROTOCOL.values(), ids=PROTOCOL)
def test_a_server_that_lies(tmp_path: Path, pieces: Any) -> None:
    with serving(Impostor(pieces=pieces)) as impostor:
        ingested(tmp_path, "--server", impostor.url)


@pytest.mark.parametrize(
    "answer",
    [
        INFO_OF_STREAM | {"state": {"messages": 300, "bytes": 2**62, "first_seq": 1} | {
            "last_seq": 2**62}},
        {},
        {"state": 7},
        b"[" * 900_000,
    ],
    ids=["last-seq", "no-state", "state", "nested"],
)  # fmt: skip
def test_what_a_server_says_of_a_stream(tmp_path: Path, answer: Any) -> None:
    impostor = Impostor(answers={"STREAM.INFO": answer}, messages=2**62)
    impostor.pieces = lambda inbox, sid: iter([message(inbox, sid, impostor.first, 1)])
    with serving(impostor):
        ingested(tmp_path, "--server", impostor.url)


INGEST = ["ingest", "--stream", "S", "--warehouse", "w"]
DRY_RUN = ["dry-run", "--candidate", "new.conf", "--stream", "S"]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        *((INGEST, word) for word in (b"CONNECT", b"STREAM.INFO", b"CONSUMER.CREATE", b"MSG.NEXT")),
        *((DRY_RUN, word) for word in (b"CONNECT", b"$JS.API.")),
    ],
)
def test_a_silent_server_holds_up_no_signal(
    tmp_path: Path, stream: Any, args: list[str], word: bytes
) -> None:
    """Kubernetes kills after 30 seconds."""
    stream.count(10)
    (tmp_path / "new.conf").write_text('mappings { "a.>": "b.>" }\n')
    args = [stream.name if arg == "S" else arg for arg in args]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with silent_after(stream.server.url, word) as (url, silent):
        command = [sys.executable, "-m", "nats_transform", *args, "--server", url]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE)
        assert silent.wait(60)
        megabytes = peak_of(process.pid)
        process.terminate()
        began = time.monotonic()
        process.communicate(timeout=60)
    wall, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(f"\n{args[0]}: {megabytes:,.0f} MB, {cpu:.1f} CPU s, ends after {wall:.1f} s")
    assert wall < 30
    assert process.returncode == 143
    assert megabytes < MEGABYTES
    assert cpu < CPU_SECONDS


def peak_of(process: int) -> float:
    """The most megabytes that a running process had."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def test_a_head_of_10_mb(tmp_path: Path) -> None:
    """The server of reports needs no memory for what it refuses."""
    with ExitStack() as stack:
        port = free_port()
        args = [sys.executable, "-m", "orchestration.reports", str(tmp_path), "--port", str(port)]
        server = stack.enter_context(subprocess.Popen(args))
        stack.callback(server.terminate)
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        for head in (b"A: " + b"x" * 10**7, b"A: b\r\n" * 10**6):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            with suppress(ConnectionError):
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + head)
                client.recv(1000)
        print(f"\nreports: {peak_of(server.pid):,.0f} MB")
        assert peak_of(server.pid) < 200
