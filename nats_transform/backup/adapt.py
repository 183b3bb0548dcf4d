"""The configuration of a stream and of its consumers, once its messages have new subjects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nats_transform.errors import InvalidBackup, InvalidStream
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import ANY_TAIL, collide, intersection, is_subset
from nats_transform.mappings.symbolic import image
from nats_transform.streams.stream import parse_stream

# The fields, beside the subjects, with which a stream reads or writes subjects that may change.
_TRANSFORMS = ("subject_transform", "republish")


def adapted_config(config: Mapping[str, Any], mappings: AccountMappings) -> dict[str, Any]:
    """The configuration of a stream that captures the new subjects of its messages.

    Raises:
        InvalidBackup: the new subjects are not known, or nats-server would refuse it.
    """
    adapted = dict(config)
    try:
        parse_stream(adapted)  # so its parts are what they should be
        for name in _TRANSFORMS:
            source = (config.get(name) or {}).get("src") or ANY_TAIL
            if config.get(name) and any(collide(source, m.source) for m in mappings.mappings):
                raise InvalidBackup("backup-subjects-change", part=name, stream=config.get("name"))
        if subjects := config.get("subjects"):
            adapted["subjects"] = adapted_filters(subjects, mappings)
            parse_stream(adapted)
    except InvalidStream as error:
        raise InvalidBackup(
            "backup-subjects-invalid",
            subjects=", ".join(map(str, adapted.get("subjects") or [])),
            reason=error,
        ) from error
    return adapted


def adapted_filters(filters: Iterable[str], mappings: AccountMappings) -> list[str]:
    """Filters of all new subjects of the messages of some filters; none covers another."""
    images = [new for filter in filters for new in _images(filter, mappings)]
    return [
        new
        for place, new in enumerate(images)
        if not any(
            is_subset(new, other) and (not is_subset(other, new) or before < place)
            for before, other in enumerate(images)
            if before != place
        )
    ]


def _images(filter: str, mappings: AccountMappings) -> list[str]:
    images: list[str] = []
    for mapping in mappings.mappings:
        if not collide(filter, mapping.source):
            continue
        # A token such as `*a` covers any token, which no filter of what is shared can say.
        part = intersection(filter, mapping.source) or mapping.source
        images += [image(share.transform, part) for share in mapping.ends() if share.transform]
        if is_subset(filter, mapping.source):
            return images  # all its messages are mapped by now
    return [*images, filter]
