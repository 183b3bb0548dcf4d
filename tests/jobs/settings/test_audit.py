"""What an audit is told, and the JSON of what it answers."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.audit.result import AuditResult
from jobs.settings.audit import AuditSettings
from jobs.warehouse import tables
from tests.jobs.audit.rehearsal import (
    DAY,
    audit,
    messages,
)
from tests.support.archive import archive


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"tolerance": 0}, "tolerance\n  Input should be greater than 0"),
        ({"confidence": 1}, "confidence\n  Input should be less than 1"),
        ({"captured": ("a",)}, "need an observed audit"),
        ({"observed": True, "publishers": ("a..b",)}, "'a..b' is not a valid subject filter"),
        ({"key": 0}, "greater than or equal to 1"),
        ({"last_day": DAY}, "the last day needs a first day"),
        ({"first_day": DAY, "last_day": DAY - timedelta(days=1)}, "must not be after the last"),
    ],
    ids=[
        "tolerance 0",
        "confidence 1",
        "observed only",
        "no filter",
        "key 0",
        "no first day",
        "days backwards",
    ],
)
def test_settings_that_are_refused(more: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AuditSettings(stream="S", mapping=Path("m.conf"), **more)


def test_json_has_the_names_of_the_design(warehouse: tables.Warehouse) -> None:
    archive(warehouse, list(messages(count=500)))
    document = json.loads(audit(warehouse, by="hour").model_dump_json())
    assert {"verdict", "rules"} <= set(document)
    rule = document["rules"][0]
    assert {"source", "cluster", "from", "to", "verdict", "messages", "destinations"} <= set(rule)
    assert {"destination", "weight", "count", "share", "low", "high", "verdict"} <= set(
        rule["destinations"][0]
    )
    assert len(rule["buckets"]) > 24
    assert AuditResult.model_validate(document).model_dump(mode="json") == document
