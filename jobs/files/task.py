"""The tasks that read files.

They are not in `division`, because workers import this module: the import of PyIceberg, which that
one needs, would take them longer than many tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or some of its row groups.

    Attributes:
        path: the path of the file, as the table has it.
        first, end: the row groups of the piece: from `first` on, up to but not including `end`.
        groups: the number of row groups of the file, as the table says; 0 if the piece is the
            whole file.
    """

    path: str
    first: int = 0
    end: int = 0
    groups: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """A task that reads rows of one day.

    Attributes:
        number: the number of the task, from 0 on, in the order of days.
        pieces: the pieces to read, in this order.
        size: the size of the Parquet data, in bytes.
    """

    number: int
    day: date
    pieces: tuple[Piece, ...]
    size: int
