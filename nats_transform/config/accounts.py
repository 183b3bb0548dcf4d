"""The account mappings in the tree of a nats-server configuration.

Sources: nats-server `processConfigFileLine`, `parseAccounts`, `parseAccountMappings` and
`parseAccountMapDest` in `server/opts.go`. The server refuses a whole file for one wrong mapping, so
the mappings of all accounts are read, even if only one account is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING

from nats_transform.accounts.leaf_nodes import NO_LEAF_NODES, LeafNodes
from nats_transform.accounts.sharing import NO_SHARES, Shares
from nats_transform.config.tree import (
    LEAF_NODES,
    MAPPINGS,
    OPERATOR,
    Entry,
    Node,
    Section,
    entries_of,
    field,
    lower,
    quoted,
    section_of,
    text_of,
)
from nats_transform.errors import (
    InvalidConfig,
    InvalidMapping,
    InvalidTransform,
    Place,
    Refusals,
    UnknownAccount,
    did_you_mean,
)
from nats_transform.mappings.mapping import AccountMappings, Destination, Mapping
from nats_transform.mappings.subject import is_valid_filter

if TYPE_CHECKING:
    from nats_transform.streams.stream import StreamConfig

GLOBAL_ACCOUNT = "$G"
"""The account of clients without another account. Mappings at the top of a file belong to it."""

TOP_FIELDS = frozenset(
    """account_resolver accounts accounts_resolver allow_non_tls authorization client_advertise
    cluster connect_error_reports debug default_js_domain default_sentinel
    disable_sublist_cache feature_flags gateway host http http_base_path http_port https
    https_port jetstream lame_duck_duration lame_duck_grace_period leaf leafnodes listen
    log_file log_max_num log_size_limit logfile logfile_max_num logfile_size_limit logtime
    logtime_utc mappings maps max_closed_clients max_conn max_connections max_control_line
    max_payload max_pending max_sub_tokens max_subs max_subscription_tokens
    max_subscriptions max_traced_msg_len monitor_port mqtt net no_auth_user
    no_fast_producer_stall no_header_support no_sublist_cache no_sys_acc no_system
    no_system_account ocsp ocsp_cache operator operators pid_file pidfile ping_interval
    ping_max port ports_file_dir prof_block_rate prof_port proxies proxy_protocol
    reconnect_error_reports remote_syslog resolver resolver_pinned_accounts resolver_preload
    resolver_tls root root_operator root_operators roots server_metadata server_name
    server_tags store_dir storedir syslog system system_account tls trace trace_headers
    trace_verbose trusted trusted_keys websocket write_deadline write_timeout ws""".split()  # noqa: SIM905 - reads better so
)
"""The fields that nats-server 2.15.1 knows at the top of a file. It refuses all others."""

ACCOUNT_FIELDS = frozenset(
    """default_permissions exports imports jetstream limits mappings maps msg_trace nkey
    trace_dest users""".split()  # noqa: SIM905 - as above
)
"""The fields that nats-server 2.15.1 knows in an account."""

_WEIGHT = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Located:
    """A configuration and its place.

    Attributes:
        config: the mappings of one account, or a stream.
        accounts: the names of the account, in a JWT its name and its public key; empty if the file
            names none.
        places: the place of each mapping in the file, by its source; empty for a JWT.
        expires: when a JWT expires, in seconds since 1970; None if it never does.
        shares: the exports and imports of the account.
        zeros: sources and destinations with a weight of 0 that means 100.
        has_publishers: whether somebody can publish in the account.
        leaf_nodes: the leaf node connections of the account.
    """

    config: AccountMappings | StreamConfig
    accounts: tuple[str, ...] = ()
    places: MappingABC[str, Place] = dataclass_field(default_factory=dict)
    expires: int | None = None
    shares: Shares = NO_SHARES
    zeros: frozenset[tuple[str, str]] = frozenset()
    has_publishers: bool = True
    leaf_nodes: LeafNodes = NO_LEAF_NODES


def account_mappings(tree: Node) -> dict[str, AccountMappings]:
    """The mappings of every account of a configuration, `$G` first.

    Raises:
        InvalidConfig: a field is unknown, or a mapping is one that nats-server refuses.
    """
    top = entries_of(tree)
    refusals = Refusals(InvalidConfig)
    mappings: dict[str, AccountMappings] = {}
    with refusals:
        _refuse_unknown(top, TOP_FIELDS, "nats-server doesn't know this field")
    with refusals:
        mappings[GLOBAL_ACCOUNT] = _mappings(top)
    with refusals:
        accounts = field(top, "accounts")
        match accounts.node.value if accounts is not None else None:
            case tuple() as names:
                mappings |= _named(names)
            case MappingABC() as sections:
                mappings |= _accounts(sections)
            case _:
                pass  # the server looks at nothing else here
    refusals.tell()
    return mappings


def has_global_users(accounts: MappingABC[str, Section]) -> bool:
    """Whether somebody can publish in `$G`. Nobody can if only accounts name users."""
    top = accounts[GLOBAL_ACCOUNT]
    if any(field(top, name) for name in ("authorization", *LEAF_NODES, *OPERATOR, "mqtt")):
        return True
    # With users of the system account alone, everybody else is in `$G`.
    known = (GLOBAL_ACCOUNT, "$SYS", text_of(top, "system_account", "system") or None)
    users = [field(fields, "users") for name, fields in accounts.items() if name not in known]
    return not any(user is not None and user.node.value for user in users)


def account_fields(tree: Node) -> dict[str, Section]:
    """The fields of every account; those of `$G` stand at the top level of the file."""
    top = entries_of(tree)
    return {GLOBAL_ACCOUNT: top} | {
        name: entries_of(account.node)
        for name, account in section_of(top, "accounts").items()
        if not account.is_variable
    }


def places_of(mappings: Section) -> dict[str, Place]:
    """The place of each mapping, by its source."""
    return {source: entry.place for source, entry in mappings.items()}


def _named(names: tuple[Node, ...]) -> dict[str, AccountMappings]:
    accounts: dict[str, AccountMappings] = {}
    for node in names:
        if not isinstance(node.value, str):
            raise node.place.error("not-an-account-name", kind=node.kind)
        _refuse_reserved(node.value, node.place)
        if node.value in accounts:
            raise node.place.error("account-twice", name=quoted(node.value))
        accounts[node.value] = AccountMappings(())
    return accounts


def _accounts(sections: Section) -> dict[str, AccountMappings]:
    accounts: dict[str, AccountMappings] = {}
    refusals = Refusals(InvalidConfig)
    for name, entry in sections.items():
        if entry.is_variable:
            continue  # what is referred to as a variable is no account
        with refusals:
            fields = entries_of(entry.node)
            _refuse_reserved(name, entry.place)
            with refusals:
                _refuse_unknown(
                    fields, ACCOUNT_FIELDS, "nats-server doesn't know this field of an account"
                )
            accounts[name] = _mappings(fields)
    refusals.tell()
    return accounts


def _refuse_reserved(name: str, place: Place) -> None:
    if name == GLOBAL_ACCOUNT:
        raise place.error("account-reserved")


def _refuse_unknown(fields: Section, known: frozenset[str], complaint: str) -> None:
    refusals = Refusals(InvalidConfig)
    for key, entry in fields.items():
        if lower(key) not in known and not entry.is_variable:
            with refusals:
                raise entry.place.error(
                    "unknown-account-field",
                    key=quoted(key),
                    complaint=complaint,
                    hint=did_you_mean(key, known),
                )
    refusals.tell()


def _mappings(fields: Section) -> AccountMappings:
    entry = field(fields, *MAPPINGS)
    return each_mapping(entries_of(entry.node) if entry else {}, _mapping)


def each_mapping(entries: Section, mapping_of: Callable[[str, Entry], Mapping]) -> AccountMappings:
    """The mappings of entries; if some are refused, the error has all of these."""
    mappings = []
    refusals = Refusals(InvalidConfig)
    for source, entry in entries.items():
        with refusals:
            mappings.append(mapping_of(source, entry))
    refusals.tell()
    return AccountMappings(tuple(mappings))


def _mapping(source: str, entry: Entry) -> Mapping:
    if not is_valid_filter(source):
        raise entry.place.error("source-not-a-subject", source=quoted(source))
    match entry.node.value:
        case str() as subject:
            destinations = [Destination(subject)]
        case tuple() as nodes:
            destinations = [_destination(node) for node in nodes]
        case _:
            destinations = [_destination(entry.node)]
    return located_mapping(source, destinations, entry.place)


def located_mapping(source: str, destinations: list[Destination], place: Place) -> Mapping:
    """The mapping of an entry; if it is not valid, the error names the place."""
    try:
        return Mapping(source, destinations)
    except (InvalidMapping, InvalidTransform) as error:
        raise place.error("refused", reason=error) from None


def _destination(node: Node) -> Destination:
    if not isinstance(node.value, MappingABC):
        raise node.place.error("not-a-destination", kind=node.kind)
    fields = node.value
    for key, entry in fields.items():
        if lower(key) not in ("dest", "destination", "weight", "cluster"):
            raise entry.place.error("unknown-destination-field", key=quoted(key))
    weight = field(fields, "weight")
    if weight is None:
        raise node.place.error("no-weight")
    return Destination(
        _text(field(fields, "dest", "destination")),
        _weight(weight.node),
        _text(field(fields, "cluster")) or None,
    )


def _text(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if isinstance(entry.node.value, str):
        return entry.node.value
    raise entry.node.place.error("not-a-quoted-string", key=quoted(entry.key), kind=entry.node.kind)


def _weight(node: Node) -> int:
    weight = node.value
    if isinstance(weight, str):
        digits = weight.removesuffix("%")
        if not _WEIGHT.fullmatch(digits):
            raise node.place.error("weight-not-whole")
        weight = int(digits)
    return checked_weight(weight, node)


def checked_weight(weight: object, node: Node) -> int:
    """A weight in percent, if it is one.

    Raises:
        InvalidConfig: it is no whole number from 0 to 100.
    """
    if not isinstance(weight, int) or isinstance(weight, bool):
        raise node.place.error("weight-not-a-percentage", kind=node.kind)
    if not 0 <= weight <= 100:
        raise node.place.error("weight-out-of-range", weight=weight)
    return weight


def unknown_account(name: str, names: list[str], path: str) -> UnknownAccount:
    """The error for an account that a configuration does not have; it lists those it has."""
    return UnknownAccount("no-account", path, name=quoted(name), listed=_listed(names))


def no_mappings(name: str, names: list[str], path: str) -> UnknownAccount:
    """The error for an account without mappings in a file that has mappings of others."""
    return UnknownAccount(
        "account-without-mappings", path, name=quoted(name), listed=_listed(names)
    )


def _listed(names: list[str]) -> str:
    shown = ", ".join(quoted(known) for known in names[:20])
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown
