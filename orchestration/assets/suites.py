"""What a user adds to the checks: suites on the rows of a day, and actions after checks.

The functions load Great Expectations, which takes longer than all else: not when Dagster loads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nats_transform import NatsTransformError
from nats_transform.untrusted import visible
from orchestration.archive import Archive
from orchestration.hooks import function_named

if TYPE_CHECKING:
    from great_expectations.checkpoint.actions import ValidationAction


def actions_of(archive: Archive) -> list[ValidationAction]:
    """The actions of an archive; made before a table is, so that a mistake in one costs nothing.

    Raises:
        NatsTransformError: an action is not known, or its arguments are wrong.
    """
    import great_expectations as gx

    actions: list[Any] = []
    for number, entry in enumerate(archive.actions):
        options = {"name": f"action {number}", **entry}
        try:
            if "class" in options:
                made = function_named(options.pop("class"), "actions")(**options)
            else:
                given: Any = [options]  # which it makes actions of
                (made,) = gx.Checkpoint(
                    name="actions", validation_definitions=[], actions=given
                ).actions
        except Exception as error:  # noqa: BLE001 - it may be the code of a user
            # The whole text may have the address of a webhook, which is a secret.
            why = visible(str(error).strip().splitlines()[-1] if str(error).strip() else "")
            raise NatsTransformError(
                f"actions.{number} of archive {archive.name}: {type(error).__name__}: {why}"
            ) from None
        actions.append(made)
    return actions
