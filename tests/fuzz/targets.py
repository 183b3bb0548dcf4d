"""What is fed with bytes, and what may come of it."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from nats_transform import AccountMappings, NatsTransformError, Transform
from nats_transform.config import canonical, from_canonical, load
from nats_transform.subject import decode
from nats_transform.transform import validate_mapping

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
    for subject in [*map(decode, subjects), *_SUBJECTS]:
        made.apply(subject)
    return "made"


def canonical_form(data: bytes) -> str:
    """A canonical form."""
    try:
        from_canonical(decode(data))
    except NatsTransformError as error:
        return _one_line(error)
    return "read"


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
