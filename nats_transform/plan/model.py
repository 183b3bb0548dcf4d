"""What a plan says, as data: `plan.json` holds it, and every other file is made from it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

FORMAT = 1
"""Goes up when a plan that was written before can no longer be read."""


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Change(_Frozen):
    """One thing on the server that a step changes.

    Attributes:
        kind: what it is.
        name: of the stream; `STREAM/CONSUMER`; the user; the account of mappings, exports and
            imports.
        before, after: the fields that change, as nats-server names them.
    """

    kind: Literal["stream", "consumer", "permissions", "mappings", "exports", "imports"]
    name: str
    before: dict[str, Any]
    after: dict[str, Any]


class Need(_Frozen):
    """How long a stage must run until an audit can judge it.

    Attributes:
        source: of the mapping.
        messages: of that source, whichever way they go; None: no number is enough.
        hours: until so many have come, at the traffic of the census; None: there is none.
    """

    source: str
    messages: int | None
    hours: float | None


class Step(_Frozen):
    """One step, to be finished and verified before the next begins.

    Attributes:
        number: counts from 1.
        phase: `expand` makes room for both names, `shift` moves messages, `contract` takes the old
            names away.
        title: what the step does.
        why: what would go wrong without it.
        changes: what it changes.
        programs: what programs must do before the step is taken, and before it is undone.
        percent: the share of the messages that go the new way once it is done; None: it moves none.
        cluster: of whose messages that is the share; None: of all.
        needs: for each source that the stage splits.
        wait: what must be seen before the next step begins.
    """

    number: int
    phase: Literal["expand", "shift", "contract"]
    title: str
    why: str
    changes: tuple[Change, ...]
    programs: str = ""
    percent: int | None = None
    cluster: str | None = None
    needs: tuple[Need, ...] = ()
    wait: str = ""


class Accepted(_Frozen):
    """A finding that somebody has decided to live with.

    Attributes:
        code: of the finding.
        about: what it is about; "": every finding with the code.
        reason: why it may stay.
    """

    code: str
    about: str = ""
    reason: str


class Blocked(_Frozen):
    """A finding that would stand although every step is done, so that there is no plan.

    Attributes:
        code: the code of the finding.
        about: the mapping, stream, consumer or user; "" for the whole candidate.
        message: what was found.
        cure: what to do about it.
    """

    code: str
    about: str
    message: str
    cure: str


class Plan(_Frozen):
    """The way from the mappings in force to a candidate.

    Attributes:
        format: `FORMAT`.
        account: whose mappings.
        current, candidate: versions of the mappings.
        made_from: the SHA-256 of each file the plan was made from, by its name.
        steps: in order.
        accepted: the findings that were accepted.
        audited: the stream in which the audit looks for the messages; None: no stream is known.
        files: the SHA-256 of each other file of the folder, by its path.
        at_once: sources that no weights can split, with the reason.
        config: the name of the configuration of servers that steps have as a whole; None: they
            have the blocks that change alone.
        blocks_because: why there are only blocks; "": there is no configuration, or it is whole.
    """

    format: int = FORMAT
    account: str
    current: str
    candidate: str
    made_from: dict[str, str]
    steps: tuple[Step, ...]
    accepted: tuple[Accepted, ...] = ()
    audited: str | None = None
    at_once: dict[str, str] = {}
    config: str | None = None
    blocks_because: str = ""
    files: dict[str, str] = {}
