"""The state of a stream, as nats-server writes it in answers and in backups."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]


class StreamNumbers(BaseModel):
    """The numbers of a stream; other fields are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True)

    messages: Count
    bytes: Count
    first_seq: Count
    last_seq: Count
    consumer_count: Count = 0
