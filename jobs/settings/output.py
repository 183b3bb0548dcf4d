"""What becomes of the result of a job, for all commands and for `python -m jobs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import create_model

from jobs.settings.base import Settings, setting

NEVER = "never"
"""The level of `--fail-on` that nothing reaches."""


def output_settings(*, has_page: bool, levels: tuple[str, ...], **more: Any) -> type[Settings]:
    """The model of these settings.

    Args:
        has_page: whether the result can be written as a page.
        levels: what can make the exit code 1, the default first.
    """
    fields: dict[str, Any] = {}
    if has_page:
        about = "Write the result into this file, as an HTML page."
        fields["report"] = (Path | None, setting(None, about, is_written=True))
    if levels:
        level = Literal[*levels, NEVER]  # type: ignore[valid-type]
        about = "The mildest outcome that makes the exit code 1."
        fields["fail_on"] = (level, setting(levels[0], about))
    return create_model("OutputSettings", __base__=Settings, **fields, **more)
