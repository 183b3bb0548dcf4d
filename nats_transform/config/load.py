"""Loads the configuration in a file. The content of the file decides its kind, not the name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nats_transform.accounts.leaf_nodes import NO_LEAF_NODES
from nats_transform.accounts.sharing import SharedStream, shared_streams
from nats_transform.collector import no_search_for_cycles
from nats_transform.config.accounts import (
    GLOBAL_ACCOUNT,
    TOP_FIELDS,
    Located,
    account_fields,
    account_mappings,
    has_global_users,
    no_mappings,
    places_of,
    unknown_account,
)
from nats_transform.config.documents import (
    is_mappings,
    mappings_of,
    stream_of,
    stream_section,
    zeros_of,
)
from nats_transform.config.files import Files
from nats_transform.config.json_text import parse_json
from nats_transform.config.jwt import account_claims, decode_account, find_token
from nats_transform.config.leaf_nodes import leaf_nodes_of
from nats_transform.config.server_conf import parse_server_text
from nats_transform.config.shares import shares_of_config
from nats_transform.config.tree import (
    MAPPINGS,
    Node,
    Section,
    entries_of,
    has_variables,
    lower,
    quoted,
    section_of,
)
from nats_transform.config.tree import field as find_field
from nats_transform.config.yaml_text import parse_yaml
from nats_transform.errors import InvalidConfig, Place
from nats_transform.mappings.mapping import AccountMappings

if TYPE_CHECKING:
    from nats_transform.streams.stream import StreamConfig

_YAML = (".yaml", ".yml")
_NAMED = (".json", *_YAML)
_CREDENTIALS = re.compile(
    r"-----BEGIN (?:NATS USER JWT|USER NKEY SEED)|\s*S[UAOCNX][A-Z2-7]{56}\s*$"
)

_VARIABLE = re.compile(r"(?<![\w.])\$")  # not the `$1` in `a.$1`


def load(
    path: str | os.PathLike[str], account: str = GLOBAL_ACCOUNT
) -> AccountMappings | StreamConfig:
    """The mappings of an account, or the stream configuration, in a file.

    It reads nats-server configuration files and the JWTs in their `resolver_preload`, account JWTs
    (bare, decorated, or their claims as JSON), the JSON and YAML of `nats auth account mappings`,
    and the JSON of `nats stream info` or of a stream's configuration.

    Args:
        path: the file.
        account: the account to take from a server configuration; for a JWT the name or public key
            of its account. Other files name no account.

    Raises:
        InvalidConfig: the file cannot be read or is refused, with its line and column.
        UnknownAccount: the account is not in the file, or it has no mappings and other accounts
            have some. Without this error a wrong name would look like mappings that change nothing.
    """
    return account_in(load_all(path), path, account).config


def load_mappings(path: str | os.PathLike[str], account: str = GLOBAL_ACCOUNT) -> AccountMappings:
    """Load a file that must have mappings, not a stream configuration.

    Raises:
        InvalidConfig: for the reasons of `load`, or the file is a stream configuration.
    """
    return mappings_in(load_all(path), path, account)


def mappings_in(
    everything: list[Located], path: str | os.PathLike[str], account: str
) -> AccountMappings:
    """The same from all that `load_all` gave for the file."""
    config = account_in(everything, path, account).config
    if not isinstance(config, AccountMappings):
        raise InvalidConfig("stream-as-mappings", str(path))
    return config


def places_about(candidate: str, account: str) -> Callable[[str], Place]:
    """Where the mapping that a finding is about stands in a file; else the file."""
    places = account_in(load_all(candidate), candidate, account).places

    def of(about: str) -> Place:
        return places.get(about.removeprefix("mapping ").partition(" ")[0], Place(candidate))

    return of


def account_in(everything: list[Located], path: str | os.PathLike[str], account: str) -> Located:
    """What `load` chooses of all that `load_all` gave for the file, with the same errors."""
    name = os.fspath(path)
    chosen = of_account(everything, account, name)[0]
    others = [o.accounts[0] for o in everything if o.accounts and not is_empty(o.config)]
    if others and is_empty(chosen.config):
        raise no_mappings(account, others, name)
    return chosen


def of_account(everything: list[Located], account: str | None, name: str) -> list[Located]:
    """What `load_all` gave for a file of this name, of one account if it names any.

    Raises:
        UnknownAccount: the account is not in it.
    """
    chosen = [each for each in everything if account in (None, *each.accounts) or not each.accounts]
    if account is not None and not chosen:
        raise unknown_account(account, [n for each in everything for n in each.accounts], name)
    return chosen


def is_empty(config: AccountMappings | StreamConfig) -> bool:
    """Whether it is of an account without mappings."""
    return isinstance(config, AccountMappings) and not config.mappings


@no_search_for_cycles()
def load_all(path: str | os.PathLike[str], files: Files | None = None) -> list[Located]:
    """Everything in a file: the mappings of each account, `$G` first, or one stream.

    Args:
        path: the file.
        files: reads it and what it includes; by default as the files are now.

    Raises:
        InvalidConfig: the file cannot be read or is refused, with its line and column.
    """
    files, name = files or Files(), os.fspath(path)
    text = files.text(name)
    if not text.strip():
        raise Place(name).error("file-empty")
    if token := find_token(text):
        return _alone(decode_account(token, name))
    if _CREDENTIALS.match(text):
        raise Place(name).error("credentials-as-mappings")
    tree = tree_of(text, name, files)
    if (stream := stream_section(tree)) is not None:
        return [Located(stream_of(stream, tree))]
    if _is_claims(tree):
        return _alone(account_claims(entries_of(tree), name))
    if _is_document(tree) or (name.endswith(_NAMED) and not _is_server_config(tree)):
        places_in_it = places_of(entries_of(tree))
        return [Located(mappings_of(tree), places=places_in_it, zeros=zeros_of(tree))]
    known, top, fields = account_mappings(tree), entries_of(tree), account_fields(tree)
    leaf_nodes = leaf_nodes_of(top, fields, GLOBAL_ACCOUNT)
    return [
        Located(
            mappings,
            (account,),
            places=places_of(section_of(fields.get(account, {}), *MAPPINGS)),
            shares=shares_of_config(fields.get(account, {})),
            has_publishers=account != GLOBAL_ACCOUNT or has_global_users(fields),
            leaf_nodes=leaf_nodes.get(account, NO_LEAF_NODES),
        )
        for account, mappings in known.items()
    ] + list(_preloaded(top))


def _preloaded(top: Section) -> Iterator[Located]:
    """The accounts whose JWTs stand in a server configuration (`resolver_preload`)."""
    entry = find_field(top, "resolver_preload")
    if entry is None:
        return
    for key, account in entries_of(entry.node).items():
        place = account.node.place
        if not isinstance(account.node.value, str):
            raise place.error("not-a-jwt", kind=account.node.kind)
        try:
            claims = decode_account(account.node.value, "")
        except InvalidConfig as error:
            raise place.error("jwt-under", key=quoted(key), reason=error) from None
        if claims.accounts[-1:] != (key,):
            raise account.place.error("jwt-of-another-account", key=quoted(key))
        yield claims


def shared_by(account: str, everything: Iterable[Located]) -> tuple[SharedStream, ...]:
    """The streams that leave an account: its exports, and the imports of other accounts.

    Args:
        account: one of the names of the account.
        everything: all that `load_all` gave for one file or several.
    """
    known = list(everything)
    names = {name for located in known if account in located.accounts for name in located.accounts}
    return shared_streams(
        names - {GLOBAL_ACCOUNT} if len(names) > 1 else names,
        [(located.accounts[0], located.shares) for located in known if located.accounts],
    )


def _alone(claims: Located) -> list[Located]:
    """An account in a file of its own, where it goes by `$G` too."""
    return [replace(claims, accounts=(*claims.accounts, GLOBAL_ACCOUNT))]


def tree_of(text: str, path: str, files: Files | None = None) -> Node:
    """The tree of a text in the first syntax that fits: JSON, a server configuration, YAML.

    A file whose name ends in `.json` or `.yaml` is first read as that. If it is broken, it counts
    as a server configuration only if it has fields that nats-server knows, because the syntax of
    the server accepts nearly any text. The strings of a server configuration follow the server's
    rules, also if it is JSON.
    """
    files, suffix = files or Files(), os.path.splitext(path)[1]
    named_error: InvalidConfig | None = None
    is_json = suffix == ".json" or (suffix not in _YAML and text.lstrip()[:1] in ("{", "["))
    if is_json or suffix in _YAML:
        try:
            tree = parse_json(text, path) if is_json else parse_yaml(text, path)
        except InvalidConfig as error:
            named_error = error if suffix in _NAMED else None
        else:
            if not (_is_server_config(tree) or _has_variables(text, path, files)):
                return tree
    try:
        tree = parse_server_text(text, path, files)
    except InvalidConfig as error:
        if suffix not in _NAMED and (document := _yaml_document(text, path)):
            return document
        if suffix in _YAML and named_error is None:
            raise Place(path).error("yaml-for-server") from None
        raise named_error or error from None
    if named_error is not None and not _is_server_config(tree):
        raise named_error
    return tree


def _has_variables(text: str, path: str, files: Files) -> bool:
    """Whether a text, which is JSON or YAML too, has entries that nats-server takes by a `$KEY`."""
    try:
        return bool(_VARIABLE.search(text)) and has_variables(parse_server_text(text, path, files))
    except InvalidConfig:
        return False


def _yaml_document(text: str, path: str) -> Node | None:
    """The mappings in a YAML text, if it holds some."""
    try:
        tree = parse_yaml(text, path)
    except InvalidConfig:
        return None
    return tree if _is_document(tree) else None


def _is_claims(tree: Node) -> bool:
    if not isinstance(tree.value, Mapping) or has_variables(tree):
        return False
    return {"nats", "iss"} <= tree.value.keys()


def _is_document(tree: Node) -> bool:
    """Whether a tree is the mappings of one account."""
    if not isinstance(tree.value, Mapping) or not is_mappings(tree):
        return False
    # Lists of nothing at all may be anything: `accounts: []`.
    has_destinations = any(entry.node.value for entry in tree.value.values())
    return has_destinations or not any(lower(key) in TOP_FIELDS for key in tree.value)


def _is_server_config(tree: Node) -> bool:
    return (
        isinstance(tree.value, Mapping)
        and any(lower(key) in TOP_FIELDS for key in tree.value)
        and not (_is_claims(tree) or stream_section(tree) or _is_document(tree))
    )
