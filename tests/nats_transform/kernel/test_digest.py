"""The digest: the kernel computes that of plain Python rows, and every change of a row shows."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.files.commit import arrow_schema
from jobs.warehouse.specs import MESSAGES
from nats_transform import NatsTransformError
from nats_transform.digest import Digest
from nats_transform.kernel import digest_batch
from tests.nats_transform.kernel.comparing import texts
from tests.nats_transform.kernel.test_arrays import BROKEN
from tests.support.digest import digest_of
from tests.support.refused import refused

HEADER = pa.struct([("name", pa.string()), ("value", pa.string())])
ARROW = pa.schema(
    [
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("long", pa.int64()),
        ("int", pa.int32()),
        ("short", pa.int16()),
        ("tiny", pa.int8()),
        ("yes", pa.bool_()),
        ("double", pa.float64()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("many", pa.list_(pa.string())),
        ("headers", pa.list_(HEADER)),
    ]
)
SPARK = from_arrow_schema(ARROW)


def word(random: Random) -> str | None:
    return random.choice([None, "", "a", "Nats-Msg-Id", "é" * random.randrange(40), "x" * 33])


def row(random: Random) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if random.random() < 0.2 else value

    def several(one: Any) -> Any:
        return maybe([one() for _ in range(random.randrange(4))])

    return {
        "text": word(random),
        "bytes": maybe(random.randbytes(random.choice([0, 1, 4, 8, 31, 32, 33, 63, 64, 200]))),
        "long": maybe(random.choice([0, -1, 2**63 - 1, -(2**63), random.getrandbits(40)])),
        "int": maybe(random.randrange(-(2**31), 2**31)),
        "short": maybe(random.randrange(-(2**15), 2**15)),
        "tiny": maybe(random.randrange(-(2**7), 2**7)),
        "yes": maybe(random.random() < 0.5),
        "double": maybe(random.choice([0.0, -0.0, 1.5, -1e300, float("inf"), float("nan")])),
        "day": maybe(date.fromordinal(random.randrange(600_000, 800_000))),
        "moment": maybe(datetime.fromtimestamp(random.randrange(2**31) + 0.123456, UTC)),
        "many": several(lambda: word(random)),
        "headers": several(lambda: maybe({"name": word(random), "value": word(random)})),
    }


def rows(random: Random, count: int = 500) -> list[dict[str, Any]]:
    return [row(random) for _ in range(count)]


def test_equals_that_of_plain_rows(seed: int) -> None:
    given = rows(Random(seed))
    batch = pa.RecordBatch.from_pylist(given, ARROW)
    assert digest_batch(batch) == digest_of(given, SPARK)
    for one in range(20):
        assert digest_batch(batch.slice(one, 1)) == digest_of(given[one : one + 1], SPARK)


def test_slices_add_up(seed: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows(Random(seed)), ARROW)
    parts = [batch.slice(0, 13), batch.slice(13, 200), batch.slice(213)]
    assert sum((digest_batch(part) for part in parts), Digest()) == digest_batch(batch)
    assert digest_batch(pa.Table.from_batches(parts)) == digest_batch(batch)


def test_columns_without_values(seed: int) -> None:
    random = Random(seed)
    empty = random.sample(ARROW.names, 4)
    given = [row | dict.fromkeys(empty) for row in rows(random, 50)]
    batch = pa.RecordBatch.from_pylist(given, ARROW)
    assert digest_batch(batch) == digest_of(given, SPARK)
    words = batch.column("text").dictionary_encode()
    columns = {name: batch.column(name) for name in ARROW.names} | {"text": words}
    assert digest_batch(pa.record_batch(columns)) == digest_batch(batch)


def test_some_columns_in_another_order(seed: int) -> None:
    given = rows(Random(seed))
    batch = pa.RecordBatch.from_pylist(given, ARROW)
    for columns in (["headers", "int"], ["yes"], ["many", "text", "many"]):
        assert digest_batch(batch, columns) == digest_of(given, SPARK, columns)


TEXTS = texts(["a", None, "", "\udcff", "a" * 50, "a"])
LISTS = pa.array([["a", None], None, []], pa.list_(pa.string()))
MOMENTS = pa.array([1_000_000, None, -5_000_000], pa.timestamp("us"))


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        pytest.param(TEXTS, TEXTS.cast(pa.large_binary()), id="large"),
        pytest.param(TEXTS, TEXTS.cast(pa.binary_view()), id="view"),
        pytest.param(TEXTS, TEXTS.dictionary_encode(), id="dictionary"),
        pytest.param(TEXTS, TEXTS.dictionary_encode("encode"), id="null-in-dictionary"),
        pytest.param(LISTS, LISTS.cast(pa.large_list(pa.string())), id="large-lists"),
        pytest.param(MOMENTS, MOMENTS.cast(pa.timestamp("s")), id="seconds"),
    ],
)
def test_other_layouts(plain: pa.Array, other: pa.Array) -> None:
    assert other.type != plain.type
    assert digest_batch(pa.record_batch({"a": other})) == digest_batch(
        pa.record_batch({"a": plain})
    )


A1, A2 = {"name": "A", "value": "1"}, {"name": "A", "value": "2"}
ROW: dict[str, Any] = {
    "stream": "ORDERS",
    "seq": 1,
    "ts": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    "ts_ns": 1767323045678901234,
    "day": date(2026, 1, 2),
    "subject": "orders.eu",
    "cluster": None,
    "headers": [A1, A2],
    "headers_raw": None,
    "data": b"payload",
}
CHANGES = [
    pytest.param({"seq": 2}, id="seq"),
    pytest.param({"ts_ns": 1767323045678901235}, id="nanosecond"),
    pytest.param({"subject": "orders.eU"}, id="case-of-subject"),
    pytest.param({"cluster": ""}, id="empty-is-not-null"),
    pytest.param({"data": b""}, id="empty-payload"),
    pytest.param({"data": None}, id="no-payload"),
    pytest.param({"headers_raw": b"payload", "data": None}, id="value-in-another-column"),
    pytest.param({"headers": [A2, A1]}, id="header-order"),
    pytest.param({"headers": [{"name": "a", "value": "1"}, A2]}, id="header-case"),
    pytest.param({"headers": [A1]}, id="header-missing"),
    pytest.param({"headers": []}, id="no-headers"),
    pytest.param({"headers": None}, id="null-headers"),
]  # fmt: skip


def of_messages(*rows: dict[str, Any]) -> Digest:
    """The digest of rows of the table, which is that of the definition."""
    table = pa.Table.from_pylist(list(rows), arrow_schema(MESSAGES.schema))
    digest = digest_batch(table, MESSAGES.rows.names)
    assert digest == digest_of(rows, MESSAGES.rows)
    return digest


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_shows(change: dict[str, Any]) -> None:
    assert of_messages(ROW) != of_messages(ROW | change)


def test_order_does_not_matter_and_repeats_count() -> None:
    other = ROW | {"seq": 2}
    assert of_messages(ROW, other) == of_messages(other, ROW)
    assert of_messages(ROW, ROW).total != 0
    assert of_messages(ROW, ROW, other) != of_messages(ROW, other, other)


def test_digests_add_up_and_survive_text() -> None:
    other = ROW | {"seq": 2}
    both = of_messages(ROW) + of_messages(other)
    assert both == of_messages(ROW, other)
    assert Digest.parse(both.rows, str(both)) == both


def test_the_digest_of_a_row_stays() -> None:
    assert str(of_messages(ROW)) == "4cfea133be233f7d"


def test_no_rows() -> None:
    assert digest_batch(pa.RecordBatch.from_pylist([], ARROW)) == Digest()


@pytest.mark.parametrize("array", BROKEN.values(), ids=BROKEN)
def test_broken_arrays_are_refused(array: pa.Array) -> None:
    with pytest.raises(NatsTransformError) as caught:
        digest_batch(pa.RecordBatch.from_arrays([array], ["text"]))
    assert caught.value.code in ("array-broken", "offsets-broken")


def test_broken_lists_are_refused() -> None:
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 7, 2)))
    broken = pa.Array.from_buffers(
        pa.list_(pa.int64()), 2, [None, offsets], children=[pa.array([1, 2])]
    )
    with refused(NatsTransformError, "offsets-broken"):
        digest_batch(pa.RecordBatch.from_arrays([broken], ["many"]))


def test_other_types_are_refused() -> None:
    batch = pa.record_batch({"map": pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))})
    with refused(NatsTransformError, "column-type-unreadable", kind=re.compile("^map")):
        digest_batch(batch)


def test_too_many_columns_are_refused() -> None:
    batch = pa.record_batch({str(number): pa.array([1]) for number in range(65)})
    with refused(NatsTransformError, "digest-too-wide", most=64, columns=65):
        digest_batch(batch)
