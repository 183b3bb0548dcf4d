"""Which accounts of two configurations a leaf node connection joins."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_transform.config import load_all

SHOP = "accounts { SHOP { users: [ { user: edge, password: p } ] }, OTHER { } }"
REMOTE = 'leafnodes { remotes: [ { url: "nats-leaf://%s@hub:7422"%s } ] }'
HUB_OF_A = "leafnodes { port: 1, authorization { user: a, password: p } }"
JOINED = [
    # the leaf node, its hub, and the accounts that meet
    ('leaf { remotes: [ { urls: ["hub:1", "nats://hub:7422"] } ] }', "leaf { port: 1 }", "$G $G"),
    (REMOTE % ("edge:p", ""), f"leafnodes {{ port: 1 }}\n{SHOP}", "$G SHOP"),
    (REMOTE % ("other:p", ""), f"leafnodes {{ port: 1 }}\n{SHOP}", ""),
    (f"{REMOTE % ('edge:p', ', account: SHOP')}\n{SHOP}", "leaf { listen: x }", ""),
    (
        f"{REMOTE % ('a', ', account: OTHER')}\n{SHOP}",
        "leafnodes { port: 1, authorization { users: [ { user: a, account: SHOP } ] } }\n" + SHOP,
        "OTHER SHOP",
    ),
    (REMOTE % ("a", ""), HUB_OF_A, "$G $G"),
    (
        REMOTE % ("a", ""),
        f"leafnodes {{ port: 1, authorization {{ account: SHOP }} }}\n{SHOP}",
        "$G SHOP",
    ),
    (REMOTE % ("u", ""), "leafnodes { port: 1 }, authorization { user: u, password: p }", "$G $G"),
    # Other names of the same fields.
    (
        'leafnodes { remotes: [ { urls: "nats://a@hub:7422", local: OTHER } ] }\n' + SHOP,
        "leaf { port: 1, authorization { username: a, password: p } }",
        "OTHER $G",
    ),
    ('leaf { remotes: [ { url: ["nats://a@hub:7422"] } ] }', HUB_OF_A, "$G $G"),
    ('leafnodes { remotes: [ { url: "nats://a@hub", seed: SUAB } ] }', HUB_OF_A, ""),
    (REMOTE % ("a", ""), "leafnodes { port: 1, authorization { nkey: UABC } }", ""),
    # Nobody listens, nobody connects, and an address or a section that is none.
    (REMOTE % ("edge:p", ""), SHOP, ""),
    (SHOP, f"leafnodes {{ port: 1 }}\n{SHOP}", ""),
    ('leafnodes { remotes: [ { url: "//[" }, 3 ] }', "leafnodes { port: 1 }", ""),
    ("leafnodes: 3", "leafnodes: []", ""),
    ('leafnodes { remotes: [ { url: "hub", credentials: c } ] }', "leafnodes { port: 1 }", ""),
]


@pytest.mark.parametrize(("leaf", "hub", "accounts"), JOINED)
def test_accounts_that_meet(leaf: str, hub: str, accounts: str, tmp_path: Path) -> None:
    held = []
    for name, text in (("leaf", leaf), ("hub", hub)):
        (tmp_path / f"{name}.conf").write_text(f"{text}\nmappings {{ a: b }}")
        held.append(load_all(tmp_path / f"{name}.conf"))
    found = [
        f"{here.accounts[0]} {there.accounts[0]}"
        for here in held[0]
        for there in held[1]
        if here.leaf_nodes.meets(there.leaf_nodes) and there.leaf_nodes.meets(here.leaf_nodes)
    ]
    assert " ".join(found) == accounts
