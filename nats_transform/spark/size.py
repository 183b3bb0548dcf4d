"""What is too large to compile, found out before Spark sees any of it.

The number of mappings costs little, see `lookup`. What adds code to the plan is how many different
things they do; beyond some hundreds of them Spark plans for many minutes and then gives up, with an
error that names none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nats_transform.errors import TooLarge
from nats_transform.functions import Random
from nats_transform.spark.bytes import Cut
from nats_transform.spark.destination import Template
from nats_transform.spark.matching import shapes_of
from nats_transform.subject import Filter

# Each is several times what configurations of thousands of mappings have, and below what Spark can
# still plan with a driver of 2 GiB within minutes.
MAX_SOURCES = 100_000
MAX_SHAPES = 1_000
MAX_FUNCTIONS = 200
MAX_TOKENS = 256
MAX_PARTITIONS = 16


def check_size(filters: Sequence[Filter], templates: Sequence[Template | None]) -> None:
    """Refuses what Spark could not plan.

    Args:
        filters: the sources.
        templates: the destinations.

    Raises:
        TooLarge: the text says of what there is too much.
    """
    made = [template for template in templates if template is not None]
    functions = {
        (place, replace(variable, position=0) if isinstance(variable, Cut) else variable)
        for template in made
        for place, variable in enumerate(slot.variable for slot in template.slots)
        if isinstance(variable, Cut | Random)
    }
    keys = {pair for template in made for pair in enumerate(template.keys)}
    longest = max((sum(s.variable is not None for s in t.slots) for t in made), default=0)
    partitions = max((len(t.keys) for t in made), default=0)
    shapes = shapes_of(filters) if len(filters) > MAX_SHAPES else ()
    for count, most, what in (
        (len(filters), MAX_SOURCES, "sources"),
        (len(shapes), MAX_SHAPES, "shapes of sources (where they have their wildcards)"),
        (len(functions), MAX_FUNCTIONS, "different functions that cut tokens or draw numbers"),
        (len(keys), MAX_FUNCTIONS, "different keys of partition numbers"),
        (longest, MAX_TOKENS, "tokens that depend on the subject in one destination"),
        (partitions, MAX_PARTITIONS, "partition numbers in one destination"),
    ):
        if count > most:
            raise TooLarge(what, count, most)
