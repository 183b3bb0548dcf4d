"""Makes the start of a command quick."""

from __future__ import annotations

import sys


class _Hidden:
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed yet", name=name)


def without_pandas() -> None:
    """Imports pyarrow without pandas, which takes longer to import than all the rest of it.

    pyarrow looks for pandas once, when it makes its first array. What asks pyarrow for a pandas
    object makes it look again, so that works as ever. Source: `_PandasAPIShim` of pyarrow.
    """
    if "pandas" in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        import pyarrow as pa

        pa.scalar(None)
    finally:
        sys.meta_path.remove(hidden)
