"""The mappings of a nats-server configuration as their author wrote them, for a server to read.

Only text whose structure nobody can read in another way is given out: keys, strings, words and
numbers, in lists and maps as mappings have them. So no brace in it can end the block early, and
nothing of the file but its mappings reaches the server: no include, no variable, no escape, and no
word that touches a brace. Source: nats-server 2.15.1 `conf/lex.go`.
"""

from __future__ import annotations

import re

from nats_transform.config.accounts import GLOBAL_ACCOUNT
from nats_transform.config.edit import Unsafe, block_of

NO_CONFIG = (".json", ".yaml", ".yml", ".jwt")
"""The endings of files that are no configuration of a server."""

_TOKEN = re.compile(
    r"""(?P<S>"[^"\\\x00-\x1f\x7f]*"|'[^'\x00-\x1f\x7f]*'
         |(?!(?i:include)\s)[A-Za-z0-9_*>%+-][A-Za-z0-9_*>%+$.-]*)
       |(?P<n>\r?\n)|(?P<blank>[ \t]+)
       |(?P<comment>(?<=[ \t\n])(?:\#|//)[^\x00-\x08\x0a-\x1f(){}\[\]"'\\\x7f]*(?=\r?\n))
       |(?P<sign>[{}\[\]:=,;])""",
    re.VERBOSE,
)
_END, _ITEM_END = r"(?:[,;]n*|n+)", r"(?:,n*|n+)"


def _map(value: str) -> str:
    """A map in the letters of tokens."""
    pair = f"S[:=]?(?:{value})"
    return rf"\{{n*(?:{pair}(?:{_END}{pair})*{_END}?)?\}}"


_SCALARS = _map("S")
_LIST = rf"\[n*(?:{_SCALARS}(?:{_ITEM_END}{_SCALARS})*{_ITEM_END}?)?\]"
_BLOCK = re.compile(_map(f"S|{_SCALARS}|{_LIST}"))
_TOUCHING = re.compile(r"[S}\]][S{\[]")


def mappings_text(text: str, path: str, account: str = GLOBAL_ACCOUNT) -> str:
    """The block of an account's mappings, from brace to brace and byte for byte.

    Raises:
        Unsafe: there is no such block in the text itself, or a server might read it as more than
            mappings; the error says which line.
        InvalidConfig: the text is no configuration.
    """
    block, line = block_of(text, path, account)
    letters, at = "", 0
    while at < len(block):
        token = _TOKEN.match(block, at)
        if token is None:
            here = line + block.count("\n", 0, at)
            raise Unsafe("line-not-plain", at_line=here)
        kind = token.lastgroup or ""
        letters += {"blank": " ", "comment": "", "sign": token[0]}.get(kind, kind)
        at = token.end()
    if _TOUCHING.search(letters) or not _BLOCK.fullmatch(letters.replace(" ", "")):
        raise Unsafe("block-not-plain", at_line=line)
    return block
