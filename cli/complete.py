"""What a shell may complete: streams and their days of the warehouse, and saved contexts.

People wait for it at every press of a key. So this reads the catalog of the folder and the file
that it names, without Iceberg, and is silent about everything that it cannot read.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import click

# A shell puts a completion into the line as it is: a name with `$(...)` would be run.
_HARMLESS = re.compile(r"[\w.=-]+", re.ASCII)


def streams(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The streams that the table `messages` has."""
    return _harmless(_archived(ctx), incomplete)


def days(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The days of the stream that `--stream` names, of all streams if it is not given."""
    first, dots, last = incomplete.rpartition("..")
    archived = _archived(ctx)
    named = ctx.params.get("stream")
    known = {day for name, days in archived.items() if named in (None, name) for day in days}
    return [first + dots + day for day in _harmless(known, last)]


def contexts(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The saved contexts of the `nats` command."""
    from jobs.settings.contexts import known_contexts

    return _harmless(set(known_contexts()), incomplete)


def codes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The codes of findings."""
    from cli.explanations import explanations

    return _harmless({explanation.code for explanation in explanations()}, incomplete)


def _harmless(names: dict[str, list[str]] | set[str], incomplete: str) -> list[str]:
    return sorted(
        name for name in names if name.startswith(incomplete) and _HARMLESS.fullmatch(name)
    )


def _archived(ctx: click.Context) -> dict[str, list[str]]:
    """Stream -> its days, as the properties of the table `messages` have them."""
    import sqlite3  # every command has options that complete

    folder = Path(ctx.params.get("warehouse") or "warehouse").absolute()
    try:
        uri = f"{(folder / 'catalog.db').as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.2)) as catalog:
            rows = catalog.execute(
                "SELECT metadata_location FROM iceberg_tables"
                " WHERE table_namespace = 'nats' AND table_name = 'messages'"
            )
            (location,) = rows.fetchone()
        # The warehouse may have been moved: only the name of the file still holds.
        file = folder / "nats" / "messages" / "metadata" / location.rpartition("/")[2]
        properties = json.loads(file.read_text(encoding="utf-8"))["properties"]
        prefix = "nats-transform.stream."
        return {
            name.removeprefix(prefix): list(json.loads(value)["days"])
            for name, value in properties.items()
            if name.startswith(prefix)
        }
    except Exception:  # noqa: BLE001 - a shell that completes shows no error
        return {}
