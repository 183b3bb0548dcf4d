"""The one import path that users learn."""

from __future__ import annotations

import nats_transform
from tests.support.programs import printed_in_python


def test_the_list_of_public_names() -> None:
    assert nats_transform.__all__ == [
        "AccountImport",
        "AccountMappings",
        "Destination",
        "Fate",
        "ImportKind",
        "InvalidConfig",
        "InvalidMapping",
        "InvalidStream",
        "InvalidTransform",
        "Mapping",
        "NatsTransformError",
        "Outcome",
        "StreamConfig",
        "StreamSource",
        "Transform",
        "bucket_source",
        "load",
        "parse_stream",
    ]


def test_every_public_name_is_there_and_documented() -> None:
    for name in nats_transform.__all__:
        assert getattr(nats_transform, name).__doc__, name


def test_importing_the_library_brings_no_engine() -> None:
    script = (
        "import sys, nats_transform\n"
        "heavy = {'pyspark', 'dagster', 'great_expectations', 'pandas', 'jobs', 'nats'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert printed_in_python(script).strip() == "[]"
