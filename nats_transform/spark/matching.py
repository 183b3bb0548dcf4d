"""The mapping that applies to a subject: the first, in the order of the config, that covers it.

Sources of the same shape (length, open or not, and where they have literal tokens) differ in those
tokens only, so one look into an index finds the one that covers a subject. The cost grows with the
number of shapes, hardly with that of mappings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nats_transform.spark.bytes import View
from nats_transform.spark.lookup import Index, literal
from nats_transform.subject import ANY_TOKEN, SEPARATOR, Filter


@dataclass(frozen=True, slots=True)
class FilterShape:
    """What sources of one kind have in common.

    Attributes:
        length: how many tokens stand before a `>`.
        is_open: whether there is a `>`.
        fixed: 0-based positions of the literal tokens.
    """

    length: int
    is_open: bool
    fixed: tuple[int, ...]

    def covers(self, count: Column) -> Column:
        """Whether subjects of so many tokens have this shape."""
        return count > self.length if self.is_open else count == self.length

    def key(self, view: View) -> Column:
        """The tokens of a subject where the shape has literal ones."""
        tokens = [view.token(position) for position in self.fixed]
        return tokens[0] if len(tokens) == 1 else F.concat_ws(SEPARATOR, *tokens)


def shapes_of(
    filters: Sequence[Filter], subscribes: bool = False
) -> dict[FilterShape, dict[str, int]]:
    """For each shape: the literal tokens of its sources and the first number that has them."""
    found: dict[FilterShape, dict[str, int]] = {}
    for number, filter in enumerate(filters):
        length = len(filter.tokens) - filter.is_open
        tokens = filter.tokens[:length]
        # A token that only starts with `*` matches any token too, but not in a subscription: see
        # `tokens_match` and `subscribes`.
        fixed = [
            i
            for i, token in enumerate(tokens)
            if not (token == ANY_TOKEN if subscribes else token.startswith(ANY_TOKEN))
        ]
        key = SEPARATOR.join(tokens[i] for i in fixed)
        found.setdefault(FilterShape(length, filter.is_open, tuple(fixed)), {}).setdefault(
            key, number
        )
    return found


def add_rule(
    frame: DataFrame,
    filters: Sequence[Filter],
    view: View,
    count: Column,
    name: str,
    *,
    subscribes: bool = False,
) -> DataFrame:
    """The frame with the number of the first filter that covers the subject, or null.

    Args:
        frame: with the Columns of the view.
        filters: in the order in which they are tried.
        view: of the subject.
        count: how many tokens it has; null if it is not legal.
        name: of the new int column; names that start with it are taken, too.
        subscribes: whether they are filters of a subscription, not sources of transforms.
    """
    keys: list[Column] = []
    hashes: list[Column] = []
    slots: list[Column] = []
    found: list[Column] = []
    for place, (shape, numbers) in enumerate(shapes_of(filters, subscribes).items()):
        if not shape.fixed:
            found.append(F.when(shape.covers(count), min(numbers.values())))
            continue
        key, hash64, slot = (F.col(f"{name}_{what}{place}") for what in ("key", "hash", "slot"))
        keys.append(F.when(shape.covers(count), shape.key(view)).alias(f"{name}_key{place}"))
        if len(numbers) == 1:
            ((text, number),) = numbers.items()
            found.append(F.when(key == literal(view.literal(text)), number))
        else:
            index = Index({view.literal(text): number for text, number in numbers.items()})
            hashes.append(F.xxhash64(key).alias(f"{name}_hash{place}"))
            slots.append(index.slot(hash64).alias(f"{name}_slot{place}"))
            found.append(index.number(key, slot))
    for columns in (keys, hashes, slots):
        frame = frame.select("*", *columns) if columns else frame
    rule = F.least(*found) if len(found) > 1 else [*found, F.lit(None)][0]
    return frame.select("*", rule.cast("int").alias(name))
