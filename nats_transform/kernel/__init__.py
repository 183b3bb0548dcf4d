"""The compiled kernel: what `AccountMappings.replay` and its like do, for whole Arrow columns.

A mapping is data: it becomes flat tables (`Program`), and the same C functions look subjects up in
them, so another mapping costs no compilation. The scalar library stays the definition of the truth;
the kernel gives the same, any bytes, draws and all.

- `accounts` and `streams` say what the rules are, in the terms of `rules`;
- `filters`, `pieces` and `texts` lay them out as tables, `program` puts these together;
- `columns` reads Arrow arrays, `library` loads the C, `transform.c` and `digest.c` do the work;
- `digest` is the digest of rows.

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
