"""What is fed with bytes, and what may come of it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pyarrow as pa

from jobs.jetstream.wire import one_operation
from nats_transform import AccountMappings, Fate, NatsTransformError, Transform
from nats_transform.backup.archive import Head, read_head, read_messages
from nats_transform.backup.consumers import Consumer, parse_consumer
from nats_transform.backup.s2 import IDENTIFIER, chunk
from nats_transform.backup.writer import ArchiveWriter
from nats_transform.config import canonical, from_canonical, load
from nats_transform.kernel import Program
from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.rules import End, Ends, Rule, State
from nats_transform.mappings.draw import mapping_key, message_entropy
from nats_transform.mappings.subject import decode, encode, literal_fault
from nats_transform.mappings.transform import validate_mapping
from tests.support.backups import read
from tests.support.wire_tap import Tap, tap

CORPUS = Path(__file__).parent.parent / "corpus"
SECONDS = 20
"""No input may take longer: those made here are short."""

_SUBJECTS = ["a", "a.b", "foo.--x-y--.42", "é.\udcff.日本", "", "..", "a.b.c.d"]


class Broken(AssertionError):
    """A promise that an input broke."""


def load_as(suffix: str) -> Callable[[bytes], str]:
    """A target that loads bytes as a file of some name."""

    def target(data: bytes) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"file{suffix}"
            path.write_bytes(data)
            try:
                config = load(path)
            except NatsTransformError as error:
                return _one_line(error).replace(str(path), "")
            if from_canonical(canonical(config))[0] and isinstance(config, AccountMappings):
                for subject in _SUBJECTS:
                    config.outcomes(subject)
            return "loaded"

    return target


def transform(data: bytes) -> str:
    """The first line is the source, the second the destination, the rest are subjects."""
    source, destination, *subjects = [*data.split(b"\n"), b"", b""][: 2 + data.count(b"\n")]
    with contextlib.suppress(NatsTransformError):
        validate_mapping(decode(source), decode(destination))
    try:
        made = Transform(decode(source), decode(destination))
    except NatsTransformError as error:
        return _one_line(error)
    _compare_with_kernel(made, [*map(decode, subjects), *_SUBJECTS])
    return "made"


def _compare_with_kernel(made: Transform, subjects: list[str]) -> None:
    """Asserts that the kernel makes what the transform makes, of legal subjects."""
    rule = Rule(Pattern.of_source(made.filter), "", Ends([End(State(Fate.MAPPED), made.tokens)]))
    program = Program([rule], End(State(Fate.FILTERED)))
    found = program.apply(pa.array([encode(subject) for subject in subjects]))["mapped_subject"]
    entropy = message_entropy(None, None, mapping_key(0, ""))
    for subject, result in zip(subjects, found.to_pylist(), strict=True):
        wanted = made.apply(subject, entropy)
        if literal_fault(subject) is not None:
            wanted = None
        if result != (None if wanted is None else encode(wanted)):
            raise Broken(f"{made} of {subject!r}: {wanted!r}, the kernel says {result!r}")


def canonical_form(data: bytes) -> str:
    """A canonical form."""
    try:
        from_canonical(decode(data))
    except NatsTransformError as error:
        return _one_line(error)
    return "read"


@functools.cache
def _tap() -> Tap:
    """A real nats-server for the whole run, stopped as the process ends."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(tap())


def wire(data: bytes) -> str:
    """A message: subject, header lines and payload, cut at the marks of `_cut`."""
    subject, pairs, payload = _cut(data)
    block = b"".join((b"NATS/1.0\r\nN: 1\r\n", *(b"%b\r\n" % line for line in pairs), b"\r\n"))
    return "arrived" if _tap().holds(subject, block, payload) else "not sent"


def _cut(data: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Subject, header lines and payload: between bars, so that each may hold any line end."""
    subject, *rest = data.split(b"|")
    return subject, rest[:-1], rest[-1] if rest else b""


def command(data: bytes) -> str:
    """A command as nats-py would give it to be written."""
    try:
        frame = one_operation(data)
    except NatsTransformError as error:
        return _one_line(error)
    if frame != data:
        raise Broken("a command was changed")
    return "one operation"


def backup(data: bytes) -> str:
    """The file of a stream backup."""
    try:
        file = io.BytesIO(data)
        head = read_head(file)
        batches = list(read_messages(file, head.messages))
        consumers = _consumers(head)
    except NatsTransformError as error:
        return _one_line(error)
    # What is read can be written, and reads the same.
    file = io.BytesIO()
    writer = ArchiveWriter(file, consumers)
    for batch in batches:
        columns = (batch.subjects(), batch.headers(), batch.data())
        writer.write(pa.array(batch.sequences), pa.array(batch.times), *columns)
    writer.close(head.state["last_seq"])
    file.seek(0)
    again, written = read(file)
    if _consumers(again) != consumers or written != read(io.BytesIO(data))[1]:
        raise Broken("what was read is not what was written of it")
    return "read"


def archive(data: bytes) -> str:
    """What a stream backup has packed."""
    return backup(
        IDENTIFIER + b"".join(chunk(data[at : at + 50]) for at in range(0, len(data), 50))
    )


def _consumers(head: Head) -> dict[str, Consumer]:
    return {name: parse_consumer(name, text) for name, text in head.consumers.items()}


def _one_line(error: NatsTransformError) -> str:
    text = str(error)
    if "\n" in text or "\r" in text or not text.isprintable():
        raise Broken(f"the error is not one printable line: {text!r}")
    if len(text) > 4000:  # three subjects, each byte escaped
        raise Broken(f"the error has {len(text)} characters: {text[:100]!r}...")
    return text


TARGETS: dict[str, Callable[[bytes], str]] = {
    "conf": load_as(".conf"),
    "json": load_as(".json"),
    "yaml": load_as(".yaml"),
    "jwt": load_as(".jwt"),
    "transform": transform,
    "canonical": canonical_form,
    "wire": wire,
    "command": command,
    "backup": backup,
    "archive": archive,
}


def run(target: Callable[[bytes], str], data: bytes) -> str:
    """What a target says of an input.

    Raises:
        Exception: anything that the input should not have caused; `Broken` if it took too long.
    """
    with _limited(SECONDS):
        return target(data)


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise Broken(f"it takes longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
