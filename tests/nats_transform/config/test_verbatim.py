"""Which mappings a private server gets as they are written, and that nothing else gets in."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from nats_transform.config.edit import Unsafe
from nats_transform.config.server_conf import parse_server_text
from nats_transform.config.tree import plain
from nats_transform.config.verbatim import mappings_text
from nats_transform.errors import InvalidConfig
from tests.support.files import written
from tests.support.refused import refused
from tests.support.server_check import checked

TAKEN = [
    '{ "orders.*.*": "shop.$1.{{partition(3,2)}}.$2" }',
    "{ a: b }",
    "{}",
    "{\n  a = b\n  c: d; e f, 'g.*': \"h.$1\"\n}",
    "{ # why\n  // and why not\n  orders.* shop.$1 # the same\n}",
    "{ a: { destination: b, weight: 40% } }",
    "{\n  a: [\n    {dest: b, weight: 40}\n    {dest: 'c', weight: \"60\", cluster: east},\n  ]\n}",
    '{ "caf\u00e9.*": "th\u00e9.$1", "}": "{" }',
]


@pytest.mark.parametrize("block", TAKEN)
@pytest.mark.parametrize("account", ["$G", "SHOP"])
def test_plain_text_is_taken_as_it_is(block: str, account: str) -> None:
    text = f"port: 4222\nmappings {block}\n"
    if account != "$G":
        text = f"accounts {{ SHOP {{ users: [{{user: u, password: p}}]\n mappings {block}\n }} }}"
    assert mappings_text(text, "new.conf", account) == block
    alone = plain(parse_server_text(f"mappings {block}\nlast: 1\n", "x"))
    assert isinstance(alone, dict)
    assert list(alone) == ["mappings", "last"]


REFUSED = [
    pytest.param("mappings { include more.conf\n }", "file-unreadable", id="include"),
    pytest.param("x: shop\nmappings { a: $x }", "line-not-plain", id="variable"),
    pytest.param("mappings $NATS_TRANSFORM_NONE", "variable-not-set", id="variable-block"),
    pytest.param('mappings { "a": "b\\x2e" }', "line-not-plain", id="escape"),
    pytest.param("mappings { a: b{ }", "edit-no-end", id="word-with-a-brace"),
    pytest.param("mappings { a: shop.{{wildcard(1)}} }", "line-not-plain", id="function-alone"),
    pytest.param("mappings {\n a: b # }\n }", "line-not-plain", id="brace-in-a-comment"),
    pytest.param("mappings { a: (\nb\n)\n }", "line-not-plain", id="block"),
    pytest.param("mappings { a: [ [ {dest: b} ] ] }", "block-not-plain", id="deeper"),
    pytest.param("port: 4222", "edit-no-mappings", id="none"),
    pytest.param("mappings { a: 'b'x }", "refused", id="touching"),
]


@pytest.mark.parametrize(("text", "code"), REFUSED)
def test_what_has_more_than_mappings_is_not_taken(text: str, code: str) -> None:
    with refused((Unsafe, InvalidConfig), code):
        mappings_text(text, "new.conf")


PIECES = [
    *"{}[]:=,;\n \"'#/()$\\",
    *("\n}\nyy: 1\nx {", "} yy: 1 x {", "include yy.conf\n", "//}", "1]"),
]


@pytest.mark.server
def test_a_server_reads_nothing_else_of_it(tmp_path: Path) -> None:
    """Blocks with pieces put in anywhere: of those that are taken, a server sees no other key."""
    rng = random.Random(33)
    (tmp_path / "yy.conf").write_text("yy: 1\n")
    taken = set[str]()
    for _ in range(2500):
        block = rng.choice(TAKEN)
        for _ in range(rng.randint(1, 3)):
            at = rng.randint(1, max(1, len(block) - 1))
            block = block[:at] + rng.choice(PIECES) + block[at:]
        try:
            taken.add(mappings_text(f"mappings {block}\n", "new.conf"))
        except (Unsafe, InvalidConfig):
            continue
    assert len(taken) > 100
    # Each in an account of its own: what leaves its block is no mapping, and no account.
    for at in range(0, len(taken), 50):
        blocks = sorted(taken)[at : at + 50]
        accounts = "\n".join(f"A{n} {{\n mappings {block}\n }}" for n, block in enumerate(blocks))
        text = f"accounts {{\n{accounts}\n}}\nlast_of_all: 1\n"
        _, said = checked(written(tmp_path / "server.conf", text))
        # Within quotes the pieces are text, and the server refuses some of the mappings.
        fields = re.findall('(?i)unknown field "(.*?)"(?! for mapping destination)', said)
        assert fields == ["last_of_all"], said
        about = "mapping|valid subject|last_of_all"
        faults = [line for line in said.splitlines() if ".conf:" in line]
        assert all(re.search(about, line) for line in faults), said
