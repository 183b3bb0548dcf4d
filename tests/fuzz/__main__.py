"""Feeds every target with mutated inputs for a while; see `make fuzz`.

An input that makes a target say something new joins those that are mutated further.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import secrets
import sys
import time
import traceback

import pyarrow as pa

from tests.fuzz.targets import CORPUS, TARGETS, run
from tests.support.backups import IDENTIFIER, archive, chunk, packed

SEEDS: dict[str, list[bytes]] = {
    "conf": [
        b'accounts { A { mappings { "foo.*": [ {dest: "b.$1", weight: 40%, cluster: e} ] }\n}\n}\n',
        b"include 'a.conf'\nx: [ 1k, 2.5 , $y ]\nb: (\n text\n)\n# c\nt: 2026-01-01T00:00:00Z\n",
        b'{"mappings": {"a": "b\\x41"}, "port": 4222 }',
    ],
    "json": [
        b'{"foo.*": [{"subject": "b.$1", "weight": 40, "cluster": "e"}]}',
        b'{"config": {"name": "S", "subjects": ["a.*"], "republish": {"src": ">", "dest": "r.>"},'
        b' "subject_transform": {"src": "a.*", "dest": "{{partition(3,1)}}"}}}',
        b'{"name": "S", "sources": [{"name": "T", "subject_transforms":'
        b' [{"src": "x.>", "dest": "y.>"}]}], "mirror": null, "max_age": 1e3}',
        b'{"iss": "O", "sub": "A", "nats": {"type": "account", "mappings": {"a": []}}}',
    ],
    "yaml": [
        b'foo.*:\n  - &x {subject: "b.$1", weight: 40}\n  - *x\n---\n',
        b"a:\n- subject: b\n  weight: 5\n  cluster: ~\n? !!str b\n: |\n  x\n",
    ],
    "jwt": [
        b"eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJpc3MiOiJPIiwibmF0cyI6eyJ0eXBlIjoi"
        b"YWNjb3VudCIsIm1hcHBpbmdzIjp7ImEiOlt7InN1YmplY3QiOiJiIn1dfX19.c2ln",
        b"-----BEGIN NATS ACCOUNT JWT-----\neyJ0eXAiOiJKV1QifQ.e30.e30\n------END NATS ACCOUNT",
    ],
    "transform": [
        b"foo.*.*\nbar.{{wildcard(2)}}.$1.{{partition(10,1,2)}}\nfoo.a.b",
        b"*.>\n{{split(1,-)}}.{{slicefromleft(1,3)}}.{{splitfromright(1,2)}}.>\n--a-b.c",
        b"a\n{{random(7)}}.{{partition(5)}}\na",
        b"*\n{{left(1,2)}}.{{Right(1, 3)}}\n\xff\xc3\xa9",
    ],
    "canonical": [
        b'{"account":[{"destinations":[{"cluster":null,"subject":"b","weight":5}],"source":"a"}],'
        b'"format":1,"seed":7}',
        b'{"format":1,"seed":0,"stream":{"name":"S","subjects":["a"]}}',
    ],
    "wire": [
        b"orders.eu.1|A: 1|B:2|data",
        b"a 12 12\r\nNATS/1.0\r\n\r\n\r\nPUB $JS.API.STREAM.DELETE.S 0\r\n\r\n|A: 1|",
        b"a.*.>|Nats-Rollup: all|\xff.\xfe",
        b"a.b|A: x\r\n\r\nPUB b 0\r\n|\r\n",
    ],
    "command": [
        b"PUB a.b  3\r\nxyz\r\n",
        b"PUB a.b _INBOX.x 0\r\n\r\n",
        b"HPUB a r 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nxy\r\n",
        b"SUB _INBOX.x.*  7\r\n",
        b"UNSUB 7 1\r\n",
        b'CONNECT {"verbose": false}\r\n',
        b"PING\r\n",
    ],
}
_ENTRIES = [
    (b"a.b", 1_700_000_000_000_000_001, 3, b"", b"one"),
    (b"a.\xff", -5, 4, b"NATS/1.0\r\nA: 1\r\n\r\n", b""),
    (b"c", 2**62, 2**40, b"", b"abc" * 40),
]
_CONSUMER = ("d", {"config": {"durable_name": "d"}, "state": {"pending": {}}})
SEEDS["archive"] = [archive(_ENTRIES, consumers=[_CONSUMER]), archive([])]
_SNAPPY = pa.compress(SEEDS["archive"][0], "snappy", asbytes=True)
SEEDS["backup"] = [
    *map(packed, SEEDS["archive"]),
    IDENTIFIER + chunk(0, b"\x0c\x0cabcd\x01\x04\x01\x00", b"abcd" * 3),
    b"\xff\x06\0\0sNaPpY" + chunk(0, _SNAPPY, SEEDS["archive"][0]),
]
WORDS = [
    *(b"{", b"}", b"[", b"]", b'"', b"'", b"(", b")", b":", b"=", b",", b";", b"#", b"//", b"\n"),
    *(b"\\", b"\\x", b"\\u", b"$", b"$1", b"{{", b"}}", b"*", b">", b".", b"..", b"-", b"\0", b"%"),
    *(b"include ", b"mappings", b"maps", b"accounts", b"weight", b"subject", b"dest", b"cluster"),
    *(b"null", b"true", b"1e999", b"1k", b"9" * 30),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe2\x80\xa8"),
    *(b"&a ", b"*a", b"!!", b"|\n", b"---\n", b"? ", b"- ", b"<<: ", b"wildcard(", b"partition("),
    *(b"\r\n", b"\r", b"PUB x 0\r\n\r\n", b"NATS/1.0\r\n", b"$JS.API.", b"|", b"HPUB ", b" 12 12"),
    *(b"split(", b"random(", b"left(", b"slicefromleft(", b"-1", b"0", b"2147483648", b"\t", b" "),
]


def mutated(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """A variant of an input."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4, 8])):
        start = chance.randrange(len(out) + 1)
        end = min(len(out), start + chance.choice([1, 2, 5, 20, 100]))
        match chance.randrange(6):
            case 0:
                out[start:start] = chance.choice(WORDS)
            case 1:
                del out[start:end]
            case 2:
                out[start:start] = out[start:end] * chance.choice([1, 2, 10, 200])
            case 3:
                other = chance.choice(others)
                out[start:end] = other[chance.randrange(len(other) + 1) :][:60]
            case 4:
                out[start:end] = chance.randbytes(end - start)
            case _:
                out[start:end] = chance.choice(WORDS)
    return bytes(out[:20_000])


def fuzz(name: str, seconds: float, chance: random.Random) -> int:
    """Feeds one target; gives how many inputs failed, which are saved."""
    inputs = [*SEEDS[name], *(path.read_bytes() for path in sorted((CORPUS / name).glob("*")))]
    said: set[str] = set()
    failures: set[str] = set()
    count = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        is_new = count < len(inputs)
        data = inputs[count] if is_new else mutated(chance.choice(inputs), inputs, chance)
        count += 1
        try:
            # Without what it quotes, so that only another kind of answer is new.
            answer = re.sub(r"'.*'|\(.*\)|[^a-z ]", "", run(TARGETS[name], data))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} at {where.name}:{where.lineno}"
            if kind not in failures:
                failures.add(kind)
                path = CORPUS / name / hashlib.sha256(data).hexdigest()[:16]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                print(f"{name}: {kind}: {error}\n  saved as {path}", file=sys.stderr)
            continue
        if answer not in said:
            said.add(answer)
            inputs.append(data)
    print(
        f"{name}: {count} inputs, {len(said)} kinds of answers, {len(failures)} kinds of failures"
    )
    return len(failures)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--target", choices=list(TARGETS), action="append")
    arguments = parser.parse_args()
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    print(f"seed: {seed} (repeat with --seed {seed})")
    names = arguments.target or list(TARGETS)
    each = arguments.seconds / len(names)
    return min(1, sum(fuzz(name, each, random.Random(f"{seed} {name}")) for name in names))


if __name__ == "__main__":
    sys.exit(main())
