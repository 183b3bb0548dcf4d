"""The columns of the tables of a dry run, which `docs/dry-run.md` explains.

Subjects for which the same mappings apply with the same shares, whose results have the same forms
and are equal in the same places go the same *way*. So `outcomes` has the subjects, and the small
tables have everything else, by the numbers of ways and forms.
"""

from __future__ import annotations

import pyarrow as pa

SIDES = ("before", "after")
"""Under the current mapping, and under the candidate."""

_WORDS = pa.dictionary(pa.int32(), pa.binary())
SCHEMAS = {
    "outcomes": pa.schema(
        {
            "side": pa.dictionary(pa.int32(), pa.string()),
            "subject_id": pa.int64(),
            "row_id": pa.int64(),
            "rows": pa.int32(),
            "subject": pa.binary(),
            "cluster": _WORDS,
            "messages": pa.int64(),
            "bytes": pa.int64(),
            "way": pa.int32(),
            "number": pa.int16(),
            "rule": _WORDS,
            "destination": _WORDS,
            "percent": pa.int16(),
            "fate": pa.dictionary(pa.int32(), pa.string()),
            "was": pa.binary(),
            "result": pa.binary(),
            "was_prefix": _WORDS,
            "prefix": _WORDS,
            "form": pa.int32(),
            "key": pa.binary(),
            "key_hash": pa.uint32(),
            "partition": pa.int64(),
        }
    ),
    "renamed": pa.schema(
        {
            "side": pa.string(),
            "layer": pa.int16(),
            "stream": pa.int32(),
            "subject_id": pa.int64(),
            "subject": pa.binary(),
            "was": pa.binary(),
            "percent": pa.int16(),
            "draws": pa.int64(),
            "messages": pa.int64(),
            "stored": pa.binary(),
        }
    ),
    "ways": pa.schema(
        {
            "way": pa.int32(),
            "cluster": pa.binary(),
            "is_legal": pa.bool_(),
            "is_of_server": pa.bool_(),
            "covering": pa.list_(pa.int32()),
            "carries": pa.list_(pa.string()),
            "side": pa.string(),
            "number": pa.int16(),
            "percent": pa.int16(),
            "is_likeliest": pa.bool_(),
            "mapping": pa.int32(),
            "share": pa.int32(),
            "rule": pa.binary(),
            "destination": pa.binary(),
            "fate": pa.string(),
            "form": pa.int32(),
            "result": pa.int32(),
            "partition": pa.int32(),
            "comes_back": pa.bool_(),
            "draws": pa.int64(),
        }
    ),
    "stays": pa.schema(
        {
            "way": pa.int32(),
            "before": pa.int16(),
            "after": pa.int16(),
            "layer": pa.int16(),
            "stream": pa.int32(),
        }
    ),
    "forms": pa.schema(
        {
            "form": pa.int32(),
            "is_legal": pa.bool_(),
            "has_many_tokens": pa.bool_(),
            "is_long": pa.bool_(),
        }
    ),
    "receivers": pa.schema(
        {
            "form": pa.int32(),
            "layer": pa.int16(),
            "how": pa.string(),
            "receiver": pa.int32(),
            "other": pa.int32(),
            "name": pa.binary(),
        }
    ),
}
"""The columns of each table."""
