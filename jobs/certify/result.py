"""What a certificate says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from nats_transform.mappings.unseen import Unseen


@dataclass(frozen=True)
class Divergence:
    """A way in which the server and our prediction part.

    Attributes:
        kind: `delivery` (the message reaches somebody or nobody), `subject` (another subject),
            `stream` (another stream stores it), `stored` (under another subject), `draws` (other
            shares), `publish` and `subscribe` (a user may or may not).
        about: the source of the mapping, the stream or the user; "" for messages that no mapping
            takes.
        messages: how many messages part.
        seq, subject, cluster: the message with the shortest subject among them; None for draws.
        predicted, seen: what becomes of that message.
    """

    kind: str
    about: str
    messages: int
    seq: int | None
    subject: str | None
    cluster: str | None
    predicted: str
    seen: str


@dataclass(frozen=True)
class Drawn:
    """How often a destination was drawn.

    Attributes:
        source: the source of the mapping.
        cluster: the cluster, or None.
        destination: the destination; None for the part that is lost.
        weight: its part of the draws, in percent.
        messages: how many messages the draws are for.
        server, ours: how often the server and we drew it.
        low, high: the shares that agree with the server's count, in percent (Clopper-Pearson).
        holds: whether the weight is between the bounds of both counts.
    """

    source: str
    cluster: str | None
    destination: str | None
    weight: int
    messages: int
    server: int
    ours: int
    low: float
    high: float
    holds: bool


@dataclass(frozen=True)
class CertifiedStream:
    """What a stream of the private server holds.

    Attributes:
        stream: the name.
        predicted, seen: how many messages it should hold, and how many it does.
    """

    stream: str
    predicted: int
    seen: int


@dataclass(frozen=True)
class CertifiedUser:
    """What a user may do on the private server.

    Attributes:
        user: the name.
        cluster: the cluster of the server.
        subjects: how many different subjects were tried.
        published: how many of them reached somebody when the user published them.
        got: how many the user got when somebody else published them.
    """

    user: str
    cluster: str | None
    subjects: int
    published: int
    got: int


@dataclass(frozen=True)
class Certificate:
    """What a private nats-server made of archived subjects, beside our prediction.

    Attributes:
        stream, days: the archive.
        candidate: the file with the mappings.
        mapping_version: their version.
        reads_file: whether the server read the mappings of the file as they are written there,
            not as we read them.
        streams_digest: SHA-256 of the streams of the private server.
        version, kernel: of nats-transform, and the digest of its kernel's sources.
        nats_server: the version of the server.
        input_snapshot: the snapshot of the archive.
        run_id: the name of the run.
        seed: decided our draws.
        messages: how many messages the archive has on these days.
        tried: how many were published.
        subjects: how many different subjects they have.
        tried_digest: SHA-256 of their sequences, subjects and clusters.
        skipped: how many of the sample were not published, by the reason.
        clusters: the clusters, each with a server of its own; None for no cluster and those that
            the mappings do not name.
        fates: the fates of the tried messages, as we predict them.
        predicted, delivered: how many messages the mappings should deliver and the server did.
            They differ by chance where draws lose messages.
        streams: what the streams hold.
        draws: the draws of weighted mappings.
        users: what users may do.
        divergences: how the server differs from the prediction.
        not_looked_at: what the certificate says nothing about.
    """

    stream: str
    days: tuple[date, ...]
    candidate: str
    mapping_version: str
    reads_file: bool
    streams_digest: str
    version: str
    kernel: str
    nats_server: str
    input_snapshot: int | None
    run_id: str
    seed: int
    messages: int
    tried: int
    subjects: int
    tried_digest: str
    skipped: dict[str, int]
    clusters: tuple[str | None, ...]
    fates: dict[str, int]
    predicted: int
    delivered: int
    streams: tuple[CertifiedStream, ...]
    draws: tuple[Drawn, ...]
    users: tuple[CertifiedUser, ...]
    divergences: tuple[Divergence, ...]
    not_looked_at: tuple[Unseen, ...]

    @property
    def share(self) -> float:
        """The share of the archive that was tried."""
        return self.tried / self.messages if self.messages else 0.0

    def fails(self, level: str) -> bool:
        """Whether there is a divergence, or nothing was tried."""
        return bool(self.divergences) or not self.tried

    def as_json(self) -> dict[str, Any]:
        """The document of the result."""
        return {
            "holds": not self.fails("divergence"),
            **asdict(self),
            "days": [str(day) for day in self.days],
            "share": self.share,
        }
