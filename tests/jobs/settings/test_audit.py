"""What an audit is told, and the JSON of what it answers."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.audit.result import AuditResult
from jobs.settings.audit import AuditSettings
from jobs.settings.warehouse import Warehouse
from tests.jobs.audit.rehearsal import DAY, audit, messages
from tests.support.archive import archive
from tests.support.refused import refused


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"tolerance": 0}, "tolerance\n  Input should be greater than 0"),
        ({"confidence": 1}, "confidence\n  Input should be less than 1"),
        ({"key": 0}, "greater than or equal to 1"),
    ],
    ids=["tolerance 0", "confidence 1", "key 0"],
)
def test_settings_that_are_refused(more: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AuditSettings(stream="S", mapping=Path("m.conf"), **more)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"captured": ("a",)}, "observed-only"),
        ({"observed": True, "publishers": ("a..b",)}, "not-a-filter"),
        ({"last_day": DAY}, "days-end-early"),
        ({"first_day": DAY, "last_day": DAY - timedelta(days=1)}, "days-end-early"),
    ],
    ids=["observed only", "no filter", "no first day", "days backwards"],
)
def test_settings_that_do_not_fit(more: dict[str, Any], code: str) -> None:
    with refused(ValidationError, code):
        AuditSettings(stream="S", mapping=Path("m.conf"), **more)


def test_json_has_the_names_of_the_design(warehouse: Warehouse) -> None:
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
