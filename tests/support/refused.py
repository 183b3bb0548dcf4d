"""What a test expects of an error: its class, its code and its fields, whatever the words."""

from __future__ import annotations

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

    Values are compared as texts. A field that is an error itself is compared by its code.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error: object = caught.value
    if isinstance(error, ValidationError):  # of which a validator of ours is the cause
        error = error.errors()[0]["ctx"]["error"]
    assert isinstance(error, NatsTransformError), repr(error)
    seen = {name: _plain(error.fields.get(name)) for name in fields}
    assert (error.code, seen) == (code, {name: str(value) for name, value in fields.items()})


def _plain(value: object) -> str:
    return value.code if isinstance(value, NatsTransformError) else str(value)
