"""The rules by which nats-server refuses a stream configuration, in its order and words.

Source: nats-server `checkStreamCfgLocked` and `addStreamWithAssignmentAndMode` in
`server/stream.go`, error codes in `server/errors.json`. Rules that depend on a server and not on
the configuration are left out: limits of the account, other streams, clustering. A sealed stream is
not refused either, nor `mirror_direct` without a mirror, because `nats stream info` prints such
configurations: a stream can only not be made so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from nats_transform.errors import InvalidStream, InvalidTransform, Refusals, printable
from nats_transform.mappings.subject import (
    collide,
    encode,
    is_subset,
    is_valid_filter,
    is_valid_publish_subject,
)
from nats_transform.mappings.subject_index import Effort, SubjectIndex
from nats_transform.mappings.transform import Transform, validate_mapping
from nats_transform.streams.fields import StreamFields
from nats_transform.streams.source import ConsumerReference, StreamSource, SubjectTransform

_MILLISECOND = 1_000_000
_SECOND = 1000 * _MILLISECOND
_SHORTEST_AGE = 100 * _MILLISECOND
_MAX_NAME_BYTES = 255
_MAX_DESCRIPTION_BYTES = 4 * 1024
_MAX_METADATA_BYTES = 128 * 1024
_MAX_REPLICAS = 5
_INVALID_CONFIG = 10052
_NOT_CREATED = 10049
EFFORT = 4_000_000  # steps to find filters that overlap: a few seconds
_NOT_IN_ASSET_NAMES = frozenset(" \t\r\n\f.*>\\/")


def refuse_invalid(config: StreamFields) -> None:
    """Refuse a stream configuration as nats-server does.

    Raises:
        InvalidStream: the server's words and error code, and what it would say next.
    """
    refusals = Refusals(InvalidStream)
    for rule in (
        _check_limits,
        _check_features,
        _check_mirror,
        _check_sources,
        _check_externals,
        _check_cycle,
        _check_subjects,
        _check_ingress,
        _check_republish,
        _check_placement,
        _check_filters,
    ):
        with refusals:
            rule(config)
    refusals.tell()


def _invalid(reason: str, code: int = _INVALID_CONFIG) -> InvalidStream:
    return InvalidStream("stream-not-taken", err_code=code, reason=reason)


def _size(text: str) -> int:
    return len(encode(text))


def _is_asset_name(name: str) -> bool:
    return bool(name) and _NOT_IN_ASSET_NAMES.isdisjoint(name)


def _check_limits(config: StreamFields) -> None:
    if not _is_asset_name(config.name):
        raise _invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if _size(config.name) > _MAX_NAME_BYTES:
        raise _invalid(f"stream name is too long, maximum allowed is {_MAX_NAME_BYTES}")
    if _size(config.description) > _MAX_DESCRIPTION_BYTES:
        raise _invalid(
            f"stream description is too long, maximum allowed is {_MAX_DESCRIPTION_BYTES}"
        )
    if sum(_size(k) + _size(v) for k, v in config.metadata.items()) > _MAX_METADATA_BYTES:
        raise _invalid(f"stream metadata exceeds maximum size of {_MAX_METADATA_BYTES} bytes")
    if config.num_replicas > _MAX_REPLICAS:
        raise _invalid(f"maximum replicas is {_MAX_REPLICAS}")
    if config.num_replicas < 0:
        raise _invalid("replicas count cannot be negative", 10133)
    if config.max_age < 0:
        raise _invalid("max age can not be negative")
    if 0 < config.max_age < _SHORTEST_AGE:
        raise _invalid("max age needs to be >= 100ms")
    window = config.duplicate_window
    if window < 0:
        raise _invalid("duplicates window can not be negative")
    if config.max_age and window > config.max_age:
        raise _invalid("duplicates window can not be larger then max age")
    if 0 < window < _SHORTEST_AGE:
        raise _invalid("duplicates window needs to be >= 100ms")


def _check_features(config: StreamFields) -> None:
    if config.deny_purge and config.allow_rollup_hdrs:
        raise _invalid("roll-ups require the purge permission")
    if config.allow_msg_counter:
        if config.discard == "new":
            raise _invalid("counter stream cannot use discard new")
        if config.allow_msg_ttl:
            raise _invalid("counter stream cannot use message TTLs")
        if config.allow_msg_schedules:
            raise _invalid("counter stream cannot use message schedules")
        if config.retention != "limits":
            raise _invalid("counter stream can only use limits retention")
    if config.discard_new_per_subject:
        if config.discard != "new":
            raise _invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            raise _invalid("discard new per subject requires max msgs per subject > 0")
    if 0 < config.subject_delete_marker_ttl < _SECOND:
        raise _invalid("subject delete marker TTL must be at least 1 second")
    if config.subject_delete_marker_ttl < 0:
        raise _invalid("subject delete marker TTL must not be negative")
    if config.allow_msg_schedules and config.discard == "new":
        raise _invalid("message scheduling cannot use discard new")
    if config.persist_mode == "async":
        if config.storage != "file":
            raise _invalid("async persist mode is only supported on file storage")
        if config.num_replicas > 1:
            raise _invalid("async persist mode is not supported on replicated streams")
        if config.allow_atomic:
            raise _invalid("async persist mode is not supported with atomic batch publish")


def _check_mirror(config: StreamFields) -> None:
    mirror = config.mirror
    if mirror is None:
        return
    for refused, reason, code in (
        (config.first_seq > 0, "can not have first sequence configured", 10143),
        (bool(config.subjects), "can not contain subjects", 10034),
        (bool(config.sources), "can not also contain other sources", 10031),
        (config.allow_msg_counter, "can not also calculate counters", 10173),
        (config.allow_atomic, "can not also use atomic publishing", 10198),
        (config.allow_batched, "can not also use batch publishing", 10209),
        (config.allow_msg_schedules, "can not also schedule messages", 10186),
    ):
        if refused:
            raise _invalid(f"stream mirrors {reason}", code)
    if mirror.consumer and not _is_usable(
        mirror.consumer, mirror.starts_somewhere, mirror.filter_subject
    ):
        raise _invalid("stream mirror consumer config is invalid", 10213)
    if mirror.filter_subject and mirror.subject_transforms:
        raise _invalid(
            "mirror with multiple subject transforms cannot also have a single subject filter",
            10150,
        )
    if config.subject_delete_marker_ttl > 0:
        raise _invalid("subject delete markers forbidden on mirrors")
    refusals = Refusals(InvalidStream)
    overlaps = _others([transform.source for transform in mirror.subject_transforms])
    for transform, others in zip(mirror.subject_transforms, overlaps, strict=True):
        with refusals:
            _check_transform("mirror", transform, 10151, 10154)
            if others:
                raise _invalid("mirror subject filters can not overlap", 10152)
    refusals.tell()
    if mirror.external is None and not _is_asset_name(mirror.name):
        raise _invalid("mirrored stream name is invalid", 10142)


def _check_sources(config: StreamFields) -> None:
    if config.sources and config.allow_msg_schedules:
        raise _invalid("stream source can not also schedule messages", 10187)
    seen: set[Hashable] = set()
    consumers: set[Hashable] = set()
    refusals = Refusals(InvalidStream)
    for source in config.sources:
        with refusals:
            _check_source(source, seen, consumers)
    refusals.tell()


def _check_source(source: StreamSource, seen: set[Hashable], consumers: set[Hashable]) -> None:
    if not _is_asset_name(source.name):
        raise _invalid("sourced stream name is invalid", 10141)
    if source.identity in seen:
        raise _invalid("duplicate source configuration detected", 10140)
    seen.add(source.identity)
    if source.filter_subject and source.subject_transforms:
        raise _invalid(
            "source with multiple subject transforms cannot also have a single subject filter",
            10144,
        )
    refusals = Refusals(InvalidStream)
    for transform in source.subject_transforms:
        with refusals:
            _check_transform("source", transform, 10145, 10146)
    refusals.tell()
    filters = [transform.source for transform in source.subject_transforms]
    if any(_others(filters, SubjectIndex.covering)):
        raise _invalid("source filters can not overlap", 10147)
    if source.consumer:
        if not _is_usable(source.consumer, source.starts_somewhere, source.filter_subject):
            raise _invalid("stream source consumer config is invalid", 10215)
        consumer = (source.name, source.api_prefix, source.consumer.name)
        if consumer in consumers:
            raise _invalid("duplicate stream source consumer detected", 10216)
        consumers.add(consumer)


def _check_transform(
    place: str, transform: SubjectTransform, source_code: int, destination_code: int
) -> None:
    if transform.source and not is_valid_filter(transform.source):
        raise _invalid(
            f"{place} transform source: invalid subject {printable(transform.source)}", source_code
        )
    try:
        validate_mapping(transform.source, transform.destination)
    except InvalidTransform as error:
        raise _invalid(f"{place} transform: {error}", destination_code) from error


def _is_usable(consumer: ConsumerReference, starts_somewhere: bool, filter: str) -> bool:
    return (
        _is_asset_name(consumer.name)
        and is_valid_publish_subject(consumer.deliver_subject)
        and not starts_somewhere
        and not filter
    )


def _check_externals(config: StreamFields) -> None:
    externals = [upstream.external for upstream in config.upstreams if upstream.external]
    for deliver in filter(None, [external.deliver for external in externals]):
        if not is_valid_publish_subject(deliver):
            raise _invalid(
                f"stream external delivery prefix {deliver} must not contain wildcards", 10024
            )
    for api in filter(None, [external.api for external in externals]):
        if not is_valid_publish_subject(api):
            raise _invalid(
                f"stream external api prefix {printable(api)} must be a valid subject "
                "without wildcards"
            )
        if collide(api, "$JS.API"):
            raise _invalid(f"stream external api prefix {api} must not overlap with $JS.API", 10021)


def _check_cycle(config: StreamFields) -> None:
    # The server follows other streams too; here only the stream's own name is known.
    for source in config.sources:
        if (
            source.external is None
            and source.name == config.name
            and (
                not source.filter_subject
                or any(collide(s, source.filter_subject) for s in config.subjects)
            )
        ):
            raise _invalid("detected cycle")
    mirror = config.mirror
    if mirror is not None and mirror.external is None and mirror.name == config.name:
        raise _invalid("detected cycle")


def _check_subjects(config: StreamFields) -> None:
    seen: set[str] = set()
    overlaps = _others(config.subjects)
    for position, (subject, others) in enumerate(zip(config.subjects, overlaps, strict=True)):
        if not is_valid_filter(subject):
            raise _invalid("invalid subject")
        if subject in seen:
            raise _invalid("duplicate subjects detected")
        seen.add(subject)
        if subject == ">":
            if not config.no_ack:
                raise _invalid("capturing all subjects requires no-ack to be true")
            if config.num_replicas > 1:
                raise _invalid("capturing all subjects requires replicas of 1")
        if not config.no_ack:
            taken = any(collide(subject, name) for name in ("$JS.>", "$JSC.>", "$NRG.>"))
            if taken and not is_subset(subject, "$JS.EVENT.>"):
                raise _invalid("subjects that overlap with jetstream api require no-ack to be true")
            if collide(subject, "$SYS.>") and not is_subset(subject, "$SYS.ACCOUNT.>"):
                raise _invalid("subjects that overlap with system api require no-ack to be true")
        for other in others:
            if other > position:
                named = printable(config.subjects[other])
                raise _invalid(f"subject {printable(subject)} overlaps with {named}")


def _others(
    filters: Sequence[str],
    find: Callable[[SubjectIndex, str], list[int]] = SubjectIndex.colliding,
) -> Iterator[list[int]]:
    """For each filter, the places of the others that collide with it."""
    effort = Effort(EFFORT)
    index = SubjectIndex(filters, effort)
    for place, filter in enumerate(filters):
        others = [other for other in find(index, filter) if other != place]
        if effort.is_spent:
            raise _invalid("too many filters with wildcards to compare all of them")
        yield others


def _check_ingress(config: StreamFields) -> None:
    if config.subject_transform is not None:
        _check_transform("stream", config.subject_transform, 10155, 10156)


def _check_republish(config: StreamFields) -> None:
    if config.republish is None:
        return
    source, destination = config.republish_pair
    if any(collide(destination, subject) for subject in config.captured):
        raise _invalid("stream configuration for republish destination forms a cycle")
    if destination:
        try:
            Transform(source, destination)
        except InvalidTransform as error:
            raise _invalid(
                f"stream configuration for republish with transform from {printable(source)} "
                f"to {printable(destination)} not valid: {error}"
            ) from error


def _check_placement(config: StreamFields) -> None:
    if config.placement and config.placement.get("preferred"):
        raise _invalid("preferred server not permitted in placement")


def _check_filters(config: StreamFields) -> None:
    for upstream in config.upstreams:
        lone = "" if upstream.subject_transforms else upstream.filter_subject
        if lone and not is_valid_filter(lone):
            place = "mirror" if upstream is config.mirror else "source"
            raise _invalid(
                f"subject filter {printable(lone)} for the {place}: invalid subject", _NOT_CREATED
            )
