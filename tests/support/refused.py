"""What a test expects of an error: its class, its code and its fields, whatever the words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pydantic import ValidationError

from nats_transform.errors import NatsTransformError


@contextmanager
def refused(
    kind: type[Exception] | tuple[type[Exception], ...], code: str, /, **fields: object
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expects an error with this code, and these values among its fields.

    Values are compared as texts, a pattern is looked for in the text. A field that is an error
    itself is compared by its code. Whatever the error says is one line.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error: object = caught.value
    if isinstance(error, ValidationError):  # of which a validator of ours is the cause
        error = error.errors()[0]["ctx"]["error"]
    assert isinstance(error, NatsTransformError), repr(error)
    assert error.code == code, str(error)
    assert "\n" not in str(error)
    for name, wanted in fields.items():
        seen = _plain(error.fields[name])
        is_so = wanted.search(seen) if isinstance(wanted, re.Pattern) else seen == str(wanted)
        assert is_so, f"{name} is {seen}, not {wanted}"


def _plain(value: object) -> str:
    return value.code if isinstance(value, NatsTransformError) else str(value)


def told(error: object) -> str:
    """Its code and those of the errors in it, but the texts of others as they are."""
    if not isinstance(error, NatsTransformError):
        return str(error)
    reason = told(error.fields.get("reason", ""))
    return reason if error.code == "refused" else f"{error.code}: {reason}"
