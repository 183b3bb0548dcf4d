"""What assets yield: their results, and metadata of how fast they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

Metadata = Mapping[str, Any]
Plain = int | float | str | dg.MetadataValue[Any]
Results = Iterator[dg.AssetCheckResult | dg.MaterializeResult[None] | dg.ObserveResult]
"""What an asset yields: its checks, and that it was made or looked at."""


def throughput(messages: int, seconds: float) -> Metadata:
    """How long it took, checks included."""
    return {
        "seconds": round(seconds, 3),
        "messages per second": round(messages / max(seconds, 1e-3), 1),
    }
