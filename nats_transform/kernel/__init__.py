"""The compiled kernel: it does the work of `AccountMappings.replay` and others for Arrow columns.

    >>> program = compile_mappings(mappings)
    >>> batch = program.apply(table["subject"], stream="ORDERS", seq=table["seq"])

A mapping becomes flat tables (`Program`), and the same C functions look up subjects in the tables
of any mapping, so a new mapping needs no compilation. The scalar library defines the results. The
kernel gives the same results for any bytes, with the same draws.

- `accounts` and `streams` make the rules, which `rules` defines;
- `filters`, `pieces` and `texts` lay the rules out as tables, and `program` joins these;
- `columns` reads Arrow arrays, `library` loads the C library, `transform.c` and `digest.c` do the
  work;
- `digest` computes the digest of rows, `counting` counts the values of columns, `coverage` is a set
  of sequences;
- `proof` judges outcomes by another way, in which `program` and `transform.c` have no part.

It needs pyarrow; `import nats_transform` does not.
"""

from nats_transform.kernel.accounts import compile_mappings
from nats_transform.kernel.digest import digest_batch
from nats_transform.kernel.program import Mapped, Program
from nats_transform.kernel.rules import State
from nats_transform.kernel.streams import compile_ingress, compile_republish, compile_take

__all__ = [
    "Mapped",
    "Program",
    "State",
    "compile_ingress",
    "compile_mappings",
    "compile_republish",
    "compile_take",
    "digest_batch",
]
