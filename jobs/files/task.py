"""What a task is told to read.

Apart from `plan`, because tasks import it, and the libraries of the tables would take a worker
longer than many a task.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or some of its row groups.

    Attributes:
        path: the path of the file, as the table has it.
        first, end: its row groups from `first` up to, and without, `end`.
        groups: how many the file has, as the table says; 0 if it does not say. The piece is the
            whole file then.
    """

    path: str
    first: int = 0
    end: int = 0
    groups: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads, in this order: rows of one day.

    Attributes:
        number: 0-based, in the order of days.
        day: the day of the rows.
        pieces: what to read.
        size: the size of the Parquet data, in bytes.
    """

    number: int
    day: date
    pieces: tuple[Piece, ...]
    size: int
