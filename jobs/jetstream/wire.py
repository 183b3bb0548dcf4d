"""The one place where bytes for a nats-server are made.

A `Frame` is exactly one operation of the client protocol. It is either a message whose subject,
reply, header block and payload were checked here (`publish`), or a command of nats-py that was
read again and found to be one operation and nothing else (`one_operation`). `RawClient` writes
nothing else, so no text from an archive, a configuration or an option can become an operation of
its own.

The rules are those of nats-server's parser, and stricter where a client library could read the
same bytes in another way. Sources: `server/parser.go`; `server/client.go` `processPub`,
`processHeaderPub` (arguments end at blanks, a line feed ends the line, a carriage return anywhere
cuts its last byte), `sliceHeader`; `server/sublist.go` `IsValidLiteralSubject`; ADR-4 (headers).
"""

from __future__ import annotations

import re

from jobs.errors import JobError

MAX_CONTROL_LINE = 4096
"""Bytes of the arguments of one operation: the server's default for `max_control_line`."""
MAX_SUBJECT = MAX_CONTROL_LINE - 128
"""Bytes of a subject: the rest of the line is for the reply's subject and the sizes."""
MAX_HEADERS = 65_535
"""Bytes of a header block: JetStream keeps its length in 16 bits."""

_CRLF = b"\r\n"
# Bytes above 127 are legal: a subject need not be UTF-8. A token may hold wildcard characters, but
# it may not be one.
_TOKEN = rb"(?![*>](?:\.|\Z))[^\x00-\x20\x7f.]+"
_LITERAL = re.compile(rb"%b(?:\.%b)*" % (_TOKEN, _TOKEN))
# What may be subscribed to; nothing of an archive gets here.
_FILTER = re.compile(rb"[^\x00-\x20\x7f.]+(?:\.[^\x00-\x20\x7f.]+)*")
# nats-server ends a value at CR LF, nats.go already at LF: neither byte may stand in one.
NAME = rb"[\x21-\x39\x3b-\x7e\x80-\xff]+"
_BLOCK = re.compile(rb"NATS/1\.0\r\n(?:%b:[^\r\n]*\r\n)+\r\n" % NAME)
_HEADER = re.compile(rb"%b:[^\r\n]*" % NAME)
_OPERATION = re.compile(
    rb"(?:"
    rb"(?P<fixed>PING|PONG)"
    rb"|PUB (?P<pub>[^ \r\n]+) (?P<pub_reply>[^ \r\n]*) (?P<pub_size>[0-9]{1,9})"
    rb"|HPUB (?P<hpub>[^ \r\n]+) (?P<hpub_reply>[^ \r\n]*) (?P<head>[0-9]{1,9}) (?P<all>[0-9]{1,9})"
    rb"|SUB (?P<sub>[^ \r\n]+)  (?P<sid>[0-9]{1,18})"  # without a queue group
    rb"|UNSUB (?P<unsub>[0-9]{1,18}) (?P<limit>[0-9]{0,18})"
    rb"|CONNECT (?P<connect>\{[^\r\n]*\})"
    rb")\r\n"
)


class Unsendable(JobError):
    """What nats-server's protocol cannot carry, or what we do not let it carry.

    Attributes:
        about: `subject`, `headers`, `size` or `schedule`; `operation` for what is no message.
    """

    def __init__(self, code: str, /, *, about: str = "operation", **fields: object) -> None:
        super().__init__(code, **fields)
        self.about = about


class Frame(bytes):
    """One whole operation of the protocol. Only this module makes frames."""

    __slots__ = ()


def shown(text: bytes) -> str:
    """Bytes of a publisher for an error: printable ASCII, and not too long."""
    whole = ascii(text.decode("utf-8", "surrogateescape"))[1:-1]
    return whole if len(whole) <= 100 else f"{whole[:100]}..."


def literal(subject: bytes) -> bytes:
    """The subject, which a message can have on the wire.

    Raises:
        Unsendable: it is empty or has an empty token, a wildcard as a token, a blank or a control
            byte, or it is too long for a line of the protocol.
    """
    if not is_literal(subject):
        raise fault(subject)
    return subject


def is_literal(subject: bytes) -> bool:
    """Whether `literal` takes the subject."""
    return _LITERAL.fullmatch(subject) is not None and len(subject) <= MAX_SUBJECT


def fault(subject: bytes) -> Unsendable:
    """What is wrong with a subject that is not literal."""
    tokens = subject.split(b".")
    why = f"has {len(subject)} bytes, and {MAX_SUBJECT} fit into a line"
    if not subject:
        why = "is empty"
    elif re.search(rb"[\x00-\x20\x7f]", subject):
        why = "has a blank or a control byte"
    elif b"" in tokens:
        why = "has an empty token"
    elif b"*" in tokens or b">" in tokens:
        why = "has a wildcard as a token"
    return Unsendable("unsendable-subject", about="subject", subject=shown(subject), why=why)


def is_header(line: bytes) -> bool:
    """Whether a line `Name: value`, without its end, may stand in a header block."""
    return _HEADER.fullmatch(line) is not None


def header(name: bytes, value: bytes) -> bytes:
    """The line of a header, without its end.

    Raises:
        Unsendable: the name or the value would make another header of it, or none.
    """
    line = b"%b: %b" % (name, value)
    if b":" in name or not is_header(line):
        raise Unsendable("unsendable-header", about="headers", header=shown(line))
    return line


def headers(block: bytes) -> bytes:
    """The header block, in which every client sees the same headers.

    Raises:
        Unsendable: it is not `NATS/1.0`, lines of a name, a colon and a value, and an empty line;
            or it is too long.
    """
    if _BLOCK.fullmatch(block) is None:
        raise Unsendable("unsendable-headers", about="headers", headers=shown(block))
    if len(block) > MAX_HEADERS:
        raise Unsendable("headers-too-large", about="headers", size=len(block), most=MAX_HEADERS)
    return block


def publish(subject: bytes, reply: bytes, block: bytes, data: bytes) -> Frame:
    """A message with headers, whose answer goes to `reply`.

    Raises:
        Unsendable: the subject, the reply or the headers are not legal, or the line is too long.
    """
    headers(block)
    arguments = b"%b %b %d %d" % (
        literal(subject),
        literal(reply),
        len(block),
        len(block) + len(data),
    )
    if len(arguments) > MAX_CONTROL_LINE:
        raise Unsendable("subject-too-long", about="subject", subject=shown(subject))
    return Frame(b"".join((b"HPUB ", arguments, _CRLF, block, data, _CRLF)))


def one_operation(command: bytes) -> Frame:
    """A command that nats-py made, if it is one operation and nothing else.

    Raises:
        Unsendable: it is another number of operations, or one with an illegal subject.
    """
    parsed = _OPERATION.match(command)
    if parsed is None:
        raise Unsendable("not-one-operation", command=shown(command))
    kind, rest = parsed.lastgroup, command[parsed.end() :]
    match kind:
        case "pub_size":
            literal(parsed["pub"])
            _reply(parsed["pub_reply"])
            size: int | None = int(parsed["pub_size"])
        case "all":
            literal(parsed["hpub"])
            _reply(parsed["hpub_reply"])
            size = int(parsed["all"])
            headers(rest[: int(parsed["head"])])
        case _:
            size = None
            if kind == "sid":
                filter_subject(parsed["sub"])
    whole = rest == b"" if size is None else len(rest) == size + 2 and rest.endswith(_CRLF)
    if not whole or (parsed.end() > MAX_CONTROL_LINE and kind != "connect"):
        raise Unsendable("not-one-operation", command=shown(command))
    return Frame(command)


def _reply(subject: bytes) -> None:
    if subject:
        literal(subject)


def filter_subject(subject: bytes) -> bytes:
    """The subject of a subscription, which may have wildcards.

    Raises:
        Unsendable: it has an empty token, a blank or a control byte.
    """
    if _FILTER.fullmatch(subject) is None:
        raise fault(subject)
    return subject
