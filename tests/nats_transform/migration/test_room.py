"""Exports and imports that somebody must sign for, as account JWTs have them."""

from __future__ import annotations

from nats_transform.accounts.sharing import Shares
from nats_transform.config.json_text import parse_json
from nats_transform.config.jwt import account_claims
from nats_transform.config.tree import Section
from nats_transform.mappings.mapping import AccountMappings, Destination, Mapping
from nats_transform.mappings.moves import moves
from nats_transform.migration.room.filters import exports_with, imports_with
from nats_transform.plan.changes import as_configured
from nats_transform.plan.files import _nsc_shares

MOVES = moves(AccountMappings([]), AccountMappings([Mapping("o.*", [Destination("s.$1")])]))


def shares(text: str) -> Shares:
    payload = parse_json(f'{{"nats": {{"type": "account", {text} }}}}', "claims.json").value
    assert isinstance(payload, dict)
    entries: Section = payload
    return account_claims(entries, "claims.json").shares


def test_a_private_export_stays_private() -> None:
    found = shares('"exports": [{"type": "stream", "subject": "o.*", "token_req": true}]').exports
    both = exports_with(found, MOVES)
    assert [(one.subject, one.is_public) for one in both] == [("o.*", False), ("s.*", False)]
    before, after = ([as_configured(one) for one in side] for side in (found, both))
    assert list(_nsc_shares("SHOP", "exports", before, after)) == [
        "nsc add export --account SHOP --subject 's.*' --name 's.*' --private",
        "nsc push --account SHOP",
    ]
    assert next(iter(_nsc_shares("SHOP", "exports", after, before))) == (
        "nsc delete export --account SHOP --subject 's.*'"
    )


def test_what_is_bound_to_a_token_or_an_account_is_not_made_up() -> None:
    theirs = '"imports": [{"type": "stream", "subject": "o.*", "account": "A", "token": "eyJ"}]'
    found = shares(theirs).imports
    assert imports_with(found, ["A"], MOVES) == found
    assert "eyJ" not in repr(found)
    own = '"exports": [{"type": "stream", "subject": "o.*", "account_token_position": 2}]'
    assert exports_with(shares(own).exports, MOVES) == shares(own).exports


def test_an_import_keeps_its_own_subjects() -> None:
    theirs = (
        '"imports": [{"type": "stream", "subject": "o.*", "account": "A", "local_subject": "in.*"}]'
    )
    _, new = imports_with(shares(theirs).imports, ["A"], MOVES)
    assert (new.subject, new.to) == ("s.*", "in.$1")
    before = [as_configured(one) for one in shares(theirs).imports]
    assert next(iter(_nsc_shares("B", "imports", before, [*before, as_configured(new)]))) == (
        "nsc add import --account B --src-account A --remote-subject 's.*' --local-subject 'in.$1'"
    )
