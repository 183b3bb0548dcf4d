"""Random mappings, streams and messages, hostile ones among them, from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from nats_transform import (
    AccountMappings,
    Destination,
    InvalidStream,
    Mapping,
    NatsTransformError,
    StreamConfig,
    StreamSource,
    parse_stream,
)
from nats_transform.mappings.subject import ANY_TAIL, ANY_TOKEN, decode
from nats_transform.streams.source import StreamMirror
from tests.nats_transform.kernel.comparing import Message

PLAIN = ["a", "b", "orders", "eu-west-1", "42", "x-y--z", "abcdefgh"]
HOSTILE = [
    "$1", "$1x", "$", "$$", "\\", "\\1", "[a-z]+", "{{x", "}}", "'", "\x00", "\x01", "\x7f", "--",
    "---", "-a-", "--a-b", "----", "a*", "*a", "**", ">>", ">a", "é", "ß", "日本", "😀", "e\u0301",
    "\udcff", "\udcc3", "a\udc80b", "\udce2\udc82", "\udced\udca0\udc80",
    "\udcf4\udc90\udc80\udc80", "\ufffd", "x" * 40, "é" * 20, "y" * 130, "-" * 70,
]  # fmt: skip
ILLEGAL = ["", "*", ">"]
BLANKS = ["a b", "a\nb", "\t", "\r\n", " ", "\v", "\f"]
SIZES = ["-1", "0", "1", "2", "3", "5", "8", "40", "2147483647", "-2147483648"]
DELIMITERS = ["-", "--", "", "a", "|", "\\", "é", "\udcc3", "\x00", "x-", "ab"]
COUNTS = ["-1", "0", "1", "2", "16", "97", "2147483647", "-2147483648"]
SIZED = ["splitfromleft", "splitfromright", "slicefromleft", "slicefromright", "left", "right"]
CLUSTERS = [None, None, "", "east", "west", "dév", "e'\\", "\udcff"]
STREAMS = ["S", "S", "é", "", None, "a stream with a name of more than 32 bytes"]
SEQUENCES = [None, 0, -1, 2**63 - 1, -(2**63)]
SEEDS = [0, 1, 2, 3, -1, 2**63, 2**70]


def token(random: Random) -> str:
    pool = PLAIN if random.random() < 0.6 else HOSTILE
    return random.choice(pool)


def subject_token(random: Random) -> str:
    chance = random.random()
    if chance < 0.02:
        return random.choice(ILLEGAL)
    if chance < 0.05:
        return random.choice(BLANKS)
    if chance < 0.15:
        raw = random.randbytes(random.randrange(1, 24)).replace(b".", b"-")
        return decode(raw)
    return token(random)


def source(random: Random) -> str:
    parts = [
        ANY_TOKEN if random.random() < 0.5 else token(random) for _ in range(random.randint(1, 5))
    ]
    return ".".join(parts + [ANY_TAIL] * (random.random() < 0.4))


def destination(random: Random, filter: str) -> str:
    wildcards = filter.split(".").count(ANY_TOKEN)

    def index() -> str:
        return str(random.randint(0, wildcards))

    def one() -> str:
        kind = random.randrange(8 if wildcards else 4)
        match kind:
            case 0 | 1:
                return token(random)
            case 2:
                count = random.choice(COUNTS)
                indexes = [index() for _ in range(random.randint(0, 3))] if wildcards else []
                return f"{{{{partition({','.join([count, *indexes])})}}}}"
            case 3:
                return f"{{{{random({random.choice(COUNTS)})}}}}"
            case 4:
                return f"{{{{split({index()},{random.choice(DELIMITERS)})}}}}"
            case 5:
                return f"${index()}"
            case _:
                return f"{{{{{random.choice(SIZED)}({index()},{random.choice(SIZES)})}}}}"

    parts = [one() for _ in range(random.randint(1, 6))]
    if filter.endswith(ANY_TAIL):
        parts.append(ANY_TAIL)
    return ".".join(parts)


def mapping(random: Random) -> Mapping | None:
    filter = source(random)
    targets = list({destination(random, filter): None for _ in range(random.randint(1, 4))})
    if random.random() < 0.4 and ANY_TOKEN not in filter:
        targets.append(filter)
    if random.random() < 0.1:
        targets.append("")
    is_whole = len(targets) == 1 and random.random() < 0.5
    try:
        return Mapping(
            filter,
            [
                Destination(
                    target,
                    100 if is_whole else random.choice([0, 10, 25, 33]),
                    random.choice(CLUSTERS) or None,
                )
                for target in targets
            ],
        )
    except NatsTransformError:
        return None


def account(random: Random) -> AccountMappings:
    """Up to 14 mappings, of which a source that is literal often is the first."""
    made = [mapping(random) for _ in range(random.randint(1, 14))]
    mappings = [one for one in made if one is not None]
    if random.random() < 0.3:
        mappings.sort(key=lambda one: not one.filter.is_literal)
    return AccountMappings(mappings)


def subject(random: Random, sources: Sequence[str]) -> str | None:
    chance = random.random()
    if not sources or chance < 0.1:
        if chance < 0.02:
            return None
        return ".".join(subject_token(random) for _ in range(random.randint(0, 7)))
    parts: list[str] = []
    for part in random.choice(sources).split("."):
        if part == ANY_TAIL:
            parts += [subject_token(random) for _ in range(random.randint(1, 4))]
        elif part.startswith(ANY_TOKEN) and random.random() < 0.9:
            parts.append(subject_token(random))
        else:
            parts.append(part)
    return ".".join(parts)


def messages(random: Random, sources: Sequence[str], count: int) -> list[Message]:
    return [
        Message(
            subject(random, sources),
            random.choice(CLUSTERS),
            random.choice(STREAMS),
            random.choice(SEQUENCES) if random.random() < 0.1 else random.randrange(2**40),
        )
        for _ in range(count)
    ]


def stream_source(random: Random) -> StreamSource:
    """A source or mirror with filters that a server may refuse: what they do is defined anyhow."""
    transforms = []
    for _ in range(random.randint(0, 4)):
        filter = "" if random.random() < 0.05 else source(random)
        target = "" if random.random() < 0.4 else destination(random, filter or ANY_TAIL)
        try:
            one = StreamSource(name="O", subject_transforms=[{"src": filter, "dest": target}])
            assert one.filters
        except NatsTransformError:
            continue
        transforms.append({"src": filter, "dest": target})
    kind = random.choice([StreamSource, StreamMirror])
    if not transforms and random.random() < 0.5:
        return kind(name="O", filter_subject=source(random))
    return kind(name="O", subject_transforms=transforms)


def stream(random: Random) -> StreamConfig | None:
    """A stream with an ingress transform, or a republish, or both."""
    config: dict[str, object] = {"name": "S", "subjects": ["never.>"]}
    for field in ("subject_transform", "republish"):
        if random.random() < 0.7:
            filter = source(random)
            config[field] = {"src": filter, "dest": destination(random, filter)}
    try:
        return parse_stream(config)
    except InvalidStream:
        return None
