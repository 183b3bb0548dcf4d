"""The data of a plan. `plan.json` holds it, and every other file is made from it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nats_transform.words import plural

FORMAT = 2
"""The version of the format. It goes up when plans that were written before cannot be read."""


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Change(_Frozen):
    """One thing on the server that a step changes.

    Attributes:
        kind: the kind of the thing.
        name: the stream; `STREAM/CONSUMER`; the user; or the account that has the mappings, exports
            or imports.
        before, after: the fields that change, named as in nats-server, before and after.
    """

    kind: Literal["stream", "consumer", "permissions", "mappings", "exports", "imports"]
    name: str
    before: dict[str, Any]
    after: dict[str, Any]


class Need(_Frozen):
    """How long a stage must run until an audit can judge it.

    Attributes:
        source: the source of the mapping.
        messages: how many messages of that source there must be, whichever way they go; null if no
            number is enough.
        hours: how many hours that takes with the traffic of the census; null if it has none.
    """

    source: str
    messages: int | None
    hours: float | None


class Step(_Frozen):
    """One step, to be finished and verified before the next begins.

    Attributes:
        number: the number of the step, from 1 on.
        phase: `expand` makes room for both names, `hold` stops publishers that would be refused,
            `shift` moves messages, `settle` gives schedules and counters their new names,
            `contract` takes the old names away.
        title: what the step does.
        why: what would go wrong without the step.
        changes: the changes on the server.
        programs: what programs must do before the step is taken, and before it is undone; in
            Markdown.
        percent: the share of the messages that go the new way once the step is done; null if the
            step moves none.
        cluster: the cluster of these messages; null for all clusters.
        needs: how long the step must run, for each source that it splits.
        wait: what must be seen before the next step begins.
        by_hand, undo_by_hand: what people do, or do to undo it, where no command does it.
        settles: what must have its new names in some streams once the step is done.
        streams: these streams.
    """

    number: int
    phase: Literal["expand", "hold", "shift", "settle", "contract"]
    title: str
    why: str
    changes: tuple[Change, ...]
    programs: str = ""
    percent: int | None = None
    cluster: str | None = None
    needs: tuple[Need, ...] = ()
    wait: str = ""
    by_hand: str = ""
    undo_by_hand: str = ""
    settles: Literal["schedules", "counters"] | None = None
    streams: tuple[str, ...] = ()


class Accepted(_Frozen):
    """A finding that somebody has decided to live with.

    Attributes:
        code: the code of the finding.
        about: what the finding is about; "" means every finding with the code.
        reason: why the finding may stay.
    """

    code: str
    about: str = ""
    reason: str


class Blocked(_Frozen):
    """A finding that remains even if every step is done, so that there is no plan.

    Attributes:
        code: the code of the finding.
        about: the mapping, stream, consumer or user; "" for the whole candidate.
        message: the finding in a sentence.
        cure: what to do about the finding.
        help: the address of the explanation of the code.
    """

    code: str
    about: str
    message: str
    cure: str
    help: str


class Certified(BaseModel):
    """What a certificate of `certify` says about the candidate; the rest of it is not kept here.

    Attributes:
        holds: whether nats-server did as predicted.
        mapping_version: the version of the mappings that were tried.
        stream: the archive whose messages were tried.
        tried: how many messages were tried.
        share: their share of the archive.
        nats_server: the version of the server.
        divergences: how the server differs from the prediction.
    """

    model_config = ConfigDict(frozen=True)

    holds: bool
    mapping_version: str
    stream: str
    tried: int
    share: Annotated[float, Field(ge=0, le=1)]
    nats_server: str
    divergences: tuple[dict[str, Any], ...]

    @property
    def words(self) -> str:
        """The verdict in a sentence."""
        return (
            f"nats-server {self.nats_server} did as predicted with {plural(self.tried, 'message')} "
            f"({100 * self.share:.3g} %) of stream {self.stream}"
        )


class Plan(_Frozen):
    """The way from the mappings in force to a candidate.

    Attributes:
        format: the version of the format.
        account: the account of the mappings.
        users_account: the account of the users whose permissions change; null if it is the same.
        current, candidate: the versions of the mappings.
        made_from: the SHA-256 of each file from which the plan was made, by its name.
        steps: the steps, in order.
        accepted: the findings that were accepted.
        audited: the stream in which the audit looks for the messages; null if none is known.
        criteria: the options of the audits that are not as usual, such as `tolerance`.
        files: the SHA-256 of each other file of the folder, by its path.
        certificate: what the certificate in the folder says; null if none was given.
        at_once: the sources that no weights can split, each with the reason.
        config: the name of the file with the whole configuration of the servers, if steps have one;
            null if they have only the blocks that change.
        blocks_because: why the steps have only blocks; "" if no configuration was given, or if the
            steps have it as a whole.
    """

    format: int = FORMAT
    account: str
    users_account: str | None = None
    current: str
    candidate: str
    made_from: dict[str, str]
    steps: tuple[Step, ...]
    accepted: tuple[Accepted, ...] = ()
    audited: str | None = None
    criteria: dict[str, float] = {}
    certificate: Certified | None = None
    at_once: dict[str, str] = {}
    config: str | None = None
    blocks_because: str = ""
    files: dict[str, str] = {}
